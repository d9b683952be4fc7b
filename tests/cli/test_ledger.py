"""The ledger from the command line, and releases that are charged to it."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from privmix.cli import pipeline
from privmix.cli import release as release_verb
from privmix.data import fingerprint
from privmix.ledger import Ledger
from tests.cli.helpers import privmix
from tests.cli.test_path import digits, release_line

__all__ = ["digits"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'l.db'}"


def init(url: str, *, epsilon: str = "4", name: str = "NAME") -> None:
    outcome = privmix("ledger", "init", "--dataset", name, "--epsilon", epsilon, "--delta", "1e-4", "--ledger", url)
    assert outcome.code == 0, outcome.err


def charged(url: str, source: Path, out: Path, name: str = "NAME", **changes: str) -> list[str]:
    return release_line(source, out, epsilon="3", ledger=url, dataset=name, **changes)


def test_a_release_is_charged_and_the_next_one_refused(digits: Path, url: str, tmp_path: Path) -> None:
    init(url)
    first = privmix(*charged(url, digits, tmp_path / "ONE"))
    assert first.code == 0, first.err
    shown = json.loads(privmix("ledger", "show", "--ledger", url, "--json").out)[0]
    assert 2.9 < shown["spent"] <= 3 < shown["epsilon"]
    assert (shown["reservations"], shown["uncommitted"]) == (1, 0)
    second = privmix(*charged(url, digits, tmp_path / "TWO"))
    assert second.code == 3
    assert "would exceed 4 (requested" in second.err
    assert "spent" in second.err
    assert "remaining" in second.err
    assert len(second.err.splitlines()) == 1
    assert not (tmp_path / "TWO").exists()
    history = json.loads(privmix("ledger", "history", "--dataset", "NAME", "--ledger", url, "--json").out)
    certificate = json.loads((tmp_path / "ONE" / "certificate.json").read_text())
    assert [entry["kind"] for entry in history] == ["init", "reserve", "bind", "commit"]
    assert history[-1]["result"] == f"release {certificate['release_id']}"
    verified = privmix("ledger", "verify", "--ledger", url, "--head", history[1]["hash"])
    assert "holds: 4 entries of 1 datasets" in verified.out
    export = json.loads(privmix("ledger", "export", "--ledger", url).out)
    assert export["datasets"]["NAME"] == history
    for verb in (("show",), ("history", "--dataset", "NAME")):
        assert "add_remove" in privmix("ledger", *verb, "--ledger", url).out


def test_nothing_of_the_ledger_is_in_the_release(digits: Path, url: str, tmp_path: Path) -> None:
    init(url)
    assert privmix(*charged(url, digits, tmp_path / "REL")).code == 0
    private = fingerprint(digits)
    assert private in json.dumps(Ledger.open(url).history("NAME"))
    for file in (tmp_path / "REL").rglob("*"):
        if file.is_file():
            assert private.encode() not in file.read_bytes()
            assert b"l.db" not in file.read_bytes()


def test_the_charge_is_on_disk_before_a_row_is_read(
    digits: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(url)
    spent_at: dict[str, float] = {}

    def crash_in(module: ModuleType, name: str) -> None:
        def crash(*_: object, **__: object) -> None:
            spent_at[name] = Ledger.open(url).budget("NAME").spent
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(module, name, crash)

    # Both functions that read private bytes.
    crash_in(release_verb, "features_in_memory")
    crash_in(pipeline, "fingerprint")
    assert privmix(*charged(url, digits, tmp_path / "REL")).code == 1
    assert 2.9 < spent_at["fingerprint"] <= 3
    monkeypatch.undo()
    budget = Ledger.open(url).budget("NAME")
    assert (budget.reservations, budget.uncommitted) == (1, 1)
    assert privmix(*charged(url, digits, tmp_path / "REL")).code == 3


def test_a_dry_run_costs_nothing(digits: Path, url: str, tmp_path: Path) -> None:
    init(url)
    assert privmix(*charged(url, digits, tmp_path / "REL"), "--dry-run").code == 0
    assert Ledger.open(url).budget("NAME").spent == 0


def test_the_same_data_under_another_name(digits: Path, url: str, tmp_path: Path) -> None:
    init(url)
    init(url, name="OTHER")
    assert privmix(*charged(url, digits, tmp_path / "ONE")).code == 0
    outcome = privmix(*charged(url, digits, tmp_path / "TWO", name="OTHER"))
    assert outcome.code == 2
    assert "NAME, under which this data has its budget" in outcome.err
    assert not (tmp_path / "TWO").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "WHO"}, "--dataset: got 'WHO'"),
        ({"ledger": "sqlite:///nowhere.db"}, "a ledger that exists"),
        ({"ledger": "http://host"}, "postgresql://"),
        ({"design": "fixed", "centre": "none"}, "adjacency: got 'replace_one'"),
        ({"seed": "1"}, "no seed with --ledger"),
    ],
)
def test_bad_input_is_one_line(digits: Path, url: str, tmp_path: Path, change: dict[str, str], message: str) -> None:
    init(url)
    outcome = privmix(*release_line(digits, tmp_path / "REL", **{"ledger": url, "dataset": "NAME", **change}))
    assert outcome.code == 2
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not (tmp_path / "REL").exists()
    assert Ledger.open(url).budget("NAME").spent == 0


def test_half_a_ledger_is_refused(digits: Path, url: str, tmp_path: Path) -> None:
    for half in ({"ledger": url}, {"dataset": "NAME"}):
        outcome = privmix(*release_line(digits, tmp_path / "REL", **half))
        assert outcome.code == 2
        assert "both or none" in outcome.err
    outcome = privmix("ledger", "init", "--dataset", "D", "--epsilon", "1", "--delta", "1e-5", "--ledger", url,
                      "--adjacency", "friends")  # fmt: skip
    assert outcome.code == 2
    assert "one of add_remove, replace_one" in outcome.err
