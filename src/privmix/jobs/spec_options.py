"""What an owner says of the columns of a table, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privmix.jobs.asked import told

Said = Mapping[str, Any] | Sequence[str] | None
"""Column -> what is said of it, or texts ``"COLUMN=WHAT"``."""


@dataclass(frozen=True, kw_only=True)
class SpecOptions:
    """What columns hold, by public knowledge.

    Attributes:
        number: column -> (low, high), or ``"age=0:120"``.
        bins: column -> numbers between intervals, or ``"age=18,40,65"``.
        category: column -> the list of values, or ``"sex=F,M"``.
        ordinal: column -> values in order, or ``"stage=I,II,III"``.
        date: column -> (first, last), or ``"admitted=2015-01-01:2025-12-31"``.
        boolean: names, or with commas between them.
        ignore: names of columns that are not used, or with commas between them.
        missing: texts that mean a missing value in every column, or with commas between them; a missing value then has
            a feature of its own.
        look: read the records, and propose what is said of no column. The specification then says so: it shows what is
            in the records, and no guarantee covers that.
    """

    number: Said = told(None, "A number between bounds: age=0:120. Once for each column, like the next ones.")
    bins: Said = told(None, "A number by intervals: age=18,40,65.")
    category: Said = told(None, "One of some values: sex=F,M.")
    ordinal: Said = told(None, "One of some values in order: stage=I,II,III.")
    date: Said = told(None, "A day between two days: admitted=2015-01-01:2025-12-31.")
    boolean: Said = told(None, "Yes or no: names of columns, with commas.")
    ignore: Said = told(None, "Not used, as names and identifiers: names of columns, with commas.")
    missing: str | Sequence[str] | None = told(
        None, "Texts that mean a missing value in every column, with commas: NA,-999. It has a feature of its own then."
    )
    look: bool = told(
        False,
        "Read the records, and propose the rest. The file then tells of the records, which no guarantee covers, and "
        "says so.",
    )
