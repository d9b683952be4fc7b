"""Options and sentences that verbs of ``privmix ledger`` share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

Url = Annotated[str, typer.Option("--ledger", help="sqlite:///FILE, or postgresql://USER@HOST/DATABASE for a team.")]
Dataset = Annotated[str, typer.Option(help="The dataset's name.")]

PLANNED: Final = (
    "planned: the total holds for plans fixed in advance, or chosen without seeing earlier results (--adaptive lifts "
    "that)"
)
ADAPTIVE: Final = "adaptive: the total holds also for plans chosen after seeing earlier results."
