"""Budgets hold: under composition, under concurrency, under kill -9, and against edits of the history."""

import os
import signal
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import event as hooks

from privmix.accounting import (
    Adjacency,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
    UnsupportedEvent,
    epsilon,
)
from privmix.accounting.filters import make_filter
from privmix.errors import InvalidInput, StorageError
from privmix.ledger.contents import DataIdentity
from privmix.ledger.database import canonical, chained, metadata
from privmix.ledger.ledger import Ledger
from privmix.ledger.pricing import BudgetExceeded
from privmix.ledger.verify import verify_ledger
from tests.refusals import refuses

DELTA = 1e-5
FILES = DataIdentity(("a" * 64,))
RELEASE = Repeated(PoissonSampled(64 / 5_000, Gaussian(4.25)), 5_000)


def new_ledger(url: str, budget: float = 4.0, delta: float = DELTA, **more: Any) -> Ledger:
    ledger = Ledger.create(url)
    ledger.add_dataset("patients", epsilon=budget, delta=delta, **more)
    return ledger


def reserve(ledger: Ledger, event: Event = RELEASE, dataset: str = "patients") -> float:
    return ledger.reserve(dataset, event, purpose="test").spent


def test_a_budget_from_reservation_to_commit(url: str) -> None:
    ledger = new_ledger(url)
    assert ledger.budget("patients").spent == 0
    reservation = ledger.reserve("patients", RELEASE, purpose="release")
    charged = Ledger.open(url).budget("patients")
    assert (charged.reservations, charged.uncommitted) == (1, 1)
    assert charged.spent == pytest.approx(epsilon(RELEASE, DELTA).epsilon)
    again = {"purpose": "release", "contents": FILES, "id": reservation.id}
    assert ledger.reserve("patients", RELEASE, **again, again=True) == reservation
    ledger.commit(reservation, result="release 1")
    done = ledger.budget("patients")
    assert (done.reservations, done.uncommitted, done.spent) == (1, 0, charged.spent)
    with refuses("reservation"):
        ledger.commit(reservation, result="done")
    assert [entry["kind"] for entry in ledger.history("patients")] == ["init", "reserve", "bind", "commit"]
    assert verify_ledger(ledger) == {"patients": 4}


def test_cost_is_composed_and_not_added(url: str) -> None:
    ledger = new_ledger(url)
    alone, both = reserve(ledger), reserve(ledger)
    assert both == pytest.approx(epsilon(Composed((RELEASE, RELEASE)), DELTA).epsilon)
    assert alone < both < 1.7 * alone


def test_overspending_is_refused_with_the_figures_and_charges_nothing(url: str) -> None:
    ledger = new_ledger(url, budget=1.5)
    reserve(ledger)
    before = ledger.budget("patients")
    with pytest.raises(
        BudgetExceeded, match=r"exceed 1\.5 \(requested .*, spent .*, remaining .*; delta 1e-05\)"
    ) as caught:
        reserve(ledger, Gaussian(1.0))
    assert caught.value.exit_code == 3
    assert caught.value.composed > 1.5 >= caught.value.spent
    with pytest.raises(BudgetExceeded):
        reserve(ledger, Gaussian(1e-3))
    with pytest.raises(UnsupportedEvent):
        reserve(ledger, FixedSizeSampled(100, 4, Gaussian(2.0)))
    assert ledger.budget("patients") == before


def test_a_plan_for_other_neighbours_is_refused(url: str) -> None:
    ledger = new_ledger(url)
    with refuses("adjacency"):
        ledger.reserve("patients", RELEASE, adjacency=Adjacency.REPLACE_ONE, purpose="test")
    ledger.add_dataset("swaps", epsilon=4, delta=DELTA, adjacency=Adjacency.REPLACE_ONE)
    fixed = Repeated(FixedSizeSampled(5_000, 64, Gaussian(3.0)), 5_000)
    spent = ledger.reserve("swaps", fixed, adjacency=Adjacency.REPLACE_ONE, purpose="test").spent
    assert spent == pytest.approx(epsilon(fixed, DELTA, adjacency=Adjacency.REPLACE_ONE).epsilon)


