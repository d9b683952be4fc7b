"""What a ledger says of one dataset's budget, as a statement that can be signed and handed on.

A ledger is a database of its owner's. Whoever asks what a dataset has cost in all gets this: budget, spent, left, and
how many charges there are, as of a moment. It is an in-toto Statement (version 1), by itself or in a DSSE envelope, and
one file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

from privmix import __version__
from privmix.accounting.events import Adjacency
from privmix.certificate.dsse import Envelope
from privmix.certificate.keys import PrivateKey, PublicKey
from privmix.certificate.signing import STATEMENT_TYPE
from privmix.errors import InvalidInput, StorageError
from privmix.fields import (
    Amount,
    By,
    Choice,
    Digest,
    Fraction,
    Line,
    Number,
    Positive,
    Text,
    Whole,
    check_fields,
    read,
    stored,
    used,
)
from privmix.held_folders import write_durably
from privmix.private_files import file_mode
from privmix.rounding import exact, rounded_down, rounded_up
from privmix.untrusted import parse_json, read_plain

TOTAL_TYPE: Final = "urn:privmix:ledger-total:v1"
MODES: Final = ("planned", "adaptive")
FILTERS: Final = ("gdp", "rdp", "pure")
UNITS: Final = ("record", "person")
LONGEST: Final = 200
MOST_PURPOSES: Final = 50
MOST_RESULTS: Final = 1000
# A statement of so many purposes and results, in base64, is smaller.
_MOST_BYTES: Final = 2**20
_MOST_CHARGES: Final = 10**9
_DIGITS: Final = 6
_LINE: Final = Line(LONGEST, trimmed=False)
_Line = Annotated[str, _LINE]
_Charges = Annotated[int, Whole(0, _MOST_CHARGES)]
_NAME: Final = "ledger statement"
_WRITTEN: Final = "a statement as privmix ledger statement writes it"


@dataclass(frozen=True)
class Outcomes:
    """What became of the charges. That a run ended without a result can tell of its records: not for the public.

    Attributes:
        committed: charges whose release or model was made.
        open: charges without a result: still running, interrupted or failed. They count as spent.
        results: what the newest committed charges made, such as ``"release 5f0c..."``, newest last.
    """

    committed: _Charges
    open: _Charges
    results: tuple[_Line, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.results) != min(self.committed, MOST_RESULTS):
            raise InvalidInput(f"{_NAME} results", len(self.results), "one a committed charge, the newest 1,000")


@dataclass(frozen=True)
class LedgerTotal:
    """The budget of one dataset, and what is gone of it, at one moment.

    Formal guarantees:
        * Safe side: ``spent`` is rounded up and ``left`` down, to six digits.
        * Only what the ledger's rows say of plans and amounts: no fingerprint of data, no name of a reservation and no
          hash of these. ``digest`` is of budget, plans, prices and times of charges, all of which stand before a
          record is read.
        * One form: what is read back is what :meth:`to_payload` writes, byte for byte.

    Attributes:
        dataset: its name, the owner's word.
        epsilon, delta: the total budget.
        adjacency: which pairs of datasets all of it is about.
        mode: ``"planned"``: the total holds for plans fixed in advance, or chosen without seeing earlier results;
            ``"adaptive"``: for plans chosen after seeing them, too.
        spent: epsilon of all charges together, at most.
        left: of the budget, at least.
        charges: how many, by what they were for.
        date: when the ledger was read (UTC, to the second).
        digest: SHA-256 that tells whether a ledger's history still goes on from here.
        filter: an adaptive budget's filter.
        share: how much of the filter is spent, in [0, 1], at most.
        outcomes: what became of the charges; None where that is not said.
        unit: what the datasets of a pair differ by: one record, or one person with all of their records.
        tool: the program that made it.
        most_per_person: the total covers persons with at most so many records: a charge for records was made by the
            owner's word that nobody has more. None: persons with any number.
    """

    dataset: _Line
    epsilon: Positive
    delta: Fraction
    adjacency: Annotated[str, Choice(*(one.value for one in Adjacency))]
    mode: Annotated[str, Choice(*MODES)]
    spent: Amount
    left: Amount
    charges: Mapping[str, Annotated[int, Whole(1, _MOST_CHARGES)]]
    date: Annotated[str, By(lambda _, date: _check_moment(date), "", "2026-01-31", 1)]
    digest: Digest
    filter: Annotated[str, Choice(*FILTERS)] | None = None
    share: Annotated[float, Number(0, 1 + 1e-5)] | None = None
    outcomes: Outcomes | None = None
    unit: Annotated[str, Choice(*UNITS)] = UNITS[0]
    tool: Annotated[str, Text(r"privmix [\w.+-]{1,40}", "privmix and its version")] = f"privmix {__version__}"
    most_per_person: Annotated[int, Whole(1, _MOST_CHARGES)] | None = used(None)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.most_per_person is not None and self.unit != UNITS[1]:
            raise InvalidInput(f"{_NAME} most_per_person", self.most_per_person, "none where records are the units")
        # A little may have been spent above the budget by rounding up; never less than what is not left.
        over = self.left > 0 and self.spent + self.left > self.epsilon * (1 + 1e-9)
        if over or self.left > self.epsilon:
            raise InvalidInput(f"{_NAME} left", self.left, f"at most {exact(self.epsilon)} less what is spent")
        if len(self.charges) > MOST_PURPOSES:
            raise InvalidInput(f"{_NAME} charges", "other values", f"numbers of at most {MOST_PURPOSES} purposes")
        for purpose in self.charges:
            _LINE.check(f"{_NAME} purpose", purpose)
        if (self.mode == "adaptive") != (self.filter is not None) or (self.filter is None) != (self.share is None):
            raise InvalidInput(f"{_NAME} filter", self.filter, "a filter and its share of adaptive budgets alone")
        if self.outcomes is not None and self.outcomes.committed + self.outcomes.open != self.number:
            raise InvalidInput(f"{_NAME} outcomes", self.outcomes.committed, "one outcome a charge")

    @classmethod
    def rounded(cls, *, epsilon: float, spent: float, share: float | None, **rest: Any) -> LedgerTotal:
        """The same from figures that are not rounded yet."""
        if not math.isfinite(spent):
            raise InvalidInput(f"{_NAME} spent", spent, "a finite epsilon")
        return cls(
            epsilon=epsilon,
            spent=float(rounded_up(spent, _DIGITS)),
            left=float(rounded_down(max(0.0, epsilon - float(rounded_up(spent, _DIGITS))), _DIGITS)),
            share=None if share is None else float(rounded_up(share, _DIGITS)),
            **rest,
        )

    @property
    def number(self) -> int:
        """How many charges there are."""
        return sum(self.charges.values())

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        own = stored(self)
        unit, outcomes = own.pop("unit"), own.pop("outcomes")
        return {**own, "unit": unit, "outcomes": outcomes}

    def to_payload(self) -> bytes:
        """The statement that is signed."""
        content = self.to_dict()
        digest = content.pop("digest")
        statement = {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": self.dataset, "digest": {"sha256": digest}}],
            "predicateType": TOTAL_TYPE,
            "predicate": content,
        }
        return json.dumps(statement, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_payload(cls, payload: bytes, name: str = _NAME) -> LedgerTotal:
        """Read a stranger's statement, strictly: its fields, their types and ranges, in the one form there is.

        Raises:
            InvalidInput: it is anything else.
        """
        match parse_json(payload, name):
            case {"predicateType": str(kind), "predicate": dict(content), "subject": [{"digest": {"sha256": digest}}]}:
                if kind != TOTAL_TYPE:
                    raise InvalidInput(f"{name} predicateType", kind, TOTAL_TYPE)
            case _:
                raise InvalidInput(name, "other fields", _WRITTEN)
        if "unit" not in content or "digest" in content:
            raise InvalidInput(name, "other fields", _WRITTEN)
        found = read(cls, {**content, "digest": digest}, name)
        # One form: numbers of another spelling, fields that nobody read, or spaces would be room for anything else.
        if found.to_payload() != payload:
            raise InvalidInput(name, "another form", _WRITTEN)
        return found


@dataclass(frozen=True)
class StatedTotal:
    """A statement that was read, and who vouches for it.

    Attributes:
        total: what it says.
        key_id: of the key that the signature names; None where it is not signed.
        checked: whether the signature was checked with a key.
    """

    total: LedgerTotal
    key_id: str | None = None
    checked: bool = False

    @property
    def signature(self) -> dict[str, Any] | None:
        """Key and whether it was checked, as ``privmix verify`` gives them."""
        return None if self.key_id is None else {"key_id": self.key_id, "checked": self.checked}


def write_total(
    total: LedgerTotal, path: str | Path, key: PrivateKey | None = None, *, overwrite: bool = False
) -> StatedTotal:
    """Store a statement, whole or not at all, signed where there is a key.

    Args:
        total: what to state.
        path: the file.
        key: of whoever vouches; None: nobody does.
        overwrite: replace a statement that is there; no other file is ever replaced.

    Raises:
        InvalidInput: something is there.
        StorageError: it can't be written.
    """
    place, payload = Path(path), total.to_payload()
    check_place(place, overwrite=overwrite)
    content, key_id = payload + b"\n", None
    if key is not None:
        key_id = key.public.key_id
        unsigned = Envelope(payload, key_id, bytes(64))
        content = Envelope(payload, key_id, key.sign(unsigned.signed_bytes)).to_bytes()
    try:
        # Outcomes can tell of records: that statement is for whom its owner hands it to.
        with file_mode(private=total.outcomes is not None):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_durably(place, content)
    except OSError as error:
        raise StorageError(f"out: can't write {place}: {error.strerror or type(error).__name__}") from None
    return StatedTotal(total, key_id, key is not None)


def check_place(place: Path, *, overwrite: bool) -> None:
    """Raise :class:`InvalidInput` unless a statement may be written there: other files are never replaced."""
    if not place.exists() and not place.is_symlink():
        return
    if not overwrite:
        raise InvalidInput("out", str(place), "a file that does not exist yet (or `overwrite`)")
    try:
        read_total(place)
    except (InvalidInput, StorageError):
        raise InvalidInput("out", str(place), "a statement that privmix wrote, to overwrite it") from None


def read_total(path: str | Path, key: PublicKey | None = None) -> StatedTotal:
    """Read a statement that anyone may have written, and check whose it is.

    Formal guarantees:
        * nothing runs, no other file is opened, nothing is fetched; at most 1 MiB is read, of a plain file;
        * with a key, the statement is the one that the owner of that key signed, byte for byte; without one, nobody is
          said to vouch for it.

    Args:
        path: the file.
        key: of whoever must have signed it.

    Raises:
        InvalidInput: it is no statement; or, with a key, not signed, by another key, or changed since.
        StorageError: it can't be read.

    Example:
        >>> import tempfile
        >>> made = LedgerTotal("patients", 4.0, 1e-5, "add_remove", "planned", 1.5, 2.5, {"release": 1},
        ...     "2026-01-31T12:00:00+00:00", "0" * 64)
        >>> key, place = PrivateKey.new(), Path(tempfile.mkdtemp()) / "total.json"
        >>> _ = write_total(made, place, key)
        >>> read_total(place, key.public).checked, read_total(place, key.public).total == made
        (True, True)
    """
    content = read_plain(Path(path), _NAME, _MOST_BYTES)
    found = parse_json(content, _NAME)
    if not isinstance(found, dict) or "payloadType" not in found:
        if key is not None:
            raise InvalidInput(_NAME, "no signature", "a statement that is signed, as `privmix ledger statement` can")
        return StatedTotal(LedgerTotal.from_payload(content.removesuffix(b"\n")))
    envelope = Envelope.from_bytes(content, _NAME)
    if key is not None:
        if not key.verifies(envelope.signature, envelope.signed_bytes):
            if envelope.key_id != key.key_id:
                raise InvalidInput("key", f"key {key.key_id}", f"the key that signed, said to be {envelope.key_id}")
            raise InvalidInput(_NAME, "a signature that is wrong", "the signature of its own payload by `key`")
        if envelope.key_id != key.key_id:
            raise InvalidInput(f"{_NAME} keyid", envelope.key_id, f"{key.key_id}, the key that signed")
    return StatedTotal(LedgerTotal.from_payload(envelope.payload), envelope.key_id, key is not None)


def is_total(path: Path) -> bool:
    """Whether a place is a file, as statements are, and no folder."""
    return path.is_file() or (path.is_symlink() and not path.is_dir())


def _check_moment(text: Any) -> None:
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() != timedelta(0) or moment.isoformat(timespec="seconds") != text:
        raise InvalidInput(f"{_NAME} date", text, "a time as 2026-01-31T12:00:00+00:00")
