"""What is asked of parting a public share off a dataset, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privmix.jobs.asked import CLASSES_HELP, told


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """Which records become public, of which data.

    Attributes:
        share: of all records, that becomes public; or
        count: how many, of each class, or in all.
        how: ``"per-class"``: equally many of each class; ``"uniform"``: drawn from all records alike.
        split: which part of the dataset.
        classes: number or names of the classes.
        text_column: the texts' column.
        table_columns: columns of a table, which may hold texts: a list, or names with commas between them.
        seed: of the draw; None takes the system's entropy.
    """

    share: float | None = told(None, "Share of all records that becomes public, as 0.04.")
    count: int | None = told(None, "In its place: how many, of each class (uniform: in all).")
    how: str = told("per-class", "per-class: equally many of each class; uniform: drawn from all records alike.")
    split: str = told("train", "Which part of the dataset.")
    classes: Any = told(None, CLASSES_HELP)
    text_column: str | None = told(None, "The texts' column.")
    table_columns: str | Sequence[str] | None = told(
        None, "Columns of a table, with commas, which may hold texts; those of its tabular: file."
    )
    seed: int | None = told(None, "Of the draw. Default: unpredictable.")
