"""A reservation's note, from a real ledger."""

import tempfile
from pathlib import Path

from privmix.certificate.notes import ReservationNote
from privmix.ledger.ledger import Ledger
from privmix.mechanisms.plan import Plan


def a_reservation(plan: Plan) -> ReservationNote:
    """That a planned budget, large enough for anything, was charged for the plan."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(f"sqlite:///{Path(folder) / 'budget.db'}")
        ledger.add_dataset("patients", epsilon=1e4, delta=0.5, adjacency=plan.adjacency)
        taken = ledger.reserve("patients", plan.charge, adjacency=plan.adjacency, purpose="release")
        return ReservationNote(ledger, taken)
