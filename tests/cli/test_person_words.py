"""Where a person is the unit, whatever prints an adjacency says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
        outcome = privmix(*verb, "--data", folder / "d.csv", *LINE, *TARGET, "--out", out).passed()
        found[name] = out, " ".join(outcome.out.split())
    return found


def said(*words: str) -> str:
    outcome = privmix(*words).passed()
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
    assert json.loads(privmix("verify", folder, "--json").out)["unit"] == "person"
    if name == "persons":
        assert f"adjacency `add_remove`, {SAID.partition(', ')[2]}" in (folder / "README.md").read_text()
        assert SAID in (folder / "croissant.json").read_text()
    said("report", str(folder), "--out", str(tmp_path / "r.html"))
    page = (tmp_path / "r.html").read_text()
    assert "one person, with all records" in page
    assert "that a person is in the data" in page
