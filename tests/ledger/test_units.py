"""A budget is for records or for persons, and a charge is for the same: neither price stands for the other."""

from __future__ import annotations

import pytest
import sqlalchemy

import privmix as pm
from privmix.accounting import Gaussian
from privmix.certificate.ledger_total import LedgerTotal
from privmix.errors import InvalidInput
from privmix.ledger import Ledger, verify_ledger
from privmix.ledger.pricing import UNITS
from privmix.mechanisms.plan import unit_named

DELTA = 1e-5


@pytest.fixture
def ledger(url: str) -> Ledger:
    made = Ledger.create(url)
    for unit in UNITS:
        made.add_dataset(unit, epsilon=4.0, delta=DELTA, unit=unit)
    return made


def test_units_have_words() -> None:
    assert [unit_named(unit).one for unit in UNITS] == list(UNITS)


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
    with pytest.raises(InvalidInput, match="person_pattern"):
        ledger.reserve("person", Gaussian(5.0), purpose="test")
    assert "unit" not in ledger.history("record")[0]
    with pytest.raises(InvalidInput, match="unit"):
        ledger.add_dataset("other", epsilon=1.0, delta=DELTA, unit="household")


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_that_was_changed_later_is_found(ledger: Ledger, name: str) -> None:
    other = UNITS[1 - UNITS.index(name)]
    with ledger._engine.begin() as connection:
        connection.execute(
            sqlalchemy.text("UPDATE datasets SET unit = :unit WHERE name = :name"), {"unit": other, "name": name}
        )
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
    assert LedgerTotal.from_payload(found.total.to_payload()).unit == name
    assert f"unit: {unit_named(name).changed}, add_remove" in str(found)
