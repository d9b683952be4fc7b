"""The ledger from the command line, and releases that are charged to it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from privmix.data import content_hashes, open_dataset
from privmix.ledger.ledger import Ledger
from tests.cli.helpers import privmix
from tests.cli.test_path import digits, release_line

__all__ = ["digits"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'l.db'}"


def init(url: str, *, epsilon: str = "4", name: str = "NAME") -> None:
    privmix("ledger", "init", "--dataset", name, "--epsilon", epsilon, "--delta", "1e-4", "--ledger", url).passed()


def charged(url: str, source: Path | str, out: Path, name: str = "NAME", **changes: str) -> list[str]:
    return release_line(Path(), out, data=str(source), epsilon="3", ledger=url, dataset=name, **changes)


def test_a_release_is_charged_and_the_next_one_refused(digits: Path, url: str, tmp_path: Path) -> None:
    init(url)
    privmix(*charged(url, digits, tmp_path / "ONE")).passed()
    shown = json.loads(privmix("ledger", "show", "--ledger", url, "--json").out)[0]
    assert 2.9 < shown["spent"] <= 3 < shown["epsilon"]
    assert (shown["reservations"], shown["uncommitted"]) == (1, 0)
    second = privmix(*charged(url, digits, tmp_path / "TWO"))
    assert second.code == 3
    assert len(second.said.splitlines()) == 1
    assert not (tmp_path / "TWO").exists()
    history = json.loads(privmix("ledger", "history", "--dataset", "NAME", "--ledger", url, "--json").out)
    certificate = json.loads((tmp_path / "ONE" / "certificate.json").read_text())
    assert [entry["kind"] for entry in history] == ["init", "reserve", "bind", "bind", "commit"]
    assert history[-1]["result"] == f"release {certificate['id']}"
    verified = privmix("ledger", "verify", "--ledger", url, "--head", history[1]["hash"])
    assert "PASS: no budget overspent (entries: 5, datasets: 1)" in verified.out
    export = json.loads(privmix("ledger", "export", "--ledger", url).out)
    assert export["datasets"]["NAME"] == history
    for verb in (("show",), ("history", "--dataset", "NAME")):
        assert "add_remove" in privmix("ledger", *verb, "--ledger", url).out


def test_nothing_of_the_ledger_is_in_the_release(digits: Path, url: str, tmp_path: Path) -> None:
    init(url)
    assert privmix(*charged(url, digits, tmp_path / "REL")).code == 0
    private = content_hashes(open_dataset(digits))
    assert len(private) == 2
    noted = json.dumps(Ledger.open(url).history("NAME"))
    assert all(one in noted for one in private)
    for file in (tmp_path / "REL").rglob("*"):
        if file.is_file():
            assert not any(one.encode() in file.read_bytes() for one in private)
            assert b"l.db" not in file.read_bytes()


def test_the_same_records_in_other_bytes_are_other_data_and_that_is_said(
    digits: Path, url: str, tmp_path: Path
) -> None:
    """What a ledger can't see is said where a budget is made."""
    made = privmix("ledger", "init", "--dataset", "NAME", "--epsilon", "4", "--delta", "1e-4", "--ledger", url)
    assert "recognises data by the bytes of their files" in made.out
    assert "in memory, in another format or with another compression" in made.out
    assert privmix(*charged(url, digits, tmp_path / "ONE")).code == 0
    again = tmp_path / "again"
    again.mkdir()
    for file in digits.iterdir():
        (again / file.name).write_bytes(gzip.compress(gzip.decompress(file.read_bytes()), 1))
    init(url, name="OTHER")
    assert privmix(*charged(url, again, tmp_path / "TWO", name="OTHER")).code == 0


def test_an_adaptive_budget_is_said_everywhere(digits: Path, url: str, tmp_path: Path) -> None:
    line = ["ledger", "init", "--dataset", "NAME", "--epsilon", "4", "--delta", "1e-4", "--ledger", url, "--adaptive"]
    made = privmix(*line).passed()
    assert "after seeing earlier results" in made.out
    privmix(*charged(url, digits, tmp_path / "ONE")).passed()
    certificate = json.loads((tmp_path / "ONE" / "certificate.json").read_text())
    assert certificate["in_ledger"] == "adaptive"
    assert privmix("verify", tmp_path / "ONE").code == 0
    shown = json.loads(privmix("ledger", "show", "--ledger", url, "--json").out)[0]
    assert (shown["mode"], shown["filter"]) == ("adaptive", "gdp")
    assert 0.55 < shown["share"] < 0.65
    for verb in (("show",), ("history", "--dataset", "NAME")):
        text = privmix("ledger", *verb, "--ledger", url).out
        assert ("adaptive" in text, "planned" in text) == (True, False)
    second = privmix(*charged(url, digits, tmp_path / "TWO"))
    assert second.code == 3
    assert not (tmp_path / "TWO").exists()
    assert privmix("ledger", "verify", "--ledger", url).code == 0


def test_a_planned_budget_says_what_it_is_not(digits: Path, url: str, tmp_path: Path) -> None:
    init(url)
    assert privmix(*charged(url, digits, tmp_path / "ONE")).code == 0
    certificate = json.loads((tmp_path / "ONE" / "certificate.json").read_text())
    assert certificate["in_ledger"] == "planned"
    assert any("fixed in advance, or chosen without seeing earlier results" in s for s in certificate["statements"])
    for verb in ("show", "verify"):
        assert "without seeing earlier results" in " ".join(privmix("ledger", verb, "--ledger", url).out.split())


def test_upgrade_from_the_command_line(url: str) -> None:
    init(url)
    assert "as they were" in privmix("ledger", "upgrade", "--ledger", url).out
    assert privmix("ledger", "upgrade", "--ledger", "sqlite:///nowhere.db").code == 2
