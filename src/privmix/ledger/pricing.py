"""Cost of a dataset's reservations together, in both modes of a budget."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row

from privmix.accounting.events import Adjacency, Composed, Event, event_from_dict, event_to_dict
from privmix.accounting.filters import Cost, Filter, filter_from_dict
from privmix.errors import InvalidInput, PrivmixError, check_choice, check_integer, check_number
from privmix.rounding import exact, rounded_down, rounded_up

PLANNED: Final = "planned"
ADAPTIVE: Final = "adaptive"
RECORD: Final = "record"
PERSON: Final = "person"
UNITS: Final = (RECORD, PERSON)
CAP: Final = "most_per_person"
# Most that the prices of two versions may differ by, for the same event.
_SAME: Final = 1e-6


class BudgetExceeded(PrivmixError):
    r"""A reservation would cost more than the dataset's budget leaves. Exit code 3.

    Example:
        >>> error = BudgetExceeded("patients", requested=2.0, spent=3.0, composed=4.2, budget=4.0, delta=1e-05)
        >>> print(str(error).replace(": ", ":\n").replace(" (", "\n("))
        budget of patients:
        epsilon 4.2 in all would exceed 4
        (requested 2, spent 3, remaining 1; delta 1e-05). Choose a smaller epsilon
    """

    exit_code = 3
    resumable = False

    def __init__(
        self,
        dataset: str,
        *,
        requested: float,
        spent: float,
        composed: float,
        budget: float,
        delta: float,
        mode: str = "",
    ) -> None:
        self.requested: Final = requested
        self.spent: Final = spent
        self.composed: Final = composed
        left = max(0.0, budget - spent)
        if mode:
            super().__init__(
                f"budget of {dataset}: {rounded_up(100 * composed, 4)}% of its {mode} in all would exceed 100% "
                f"(requested {rounded_up(100 * requested, 4)}%, spent {rounded_up(100 * spent, 4)}%, "
                f"remaining {rounded_down(100 * left, 4)}%). Choose a smaller epsilon"
            )
            return
        super().__init__(
            f"budget of {dataset}: epsilon {rounded_up(composed, 4)} in all would exceed {exact(budget)} "
            f"(requested {rounded_up(requested, 4)}, spent {rounded_up(spent, 4)}, "
            f"remaining {rounded_down(left, 4)}; delta {exact(delta)}). Choose a smaller epsilon"
        )


@dataclass(frozen=True)
class TotalCost:
    """Cost of reservations together: epsilon at the budget's delta; if adaptive, its share and the last cost."""

    epsilon: float
    share: float | None = None
    cost: Cost | None = None


def check_dataset(row: Row[Any]) -> None:
    """Raise :class:`InvalidInput` unless the row is one that privmix may have written, and its filter keeps to it."""
    check_row(row)
    kept = filter_of(row)
    if kept is None:
        return
    # A filter of a larger capacity than its epsilon allows would grant more than the budget states.
    try:
        promised = kept.epsilon(kept.capacity, row.delta)
    except ArithmeticError:
        raise InvalidInput("ledger filter", row.filter, "a filter that privmix made") from None
    # Written so that NaN is refused.
    if not promised <= row.epsilon:
        raise InvalidInput("ledger filter", row.filter, f"one of epsilon {exact(row.epsilon)} at the budget's delta")


