"""Options and sentences that commands of a ledger share."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Any, Final

from privmix.options import option

PLANNED: Final = (
    "planned: the total holds for plans fixed in advance, or chosen without seeing earlier results (`adaptive` lifts "
    "that)"
)
ADAPTIVE: Final = "adaptive: the total holds also for plans chosen after seeing earlier results."
DATASET_HELP: Final = "Name of the dataset in the ledger."


@dataclass(frozen=True, kw_only=True)
class AtLedger:
    """Which ledger. Its address may hold a password."""

    ledger: Any = option(MISSING, "Ledger address: sqlite:///FILE or postgresql://USER@HOST/DATABASE.")

    def opened(self) -> Any:
        from privmix.ledger import Ledger

        return self.ledger if isinstance(self.ledger, Ledger) else Ledger.open(self.ledger)


def said_of(adjacency: str, unit: str) -> str:
    """Return the difference between neighbours, in words."""
    from privmix.mechanisms.plan import relation_of, unit_named

    return relation_of(adjacency, unit_named(unit))
