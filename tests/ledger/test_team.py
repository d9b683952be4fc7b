"""A ledger of a team: servers that are killed and connections that are lost overspend and understate nothing."""

import getpass
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as hooks
from sqlalchemy.exc import ProgrammingError

from privmix.accounting import Gaussian, Repeated, epsilon
from privmix.errors import StorageError
from privmix.ledger.contents import DataIdentity
from privmix.ledger.ledger import Ledger
from privmix.ledger.pricing import BudgetExceeded
from privmix.ledger.verify import verify_ledger
from tests.ledger.conftest import Server
from tests.ledger.test_ledger import DELTA, new_ledger, reserve
from tests.refusals import refuses


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
    budget = epsilon(Repeated(Gaussian(9.0), fits), DELTA).epsilon * (1 + 1e-9)
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


def test_members_of_a_team_may_charge_and_change_nothing_else(postgresql_server: Server, team: str) -> None:
    """The grants of docs/budget.md: whoever charges adds entries, and neither budgets nor changed ones."""
    new_ledger(team)
    page = (Path(__file__).parents[2] / "docs" / "budget.md").read_text()
    (grants,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    name = team.rpartition("/")[2]
    with postgresql_server.link(name) as link:
        link.execute(f'CREATE ROLE "{name}" LOGIN')
        for line in grants.strip().splitlines():
            link.execute(line.replace("team", f'"{name}"'))
    ledger = Ledger.open(team.replace("privmix@", f"{name}@").replace(f"{getpass.getuser()}@", f"{name}@"))
    files = DataIdentity(("a" * 64,))
    taken = ledger.reserve("patients", Gaussian(9.0), purpose="release", contents=files)
    ledger.bind(taken, ["b" * 64])
    ledger.commit(taken, result="done")
    assert ledger.budget("patients").reservations == 1
    assert verify_ledger(ledger) == {"patients": 5}
    with pytest.raises(StorageError, match="permission denied"):
        ledger.add_dataset("more", epsilon=1, delta=DELTA)
    changes = ("UPDATE entries SET content = ''", "DELETE FROM entries", "UPDATE datasets SET epsilon = 9")
    for change in (*changes, "DELETE FROM fingerprints", "TRUNCATE entries"):
        with pytest.raises(ProgrammingError, match="permission denied"), ledger._engine.begin() as connection:
            connection.exec_driver_sql(change)


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
    again = Ledger.open(team)
    assert again.budget("patients").reservations == 1
    # Whoever asks again under its id hears the same, and is charged nothing more.
    (known,) = (entry for entry in again.history("patients") if entry["kind"] == "reserve")
    taken = again.reserve("patients", Gaussian(9.0), purpose="test", id=known["id"])
    assert (taken.id, taken.spent) == (known["id"], known["spent"])
    again.add_dataset("others", epsilon=4.0, delta=DELTA)
    for name, terms in (("patients", {"purpose": "other"}), ("patients", {"event": Gaussian(8.0)}), ("others", {})):
        with refuses("reservation"):
            again.reserve(name, **{"event": Gaussian(9.0), "purpose": "test", **terms}, id=known["id"])
    with refuses("reservation"):
        again.reserve("patients", Gaussian(9.0), purpose="test", id="0" * 32, again=True)
    assert again.budget("patients").reservations == 1
    verify_ledger(again)
