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
        date: column -> (first, last), or ``"admitted=2015-01-01:2025-12-31"``; how it is written may follow, as
            ``%d.%m.%Y``.
        boolean: column -> (true, false), or ``"smoker=ja:nein"``; names alone, or with commas between them, where these
            are yes and no, true and false, or 1 and 0.
        ignore: names of columns that are not used, or with commas between them.
        missing: column -> texts that mean a missing value in it, or ``"weight=NA,-999"``; or texts that mean it in
            every column, as ``"NA,-999"``. A missing value then has a feature of its own.
        look: read the records, and propose what is said of no column. The specification then says so: it shows what is
            in the records, and no guarantee covers that.
    """

    number: Said = told(None, "A number between bounds: age=0:120. Once for each column, like the next ones.")
    bins: Said = told(None, "A number by intervals: age=18,40,65.")
    category: Said = told(None, "One of some values: sex=F,M.")
    ordinal: Said = told(None, "One of some values in order: stage=I,II,III.")
    date: Said = told(
        None,
        "A day between two days: admitted=2015-01-01:2025-12-31; how it is written may follow, as "
        "birth=1900-01-01:2025-12-31:%d.%m.%Y.",
    )
    boolean: Said = told(None, "True or false: names of columns, with commas; or their texts for both: smoker=ja:nein.")
    ignore: Said = told(None, "Not used, as names and identifiers: names of columns, with commas.")
    missing: Said = told(
        None,
        "Texts that mean a missing value, as empty cells do: weight=NA,-999; without a column, in all. It has a "
        "feature of its own then. Without texts, weight=, empty cells alone.",
    )
    look: bool = told(
        False,
        "Read the records, and propose the rest. The file then tells of the records, which no guarantee covers, and "
        "says so.",
    )