def check_first(row: Row[Any], first: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidInput` unless the row has the budget that ``first``, its history's first entry, set."""
    kept = {"kind": "init"} | {key: getattr(row, key) for key in ("name", "epsilon", "delta", "adjacency", "filter")}
    # An entry that names no unit is of records: there was no other once.
    if any(first.get(key) != value for key, value in kept.items()) or first.get("unit", RECORD) != row.unit:
        raise InvalidInput(f"budget of {row.name}", str({**kept, "unit": row.unit}), "what the first entry set")


def check_row(row: Row[Any]) -> None:
    """Raise :class:`InvalidInput` unless the row can be read; what its filter promises is left open."""
    check_choice("ledger adjacency", row.adjacency, [relation.value for relation in Adjacency])
    check_choice("ledger unit", row.unit, UNITS)
    check_number("ledger epsilon", row.epsilon, low=0, low_open=True)
    check_number("ledger delta", row.delta, low=0, high=1, high_open=True)
    filter_of(row)


def filter_of(row: Row[Any]) -> Filter | None:
    """Return the filter of an adaptive budget; None for a planned one."""
    if row.filter is None:
        return None
    try:
        return filter_from_dict(json.loads(row.filter))
    except (ValueError, TypeError, RecursionError, ArithmeticError):
        raise InvalidInput("ledger filter", row.filter, "a filter that privmix made") from None


def event_for(
    dataset: Row[Any], event: Event, unit: str, adjacency: Adjacency, most_per_person: int | None = None
) -> Event:
    """Return the event to charge: ``event``, or its group's where no person has more records than a cap."""
    # Neither unit's price stands for the other. A price for one record is too small for a person with many. And a
    # record that leaves changes its person's contribution: as much as a person who leaves and another who comes, so a
    # price for persons is too small for it.
    if most_per_person is None:
        _check_unit(dataset, unit)
        check_choice("adjacency", adjacency.value, [dataset.adjacency])
        return event
    if (unit, dataset.unit) != (RECORD, PERSON):
        allowed = "only with a charge for records to a budget of persons"
        raise InvalidInput(CAP, most_per_person, allowed)
    if {adjacency.value, dataset.adjacency} != {Adjacency.ADD_REMOVE.value}:
        allowed = "only with adjacency add_remove of charge and budget: a person's records enter or leave together"
        raise InvalidInput(CAP, most_per_person, allowed)
    found = _group_event(event, check_integer(CAP, most_per_person, low=1))
    if found is None:
        raise InvalidInput(
            CAP, most_per_person, "no cap with this plan: its privacy cost for a group of records is unknown"
        )
    return found


def _group_event(event: Event, records: int) -> Event | None:
    # To read a history takes no accountant.
    from privmix.accounting.pricing import group_event

    return group_event(event, records)


def _check_unit(dataset: Row[Any], unit: str) -> None:
    if unit == dataset.unit:
        return
    if dataset.unit == PERSON:
        allowed = (
            f"`person`: the budget of {dataset.name} protects persons, and a bound for one record is too small for a "
            "person with several. Declare the column of persons (`person`). If public knowledge limits every person "
            f"to K records, declare `{CAP}` instead: the charge is then the cost of K records"
        )
        raise InvalidInput("unit", unit, allowed)
    allowed = (
        f"`record`: the budget of {dataset.name} protects single records. Without one record, the contribution of its "
        "person changes, which may cost more than the person's absence. Charge a dataset with a budget of persons "
        "(privmix ledger init --unit person)"
    )
    raise InvalidInput("unit", unit, allowed)


def price(events: Sequence[Event], delta: float, adjacency: Adjacency) -> float:
    """Epsilon of all ``events`` together, an upper bound if they were fixed before the first of them ran."""
    if not events:
        return 0.0
    # To read a history takes no accountant.
    from privmix.accounting.api import epsilon

    accountant = "pld" if delta > 0 else "pure"
    cost = epsilon(Composed(tuple(events)), delta, accountant=accountant, adjacency=adjacency).epsilon
    # The safe side: infinity exceeds every budget.
    return math.inf if math.isnan(cost) else cost


def spent_of(dataset: Row[Any], reserves: Sequence[Mapping[str, Any]]) -> TotalCost:
    """Joint cost of the reservations in ``reserves`` (contents of entries)."""
    kept = filter_of(dataset)
    if kept is None:
        return TotalCost(price([entry_event(entry) for entry in reserves], dataset.delta, Adjacency(dataset.adjacency)))
    return _filtered(kept, _total(reserves), dataset.delta)


def stated_of(dataset: Row[Any], reserves: Sequence[Mapping[str, Any]]) -> TotalCost:
    """Return the state by the newest reservation's entry, without pricing; :func:`check_spending` prices."""
    kept, stated = filter_of(dataset), _stated(reserves)
    return TotalCost(stated) if kept is None else TotalCost(stated, _total(reserves).share(kept.capacity))


def with_event(dataset: Row[Any], reserves: Sequence[Mapping[str, Any]], event: Event) -> TotalCost:
    """Return the cost of ``reserves`` and ``event``; raise :class:`BudgetExceeded` above the budget."""
    kept, adjacency = filter_of(dataset), Adjacency(dataset.adjacency)
    if kept is not None:
        # A filter fixes each cost at its charge: earlier ones add up as stated and are not priced again.
        cost, before = kept.cost(event, adjacency), _total(reserves)
        share, capacity = before.plus(cost).share(kept.capacity), kept.capacity
        # Written so that a share that is no number does not fit.
        if not share <= 1:
            # Bounded mechanisms bring deltas of their own, for which a filter keeps a part of its delta.
            amounts_fit = before.amount + cost.amount <= capacity.amount
            raise BudgetExceeded(
                dataset.name,
                requested=cost.share(capacity),
                spent=before.share(capacity),
                composed=share,
                budget=1.0,
                delta=dataset.delta,
                mode=f"{kept.name} filter" + ("'s share for deltas" if amounts_fit else ""),
            )
        together = _filtered(kept, before.plus(cost), dataset.delta)
        return TotalCost(together.epsilon, share, cost)
    events = [entry_event(entry) for entry in reserves]
    composed = price([*events, event], dataset.delta, adjacency)
    if not composed <= dataset.epsilon:
        raise BudgetExceeded(
            dataset.name,
            requested=price([event], dataset.delta, adjacency),
            spent=price(events, dataset.delta, adjacency),
            composed=composed,
            budget=dataset.epsilon,
            delta=dataset.delta,
        )
    return TotalCost(composed)


def check_spending(dataset: Row[Any], reserves: Sequence[Mapping[str, Any]]) -> None:
    kept, where = filter_of(dataset), f"spending of {dataset.name}"
    if kept is None:
        spent = spent_of(dataset, reserves).epsilon
        if not spent <= dataset.epsilon:
            raise InvalidInput(where, spent, f"epsilon of at most {exact(dataset.epsilon)}")
        _check_stated(where, spent, reserves)
        return
    for entry in reserves:
        cost, stated = kept.cost(entry_event(entry), Adjacency(dataset.adjacency)), entry_cost(entry)
        # A larger cost may come from an older accountant; a smaller one would overspend the filter.
        if not (cost.amount <= stated.amount * (1 + _SAME) and cost.slack <= stated.slack * (1 + _SAME)):
            raise InvalidInput(where, vars(stated), f"an entry of at least {vars(cost)}, the recomputed cost")
    share = _total(reserves).share(kept.capacity)
    if not share <= 1:
        raise InvalidInput(where, share, f"a share of at most 1 of the {kept.name} filter")
    _check_stated(where, spent_of(dataset, reserves).epsilon, reserves)


def _check_stated(where: str, spent: float, reserves: Sequence[Mapping[str, Any]]) -> None:
    stated = _stated(reserves)
    if not spent <= stated * (1 + _SAME):
        raise InvalidInput(where, stated, f"at least {rounded_up(spent, 6)} in its newest entry, as recomputed")


def entry_event(content: Mapping[str, Any]) -> Event:
    return event_from_dict(content["event"])


def cap_of(reserves: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the least number of records that a charge took for the most of a person; None where none took any."""
    # The least cap: a person above any cap is not covered by its charge, hence not by the total.
    return min((entry[CAP] for entry in reserves if CAP in entry), default=None)


def covered(most_per_person: int) -> str:
    records = "1 record" if most_per_person == 1 else f"{most_per_person:,} records"
    return f"persons with at most {records}, a limit that the owner declared for charges per record"


def check_group(content: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidInput` unless a reserve entry for records, to persons, charged the event of their group."""
    if (CAP in content) != ("record_event" in content):
        raise InvalidInput("ledger entry", sorted(content), f"both `{CAP}` and the event of one record, or none")
    if CAP in content:
        cap = check_integer(CAP, content[CAP], low=1)
        wanted = _group_event(event_from_dict(content["record_event"]), cap)
        if wanted is None or not _alike(event_to_dict(wanted), content["event"]):
            raise InvalidInput("ledger entry's event", content["event"], f"that of {cap} records together")


def _alike(one: Any, other: Any) -> bool:
    """Equal but for the last digits of numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(_alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        # Logarithms of other machines round in other ways.
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def entry_cost(content: Mapping[str, Any]) -> Cost:
    stated = content.get("cost")
    if not isinstance(stated, dict) or set(stated) != {"amount", "slack"}:
        raise InvalidInput("ledger entry's cost", stated, "an amount and a slack")
    return Cost(*(check_number(f"ledger entry's {name}", stated[name], low=0) for name in ("amount", "slack")))


def _stated(reserves: Sequence[Mapping[str, Any]]) -> float:
    """Epsilon of all of them, as the newest entry states it."""
    # The newest entry was priced under the lock of the dataset, with all before it.
    return check_number("ledger entry's spent", reserves[-1]["spent"], low=0) if reserves else 0.0


def _total(reserves: Sequence[Mapping[str, Any]]) -> Cost:
    total = Cost(0.0)
    for entry in reserves:
        total = total.plus(entry_cost(entry))
    return total


def _filtered(kept: Filter, spent: Cost, delta: float) -> TotalCost:
    return TotalCost(kept.epsilon(spent, delta), spent.share(kept.capacity))
