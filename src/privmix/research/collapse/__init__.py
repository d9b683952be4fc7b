"""Collapse: whether classes survive mixing and noise, on public data (Li et al. 2024, Figures 2 and 14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix.plugins import lazily

if TYPE_CHECKING:
    from privmix.research.collapse.job import CollapseResult
    from privmix.research.collapse.labels import LabelCollapse, label_collapse, mixed_labels
    from privmix.research.collapse.measures import CollapseReport, LabelHistogram, measure_collapse
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "CollapseReport",
    "CollapseResult",
    "LabelCollapse",
    "LabelHistogram",
    "label_collapse",
    "measure_collapse",
    "mixed_labels",
]
