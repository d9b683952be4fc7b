"""The note of a ledger's reservation: what lets a certificate say that a ledger was charged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from privmix.accounting.events import Event
from privmix.errors import InvalidInput, check_choice
from privmix.mechanisms.plan import Plan


class Books(Protocol):
    """A ledger, as :class:`privmix.ledger.Ledger` is one."""

    def charged(self, reservation: Any) -> Event:
        """What the reservation paid for; raises unless it is in the books and not committed yet."""

    def mode(self, name: str) -> str:
        """How the budget of that dataset counts: planned or adaptive."""


class Reserved(Protocol):
    """Budget that was taken, as :class:`privmix.ledger.Reservation` is."""

    @property
    def id(self) -> str: ...
    @property
    def dataset(self) -> str: ...


@dataclass(frozen=True, init=False)
class ReservationNote:
    """That the cost is in a ledger's books, by the ledger's own word.

    Certificates say so in a sentence that people rely on. The sentence is made from such a note and from nothing else:
    no flag and no text will do, and the note asks the ledger before it exists.

    Formal guarantees:
        * Charged: a note is made only after the ledger has found the reservation in its books, open; what it says of
          the budget is what the ledger said.
        * For one price: it holds for plans of the event that was charged, and for no other.
        * Used once: the first release or model whose certificate states it is the only one, however many notes of the
          reservation there are. One that was interrupted is finished under its own name, which is no second use.
          Whoever uses a ledger without jobs commits the reservation when it is done: the books then give no note any
          more, to other processes neither.
        * Nothing private: it holds the mode of the budget and the event, which the certificate states too, and neither
          names nor figures of the ledger.

    Attributes:
        mode: planned or adaptive: how the budget counts.
        event: what was charged.

    Args:
        ledger: where the budget is.
        reservation: what it gave for the charge.

    Example:
        >>> import tempfile
        >>> from privmix.accounting import Adjacency, Gaussian
        >>> from privmix.ledger import Ledger
        >>> ledger = Ledger.create(f"sqlite:///{tempfile.mkdtemp()}/budget.db")
        >>> _ = ledger.add_dataset("patients", epsilon=4.0, delta=1e-5)
        >>> taken = ledger.reserve("patients", Gaussian(5.0), adjacency=Adjacency.ADD_REMOVE, purpose="release")
        >>> ReservationNote(ledger, taken)
        ReservationNote(mode='planned', event=Gaussian(noise_multiplier=5.0))
    """

    mode: str
    event: Event

    def __init__(self, ledger: Books, reservation: Reserved) -> None:
        if isinstance(ledger, str) or isinstance(reservation, str):
            raise InvalidInput("reservation", "a text", "an open ledger and the reservation that it gave")
        object.__setattr__(self, "event", ledger.charged(reservation))
        mode = check_choice("ledger's mode", ledger.mode(reservation.dataset), ["planned", "adaptive"])
        object.__setattr__(self, "mode", mode)
        object.__setattr__(self, "_id", str(reservation.id))


# Reservation -> name of the release or model whose certificate states it.
_USED: dict[str, str] = {}


def mode_of(reservation: ReservationNote | None, plan: Plan | None, *, name: str | None = None) -> str:
    """What the certificate of ``plan`` states of the ledger: none, planned or adaptive.

    Args:
        reservation: the note, or None where no ledger was charged.
        plan: what was charged for; None where only the mode is asked.
        name: of the release or model that it is for, if it has one yet.
    """
    if reservation is None:
        return "none"
    if type(reservation) is not ReservationNote:
        raise InvalidInput("reservation", type(reservation).__name__, "a ReservationNote, which a ledger makes")
    if plan is not None:
        if reservation.event != plan.charge:
            raise InvalidInput("reservation", "that of another charge", "the one that was made for this plan")
        if _USED.get(vars(reservation)["_id"], name) != name:
            raise _used()
    return reservation.mode


def use(reservation: ReservationNote | None, plan: Plan, name: str) -> str:
    """As :func:`mode_of`, for the certificate itself: from now on the reservation is that of ``name`` alone."""
    mode = mode_of(reservation, plan, name=name)
    if reservation is not None and _USED.setdefault(vars(reservation)["_id"], name) != name:
        raise _used()
    return mode


def _used() -> InvalidInput:
    return InvalidInput("reservation", "that of another result", "one that no other release or model was made with")
