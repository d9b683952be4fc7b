"""A ledger of a team: servers that are killed and connections that are lost overspend and understate nothing."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event as hooks

from privmix.accounting import Composed, Gaussian, Repeated, epsilon
from privmix.errors import StorageError
from privmix.ledger import BudgetExceeded, Ledger, verify_ledger
from tests.ledger.conftest import Server
from tests.ledger.test_ledger import DELTA, new_ledger, reserve


@pytest.fixture
def team(postgresql_server: Server, request: pytest.FixtureRequest) -> str:
    return postgresql_server(f"t{abs(hash(request.node.nodeid)):x}")


def cut(server: Server) -> None:
    """End all connections of others."""
    with server.link() as link:
        link.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


def test_a_server_that_is_killed_under_64_writers(postgresql_server: Server, team: str) -> None:
    """Whoever was told "reserved" is charged, and all of them together fit the budget."""
    people, fits = 64, 40
    budget = epsilon(Composed((Repeated(Gaussian(9.0), fits),)), DELTA).epsilon * (1 + 1e-9)
    new_ledger(team, budget=budget)

    def try_to(number: int) -> str:
        for _ in range(2):
            try:
                reserve(Ledger.open(team), Gaussian(9.0))
            except BudgetExceeded:
                return "refused"
            except StorageError:
                # The second time the server is there again.
                time.sleep(1 + number / people)
                continue
            return "reserved"
        return "lost"

    with ThreadPoolExecutor(people) as pool:
        told = [pool.submit(try_to, number) for number in range(people)]
        while sum(one.done() for one in told) < 5:
            time.sleep(0.01)
        postgresql_server.crash()
        postgresql_server.start()
        found = [one.result() for one in told]
    ledger = Ledger.open(team)
    held = ledger.budget("patients")
    assert 5 <= found.count("reserved") <= held.reservations <= fits
    assert held.spent <= budget
    verify_ledger(ledger)


def test_a_connection_lost_between_reserve_and_commit(postgresql_server: Server, team: str) -> None:
    ledger = new_ledger(team)
    reservation = ledger.reserve("patients", Gaussian(9.0), purpose="test")
    cut(postgresql_server)
    assert ledger.budget("patients").reservations == 1
    ledger.commit(reservation, result="done")
    postgresql_server.crash()
    with pytest.raises(StorageError):
        ledger.budget("patients")
    postgresql_server.start()
    assert ledger.budget("patients").reservations == 1
    verify_ledger(ledger)


def test_a_connection_lost_before_the_server_has_heard_charges_nothing(postgresql_server: Server, team: str) -> None:
    ledger = new_ledger(team)
    hooks.listen(ledger._engine, "commit", lambda _: cut(postgresql_server))
    with pytest.raises(StorageError):
        reserve(ledger, Gaussian(9.0))
    again = Ledger.open(team)
    assert again.budget("patients").reservations == 0
    verify_ledger(again)


def test_an_answer_that_is_lost_leaves_the_charge(team: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has it; who asked never hears: charged, and not known to be, which is the safe side."""
    import psycopg

    ledger, commit = new_ledger(team), psycopg.Connection.commit

    def unheard(self: Any) -> None:
        commit(self)
        self.close()
        raise psycopg.OperationalError("connection lost")

    monkeypatch.setattr(psycopg.Connection, "commit", unheard)
    with pytest.raises(StorageError):
        reserve(ledger, Gaussian(9.0))
    monkeypatch.setattr(psycopg.Connection, "commit", commit)
    assert Ledger.open(team).budget("patients").reservations == 1
    verify_ledger(Ledger.open(team))
