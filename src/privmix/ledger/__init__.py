"""The budget of each private dataset: reserve before reading, commit when done, refuse what would exceed it."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.ledger.contents import DataIdentity
    from privmix.ledger.ledger import Budget, Ledger, Reservation
    from privmix.ledger.pricing import BudgetExceeded
    from privmix.ledger.verify import verify_ledger
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["Budget", "BudgetExceeded", "DataIdentity", "Ledger", "Reservation", "verify_ledger"]
