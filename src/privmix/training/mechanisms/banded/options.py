"""Options of banded noise; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass

from privmix.fields import Count, check_fields
from privmix.options import described, option


@described
@dataclass(frozen=True)
class BandedOptions:
    """How far noise is correlated."""

    bands: Count | None = option(None, "Number of steps with correlated noise.")

    def __post_init__(self) -> None:
        check_fields(self)
