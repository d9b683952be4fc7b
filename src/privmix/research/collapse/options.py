"""What is asked of a measurement of collapse, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from privmix.jobs.asked import told
from privmix.jobs.inputs import Inputs

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


@dataclass(frozen=True, kw_only=True)
class CollapseSettings:
    """Which plans are judged; a release says all that :data:`OF_RELEASES` names.

    Attributes:
        features: public extractor.
        split: which part of the proxy.
        epsilon: budget that the label noise is for.
        delta: of the budget; 1e-5 where None.
        records: record count n of the plan; that of the proxy where None.
        rows: rows T that the plan releases; n where None.
        mixup_degree: expected records in a row; 64 where None.
        expected_classes: expected classes in a row of the hierarchical design; 3 where None.
        clip_norm: bound on a record's feature norm; 1 where None.
    """

    features: str | None = told(None, "Public extractor, as in privmix release.")
    split: str = told("train", "Which part of `proxy`.")
    epsilon: float | None = told(None, "Budget that the label noise is for.")
    delta: float | None = told(None, "Of the budget. Default: 1e-5.")
    records: int | None = told(None, "Record count n of the plan. Default: that of `proxy`.")
    rows: int | None = told(None, "Rows T that the plan releases. Default: n.")
    mixup_degree: int | None = told(None, "Expected records in a row, m. Default: 64.")
    expected_classes: float | None = told(None, "Hierarchical: expected number of classes in a row. Default: 3, or K.")
    clip_norm: float | None = told(None, "Bound on a record's feature norm. Default: 1.")


@dataclass(frozen=True, kw_only=True)
class CollapseOptions(Inputs, CollapseSettings):
    """All options of a measurement of collapse.

    Attributes:
        seed: decides the mixtures and the noise drawn.
        figure: where to draw histograms of mixed labels, clean and noisy (.png, .svg, .pdf); not in a release or model.
    """

    seed: int = told(0, "Decides the mixtures and the noise drawn.")
    figure: str | Path | None = told(None, "Histograms of mixed labels, clean and noisy (.png, .svg).")