@pytest.mark.parametrize("adaptive", [None, "gdp"])
def test_a_pure_budget_is_priced_by_pure_dp(url: str, adaptive: str | None) -> None:
    """It may be adaptive at no cost."""
    ledger = new_ledger(url, budget=1.0, delta=0.0, adaptive=adaptive)
    assert [reserve(ledger, Laplace(2.0)) for _ in range(2)] == pytest.approx([0.5, 1.0])
    with pytest.raises(BudgetExceeded):
        reserve(ledger, Laplace(100.0))
    with pytest.raises(UnsupportedEvent):
        reserve(ledger, Gaussian(2.0))
    verify_ledger(ledger)


@pytest.mark.parametrize(("people", "fits", "adaptive"), [(64, 20, None), (12, 5, "gdp")])
def test_many_at_once_never_overspend(url: str, people: int, fits: int, adaptive: str | None) -> None:
    event, budget = Gaussian(9.0), 1.0
    if adaptive is None:
        budget = epsilon(Repeated(event, fits), DELTA).epsilon * (1 + 1e-9)
    else:
        event = Gaussian((make_filter(adaptive, budget, DELTA).capacity.amount / fits) ** -0.5 * (1 + 1e-8))
    new_ledger(url, budget=budget, adaptive=adaptive)

    def try_to(_: int) -> bool:
        try:
            reserve(Ledger.open(url), event)
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(people) as pool:
        accepted = sum(pool.map(try_to, range(people)))
    assert accepted == fits
    ledger = Ledger.open(url)
    assert ledger.budget("patients").reservations == fits
    assert ledger.budget("patients").spent <= budget
    verify_ledger(ledger)


