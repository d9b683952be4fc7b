"""What a dataset has cost in all, by its ledger: as a statement to sign and hand on, and for a report."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from privmix.certificate.keys import PrivateKey, PublicKey
from privmix.certificate.ledger_total import (
    LONGEST,
    MOST_PURPOSES,
    MOST_RESULTS,
    LedgerTotal,
    Outcomes,
    check_place,
    read_total,
    write_total,
)
from privmix.certificate.statement import Statement
from privmix.errors import InvalidInput
from privmix.jobs.places import check_unpublished
from privmix.ledger import Ledger, verify_ledger
from privmix.ledger.database import canonical
from privmix.ledger.pricing import covered
from privmix.mechanisms.plan import unit_named
from privmix.reports.records import RunRecord
from privmix.rounding import exact, rounded_down, rounded_up
from privmix.shown import Bars, Shown, spent_bars

# What a page says of where it has the total from.
LEDGER, SIGNED, NAMED, UNSIGNED = "ledger", "signed", "named", "unsigned"
_RESULT: Final = re.compile(r"(release|model) [0-9a-f]{32}")
_OTHER: Final = "other"
_SAME: Final = 1e-6


@dataclass(frozen=True, repr=False)
class Stated(Shown):
    """A total that was stated.

    Attributes:
        total: what the ledger says.
        statement: of a file: its form, and who vouches for it; None where none was written or read.
        out: where the statement is, if it was written.
    """

    total: LedgerTotal
    statement: Statement | None = None
    out: Path | None = None

    @property
    def key_id(self) -> str | None:
        """Of the key that the signature names; None where nobody signed."""
        return None if self.statement is None else self.statement.key_id

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Budget, spent and left."""
        return f"Budget of {self.total.dataset}", {**words(self.total), "signed by key": self.key_id or "nobody"}

    def picture(self) -> Bars:
        """What is gone of it."""
        return total_bars(self.total)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        place = None if self.out is None else str(self.out)
        return {**self.total.to_dict(), "key_id": self.key_id, "out": place}


def ledger_total(
    ledger: str | Ledger,
    dataset: str,
    *,
    out: str | Path | None = None,
    key: str | Path | PrivateKey | None = None,
    passphrase: bytes | None = None,
    outcomes: bool = False,
    overwrite: bool = False,
) -> Stated:
    """State what a dataset may cost, has cost and has left, and sign that: a file for whoever must know.

    The whole ledger is verified first: every hash, and every price anew. So a statement is of a history that holds.

    Formal guarantees:
        * The statement says what the ledger's rows say of plans and amounts, and nothing of data: see
          :class:`privmix.certificate.ledger_total.LedgerTotal`.
        * Figures are rounded to their safe side.

    Args:
        ledger: open, or its address.
        dataset: its name there.
        out: file to write; not in a release or model. None writes none.
        key: private key of whoever vouches, or its file.
        passphrase: of that file.
        outcomes: say also what became of the charges: how many have no result, and what the others made. For an
            officer under the owner's roof: that a run ended without a result can tell of its records.
        overwrite: replace a statement that is there.

    Raises:
        InvalidInput: the ledger does not hold, has no such dataset, or the file can't be replaced.
        StorageError: the ledger can't be read, or the file not be written.

    Example:
        >>> import tempfile
        >>> from privmix.accounting import Gaussian
        >>> book = Ledger.create(f"sqlite:///{tempfile.mkdtemp()}/ledger.db")
        >>> book.add_dataset("patients", epsilon=4.0, delta=1e-5)
        >>> _ = book.reserve("patients", Gaussian(2.0), purpose="release")
        >>> found = ledger_total(book, "patients").total
        >>> round(found.spent, 2), round(found.left, 2), found.charges
        (1.99, 2.01, {'release': 1})
    """
    place = None if out is None else Path(out)
    if place is not None:
        check_unpublished("out", place)
        check_place(place, overwrite=overwrite)
    elif key is not None:
        raise InvalidInput("key", "a key", "none without `out`: what is signed is a file")
    signer = key if key is None or isinstance(key, PrivateKey) else PrivateKey.read(Path(key), passphrase)
    book = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    total = _total(book, dataset, outcomes)
    if place is None:
        return Stated(total)
    return Stated(total, write_total(total, place, signer, overwrite=overwrite), place)


def read_ledger_total(statement: str | Path, key: str | Path | None = None) -> Stated:
    """A statement that somebody handed over; with a key, which must have signed it.

    Raises:
        InvalidInput: it is none, was changed, or another key signed it.
        StorageError: it can't be read.
    """
    return Stated(*read_total(Path(statement), None if key is None else PublicKey.read(Path(key))))


