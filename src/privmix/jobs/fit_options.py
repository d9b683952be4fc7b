"""What is asked of fitting a classifier to a release, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix._registry import told as told_by
from privmix.jobs.asked import told
from privmix.jobs.columns import Columns

if TYPE_CHECKING:
    from privmix.features import Extractor
    from privmix.learning.base import ReleaseLearner

AUTO: Final = "auto"


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How to learn from a release, and where the model goes.

    Attributes:
        out: the folder that is made; None makes none.
        learner: ``"auto"``: discriminant for moments, Poisson and class-wise rows, two-stage for releases in two
            stages, class-embeddings for designs merf and hermite, else noise-aware-ridge; or one of these four,
            ``"second-moments"`` for releases that have them, ``"generalized-kl"`` (the papers'), one that another
            package brings; or an estimator of your own settings.
        model: generalized-kl: ``"linear"``, or ``"cnn"`` on pixel releases.
        epochs: generalized-kl: passes over the rows.
        features: generalized-kl, which ``"auto"`` then is, on a release of pixels: the released images go through this
            public extractor, and what it makes of them is learned from.
        augment: generalized-kl, which ``"auto"`` then is, on a release of pixels: ``"flip"``, ``"crop"`` or
            ``"flip,crop"`` of the released images, drawn anew in every epoch.
        validation: generalized-kl, which ``"auto"`` then is: labelled data to look at after every epoch. They change
            nothing in the model; where they are private, choosing an epoch by them is not covered by any guarantee.
        validation_split: which part of them; None: ``test``, or all of what is in memory.
        columns: what is declared of ``validation``'s columns and images.
        regularisation: noise-aware-ridge, second-moments: ``"auto"``, or a share of the largest eigenvalue.
        seed: generalized-kl: initial weights, order of rows, augmentations.
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
        "class-embeddings for merf and hermite, else noise-aware-ridge; or by name: "
        f"{', '.join(said['name'] for said in told_by('privmix.learning'))} (generalized-kl: the papers').",
    )
    model: str = told("linear", "generalized-kl: linear, or cnn on pixel releases.")
    epochs: int = told(200, "generalized-kl: passes over the rows.")
    features: str | Extractor | None = told(
        None,
        "generalized-kl, on a release of pixels: put the released images through this public extractor (scattering, "
        "say), and learn from what it makes of them.",
    )
    augment: str | None = told(
        None, "generalized-kl, on a release of pixels: flip, crop or flip,crop of the released images."
    )
    validation: Any = told(
        None,
        "generalized-kl: labelled data on which accuracy is told at the last epoch and the best. They change nothing "
        "in the model. For their owner alone: choosing an epoch by private data is not covered by the guarantee.",
    )
    validation_split: str | None = told(None, "Which part of `validation`. Default: test.")
    columns: Columns = field(default_factory=Columns)
    regularisation: float | str = told(
        AUTO, "noise-aware-ridge, second-moments: auto, or a share of the largest eigenvalue."
    )
    seed: int = told(0, "generalized-kl: initial weights, order of rows, augmentations.")
    class_descriptions: str | Mapping[str, Any] | None = told(
        None,
        "discriminant, on texts: a public prior for class means. names: the classes' own names; or a JSON or CSV "
        "file with descriptions.",
    )
    features_model: Path | None = told(
        None, "With `class_descriptions` or `validation`: your copy of the extractor's model."
    )
    trust_features_model: bool = told(False, "`features_model` may be a program, and may run.")
    overwrite: bool = told(False, "Replace an existing `out`.")
