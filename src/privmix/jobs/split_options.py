"""What is asked of parting a public share off a dataset, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privmix.jobs.asked import CLASSES_HELP
from privmix.options import described, option


@described
@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """Which records become public, of which data."""

    share: float | None = option(None, "Share of all records that becomes public, as 0.04.")
    count: int | None = option(None, "In its place: how many, of each class (uniform: in all).")
    how: str = option("per-class", "per-class: equally many of each class; uniform: drawn from all records alike.")
    split: str = option("train", "Which part of the dataset.")
    classes: Any = option(None, CLASSES_HELP)
    text_column: str | None = option(None, "The texts' column.")
    table_columns: str | Sequence[str] | None = option(
        None, "Columns of a table, with commas, which may hold texts; those of its tabular: file."
    )
    seed: int | None = option(None, "Of the draw. Default: unpredictable.")