def check_ledger_total(ledger: str | Ledger, stated: LedgerTotal) -> None:
    """That the ledger still goes on from where a statement was made.

    Raises:
        InvalidInput: it has another budget, or other charges up to there; or fewer.
    """
    book = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    history = book.history(stated.dataset)
    charges = [entry for entry in history if entry["kind"] == "reserve"][: stated.number]
    if len(charges) < stated.number or _digest(history[0], charges) != stated.digest:
        allowed = "one whose budget and charges are those of the ledger, up to its date"
        raise InvalidInput("statement", f"{stated.number} charges, digest {stated.digest[:12]}", allowed)
    spent = charges[-1]["spent"] if charges else 0.0
    if stated.spent < spent * (1 - _SAME):
        raise InvalidInput("statement", f"spent {exact(stated.spent)}", f"at least {rounded_up(spent, 6)}")


def total_record(stated: Stated) -> RunRecord:
    """A total for a report. Where it is from is decided here, by whoever read it, and in no file."""
    total, statement = stated.total, stated.statement
    source = LEDGER
    if statement is not None:
        source = UNSIGNED if statement.key_id is None else SIGNED if statement.checked else NAMED
    content = {**total.to_dict(), "source": source, "key_id": stated.key_id}
    return RunRecord(
        "ledger",
        {"kind": "dataset", "id": None},
        False,
        content,
        {},
        title=f"Budget of {total.dataset}",
        # The same statement gives the same record.
        record_id=hashlib.sha256(total.statement().payload).hexdigest()[:32],
    )


def words(total: LedgerTotal) -> dict[str, object]:
    """What people want to see of a total first."""
    listed = ", ".join(f"{count:,} {purpose}" for purpose, count in total.charges.items())
    share = "" if total.share is None else f" ({rounded_up(100 * total.share, 4)}% of its {total.filter} filter)"
    of = f"of {exact(total.epsilon)}, at delta {exact(total.delta)}"
    said: dict[str, object] = {
        "spent": f"epsilon {rounded_up(total.spent, 4)} {of}{share}",
        "left": f"epsilon {rounded_down(total.left, 4)}",
        "charges": f"{total.number:,}" + (f": {listed}" if listed else ""),
        "unit": f"{unit_named(total.unit).changed}, {total.adjacency}",
        **({} if total.most_per_person is None else {"covers": covered(total.most_per_person)}),
        "mode": total.mode,
        "as of": total.date,
    }
    if total.outcomes is not None:
        said["without a result"] = total.outcomes.open
    return said


def total_bars(total: LedgerTotal) -> Bars:
    """What is gone of it, for a notebook."""
    return spent_bars(total.epsilon, total.spent, total.share)


def _total(book: Ledger, dataset: str, outcomes: bool) -> LedgerTotal:
    history = book.history(dataset)
    # Every hash, and every price anew; what others add meanwhile is after the entries that were read.
    verify_ledger(book, head=history[-1]["hash"])
    charges = [entry for entry in history if entry["kind"] == "reserve"]
    stated = book.budget(dataset)
    if stated.reservations != len(charges):
        raise InvalidInput("ledger", "charges that came meanwhile", "a ledger that nobody charges at this moment")
    return LedgerTotal.rounded(
        dataset=dataset,
        epsilon=stated.epsilon,
        delta=stated.delta,
        adjacency=stated.adjacency.value,
        mode=stated.mode,
        # As its newest charge says it may be a millionth below what this version makes of it, or above.
        spent=max(stated.spent, charges[-1]["spent"] if charges else 0.0),
        charges=_by_purpose(charges),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        digest=_digest(history[0], charges),
        filter=stated.filter,
        share=stated.share,
        outcomes=_outcomes(history, len(charges)) if outcomes else None,
        unit=stated.unit,
        most_per_person=stated.most_per_person,
    )


def _by_purpose(charges: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many charges were for what, in the order of the names; words that no line holds are `other`."""
    found = Counter(_line(str(entry["purpose"])) for entry in charges)
    rare = [name for name, _ in found.most_common()[MOST_PURPOSES - 1 :]]
    for name in rare:
        if name != _OTHER:
            found[_OTHER] += found.pop(name)
    return dict(sorted(found.items()))


def _line(text: str) -> str:
    return text if text.strip() and text.isascii() and text.isprintable() and len(text) <= LONGEST else _OTHER


def _outcomes(history: Sequence[Mapping[str, Any]], charges: int) -> Outcomes:
    results = [str(entry["result"]) for entry in history if entry["kind"] == "commit"]
    named = tuple(text if _RESULT.fullmatch(text) else _line(text) for text in results[-MOST_RESULTS:])
    return Outcomes(len(results), charges - len(results), named)


def _digest(first: Mapping[str, Any], charges: Sequence[Mapping[str, Any]]) -> str:
    """Of the budget and of each charge's purpose, plan, price and time.

    A ledger's own hashes are also of fingerprints of data, and of reservations' names, which hide those: neither is
    said to anyone.
    """
    kept = [{key: value for key, value in first.items() if key not in ("number", "hash")}]
    kept += [{key: value for key, value in one.items() if key not in ("id", "number", "hash")} for one in charges]
    return hashlib.sha256("\n".join(canonical(one) for one in kept).encode()).hexdigest()
