"""A budget is for records or for persons, and a charge is for the same: neither price stands for the other."""

from collections.abc import Callable
from typing import Any

import pytest

import privmix as pm
from privmix.accounting import Adjacency, Event, Gaussian, epsilon, event_from_dict
from privmix.accounting.events import FixedSizeSampled, PoissonSampled, Repeated
from privmix.accounting.pricing import group_event
from privmix.certificate.ledger_total import LedgerTotal
from privmix.errors import InvalidInput
from privmix.ledger.ledger import Ledger
from privmix.ledger.pricing import UNITS, BudgetExceeded, check_group
from privmix.ledger.verify import verify_ledger
from privmix.mechanisms.plan import unit_named
from tests.refusals import refuses

DELTA = 1e-5


@pytest.fixture
def ledger(url: str) -> Ledger:
    made = Ledger.create(url)
    for unit in UNITS:
        made.add_dataset(unit, epsilon=4.0, delta=DELTA, unit=unit)
    return made


@pytest.mark.parametrize("budget", UNITS)
@pytest.mark.parametrize("charge", UNITS)
def test_a_charge_is_for_what_the_budget_is_for(ledger: Ledger, budget: str, charge: str) -> None:
    if charge == budget:
        ledger.check(budget, Gaussian(5.0), unit=charge)
        ledger.reserve(budget, Gaussian(5.0), unit=charge, purpose="test")
    else:
        for way, more in ((ledger.check, {}), (ledger.reserve, {"purpose": "test"})):
            with pytest.raises(InvalidInput, match=rf"^unit: got '{charge}'; allowed: `{budget}`"):
                way(budget, Gaussian(5.0), unit=charge, **more)
    stated = ledger.budget(budget)
    assert (stated.reservations, stated.unit) == (int(charge == budget), budget)
    assert ledger.stated_budget(budget).unit == budget
    verify_ledger(ledger)


def test_records_are_what_is_meant_where_nothing_is_said(ledger: Ledger) -> None:
    ledger.reserve("record", Gaussian(5.0), purpose="test")
    with refuses("unit"):
        ledger.reserve("person", Gaussian(5.0), purpose="test")
    assert "unit" not in ledger.history("record")[0]
    with refuses("unit"):
        ledger.add_dataset("other", epsilon=1.0, delta=DELTA, unit="household")


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_that_was_changed_later_is_found(ledger: Ledger, name: str) -> None:
    other = UNITS[1 - UNITS.index(name)]
    with ledger._engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE datasets SET unit = '{other}' WHERE name = '{name}'")
    for use in (
        lambda: ledger.reserve(name, Gaussian(5.0), unit=other, purpose="test"),
        lambda: ledger.budget(name),
        lambda: verify_ledger(ledger),
    ):
        with pytest.raises(InvalidInput, match="first entry"):
            use()


@pytest.mark.parametrize("name", UNITS)
def test_a_statement_says_the_unit(ledger: Ledger, name: str) -> None:
    ledger.reserve(name, Gaussian(5.0), unit=name, purpose="release")
    found = pm.ledger_total(ledger, name)
    assert LedgerTotal.of(found.total.statement()).unit == name
    assert f"unit: {unit_named(name).changed}, add_remove" in str(found)


def capped(ledger: Ledger, event: Event, most: int, *, dataset: str = "person", **more: Any) -> None:
    ledger.check(dataset, event, most_per_person=most, **more)
    ledger.reserve(dataset, event, most_per_person=most, purpose="test", **more)


@pytest.mark.parametrize("most", [1, 4])
def test_records_are_charged_to_persons_at_the_price_of_a_group(ledger: Ledger, most: int) -> None:
    event = Repeated(PoissonSampled(0.1, Gaussian(20.0)), 10)
    capped(ledger, event, most)
    entry = ledger.history("person")[-1]
    together = event_from_dict(entry["event"])
    assert entry["most_per_person"] == most
    assert (together, event_from_dict(entry["record_event"])) == (group_event(event, most), event)
    assert ledger.budget("person").spent == pytest.approx(epsilon(together, DELTA).epsilon)
    verify_ledger(ledger)


