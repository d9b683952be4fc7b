"""Total cost of a dataset, by its ledger: as a statement to sign and hand on, and for a report."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from privmix.certificate.keys import PublicKey, Statement
from privmix.certificate.ledger_total import LONGEST, MOST_PURPOSES, MOST_RESULTS, LedgerTotal, Outcomes, read_total
from privmix.errors import InvalidInput
from privmix.ledger.database import canonical
from privmix.ledger.ledger import Ledger
from privmix.ledger.pricing import covered
from privmix.ledger.verify import verify_ledger
from privmix.mechanisms.plan import unit_named
from privmix.reports.records import RunRecord
from privmix.rounding import exact, rounded_down, rounded_up
from privmix.shown import Bars, Shown, spent_bars

# Sources of a total, as pages name them.
LEDGER, SIGNED, NAMED, UNSIGNED = "ledger", "signed", "named", "unsigned"
_RESULT: Final = re.compile(r"(release|model) [0-9a-f]{32}")
_OTHER: Final = "other"
# Most that the prices of two versions may differ by, as a share.
_SAME: Final = 1e-6


@dataclass(frozen=True, repr=False)
class StatedTotal(Shown):
    """A stated total of a ledger; `statement` of a file: its form, and its signer."""

    total: LedgerTotal
    statement: Statement | None = None
    out: Path | None = None

    @property
    def key_id(self) -> str | None:
        return None if self.statement is None else self.statement.key_id

    def shown(self) -> tuple[str, Mapping[str, object]]:
        place = {} if self.out is None else {"statement": self.out}
        return f"Budget of {self.total.dataset}", {
            **words(self.total),
            **place,
            "signed by key": self.key_id or "nobody",
        }

    def picture(self) -> Bars:
        return spent_bars(self.total.epsilon, self.total.spent, self.total.share)

    def to_dict(self) -> dict[str, Any]:
        place = None if self.out is None else str(self.out)
        return {**self.total.to_dict(), "key_id": self.key_id, "out": place}

    @property
    def warnings(self) -> tuple[str, ...]:
        if self.out is None or self.total.outcomes is None:
            return ()
        return ("it lists the results of all charges: give it to an officer and do not publish it",)


def total_of(book: Ledger, dataset: str, outcomes: bool) -> LedgerTotal:
    """Return what a dataset may cost and has cost, from its verified history."""
    history = book.history(dataset)
    # Verify every hash and every price again; charges added meanwhile come after the entries that were read.
    verify_ledger(book, head=history[-1]["hash"])
    charges = [entry for entry in history if entry["kind"] == "reserve"]
    stated = book.budget(dataset)
    # The budget was read after the history: a charge in between would be in the amount and in no line of it.
    if stated.reservations != len(charges):
        raise InvalidInput(
            "ledger", "charges that came meanwhile", "a ledger without concurrent charges: run the command again"
        )
    same = ("dataset", "epsilon", "delta", "mode", "filter", "share", "unit", "most_per_person")
    results = [str(entry["result"]) for entry in history if entry["kind"] == "commit"]
    named = tuple(text if _RESULT.fullmatch(text) else _line(text) for text in results[-MOST_RESULTS:])
    return LedgerTotal.rounded(
        **{name: getattr(stated, name) for name in same},
        adjacency=stated.adjacency.value,
        # The newest charge may state a millionth less than this version computes, or more.
        spent=max(stated.spent, charges[-1]["spent"] if charges else 0.0),
        charges=_by_purpose(charges),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        digest=_digest(history[0], charges),
        outcomes=Outcomes(len(results), len(charges) - len(results), named) if outcomes else None,
    )


def read_ledger_total(statement: str | Path, key: str | Path | None = None) -> StatedTotal:
    """Read a statement that was handed over; with a key, which must have signed it."""
    return StatedTotal(*read_total(Path(statement), None if key is None else PublicKey.read(Path(key))))


def check_ledger_total(book: Ledger, stated: LedgerTotal) -> None:
    """Raise unless the ledger still continues from where a statement was made."""
    history = book.history(stated.dataset)
    charges = [entry for entry in history if entry["kind"] == "reserve"][: stated.number]
    if len(charges) < stated.number or _digest(history[0], charges) != stated.digest:
        allowed = "a statement that matches the ledger's budget and charges up to its date"
        raise InvalidInput("statement", f"{stated.number} charges, digest {stated.digest[:12]}", allowed)
    spent = charges[-1]["spent"] if charges else 0.0
    if stated.spent < spent * (1 - _SAME):
        raise InvalidInput("statement", f"spent {exact(stated.spent)}", f"at least {rounded_up(spent, 6)}")


def total_record(stated: StatedTotal) -> RunRecord:
    """Return a total for a report. Its source is decided here, by the process that read it, and in no file."""
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
    """Facts of a total that users look for first."""
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


def _by_purpose(charges: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many charges were for what, in the order of the names; words that no line holds are `other`."""
    found = Counter(_line(str(entry["purpose"])) for entry in charges)
    # One place is left for `other`.
    rare = [name for name, _ in found.most_common()[MOST_PURPOSES - 1 :]]
    for name in rare:
        if name != _OTHER:
            found[_OTHER] += found.pop(name)
    return dict(sorted(found.items()))


def _line(text: str) -> str:
    return text if text.strip() and text.isascii() and text.isprintable() and len(text) <= LONGEST else _OTHER


def _digest(first: Mapping[str, Any], charges: Sequence[Mapping[str, Any]]) -> str:
    """Hash the budget and each charge's purpose, plan, price and time."""
    # A ledger's own hashes also cover fingerprints of data and the reservations' names that hide them: both stay
    # private.
    left_out = ("id", "number", "hash")
    kept = [{key: value for key, value in one.items() if key not in left_out} for one in (first, *charges)]
    return hashlib.sha256("\n".join(canonical(one) for one in kept).encode()).hexdigest()
