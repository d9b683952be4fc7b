"""Options and sentences that verbs of ``privmix ledger`` share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from privmix.mechanisms.plan import relation_of, unit_named

Url = Annotated[str, typer.Option("--ledger", help="sqlite:///FILE, or postgresql://USER@HOST/DATABASE for a team.")]
Dataset = Annotated[str, typer.Option(help="The dataset's name.")]

PLANNED: Final = (
    "planned: the total holds for plans fixed in advance, or chosen without seeing earlier results (--adaptive lifts "
    "that)"
)
ADAPTIVE: Final = "adaptive: the total holds also for plans chosen after seeing earlier results."
KNOWN_BY: Final = (
    "data are known by the bytes of their files: the same records in memory, in another format or compressed anew are "
    "other data here, and nothing stops them from being charged to a second budget"
)


def said_of(adjacency: str, unit: str) -> str:
    """What neighbours differ by; of persons it is said that it is one."""
    return relation_of(adjacency, unit_named(unit))
