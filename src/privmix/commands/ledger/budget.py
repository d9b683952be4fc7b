"""Budgets: one is given, all are shown, and those of an earlier privmix are brought to this version."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any, Final

from privmix.accounting.events import Adjacency
from privmix.commands.base import Command, Facts
from privmix.errors import InvalidInput, check_choice
from privmix.options import option
from privmix.progress import Progress
from privmix.rounding import exact, rounded_down, rounded_up

if TYPE_CHECKING:
    from privmix.ledger.ledger import Budget


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
    """Return the difference between neighbours, in words."""
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
        """Read them."""
        from privmix.ledger.pricing import covered

        opened = self.opened()
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
