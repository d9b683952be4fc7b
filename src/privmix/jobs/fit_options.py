"""What is asked of fitting a classifier to a release, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from privmix.jobs.asked import told

if TYPE_CHECKING:
    from privmix.learning.base import ReleaseLearner

AUTO: Final = "auto"


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How to learn from a release, and where the model goes.

    Attributes:
        out: the folder that is made; None makes none.
        learner: ``"auto"``: discriminant for moments and Poisson rows, else noise-aware-ridge; or one of these two,
            ``"second-moments"`` for releases that have them, ``"generalized-kl"`` (the papers'); or an estimator of
            your own settings.
        model: generalized-kl: ``"linear"``, or ``"cnn"`` on pixel releases.
        epochs: generalized-kl: passes over the rows.
        regularisation: noise-aware-ridge, second-moments: ``"auto"``, or a share of the largest eigenvalue.
        seed: generalized-kl: initial weights and order of rows.
        overwrite: replace a model at ``out``.
    """

    out: Path | None = told(None, "Folder to create.")
    learner: str | ReleaseLearner = told(
        AUTO,
        "auto: discriminant for moments and Poisson rows, else noise-aware-ridge; or one of these two, "
        "second-moments, or generalized-kl (the papers').",
    )
    model: str = told("linear", "generalized-kl: linear, or cnn on pixel releases.")
    epochs: int = told(200, "generalized-kl: passes over the rows.")
    regularisation: float | str = told(
        AUTO, "noise-aware-ridge, second-moments: auto, or a share of the largest eigenvalue."
    )
    seed: int = told(0, "generalized-kl: initial weights and order of rows.")
    overwrite: bool = told(False, "Replace an existing `out`.")
