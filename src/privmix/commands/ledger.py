"""Budgets and entries of a ledger, and statements of a dataset's total cost."""

from __future__ import annotations

import json
from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.accounting.events import Adjacency
from privmix.commands.base import Command, Facts, function
from privmix.errors import InvalidInput, check_choice
from privmix.jobs.options import NewFile
from privmix.options import option
from privmix.progress import Progress
from privmix.rounding import exact, rounded_down, rounded_up

if TYPE_CHECKING:
    from privmix.certificate.keys import PrivateKey
    from privmix.jobs.ledger_total import StatedTotal
    from privmix.ledger.entries import Budget
    from privmix.ledger.ledger import Ledger

PLANNED: Final = (
    "planned: the total holds for plans fixed in advance, or chosen without seeing earlier results (`adaptive` lifts "
    "that)"
)
ADAPTIVE: Final = "adaptive: the total holds also for plans chosen after seeing earlier results."
DATASET_HELP: Final = "Name of the dataset in the ledger."


@dataclass(frozen=True, kw_only=True)
class AtLedger:
    """Which ledger. Its address may hold a password."""

    ledger: Any = option(MISSING, "Ledger address: sqlite:///FILE or postgresql://USER@HOST/DATABASE.")

    def opened(self) -> Any:
        from privmix.ledger.ledger import Ledger

        return self.ledger if isinstance(self.ledger, Ledger) else Ledger.open(self.ledger)


def said_of(adjacency: str, unit: str) -> str:
    from privmix.mechanisms.plan import relation_of, unit_named

    return relation_of(adjacency, unit_named(unit))


_FILTERS: Final = {
    "gdp": "Filter gdp: moments, DP-SGD and mixed rows of many records may use about 98% of a total epsilon of 1, 91 "
    "to 99% of one of 8. Rows of few records with little noise may use less, and so may Laplace noise.",
    "rdp": "Filter rdp: moments, DP-SGD and mixed rows of many records may use about 91% of a total epsilon of 1, 73 "
    "to 93% of one of 8. Rows with little noise may use much less. Mechanisms with a failure probability are refused.",
    "pure": "Filter pure: epsilons are added, as in a planned budget of delta 0. The filter costs nothing.",
}
_KNOWN_BY: Final = (
    "the ledger recognises data by the bytes of their files. The same records in memory, in another format or with "
    "another compression count as other data: do not charge them to a second budget"
)


def _values(one: Budget) -> dict[str, Any]:
    return {**vars(one), "adjacency": one.adjacency.value}


def _line(one: Budget) -> str:
    left = rounded_down(max(0.0, one.epsilon - one.spent), 4)
    share = "" if one.share is None else f" ({one.filter} filter: {rounded_up(100 * one.share, 4)}% spent)"
    open_ones = f" ({one.uncommitted} not committed)" if one.uncommitted else ""
    return (
        f"epsilon {rounded_up(one.spent, 4)} of {exact(one.epsilon)} spent, {left} left, delta {exact(one.delta)}, "
        f"{said_of(one.adjacency.value, one.unit)}, {one.reservations} reserved{open_ones}, {one.mode}{share}"
    )


@dataclass(frozen=True, eq=False, repr=False)
class Show(AtLedger, Command[Facts]):
    """Show the total, spent and remaining budget of each dataset.

    Also states for which plans the total holds. Keep the newest entry's hash elsewhere (JSON has all of it):
    privmix ledger verify --head then detects lost entries.
    """

    example = "privmix ledger show --ledger sqlite:///ledger.db"

    dataset: str | None = option(None, "Dataset to show. Default: all.")

    def run(self, progress: Progress) -> Facts:
        from privmix.ledger.pricing import covered

        opened = self.opened()
        # As stated: to price many charges takes long, and `ledger verify` does it.
        found = [opened.stated_budget(name) for name in (opened.names() if self.dataset is None else [self.dataset])]
        modes = {
            "planned": PLANNED,
            "adaptive": f"{ADAPTIVE} The share of the filter counts; the epsilon shown is that of a filter of this "
            "size.",
        }
        details = (
            "spent is composed, not added: a new charge usually costs less than its own epsilon. The figure dates from "
            "the newest charge (`privmix ledger verify` computes all of them again)",
            *(f"{one.dataset} covers {covered(one.most_per_person)}" for one in found if one.most_per_person),
            *(text for mode, text in modes.items() if mode in {one.mode for one in found}),
        )
        title = f"{len(found)} dataset{'s' * (len(found) != 1)}"
        return Facts(title, {one.dataset: _line(one) for one in found}, details, [_values(one) for one in found])


