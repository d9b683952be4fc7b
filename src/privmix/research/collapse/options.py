"""Options of a measurement of collapse; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix.jobs.columns import Columns
from privmix.jobs.options import CLASSES_HELP, ModelFiles
from privmix.options import EXPERT, described, option

OF_RELEASES: Final = (
    "features",
    "epsilon",
    "delta",
    "records",
    "rows",
    "mixup_degree",
    "expected_classes",
    "clip_norm",
)
"""What a release says itself: none of it can be given beside one."""


@described
@dataclass(frozen=True, kw_only=True)
class CollapseSettings:
    """Which plans are judged; a release states all that :data:`OF_RELEASES` names."""

    features: str | None = option(None, "Public extractor, as in privmix release.")
    split: str = option("train", "Split of `data`.")
    epsilon: float | None = option(None, "Epsilon that sets the label noise.")
    delta: float | None = option(None, "Delta of the budget. Default: 1e-5.")
    records: int | None = option(None, "Record count of the plan, n. Default: that of `data`.")
    rows: int | None = option(None, "Number of rows in the plan, T. Default: n.")
    mixup_degree: int | None = option(None, "Expected number of records in a row, m. Default: 64.", EXPERT)
    expected_classes: float | None = option(
        None, "Expected number of classes in a row (hierarchical). Default: 3, or K.", EXPERT
    )
    clip_norm: float | None = option(None, "Clipping bound on feature norms. Default: 1.", EXPERT)


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CollapseOptions(Columns, ModelFiles, CollapseSettings):
    """All options of a measurement of collapse."""

    classes: Any = option(None, CLASSES_HELP)
    seed: int = option(0, "Seed of the mixtures and the noise.", EXPERT)
    figure: str | Path | None = option(None, "Figure to write: histograms of mixed labels (.png, .svg).")
