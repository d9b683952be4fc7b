"""Totals of ledgers as statements: what they say, who vouches for them, and what a stranger's can't do."""

import base64
import json
import sqlite3
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import privmix as pm
from privmix.accounting import Gaussian
from privmix.certificate import PrivateKey
from privmix.certificate.keys import Statement
from privmix.certificate.ledger_total import LedgerTotal, read_total, write_total
from privmix.errors import InvalidInput, PrivmixError, StorageError
from privmix.jobs.ledger_total import StatedTotal, check_ledger_total, total_record
from privmix.ledger.contents import DataIdentity
from privmix.ledger.ledger import Ledger
from tests.cli.helpers import privmix
from tests.refusals import refuses

KEY, OTHER = PrivateKey.new(), PrivateKey.new()
FILE_HASH = "ab" * 32


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'l.db'}"


@pytest.fixture
def book(url: str) -> Ledger:
    """Two datasets; two releases and a training of the first, one of them without a result."""
    ledger = Ledger.create(url)
    ledger.add_dataset("visits", epsilon=4.0, delta=1e-5)
    ledger.add_dataset("other", epsilon=8.0, delta=1e-5, adaptive="gdp")
    contents = DataIdentity((FILE_HASH,))
    first = ledger.reserve("visits", Gaussian(4.0), purpose="release", contents=contents)
    ledger.commit(first, result="release " + "1" * 32)
    second = ledger.reserve("visits", Gaussian(5.0), purpose="training", contents=contents)
    ledger.commit(second, result="model " + "2" * 32)
    ledger.reserve("visits", Gaussian(6.0), purpose="release", contents=contents)
    return ledger


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    KEY.write(tmp_path / "ana.pem")
    (tmp_path / "ana.pub.pem").write_bytes(KEY.public.to_pem())
    (tmp_path / "bo.pub.pem").write_bytes(OTHER.public.to_pem())
    return tmp_path


def test_it_says_the_budget_on_its_safe_side(book: Ledger) -> None:
    found, kept = pm.ledger_total(book, "visits").total, book.budget("visits")
    assert kept.spent <= found.spent <= kept.spent * (1 + 1e-5)
    assert found.left <= 4.0 - found.spent <= 4.0 - kept.spent
    assert (found.epsilon, found.delta, found.adjacency, found.mode) == (4.0, 1e-5, "add_remove", "planned")
    assert found.charges == {"release": 2, "training": 1}
    assert found.to_dict()["unit"] == "record"
    adaptive = pm.ledger_total(book, "other").total
    assert (adaptive.mode, adaptive.filter, adaptive.share, adaptive.charges) == ("adaptive", "gdp", 0.0, {})
    with refuses("dataset"):
        pm.ledger_total(book, "none")


def test_it_holds_nothing_of_the_data_and_no_name_that_hides_them(book: Ledger, tmp_path: Path) -> None:
    """Neither fingerprints nor what they are hashed with: reservations' names, and hashes of the chain."""
    stated = pm.ledger_total(book, "visits", out=tmp_path / "t.json", outcomes=True)
    text = (tmp_path / "t.json").read_text()
    for entry in book.history("visits"):
        assert entry["hash"] not in text
        assert entry.get("id", "no id") not in text
        assert entry.get("content", "no content") not in text
    assert FILE_HASH not in text
    assert stated.total.outcomes is not None


def test_how_runs_ended_is_said_when_asked_alone(book: Ledger, tmp_path: Path) -> None:
    assert pm.ledger_total(book, "visits", out=tmp_path / "public.json").total.outcomes is None
    assert "111111" not in (tmp_path / "public.json").read_text()
    outcomes = pm.ledger_total(book, "visits", out=tmp_path / "officer.json", outcomes=True).total.outcomes
    assert (outcomes.committed, outcomes.open) == (2, 1)
    assert outcomes.results == ("release " + "1" * 32, "model " + "2" * 32)
    assert stat.S_IMODE((tmp_path / "officer.json").stat().st_mode) == 0o600
    assert read_total(tmp_path / "officer.json")[0].outcomes == outcomes


@pytest.mark.parametrize("outcomes", [False, True])
def test_what_is_signed_is_read_back(book: Ledger, keys: Path, outcomes: bool) -> None:
    made = pm.ledger_total(book, "visits", out=keys / "t.json", key=keys / "ana.pem", outcomes=outcomes)
    total, statement = read_total(keys / "t.json", KEY.public)
    assert (total, statement.key_id, statement.checked) == (made.total, KEY.public.key_id, True)
    checked = pm.verify(keys / "t.json", key=keys / "ana.pub.pem")
    assert (checked.total, checked.signature) == (made.total, {"key_id": KEY.public.key_id, "checked": True})
    assert "visits" in repr(checked)
    # Without a key nobody is said to vouch.
    named = read_total(keys / "t.json")[1]
    assert (named.key_id, named.checked) == (KEY.public.key_id, False)
    pm.ledger_total(book, "visits", out=keys / "plain.json")
    assert read_total(keys / "plain.json")[1].key_id is None
    with refuses("ledger statement"):
        read_total(keys / "plain.json", KEY.public)