@dataclass(frozen=True, eq=False, repr=False)
class Init(AtLedger, Command[Facts]):
    """Set a dataset's total budget, once.

    Makes the ledger if needed. Without `adaptive`, plans must not depend on earlier results. With `adaptive`, they
    may, at a small cost. This cannot be changed later: in doubt, use `adaptive`.
    """

    example = "privmix ledger init --dataset patients --epsilon 4 --delta 1e-5 --adaptive --ledger sqlite:///ledger.db"

    dataset: str = option(MISSING, DATASET_HELP)
    epsilon: float = option(MISSING, "Total epsilon of all runs on the dataset.")
    delta: float = option(MISSING, "Total delta; 0 for pure DP.")
    adjacency: str = option("add_remove", "Neighbouring datasets: add_remove or replace_one (fixed, random-weight).")
    unit: str = option("record", "Unit of privacy: record, or person with all of their records.")
    adaptive: bool = option(False, "Allow releases chosen after seeing earlier ones (privacy filter).")
    filter: str | None = option(None, "Privacy filter, with `adaptive`: gdp (default), or rdp for Laplace noise.")

    def run(self, progress: Progress) -> Facts:
        from privmix.accounting.filters import FILTERS
        from privmix.ledger.ledger import Ledger
        from privmix.ledger.pricing import UNITS

        # Checked before the ledger is made: a refusal leaves no file.
        adjacency = Adjacency(check_choice("adjacency", self.adjacency, [one.value for one in Adjacency]))
        if self.filter is not None:
            check_choice("filter", self.filter, FILTERS)
            if not self.adaptive:
                raise InvalidInput("filter", self.filter, "none without `adaptive`")
        check_choice("unit", self.unit, UNITS)
        named = (self.filter or "gdp") if self.adaptive else None
        book, total = Ledger.create(self.ledger), {"epsilon": self.epsilon, "delta": self.delta}
        book.add_dataset(self.dataset, **total, adjacency=adjacency, adaptive=named, unit=self.unit)
        made = book.stated_budget(self.dataset)
        told = (
            f"epsilon {exact(made.epsilon)}, delta {exact(made.delta)}, adjacency {said_of(adjacency.value, self.unit)}"
        )
        held = PLANNED if made.filter is None else f"{ADAPTIVE} {_FILTERS[made.filter]}"
        return Facts(f"budget of {self.dataset}: {told}", details=(held, _KNOWN_BY), values=_values(made))


@dataclass(frozen=True, eq=False, repr=False)
class Upgrade(AtLedger, Command[Facts]):
    """Upgrade a ledger that an earlier privmix made.

    Budgets and history stay. Earlier versions then refuse the ledger.
    """

    example = "privmix ledger upgrade --ledger sqlite:///ledger.db"

    def run(self, progress: Progress) -> Facts:
        from privmix.ledger.ledger import Ledger

        Ledger.upgrade(self.ledger)
        return Facts("upgraded: budgets and history are as they were", values={"upgraded": True})


@dataclass(frozen=True, eq=False, repr=False)
class History(AtLedger, Command[Facts]):
    """Show every entry of a dataset, oldest first."""

    example = "privmix ledger history --ledger sqlite:///ledger.db --dataset patients"

    dataset: str = option(MISSING, DATASET_HELP)

    def run(self, progress: Progress) -> Facts:
        found = self.opened().history(self.dataset)
        lines = {
            str(one["number"]): f"{one.get('at', '')} {one['kind']}: {_what(one)} ({one['hash'][:12]})" for one in found
        }
        return Facts(f"{self.dataset}: entries", lines, values=found)


def _what(entry: dict[str, Any]) -> str:
    from privmix.ledger.pricing import CAP, RECORD

    match entry["kind"]:
        case "init":
            mode = "adaptive" if entry.get("filter") else "planned"
            relation = said_of(entry["adjacency"], entry.get("unit", RECORD))
            return f"epsilon {exact(entry['epsilon'])}, delta {exact(entry['delta'])}, {relation}, {mode}"
        case "reserve":
            cap = f", records of persons with at most {entry[CAP]}" if CAP in entry else ""
            return f"{entry['purpose']} {entry['id'][:8]}{cap}: {rounded_up(entry['spent'], 4)} spent in total"
        case "bind":
            if "fingerprint" in entry:
                return f"{entry['id'][:8]} is for content {entry['fingerprint'][:12]}"
            if "step" in entry:
                return f"{entry['id'][:8]}, step {entry['step']}: for records {entry['content'][:12]}"
            new = len(entry.get("files", ()))
            files = f"{new:,} file{'' if new == 1 else 's'} new to this ledger"
            return f"{entry['id'][:8]} is for content {entry.get('content', '')[:12]}, {files}"
        case _:
            return f"{entry['id'][:8]}: {entry['result']}"


@dataclass(frozen=True, eq=False, repr=False)
class Export(AtLedger, Command[Facts]):
    """Print budgets and whole histories as JSON.

    The output suits an archive or an audit.
    """

    example = "privmix ledger export --ledger sqlite:///ledger.db > ledger.json"

    def run(self, progress: Progress) -> Facts:
        opened = self.opened()
        datasets = {name: opened.history(name) for name in opened.names()}
        content = {"format": "privmix-ledger", "schema_version": 1, "datasets": datasets}
        return Facts("", values=content, document=json.dumps(content, indent=2) + "\n")


