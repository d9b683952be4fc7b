"""What is asked of fitting a classifier to a release, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix._registry import told as told_by
from privmix.jobs.columns import Columns
from privmix.options import described, option

if TYPE_CHECKING:
    from privmix.features import Extractor
    from privmix.learning.base import ReleaseLearner

AUTO: Final = "auto"
_LEARNERS: Final = ", ".join(
    one["name"] for one in told_by("privmix.learning,privmix.designs", by="LEARNERS.register", group="privmix.learners")
)


@described
@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How to learn from a release, and where the model goes."""

    out: Path | None = option(None, "Folder to create.")
    learner: str | ReleaseLearner = option(
        AUTO,
        "auto: discriminant for moments, Poisson and class-wise rows, two-stage for releases in two stages, "
        "what a design from elsewhere names, else noise-aware-ridge; or by name: "
        f"{_LEARNERS} (generalized-kl: the papers').",
    )
    model: str = option("linear", "generalized-kl: linear, or cnn on pixel releases.")
    epochs: int = option(200, "generalized-kl: passes over the rows.")
    features: str | Extractor | None = option(
        None,
        "generalized-kl, on a release of pixels: put the released images through this public extractor (scattering, "
        "say), and learn from what it makes of them.",
    )
    augment: str | None = option(
        None, "generalized-kl, on a release of pixels: flip, crop or flip,crop of the released images."
    )
    validation: Any = option(
        None,
        "generalized-kl: labelled data on which accuracy is told at the last epoch and the best. They change nothing "
        "in the model. For their owner alone: choosing an epoch by private data is not covered by the guarantee.",
    )
    validation_split: str | None = option(None, "Which part of `validation`. Default: test.")
    columns: Columns = field(default_factory=Columns)
    regularisation: float | str = option(
        AUTO, "noise-aware-ridge, second-moments: auto, or a share of the largest eigenvalue."
    )
    seed: int = option(0, "generalized-kl: initial weights, order of rows, augmentations.")
    class_descriptions: str | Mapping[str, Any] | None = option(
        None,
        "discriminant, on texts: a public prior for class means. names: the classes' own names; or a JSON or CSV "
        "file with descriptions (in Python a mapping, too: from each class to one text or several).",
    )
    features_model: Path | None = option(
        None, "With `class_descriptions` or `validation`: your copy of the extractor's model."
    )
    trust_features_model: bool = option(False, "`features_model` may be a program, and may run.")
    overwrite: bool = option(False, "Replace an existing `out`.")
