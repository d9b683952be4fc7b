"""Where a person is the unit, whatever prints an adjacency says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privmix.certificate import PrivateKey
from tests.cli.helpers import privmix

SAID = "add_remove, one person with all of their records"
LINE = ["--columns", "a,b", "--label-column", "y", "--classes", "n,p", "--features", "identity"]
TARGET = ["--epsilon", "4", "--delta", "1e-3", "--person", "who", "--records", "50"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A release and a model of persons, with what their makers saw."""
    folder = tmp_path_factory.mktemp("made")
    lines = [f"{n % 50},{n % 7},{n % 5},{'np'[n % 2]}" for n in range(120)]
    (folder / "d.csv").write_text("\n".join(["who,a,b,y", *lines]) + "\n")
    found: dict[str, Any] = {}
    for name, verb in (("persons", ["release", "--design", "moments"]), ("model", ["train", "--epochs", "1"])):
        out = folder / name
        outcome = privmix(*verb, "--data", str(folder / "d.csv"), *LINE, *TARGET, "--out", str(out))
        assert outcome.code == 0, outcome.err
        found[name] = out, " ".join(outcome.out.split())
    return found


def said(*words: str) -> str:
    outcome = privmix(*words)
    assert outcome.code == 0, outcome.err
    return " ".join(outcome.out.split())


@pytest.mark.parametrize("name", ["persons", "model"])
def test_verbs_name_the_unit(made: dict[str, Any], name: str, tmp_path: Path) -> None:
    folder, seen = made[name]
    assert SAID in seen
    assert f"adjacency {SAID}, accountant" in (shown := said("inspect", str(folder)))
    assert "5% of the persons that are absent" in shown
    assert f"adjacency: {SAID}" in (verified := said("verify", str(folder)))
    assert "that each has an identifier of their own" in verified
    assert "one record" not in verified
    assert json.loads(privmix("verify", str(folder), "--json").out)["unit"] == "person"
    said("report", str(folder), "--out", str(tmp_path / "r.html"))
    page = (tmp_path / "r.html").read_text()
    assert "one person, with all records" in page
    assert "that a person is in the data" in page


def test_what_lies_in_the_folder_names_the_unit(made: dict[str, Any]) -> None:
    folder = made["persons"][0]
    assert f"adjacency `add_remove`, {SAID.partition(', ')[2]}" in (folder / "README.md").read_text()
    assert any(SAID in file.read_text() for file in folder.glob("*.json") if file.name != "certificate.json")


def test_a_signature_is_for_the_unit(made: dict[str, Any], tmp_path: Path) -> None:
    key = PrivateKey.new()
    key.write(tmp_path / "k.pem")
    (tmp_path / "k.pub.pem").write_bytes(key.public.to_pem())
    for name in ("persons", "model"):
        said("sign", str(made[name][0]), "--key", str(tmp_path / "k.pem"))
        assert ": checked" in said("verify", str(made[name][0]), "--key", str(tmp_path / "k.pub.pem"))


def test_canaries_are_persons(made: dict[str, Any], tmp_path: Path) -> None:
    """From a store, told as persons, in the report, too; refused before a charge where nobody said whose."""
    folder = made["model"][0]
    line = ["audit", str(folder), "--data", str(folder.parent / "d.csv"), "--canaries", "6", "--columns", "a,b"]
    line += ["--label-column", "y"]
    outcome = privmix(*line)
    assert (outcome.code, len(outcome.err.splitlines())) == (2, 1)
    assert "allowed: the column of persons" in outcome.err, outcome.err
    more = ["--person", "who", "--record", str(tmp_path / "R"), "--seed", "1"]
    outcome = privmix(*line, *more, "--canaries", "6:canary_records=3", "--store", str(tmp_path / "S"))
    assert outcome.code in (0, 4), outcome.err
    told = " ".join(outcome.out.split())
    assert "of 6 canary persons (planted canary persons with 3 records each in one DP-SGD run" in told
    assert "A canary is one person" in told
    said("report", str(tmp_path / "R"), str(folder), "--for", "owner", "--out", str(tmp_path / "r.html"))
    assert "canary persons with 3 records each" in (tmp_path / "r.html").read_text()
