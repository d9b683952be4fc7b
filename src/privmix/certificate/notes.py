"""Notes in a certificate: the ledger's reservation that paid for the release, and the series that it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from privmix.accounting.events import Event
from privmix.errors import InvalidInput, check_choice
from privmix.fields import Checked, Digest, Text, read
from privmix.mechanisms.plan import Plan


@dataclass(frozen=True, init=False)
class ReservationNote:
    """Proof that a cost is in a ledger, by the ledger's own record; a certificate's sentence is made from it alone.

    Formal guarantees:
        * Charged: a note is made only after the ledger has found the reservation in its books, open; what it states of
          the budget is what the ledger stated.
        * For one price: it holds for plans of the event that was charged, and for no other.
        * Used once: the first release or model whose certificate states it is the only one, for any number of notes of
          the reservation. One that was interrupted is finished under its own name, which is no second use. A user of a
          ledger without jobs commits the reservation when it is done: the books then give no note any more, to other
          processes neither.
        * Nothing private: it holds the mode of the budget and the event, which the certificate states too, and neither
          names nor figures of the ledger.
    """

    mode: str
    event: Event

    def __init__(self, ledger: Any, reservation: Any) -> None:
        """Take a :class:`privmix.ledger.ledger.Ledger` and the reservation that it gave."""
        if isinstance(ledger, str) or isinstance(reservation, str):
            raise InvalidInput("reservation", "a text", "an open ledger and the reservation that it gave")
        object.__setattr__(self, "event", ledger.charged(reservation))
        mode = check_choice("ledger's mode", ledger.mode(reservation.dataset), ["planned", "adaptive"])
        object.__setattr__(self, "mode", mode)
        object.__setattr__(self, "_id", str(reservation.id))


# Reservation -> name of the release or model whose certificate states it.
_USED: dict[str, str] = {}


def mode_of(reservation: ReservationNote | None, plan: Plan | None, *, name: str | None = None) -> str:
    """Return the ledger mode for the certificate of ``plan``: none, planned or adaptive."""
    # plan (None where only the mode is needed); name: of the release or model, if it has one yet.
    if reservation is None:
        return "none"
    # A subclass could state a charge that no ledger made.
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
    # In one step: of two threads, one alone gets the reservation.
    if reservation is not None and _USED.setdefault(vars(reservation)["_id"], name) != name:
        raise _used()
    return mode


def _used() -> InvalidInput:
    return InvalidInput("reservation", "that of another result", "one that no other release or model was made with")


@dataclass(frozen=True)
class SeriesLink(Checked):
    """A release's place in its series; ``previous``: SHA-256 of the previous step's certificate, None of the first."""

    id: Annotated[str, Text("[0-9a-f]{32}", "32 hexadecimal digits")]
    previous: Digest | None


def link_of(certificate: Mapping[str, Any]) -> SeriesLink | None:
    """Return the certificate's statement of a series; None where the release stands alone."""
    stated = certificate.get("series")
    return None if stated is None else read(SeriesLink, stated, "certificate series")


def key_kept(step: int, steps: int) -> str:
    """Sentence that states who keeps the key of a series, and until when."""
    if step < steps:
        return f"its owner keeps it until release {steps} of {steps} is made, or the series is ended"
    return f"its owner kept it until this release, the last of {steps}, was made"


UNCHECKED: Final = (
    "No ledger was charged, so nobody checked whether the noise of this release also served other records: from an "
    "older copy of the series' key, as a backup holds, it could."
)


def key_warning(step: int, steps: int) -> str:
    """Warning to recipients: the key of a series outlives its releases."""
    known = (
        "Whoever has it can take the noise off all releases of the series: until it is destroyed, the guarantee of "
        "every one of them rests on that key, too."
    )
    if step < steps:
        return (
            f"The key of this noise is not destroyed yet: it is kept for the releases to come ({step} of {steps} are "
            f"made). {known}"
        )
    return f"The key of this noise was kept until this release, the last of {steps}, was made. {known}"