def _run_killed(url: str, statement: int, after: bool) -> tuple[bool, bytes]:
    """Reserve in a process that kills itself at a statement; return whether it was killed, and what it reported."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            ledger = Ledger.open(url)
            seen = 0

            def count(*_: object) -> None:
                nonlocal seen
                seen += 1
                if seen == statement:
                    os.kill(os.getpid(), signal.SIGKILL)

            for name in ("after_cursor_execute",) if after else ("before_cursor_execute", "commit"):
                hooks.listen(ledger._engine, name, count)
            reservation = ledger.reserve("patients", Gaussian(9.0), purpose="test")
            os.write(write, b"reserved ")
            ledger.commit(reservation, result="done")
            os.write(write, b"committed")
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, said


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("after", [False, True])
def test_killed_between_any_two_statements_nothing_is_understated(url: str, after: bool) -> None:
    ledger = new_ledger(url, budget=1e3)
    promised, statement, killed = 0, 0, True
    while killed:
        statement += 1
        killed, said = _run_killed(url, statement, after)
        promised += said.startswith(b"reserved")
        budget = ledger.budget("patients")
        # Whoever was told "reserved" is charged; at most the one who was killed first is charged without having heard.
        assert promised <= budget.reservations <= promised + statement
        assert budget.reservations > 0 or not said
        verify_ledger(ledger)
    assert said == b"reserved committed"
    assert statement > 8
    assert budget.spent == pytest.approx(epsilon(Repeated(Gaussian(9.0), budget.reservations), DELTA).epsilon)


# Edits of a budget with a filter and of one without; a charge rests on what the marked ones change.
EDITS: dict[str, tuple[str, bool]] = {
    "a cheaper charge": ("UPDATE entries SET content = replace(content, '4.25', '9.25') WHERE number = 2", False),
    "a charge gone": ("DELETE FROM entries WHERE number = 2", False),
    "the last entry gone": ("DELETE FROM entries WHERE number = 3", False),
    "an entry moved": ("UPDATE entries SET number = 9 WHERE number = 2", False),
    "another name": ("UPDATE datasets SET name = 'others' WHERE name = 'patients'", True),
    "a higher budget": ("UPDATE datasets SET epsilon = 400", True),
    "a larger delta": ("UPDATE datasets SET delta = 0.1", True),
    "another adjacency": ("UPDATE datasets SET adjacency = 'replace_one'", True),
    "no entries at all": ("DELETE FROM entries", True),
    "a wrong count": ("UPDATE datasets SET entries = 50", True),
    "another head": (f"UPDATE datasets SET head = '{'0' * 64}'", True),
    "a first entry": ("UPDATE entries SET content = replace(content, '4.0', '9.0') WHERE number = 1", True),
    "a forgotten content": ("DELETE FROM fingerprints", False),
    "a content of another kind": ("UPDATE fingerprints SET kind = 'listing'", False),
    "another mode": ("""UPDATE datasets SET filter = '{"name":"pure","total":4.0}'""", True),
    "a dataset gone": ("DELETE FROM datasets", False),
    "a wrong hash in a rewritten entry": (
        """UPDATE entries SET hash = 'x', content = '{"hash":"' || hash || '",' ||
        substr(content, 2) WHERE number = 2""",
        False,
    ),
    "no budget's type": ("UPDATE datasets SET epsilon = 'abc'", False),
    "no adjacency": ("UPDATE datasets SET adjacency = 'zzz'", False),
    "nonsense": ("UPDATE entries SET content = 'x' WHERE number = 2", False),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_history_is_noticed(lite: str, name: str) -> None:
    ledger = new_ledger(lite)
    ledger.reserve("patients", RELEASE, purpose="test", contents=FILES)
    reserve(ledger)
    verify_ledger(ledger)
    _edit(lite, EDITS[name][0])
    with pytest.raises(InvalidInput):
        verify_ledger(ledger)


@pytest.mark.parametrize(
    ("column", "adaptive"),
    [
        *((name, mode) for name, (_, charged) in EDITS.items() if charged for mode in (None, "gdp")),
        ("no filter", "gdp"),
    ],
)
def test_a_budget_that_was_edited_is_not_charged(lite: str, column: str, adaptive: str | None) -> None:
    ledger = new_ledger(lite, adaptive=adaptive)
    reserve(ledger)
    before = _count(lite)
    _edit(lite, "UPDATE datasets SET filter = NULL" if column == "no filter" else EDITS[column][0])
    name = "others" if column == "another name" else "patients"
    edited = _count(lite)
    for use in (
        lambda: ledger.reserve(name, RELEASE, purpose="test"),
        lambda: ledger.check(name, RELEASE),
        lambda: ledger.budget(name),
    ):
        with pytest.raises(InvalidInput):
            use()
    assert _count(lite) == edited <= before


def _count(url: str) -> int:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        return int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])


def test_a_statement_below_the_price_is_noticed(lite: str) -> None:
    """What is shown without pricing it is what verification holds to the price."""
    ledger = new_ledger(lite)
    reserve(ledger)
    assert ledger.stated_budget("patients") == ledger.budget("patients")
    _forge(lite, spent=ledger.history("patients")[1]["spent"] * 0.999)
    assert ledger.stated_budget("patients").spent < ledger.budget("patients").spent
    with refuses("spending of patients"):
        verify_ledger(ledger)


def test_a_charge_for_records_at_less_than_their_price_to_persons_is_noticed(lite: str) -> None:
    ledger = new_ledger(lite, unit="person")
    ledger.reserve("patients", Gaussian(20.0), most_per_person=4, purpose="test")
    _forge(lite, most_per_person=40)
    with refuses("ledger entry's event"):
        verify_ledger(ledger)


def test_a_history_cut_with_its_count_is_noticed_by_a_hash_kept_elsewhere(lite: str) -> None:
    ledger = new_ledger(lite)
    reserve(ledger)
    kept, end = ledger.budget("patients").head, ledger.history("patients")[0]["hash"]
    reserve(ledger)
    verify_ledger(ledger, head=kept)
    _edit(lite, "DELETE FROM entries WHERE number > 1", f"UPDATE datasets SET entries = 1, head = '{end}'")
    verify_ledger(ledger)
    with refuses("head"):
        verify_ledger(ledger, head=kept)


def _forge(url: str, **changes: Any) -> None:
    """Change the second of two entries, hashes and all."""
    first, second = Ledger.open(url).history("patients")
    text = canonical({key: value for key, value in second.items() if key not in ("number", "hash")} | changes)
    head = chained(first["hash"], text)
    _edit(
        url,
        f"UPDATE entries SET content = '{text}', hash = '{head}' WHERE number = 2",
        f"UPDATE datasets SET head = '{head}'",
    )


def _edit(url: str, *statements: str) -> None:
    with sqlalchemy.create_engine(url).begin() as connection:
        for trigger in ("entries_no_update", "entries_no_delete", "entries_no_replace"):
            connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
        for statement in statements:
            connection.exec_driver_sql(statement)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET number = number + 1",
        "DELETE FROM entries",
        "INSERT OR REPLACE INTO entries VALUES (1, 1, 'x', 'x')",
    ],
)
def test_the_database_refuses_to_change_history(url: str, change: str) -> None:
    if "REPLACE" in change and not url.startswith("sqlite"):
        pytest.skip("words of SQLite")
    ledger = new_ledger(url)
    with pytest.raises(sqlalchemy.exc.DBAPIError, match="append-only"), ledger._engine.begin() as connection:
        connection.exec_driver_sql(change)
    verify_ledger(ledger)


def test_migrations_make_the_declared_tables(url: str) -> None:
    ledger = new_ledger(url)
    with ledger._engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    Ledger.create(url)  # a second time changes nothing
    assert ledger.names() == ["patients"]
    with refuses("dataset"):
        ledger.add_dataset("patients", epsilon=100, delta=DELTA)


def test_the_file_is_the_owners(lite: str, tmp_path: Path) -> None:
    new_ledger(lite)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize(("budget", "delta"), [(0, 1e-5), (-1, 1e-5), (float("nan"), 1e-5), (1, -1), (1, 1)])
def test_bad_budgets(lite: str, budget: float, delta: float) -> None:
    with pytest.raises(InvalidInput, match=r"epsilon|delta"):
        Ledger.create(lite).add_dataset("d", epsilon=budget, delta=delta)
    with refuses("dataset"):
        Ledger.create(lite).add_dataset("a\nb", epsilon=1, delta=DELTA)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "junk",
        "mysql://host/db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///l.db?timeout=abc",
        "sqlite+aiosqlite:///l.db",
        "//u:secret@h/db",
        "postgresql://u:secret@h:port/db",
    ],
)
def test_bad_urls(bad: str) -> None:
    with refuses("ledger") as caught:
        Ledger.create(bad)
    assert "secret" not in str(caught.value)


def test_what_is_no_ledger(tmp_path: Path, lite: str) -> None:
    for opened in (Ledger.open, Ledger.upgrade):
        with refuses("ledger"):
            opened(lite)
    path = Path(lite.removeprefix("sqlite:///"))
    path.touch()
    for opened in (Ledger.open, Ledger.upgrade):
        with refuses("ledger"):
            opened(lite)
    path.write_text("no database " * 100)
    with pytest.raises(StorageError, match="not a database"):
        Ledger.open(lite)
    with pytest.raises(StorageError, match="No such file"):
        Ledger.create(f"sqlite:///{tmp_path / 'missing' / 'l.db'}")
    path.unlink()
    ledger = new_ledger(lite)
    with refuses("dataset"):
        ledger.budget("other")
    with ledger._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    for opened in (Ledger.open, Ledger.upgrade, Ledger.create):
        with refuses("ledger"):
            opened(lite)


def test_an_unreachable_server_is_one_line_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StorageError) as caught:
        Ledger.open("postgresql://user:secret@127.0.0.1:1/db?password=secret")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
