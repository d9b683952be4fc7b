"""A reservation's note, from a real ledger."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from privmix.accounting import Gaussian
from privmix.certificate.reservation import ReservationNote
from privmix.ledger import Ledger


@cache
def a_reservation() -> ReservationNote:
    """That some planned budget was charged."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(f"sqlite:///{Path(folder) / 'budget.db'}")
        ledger.add_dataset("patients", epsilon=4.0, delta=1e-5)
        return ReservationNote(ledger, ledger.reserve("patients", Gaussian(5.0), purpose="release"))
