"""The budget of each private dataset: reserve before reading, commit when done, refuse what would exceed it.

Example:
    >>> from privmix.accounting import Gaussian
    >>> from privmix.ledger import Ledger
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(f"sqlite:///{folder.name}/ledger.db")
    >>> ledger.add_dataset("patients", epsilon=4.0, delta=1e-5)
    >>> reservation = ledger.reserve("patients", Gaussian(2.0), purpose="release")  # before the first row is read
    >>> ledger.commit(reservation, result="release 5f0c")
    >>> round(ledger.budget("patients").spent, 2)
    1.99
    >>> folder.cleanup()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.ledger.contents import Contents
    from privmix.ledger.ledger import Budget, Ledger, Reservation
    from privmix.ledger.pricing import BudgetExceeded
    from privmix.ledger.verify import verify_ledger
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["Budget", "BudgetExceeded", "Contents", "Ledger", "Reservation", "verify_ledger"]