def test_another_key_is_refused(book: Ledger, keys: Path) -> None:
    pm.ledger_total(book, "visits", out=keys / "t.json", key=KEY)
    with refuses("key"):
        read_total(keys / "t.json", OTHER.public)
    # Whoever writes another key's name over it gains nothing.
    envelope = json.loads((keys / "t.json").read_text())
    envelope["signatures"][0]["keyid"] = OTHER.public.key_id
    (keys / "t.json").write_text(json.dumps(envelope))
    for key in (KEY.public, OTHER.public):
        with pytest.raises(InvalidInput):
            read_total(keys / "t.json", key)


def test_any_change_under_a_signature_is_refused(book: Ledger, keys: Path) -> None:
    pm.ledger_total(book, "visits", out=keys / "t.json", key=KEY)
    envelope = json.loads((keys / "t.json").read_text())
    payload = base64.b64decode(envelope["payload"])
    for position in range(0, len(payload), 7):
        changed = bytearray(payload)
        changed[position] ^= 1
        envelope["payload"] = base64.b64encode(bytes(changed)).decode()
        (keys / "t.json").write_text(json.dumps(envelope))
        with refuses("ledger statement"):
            read_total(keys / "t.json", KEY.public)


Change = Callable[[dict[str, Any]], object]


def predicate(**values: Any) -> Change:
    return lambda s: s["predicate"].update(values)


def named(name: str) -> Change:
    return lambda s: (s["predicate"].update(dataset=name), s["subject"][0].update(name=name))


CHANGES: dict[str, Change] = {
    "a field more": predicate(note="x"),
    "a field less": lambda s: s["predicate"].pop("mode"),
    "another predicate": lambda s: s.update(predicateType="urn:privmix:guarantee:v1"),
    "two subjects": lambda s: s["subject"].append(s["subject"][0]),
    "another subject": lambda s: s["subject"][0].update(name="other"),
    "a longer name": named("x" * 201),
    "a name of two lines": named("a\nb"),
    "more left than there is": predicate(left=3.9),
    "negative": predicate(spent=-1.0),
    "a text": predicate(spent="1"),
    "a truth": predicate(epsilon=True),
    "a huge number": predicate(epsilon=10**380),
    "another unit": predicate(unit="household"),
    "another adjacency": predicate(adjacency="none"),
    "another mode": predicate(mode="adaptive"),
    "charges as a list": predicate(charges=[1]),
    "half a charge": predicate(charges={"release": 0.5}),
    "many purposes": predicate(charges={f"p{n}": 1 for n in range(51)}),
    "no time": predicate(date="yesterday"),
    "another zone": predicate(date="2026-01-31T12:00:00+01:00"),
    "another tool": predicate(tool="rm -rf /"),
    "outcomes": predicate(outcomes={"committed": 9, "open": 0, "results": ["x"] * 9}),
    "outcomes of another form": predicate(outcomes=[1]),
    "results that are no texts": predicate(outcomes={"committed": 3, "open": 0, "results": [1] * 3}),
}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_whatever_privmix_would_not_state_is_refused(name: str, signed: bool, book: Ledger, tmp_path: Path) -> None:
    """Also under a true signature: a key's owner can't make a page or a terminal show what it should not."""
    statement = json.loads(pm.ledger_total(book, "visits").total.statement().payload)
    CHANGES[name](statement)
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    signature = KEY.sign(Statement(payload).signed_bytes)
    envelope = Statement(payload, KEY.public.key_id, signature)
    (tmp_path / "t.json").write_bytes(envelope.to_bytes() if signed else payload)
    with pytest.raises(InvalidInput):
        read_total(tmp_path / "t.json", KEY.public if signed else None)


def test_it_has_one_form(book: Ledger, tmp_path: Path) -> None:
    payload = pm.ledger_total(book, "visits").total.statement().payload
    for other in (b" " + payload, payload.replace(b'"delta":1e-05', b'"delta":1e-5'), payload + b" "):
        (tmp_path / "t.json").write_bytes(other)
        with refuses("ledger statement"):
            read_total(tmp_path / "t.json")
    assert LedgerTotal.of(Statement(payload)).statement().payload == payload


def test_a_strangers_file_is_bounded_and_plain(tmp_path: Path, book: Ledger) -> None:
    (tmp_path / "large.json").write_bytes(b'{"payloadType": "' + b"x" * 2**21 + b'"}')
    (tmp_path / "deep.json").write_bytes(b"[" * 100_000)
    pm.ledger_total(book, "visits", out=tmp_path / "t.json")
    (tmp_path / "link.json").symlink_to(tmp_path / "t.json")
    for name in ("large.json", "deep.json", "link.json"):
        with pytest.raises(InvalidInput):
            pm.verify(tmp_path / name)
    for read, error in ((pm.verify, PrivmixError), (read_total, StorageError)):
        with pytest.raises(error):
            read(tmp_path / "none.json")


