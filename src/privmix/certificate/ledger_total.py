"""A ledger's statement of one dataset's budget at one moment, in one file to be signed and handed on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

from privmix import __version__, fields
from privmix.accounting.events import Adjacency
from privmix.certificate.keys import PrivateKey, PublicKey, Statement
from privmix.errors import InvalidInput, StorageError
from privmix.folders import whole_file
from privmix.rounding import exact, rounded_down, rounded_up

TOTAL_TYPE: Final = "urn:privmix:ledger-total:v1"
MODES: Final = ("planned", "adaptive")
FILTERS: Final = ("gdp", "rdp", "pure")
UNITS: Final = ("record", "person")
LONGEST: Final = 200
MOST_PURPOSES: Final = 50
MOST_RESULTS: Final = 1000
# A statement of this many purposes and results, in base64, is smaller.
_MOST_BYTES: Final = 2**20
_MOST_CHARGES: Final = 10**9
_DIGITS: Final = 6
_LINE: Final = fields.Line(LONGEST, trimmed=False)
_Line = Annotated[str, _LINE]
_Charges = Annotated[int, fields.Whole(0, _MOST_CHARGES)]
_NAME: Final = "ledger statement"
_WRITTEN: Final = "a statement as privmix ledger statement writes it"


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of the charges. Not for the public: a run without a result may reveal something about its records."""

    # open: running, interrupted or failed, counted as spent; results: "release 5f0c..." of the newest, newest last.

    committed: _Charges
    open: _Charges
    results: tuple[_Line, ...] = ()

    def __post_init__(self) -> None:
        fields.check_fields(self)
        if len(self.results) != min(self.committed, MOST_RESULTS):
            raise InvalidInput(f"{_NAME} results", len(self.results), "one a committed charge, the newest 1,000")


@dataclass(frozen=True)
class LedgerTotal:
    """The budget of one dataset and its use at one moment.

    Formal guarantees:
        * Safe side: ``spent`` is rounded up and ``left`` down, to six digits.
        * Only what the ledger's rows state of plans and amounts: no fingerprint of data, no name of a reservation and
          no hash of these. ``digest`` is of budget, plans, prices and times of charges, all of which stand before a
          record is read.
        * One form: what is read back is what :meth:`statement` writes, byte for byte.
    """

    # mode: "planned" (plans fixed in advance) or "adaptive" (chosen after results, too); charges: number by purpose;
    # date: UTC, to the second; digest: SHA-256 of the history. filter, share: of an adaptive budget, share in [0, 1] at
    # most; outcomes (None where not stated). most_per_person: the total covers persons with at most this many records,
    # by the owner's word (None for any number).

    dataset: _Line
    epsilon: fields.Positive
    delta: fields.Fraction
    adjacency: Annotated[str, fields.Choice(*(one.value for one in Adjacency))]
    mode: Annotated[str, fields.Choice(*MODES)]
    spent: fields.Amount
    left: fields.Amount
    charges: Mapping[str, Annotated[int, fields.Whole(1, _MOST_CHARGES)]]
    date: Annotated[str, fields.By(lambda _, date: _check_moment(date), "", "2026-01-31", 1)]
    digest: fields.Digest
    filter: Annotated[str, fields.Choice(*FILTERS)] | None = None
    # Rounded up, the share of a full filter may exceed 1 a little.
    share: Annotated[float, fields.Number(0, 1 + 1e-5)] | None = None
    outcomes: Outcomes | None = None
    unit: Annotated[str, fields.Choice(*UNITS)] = UNITS[0]
    tool: Annotated[str, fields.Text(r"privmix [\w.+-]{1,40}", "privmix and its version")] = f"privmix {__version__}"
    most_per_person: Annotated[int, fields.Whole(1, _MOST_CHARGES)] | None = fields.used(None)

    def __post_init__(self) -> None:
        fields.check_fields(self)
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
    def rounded(cls, *, epsilon: float, spent: float, share: float | None, **rest: Any) -> "LedgerTotal":
        if not math.isfinite(spent):
            raise InvalidInput(f"{_NAME} spent", spent, "a finite epsilon")
        return cls(
            epsilon=epsilon,
            spent=float(rounded_up(spent, _DIGITS)),
            # From the rounded amount: spent and left never add up to more than the budget.
            left=float(rounded_down(max(0.0, epsilon - float(rounded_up(spent, _DIGITS))), _DIGITS)),
            share=None if share is None else float(rounded_up(share, _DIGITS)),
            **rest,
        )

    @property
    def number(self) -> int:
        return sum(self.charges.values())

    def to_dict(self) -> dict[str, Any]:
        own = fields.stored(self)
        unit, outcomes = own.pop("unit"), own.pop("outcomes")
        return {**own, "unit": unit, "outcomes": outcomes}

    def statement(self, key: PrivateKey | None = None) -> Statement:
        content = self.to_dict()
        return Statement.of(TOTAL_TYPE, {self.dataset: content.pop("digest")}, content, key)

    @classmethod
    def of(cls, statement: Statement) -> "LedgerTotal":
        """Read a stranger's statement, strictly: its fields, their types and ranges, in the one form there is."""
        subject, content = statement.parts(TOTAL_TYPE, _NAME)
        if "unit" not in content or "digest" in content:
            raise InvalidInput(_NAME, "other fields", _WRITTEN)
        found = fields.read(cls, {**content, "digest": next(iter(subject.values()), None)}, _NAME)
        # Numbers of another spelling, or fields of another version, could carry anything else.
        if found.statement().payload != statement.payload:
            raise InvalidInput(_NAME, "another form", _WRITTEN)
        return found


def write_total(
    total: LedgerTotal, path: str | Path, key: PrivateKey | None = None, *, overwrite: bool = False
) -> Statement:
    """Write a statement atomically, signed where there is a key; ``overwrite`` replaces a statement only."""
    place, made = Path(path), total.statement(key)
    check_place(place, overwrite=overwrite)
    # Outcomes can reveal records: the owner decides who receives that statement.
    with whole_file(place, "out", private=total.outcomes is not None) as stream:
        stream.write(made.to_bytes())
    return made


def check_place(place: Path, *, overwrite: bool) -> None:
    """Raise :class:`InvalidInput` unless a statement may be written there: other files are never replaced."""
    if not place.exists() and not place.is_symlink():
        return
    if not overwrite:
        raise InvalidInput("out", str(place), "a file that does not exist yet (or `overwrite`)")
    try:
        read_total(place)
    except (InvalidInput, StorageError):
        raise InvalidInput("out", str(place), "a statement that privmix wrote: move another file away") from None


def read_total(path: str | Path, key: PublicKey | None = None) -> tuple[LedgerTotal, Statement]:
    """Read a statement that anyone may have written, and check its signer.

    Formal guarantees:
        * nothing runs, no other file is opened, nothing is fetched; at most 1 MiB is read, of a plain file;
        * with a key, the statement is the one that the owner of that key signed, byte for byte; without one, no
          person is reported to vouch for it.
    """
    statement = Statement.read(Path(path), _NAME, _MOST_BYTES, unsigned=True)
    if key is not None:
        statement = statement.checked_by(key, _NAME)
    return LedgerTotal.of(statement), statement


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