def test_a_total_says_whom_it_covers(ledger: Ledger) -> None:
    assert pm.ledger_total(ledger, "person").total.most_per_person is None
    for most in (4, 3, 5):
        capped(ledger, Gaussian(60.0), most)
    ledger.reserve("person", Gaussian(60.0), unit="person", purpose="test")
    stated = pm.ledger_total(ledger, "person")
    assert LedgerTotal.of(stated.total.statement()).most_per_person == 3
    assert ledger.budget("person").most_per_person == ledger.stated_budget("person").most_per_person == 3
    for shown in (str(stated), str(ledger.budget("person"))):
        assert "persons with at most 3 records" in shown


def test_a_group_is_charged_with_all_that_was_charged_before(ledger: Ledger) -> None:
    """One fits, a second does not; of single records it would."""
    capped(ledger, Gaussian(6.0), 5)
    with pytest.raises(BudgetExceeded):
        capped(ledger, Gaussian(6.0), 5)
    for _ in range(2):
        ledger.reserve("record", Gaussian(6.0), purpose="test")
    assert ledger.budget("person").reservations == 1


def test_groups_and_persons_are_composed(ledger: Ledger) -> None:
    """As what they are: two Gaussian queries, of which the first moves by four records."""
    capped(ledger, Gaussian(20.0), 4)
    ledger.reserve("person", Gaussian(5.0), unit="person", purpose="test")
    assert ledger.budget("person").spent == pytest.approx(epsilon(Gaussian(5 / 2**0.5), DELTA).epsilon, rel=1e-3)
    verify_ledger(ledger)


@pytest.mark.parametrize(
    ("dataset", "event", "most", "more"),
    [
        ("record", Gaussian(9.0), 2, {}),
        ("record", Gaussian(9.0), 2, {"unit": "person"}),
        ("person", Gaussian(9.0), 2, {"unit": "person"}),
        ("person", Gaussian(9.0), 2, {"adjacency": Adjacency.REPLACE_ONE}),
        ("person", Gaussian(9.0), 0, {}),
        ("person", Gaussian(9.0), 2.5, {}),
        # Of such a sample no group's event is known.
        ("person", FixedSizeSampled(100, 10, Gaussian(9.0)), 2, {}),
    ],
)
def test_a_cap_is_refused_where_it_means_nothing(
    ledger: Ledger, dataset: str, event: Event, most: int, more: dict[str, Any]
) -> None:
    with refuses("most_per_person"):
        capped(ledger, event, most, dataset=dataset, **more)
    assert ledger.budget(dataset).reservations == 0


def test_an_adaptive_budget_takes_groups(url: str) -> None:
    made = Ledger.create(url)
    made.add_dataset("person", epsilon=4.0, delta=DELTA, unit="person", adaptive="gdp")
    capped(made, Gaussian(20.0), 4)
    one = made.budget("person").share
    made.reserve("person", Gaussian(5.0), unit="person", purpose="test")
    assert made.budget("person").share == pytest.approx(2 * one if one else None)
    verify_ledger(made)


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry["event"].update(noise_multiplier=entry["event"]["noise_multiplier"] * (1 + 1e-7)),
        lambda entry: entry.update(most_per_person=3),
        lambda entry: entry.update(event=entry["record_event"]),
        lambda entry: entry.pop("record_event"),
        lambda entry: entry.pop("most_per_person"),
    ],
)
def test_a_group_that_was_charged_too_little_is_found(ledger: Ledger, change: Callable[[dict[str, Any]], Any]) -> None:
    """Logarithms of other machines differ in their last digit; a charge that differs in the seventh is another one."""
    capped(ledger, Gaussian(20.0), 4)
    entry = ledger.history("person")[-1]
    entry["event"]["noise_multiplier"] *= 1 + 1e-13
    check_group(entry)
    change(entry)
    with pytest.raises(InvalidInput, match="ledger entry"):
        check_group(entry)