CONTENT = "UPDATE entries SET content = replace(content, "
REWRITTEN = {
    "a purpose": f"{CONTENT}'training', 'release') WHERE content LIKE '%training%'",
    "an entry less": "DELETE FROM entries WHERE dataset_id = 1 AND number = 3",
    "a larger budget": "UPDATE datasets SET epsilon = 5 WHERE name = 'visits'",
    "another dataset's budget": "UPDATE datasets SET epsilon = 9 WHERE name = 'other'",
    "a price": f"{CONTENT}'\"spent\":', '\"spent\":0') WHERE dataset_id = 1",
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_ledger_that_does_not_hold_states_nothing(name: str, book: Ledger, url: str, tmp_path: Path) -> None:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as link:
        for (trigger,) in link.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            link.execute(f"DROP TRIGGER {trigger}")
    pm.ledger_total(book, "visits")
    with sqlite3.connect(url.removeprefix("sqlite:///")) as link:
        link.execute(REWRITTEN[name])
    with pytest.raises(InvalidInput):
        pm.ledger_total(book, "visits", out=tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()


def test_a_ledger_goes_on_from_its_statement(book: Ledger, tmp_path: Path) -> None:
    stated = pm.ledger_total(book, "visits").total
    check_ledger_total(book, stated)
    book.reserve("visits", Gaussian(7.0), purpose="release")
    check_ledger_total(book, stated)
    # Another ledger with the same name and budget, and fewer or other charges.
    fresh = Ledger.create(f"sqlite:///{tmp_path / 'fresh.db'}")
    with refuses("dataset"):
        check_ledger_total(fresh, stated)
    fresh.add_dataset("visits", epsilon=4.0, delta=1e-5)
    for _ in range(4):
        with refuses("statement"):
            check_ledger_total(fresh, stated)
        fresh.reserve("visits", Gaussian(9.0), purpose="release")
    with refuses("statement"):
        check_ledger_total(book, replace(stated, spent=0.5))


def test_nothing_else_is_replaced(book: Ledger, tmp_path: Path) -> None:
    other, place = tmp_path / "notes.txt", tmp_path / "t.json"
    other.write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(InvalidInput):
            pm.ledger_total(book, "visits", out=other, overwrite=overwrite)
    assert other.read_text() == "mine"
    pm.ledger_total(book, "visits", out=place)
    pm.ledger_total(book, "visits", out=place, key=KEY, overwrite=True)
    (tmp_path / "REL").mkdir()
    (tmp_path / "REL" / "certificate.json").write_text("{}")
    for field, given in (("out", {"out": place}), ("key", {"key": KEY}), ("out", {"out": tmp_path / "REL" / "t.json"})):
        with refuses(field):
            pm.ledger_total(book, "visits", **given)


def test_many_purposes_and_strange_words_stay_within_the_form(tmp_path: Path) -> None:
    book = Ledger.create(f"sqlite:///{tmp_path / 'm.db'}")
    book.add_dataset("visits", epsilon=8.0, delta=1e-5)
    for number in range(60):
        book.reserve("visits", Gaussian(400.0), purpose=f"p{number}")
    for purpose in ("other", "\x1b[31m", "", "x" * 500):
        taken = book.reserve("visits", Gaussian(400.0), purpose=purpose)
        book.commit(taken, result="\x1b[2J" * 99)
    made = pm.ledger_total(book, "visits", out=tmp_path / "t.json", outcomes=True).total
    assert made.number == 64
    assert len(made.charges) <= 50
    assert set(made.outcomes.results) == {"other"}
    assert read_total(tmp_path / "t.json")[0] == made


def test_on_the_command_line(book: Ledger, url: str, keys: Path) -> None:
    place, public = keys / "t.json", keys / "ana.pub.pem"
    line = ("ledger", "statement", "--ledger", url, "--dataset=visits", "--out", place, "--key", keys / "ana.pem")
    assert KEY.public.key_id in privmix(*line).passed().out
    assert privmix("verify", place, "--key", keys / "bo.pub.pem").code == 2
    found = privmix("verify", place, "--key", public, "--json").json()
    assert (found["dataset"], found["charges"]) == ("visits", {"release": 2, "training": 1})
    held = privmix("ledger", "verify", "--ledger", url, "--statement", place).passed()
    assert "continues from there" in held.out
    assert privmix(*line).code == 2
    assert privmix(*line, "--outcomes", "--overwrite", "--json").json()["outcomes"]["open"] == 1


def test_where_a_page_has_it_from_is_decided_by_who_reads_it(book: Ledger, tmp_path: Path) -> None:
    signed, plain = tmp_path / "t.json", tmp_path / "plain.json"
    pm.ledger_total(book, "visits", out=signed, key=KEY)
    pm.ledger_total(book, "visits", out=plain)
    for read, source in (((signed, KEY.public), "signed"), ((signed,), "named"), ((plain,), "unsigned")):
        assert total_record(StatedTotal(*read_total(*read))).content["source"] == source
    write_total(read_total(plain)[0], tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == plain.read_bytes()
