"""The ledger from the command line, and releases that are charged to it."""

import gzip
import json
from pathlib import Path

import pytest

from privmix.data import content_hashes, open_dataset
from privmix.ledger.ledger import Ledger
from tests.cli.helpers import Outcome, privmix, refused
from tests.cli.test_path import digits, release_line
from tests.cli.training import certificate

__all__ = ["digits"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'l.db'}"


def init(url: str, *more: str, name: str = "NAME") -> Outcome:
    return privmix("ledger", "init", "--dataset", name, "--epsilon=4", "--delta=1e-4", "--ledger", url, *more).passed()


def charged(url: str, source: Path | str, out: Path, name: str = "NAME", **changes: str) -> list[str]:
    return release_line(Path(), out, data=str(source), epsilon="3", ledger=url, dataset=name, **changes)


def test_a_release_is_charged_and_the_next_one_refused(digits: Path, url: str, tmp_path: Path) -> None:
    init(url)
    privmix(*charged(url, digits, tmp_path / "ONE")).passed()
    (shown,) = privmix("ledger", "show", "--ledger", url, "--json").json()
    assert 2.9 < shown["spent"] <= 3 < shown["epsilon"]
    assert (shown["reservations"], shown["uncommitted"]) == (1, 0)
    refused(privmix(*charged(url, digits, tmp_path / "TWO")), code=3)
    assert not (tmp_path / "TWO").exists()
    history = privmix("ledger", "history", "--dataset", "NAME", "--ledger", url, "--json").json()
    assert [entry["kind"] for entry in history] == ["init", "reserve", "bind", "bind", "commit"]
    assert history[-1]["result"] == f"release {certificate(tmp_path / 'ONE')['id']}"
    verified = privmix("ledger", "verify", "--ledger", url, "--head", history[1]["hash"])
    assert "PASS: no budget overspent (entries: 5, datasets: 1)" in verified.out
    assert privmix("ledger", "export", "--ledger", url).json()["datasets"]["NAME"] == history
    for verb in (("show",), ("history", "--dataset", "NAME")):
        assert "add_remove" in privmix("ledger", *verb, "--ledger", url).out


def test_nothing_of_the_ledger_is_in_the_release(digits: Path, url: str, tmp_path: Path) -> None:
    init(url)
    privmix(*charged(url, digits, tmp_path / "REL")).passed()
    private = content_hashes(open_dataset(digits))
    assert len(private) == 2
    noted = json.dumps(Ledger.open(url).history("NAME"))
    assert all(one in noted for one in private)
    for file in (tmp_path / "REL").rglob("*"):
        assert file.is_dir() or not any(one.encode() in file.read_bytes() for one in (*private, "l.db"))


def test_the_same_records_in_other_bytes_are_other_data_and_that_is_said(
    digits: Path, url: str, tmp_path: Path
) -> None:
    """What a ledger can't see is said where a budget is made."""
    made = init(url)
    assert "recognises data by the bytes of their files" in made.out
    assert "in memory, in another format or with another compression" in made.out
    privmix(*charged(url, digits, tmp_path / "ONE")).passed()
    again = tmp_path / "again"
    again.mkdir()
    for file in digits.iterdir():
        (again / file.name).write_bytes(gzip.compress(gzip.decompress(file.read_bytes()), 1))
    init(url, name="OTHER")
    privmix(*charged(url, again, tmp_path / "TWO", name="OTHER")).passed()


def test_an_adaptive_budget_is_said_everywhere(digits: Path, url: str, tmp_path: Path) -> None:
    assert "after seeing earlier results" in init(url, "--adaptive").out
    privmix(*charged(url, digits, tmp_path / "ONE")).passed()
    assert certificate(tmp_path / "ONE")["in_ledger"] == "adaptive"
    privmix("verify", tmp_path / "ONE").passed()
    (shown,) = privmix("ledger", "show", "--ledger", url, "--json").json()
    assert (shown["mode"], shown["filter"]) == ("adaptive", "gdp")
    assert 0.55 < shown["share"] < 0.65
    for verb in (("show",), ("history", "--dataset", "NAME")):
        text = privmix("ledger", *verb, "--ledger", url).out
        assert ("adaptive" in text, "planned" in text) == (True, False)
    assert privmix(*charged(url, digits, tmp_path / "TWO")).code == 3
    privmix("ledger", "verify", "--ledger", url).passed()


def test_a_planned_budget_says_what_it_is_not(digits: Path, url: str, tmp_path: Path) -> None:
    init(url)
    privmix(*charged(url, digits, tmp_path / "ONE")).passed()
    found = certificate(tmp_path / "ONE")
    assert found["in_ledger"] == "planned"
    assert any("fixed in advance, or chosen without seeing earlier results" in text for text in found["statements"])
    for verb in ("show", "verify"):
        assert "without seeing earlier results" in " ".join(privmix("ledger", verb, "--ledger", url).out.split())


def test_upgrade_from_the_command_line(url: str) -> None:
    init(url)
    assert "as they were" in privmix("ledger", "upgrade", "--ledger", url).out
    assert privmix("ledger", "upgrade", "--ledger", "sqlite:///nowhere.db").code == 2
