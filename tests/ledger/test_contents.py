"""One budget for one content: by file, bound before anything is charged, and as earlier versions bound it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import sqlalchemy
from alembic import command
from alembic.config import Config

from privmix.accounting import Gaussian, event_to_dict
from privmix.errors import InvalidInput
from privmix.ledger.contents import DataIdentity
from privmix.ledger.database import FIRST_HASH, canonical, chained, fingerprints
from privmix.ledger.ledger import Ledger
from privmix.ledger.verify import verify_ledger
from tests.refusals import refuses

DELTA = 1e-5
A, B, C, D = (letter * 64 for letter in "abcd")


def new_ledger(url: str, *names: str) -> Ledger:
    ledger = Ledger.create(url)
    for name in names:
        ledger.add_dataset(name, epsilon=4, delta=DELTA)
    return ledger


def take(ledger: Ledger, name: str, *files: str, listings: tuple[str, ...] = ()) -> None:
    ledger.reserve(name, Gaussian(5.0), purpose="test", contents=DataIdentity(files, listings))


def test_any_file_of_a_budget_is_refused_under_another_name_and_burns_nothing(url: str) -> None:
    ledger = new_ledger(url, "patients", "again")
    take(ledger, "patients", A, B)
    before = ledger.budget("again")
    for files in ((A,), (B, C), (C, D, A)):
        with refuses("dataset"):
            take(ledger, "again", *files)
    assert ledger.budget("again") == before
    assert before.spent == 0
    assert [entry["kind"] for entry in ledger.history("again")] == ["init"]
    with refuses("contents"):
        take(ledger, "again", "A" * 64)
    # What was refused is bound to nobody: C is free.
    take(ledger, "again", C)
    # The same name again, in part, whole, or grown: one budget is charged.
    take(ledger, "patients", B)
    take(ledger, "patients", B, A, D)
    assert [entry.get("files") for entry in ledger.history("patients") if entry["kind"] == "bind"] == [[A, B], [], [D]]
    # A binding says which contents it is for, in any order.
    take(ledger, "patients", B, A)
    known = [entry["content"] for entry in ledger.history("patients") if entry["kind"] == "bind"]
    assert known[0] == known[3] != known[1] != known[2]
    assert not ledger.keeps_listings()
    assert verify_ledger(ledger) == {"again": 3, "patients": 9}


def test_what_was_charged_is_known_by_any_file_and_old_listing(url: str) -> None:
    ledger = new_ledger(url, "patients")
    assert not ledger.knows_data()
    take(ledger, "patients", A, B)
    assert ledger.knows_data()
    assert ledger.knows(DataIdentity((C, B)))
    # What an earlier version bound as one listing is no file's hash, and neither the other way round.
    assert not ledger.knows(DataIdentity((C,), (A,)))
    with sqlalchemy.create_engine(url).begin() as connection:
        row = {"fingerprint": D, "dataset_id": 1, "kind": "listing"}
        connection.execute(sqlalchemy.insert(fingerprints), row)
    assert ledger.knows(DataIdentity((C,), (D,)))
    assert not ledger.knows(DataIdentity((D,)))


def test_many_files_are_bound_and_found(url: str) -> None:
    ledger = new_ledger(url, "patients", "again")
    files = [f"{number:064x}" for number in range(1203)]
    take(ledger, "patients", *files)
    for known in (files[0], files[700], files[-1]):
        with refuses("dataset"):
            take(ledger, "again", "f" * 64, known)
    verify_ledger(ledger)


def test_two_names_for_one_file_at_once_get_one_budget(url: str) -> None:
    new_ledger(url, "one", "two")
    barrier, refused = threading.Barrier(2), []

    def try_to(name: str) -> None:
        barrier.wait()
        try:
            take(Ledger.open(url), name, A)
        except InvalidInput:
            refused.append(name)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(try_to, ("one", "two")))
    assert len(refused) == 1
    ledger = Ledger.open(url)
    assert ledger.budget(refused[0]).reservations == 0
    verify_ledger(ledger)


def old_ledger(url: str) -> None:
    """A ledger as the first version wrote it, with one listing bound."""
    config = Config()
    config.set_main_option("script_location", "privmix.ledger:migrations")
    set_up = {"name": "patients", "epsilon": 4.0, "delta": DELTA, "adjacency": "add_remove"}
    contents = [
        {"kind": "init", **set_up},
        {"kind": "reserve", "id": "r", "purpose": "release", "event": event_to_dict(Gaussian(5.0)), "spent": 1.0},
        {"kind": "bind", "id": "r", "fingerprint": A},
    ]
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        row = "INSERT INTO datasets VALUES (1, :name, :epsilon, :delta, :adjacency, 3, :head)"
        head = FIRST_HASH
        connection.execute(sqlalchemy.text(row), {**set_up, "head": head})
        for number, content in enumerate(contents, start=1):
            text = canonical({**content, "at": "2026-01-01T00:00:00+00:00"})
            head = chained(head, text)
            values = {"n": number, "text": text, "head": head}
            connection.execute(sqlalchemy.text("INSERT INTO entries VALUES (1, :n, :text, :head)"), values)
        connection.execute(sqlalchemy.text("UPDATE datasets SET head = :head"), {"head": head})
        connection.execute(sqlalchemy.text("INSERT INTO fingerprints VALUES (:print, 1)"), {"print": A})
    engine.dispose()


def test_a_ledger_of_the_first_version_is_upgraded_whole(url: str) -> None:
    old_ledger(url)
    with refuses("ledger"):
        Ledger.open(url)
    ledger = Ledger.upgrade(url)
    assert verify_ledger(ledger) == {"patients": 3}
    assert ledger.keeps_listings()
    budget = ledger.budget("patients")
    assert (budget.mode, budget.filter, budget.share, budget.uncommitted) == ("planned", None, None, 1)
    assert budget.unit == "record"
    # What it refused is still refused, and nothing else is: a listing's hash is no file's.
    if url.startswith("postgresql"):
        with ledger._engine.begin() as connection:
            connection.exec_driver_sql("SELECT setval('datasets_id_seq', 1)")
    ledger.add_dataset("again", epsilon=4, delta=DELTA)
    with refuses("dataset"):
        take(ledger, "again", B, listings=(D, A))
    take(ledger, "patients", B, listings=(A,))
    with refuses("dataset"):
        take(ledger, "again", B)
    take(ledger, "again", C, listings=(D,))
    verify_ledger(Ledger.open(url))