@dataclass(frozen=True, eq=False, repr=False)
class Verify(AtLedger, Command[Facts]):
    """Recompute every hash and every price of a ledger.

    Exit code 2 if a value differs.
    """

    example = "privmix ledger verify --ledger sqlite:///ledger.db --statement total.json"

    head: str | None = option(None, "Earlier entry hash that the ledger must still hold.")
    statement: Path | None = option(None, "Earlier ledger statement that the ledger must extend.")

    def run(self, progress: Progress) -> Facts:
        from privmix.jobs.ledger_total import check_ledger_total, read_ledger_total
        from privmix.ledger.verify import verify_ledger

        opened = self.opened()
        counts = verify_ledger(opened, head=self.head)
        if self.statement is not None:
            check_ledger_total(opened, read_ledger_total(self.statement).total)
        modes, told = {name: opened.mode(name) for name in counts}, []
        if planned := ", ".join(name for name, mode in modes.items() if mode == "planned"):
            told.append(
                "not checked: that plans were fixed in advance, or chosen without seeing earlier results. Totals of "
                f"planned budgets hold only then: {planned}"
            )
        if self.statement is not None:
            told.append(f"PASS: the ledger contains the charges that {self.statement} states, and continues from there")
        if self.head is None:
            told.append("not checked: that no entries were removed from the end (give `head`, a hash seen earlier)")
        title = f"PASS: no budget overspent (entries: {sum(counts.values())}, datasets: {len(counts)})"
        return Facts(title, details=tuple(told), values={"holds": True, "entries": counts, "modes": modes})


@dataclass(frozen=True, eq=False, repr=False)
class LedgerStatement(NewFile, AtLedger, Command["StatedTotal"]):
    """Write a statement of a dataset's total privacy cost.

    States budget, spent and left, the number and purpose of charges, adjacency and date; no data and no
    fingerprints. Verifies the whole ledger first. Recipients check the file with privmix verify FILE --key
    KEY.pub.pem, or next to a release with privmix report RELEASE --statement FILE.

    Formal guarantees:
        * The statement has plans and amounts from the ledger's rows, and nothing of data: see
          :class:`privmix.certificate.ledger_total.LedgerTotal`.
        * Figures are rounded to their safe side.

    Raises:
        InvalidInput: the ledger does not hold, has no such dataset, or the file can't be replaced.
        StorageError: the ledger can't be read, or the file not be written.

    Example:
        >>> import tempfile
        >>> from privmix.accounting import Gaussian
        >>> from privmix.ledger.ledger import Ledger
        >>> book = Ledger.create(f"sqlite:///{tempfile.mkdtemp()}/ledger.db")
        >>> book.add_dataset("patients", epsilon=4.0, delta=1e-5)
        >>> _ = book.reserve("patients", Gaussian(2.0), purpose="release")
        >>> found = ledger_total(book, "patients").total
        >>> round(found.spent, 2), round(found.left, 2), found.charges
        (1.99, 2.01, {'release': 1})
    """

    called = "statement"
    example = "privmix ledger statement --ledger sqlite:///ledger.db --dataset patients --out total.json --key ana.pem"

    # A keyword in other commands; here the first argument in Python.
    ledger: str | Ledger = option(MISSING, AtLedger.__dataclass_fields__["ledger"].metadata["help"])
    dataset: str = option(MISSING, DATASET_HELP)
    _: KW_ONLY
    out: str | Path | None = option(
        None,
        "JSON file to write, outside releases and models.",
        in_python="In Python, no file by default.",
        needed=True,
    )
    key: str | Path | PrivateKey | None = option(
        None, "Private key (PEM) for the signature; passphrase by prompt or PRIVMIX_KEY_PASSPHRASE."
    )
    passphrase: bytes | None = option(None, "Passphrase of the key.", python=True)
    outcomes: bool = option(False, "Include the outcomes of charges; do not publish such a statement.")

    def run(self, progress: Progress) -> StatedTotal:
        from privmix.certificate.keys import PrivateKey
        from privmix.certificate.ledger_total import check_place, write_total
        from privmix.jobs.ledger_total import StatedTotal, total_of
        from privmix.jobs.places import check_unpublished

        place, key = None if self.out is None else Path(self.out), self.key
        if place is not None:
            # A folder with a further file is no release, and is shared whole.
            check_unpublished("out", place)
            check_place(place, overwrite=self.overwrite)
        elif key is not None:
            raise InvalidInput("key", "a key", "only with `out`, since a signature needs a file")
        # A wrong passphrase shows before the whole ledger is verified.
        signer = key if key is None or isinstance(key, PrivateKey) else PrivateKey.read(Path(key), self.passphrase)
        total = total_of(self.opened(), self.dataset, self.outcomes)
        statement = None if place is None else write_total(total, place, signer, overwrite=self.overwrite)
        return StatedTotal(total, statement, place)


ledger_total: Final = function(LedgerStatement, "ledger_total")
