"""What is asked of fitting a classifier to a release, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.jobs.asked import told

if TYPE_CHECKING:
    from privmix.learning.base import ReleaseLearner

AUTO: Final = "auto"


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How to learn from a release, and where the model goes.

    Attributes:
        out: the folder that is made; None makes none.
        learner: ``"auto"``: discriminant for moments, Poisson and class-wise rows, two-stage for releases in two
            stages, class-embeddings for designs merf and hermite, else noise-aware-ridge; or one of these four,
            ``"second-moments"`` for releases that have them, ``"generalized-kl"`` (the papers'); or an estimator of
            your own settings.
        model: generalized-kl: ``"linear"``, or ``"cnn"`` on pixel releases.
        epochs: generalized-kl: passes over the rows.
        regularisation: noise-aware-ridge, second-moments: ``"auto"``, or a share of the largest eigenvalue.
        seed: generalized-kl: initial weights and order of rows.
        class_descriptions: discriminant on a release of texts: what is expected of class means before the release is
            looked at. ``"names"``: the classes' names; or a mapping from every class to one text or several, or a JSON
            or CSV file of that.
        features_model: the user's own copy of the extractor's model, where it has one that no package brings; what
            embeds descriptions.
        trust_features_model: that file may be a program, and may run.
        overwrite: replace a model at ``out``.
    """

    out: Path | None = told(None, "Folder to create.")
    learner: str | ReleaseLearner = told(
        AUTO,
        "auto: discriminant for moments, Poisson and class-wise rows, two-stage for releases in two stages, "
        "class-embeddings for merf and hermite, else noise-aware-ridge; or one of these, second-moments, or "
        "generalized-kl (the papers').",
    )
    model: str = told("linear", "generalized-kl: linear, or cnn on pixel releases.")
    epochs: int = told(200, "generalized-kl: passes over the rows.")
    regularisation: float | str = told(
        AUTO, "noise-aware-ridge, second-moments: auto, or a share of the largest eigenvalue."
    )
    seed: int = told(0, "generalized-kl: initial weights and order of rows.")
    class_descriptions: str | Mapping[str, Any] | None = told(
        None,
        "discriminant, on texts: a public prior for class means. names: the classes' own names; or a JSON or CSV "
        "file with descriptions.",
    )
    features_model: Path | None = told(None, "With `class_descriptions`: your copy of the extractor's model.")
    trust_features_model: bool = told(False, "`features_model` may be a program, and may run.")
    overwrite: bool = told(False, "Replace an existing `out`.")
