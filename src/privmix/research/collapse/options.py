"""What is asked of a measurement of collapse, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from privmix.jobs.options import Inputs
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
    """Which plans are judged; a release says all that :data:`OF_RELEASES` names."""

    features: str | None = option(None, "Public extractor, as in privmix release.")
    split: str = option("train", "Which part of `proxy`.")
    epsilon: float | None = option(None, "Budget that the label noise is for.")
    delta: float | None = option(None, "Delta of the budget. Default: 1e-5.")
    records: int | None = option(None, "Record count n of the plan. Default: that of `proxy`.")
    rows: int | None = option(None, "Rows T that the plan releases. Default: n.")
    mixup_degree: int | None = option(None, "Expected records in a row, m. Default: 64.", EXPERT)
    expected_classes: float | None = option(
        None, "Hierarchical: expected number of classes in a row. Default: 3, or K.", EXPERT
    )
    clip_norm: float | None = option(None, "Bound on a record's feature norm. Default: 1.", EXPERT)


@described
@dataclass(frozen=True, kw_only=True)
class CollapseOptions(Inputs, CollapseSettings):
    """All options of a measurement of collapse."""

    seed: int = option(0, "Decides the mixtures and the noise drawn.", EXPERT)
    figure: str | Path | None = option(None, "Histograms of mixed labels, clean and noisy (.png, .svg).")
