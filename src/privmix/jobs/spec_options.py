"""What an owner says of the columns of a table, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privmix.options import described, option

Said = Mapping[str, Any] | Sequence[str] | None
"""Column -> what is said of it, or texts ``"COLUMN=WHAT"``."""


@described
@dataclass(frozen=True, kw_only=True)
class SpecOptions:
    """What columns hold, by public knowledge."""

    number: Said = option(None, "A number between bounds: age=0:120. Once for each column, like the next ones.")
    bins: Said = option(None, "A number by intervals: age=18,40,65.")
    category: Said = option(None, "One of some values: sex=F,M.")
    ordinal: Said = option(None, "One of some values in order: stage=I,II,III.")
    date: Said = option(
        None,
        "A day between two days: admitted=2015-01-01:2025-12-31; how it is written may follow, as "
        "birth=1900-01-01:2025-12-31:%d.%m.%Y.",
    )
    boolean: Said = option(
        None, "True or false: names of columns, with commas; or their texts for both: smoker=ja:nein."
    )
    ignore: Said = option(None, "Not used, as names and identifiers: names of columns, with commas.")
    missing: Said = option(
        None,
        "Texts that mean a missing value, as empty cells do: weight=NA,-999; without a column, in all. It has a "
        "feature of its own then. Without texts, weight=, empty cells alone.",
    )
    look: bool = option(
        False,
        "Read the records, and propose the rest. The file then tells of the records, which no guarantee covers, and "
        "says so.",
    )
