"""Persons on the command line: every verb that takes private data, and what it says of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.helpers import Outcome, privmix, refused
from tests.jobs.persons_data import PERSONS, SECRET, frame, given

pytestmark = pytest.mark.usefixtures("fixed_keys")


def said(kind: str, folder: Path, data: Any = None) -> list[str]:
    place, words = given(kind, folder, frame() if data is None else data)
    return ["--data", place, "--person", words["person"]]


def test_a_specification_leaves_the_column_out(tmp_path: Path) -> None:
    data, spec = said("csv", tmp_path), tmp_path / "spec.json"
    line = ["spec", data[1], "--out", spec, "--number", "a=-2:3", "--number", "b=-2:3", "--ignore", "c", "--person"]
    privmix(*line, "who").passed()
    assert list(json.loads(spec.read_text())) == ["a", "b", "c"]
    refused(privmix(*line, "whose", "--overwrite"), "--person")


def test_a_check_counts_persons_for_their_owner(tmp_path: Path) -> None:
    data = frame(more=[50])
    own = data["who"].tolist()
    own[60] = own[70] = ""
    alone = said("csv", tmp_path, data.assign(who=own))
    line = ["check", alone[1], "--features", "identity", "--classes", "well,ill", *alone[2:]]
    outcome = privmix(*line, "--json")
    assert outcome.code == 2
    found = json.loads(outcome.out)
    assert found["persons"] == {"persons": PERSONS + 1, "largest": 50, "without": 2}
    assert [one["record"] for one in found["misfits"]] == [61, 71]
    assert SECRET not in outcome.out + outcome.err
    outcome = privmix(*line[:-1], f"{line[-1]}:missing=own").passed()
    assert "persons: 31, at most 50 records each; 2 records without" in outcome.out
    assert "Keep this output private" in outcome.out
    refused(privmix(*line[:-1], "whose"), "--person")


@pytest.mark.parametrize("make", ["release --design moments --rows 20", "train --epochs 1"])
def test_commands_name_the_unit(make: str, tmp_path: Path) -> None:
    """Where a person is the unit, whatever prints an adjacency says so."""
    unit, folder = "add_remove, one person with all of their records", tmp_path / "OUT"
    line = [*make.split(), *said("csv", tmp_path / "own"), "--columns", "a,b,c", "--features", "identity"]
    budget = ["--epsilon", "4", "--delta", "1e-3", "--records", str(PERSONS), "--classes", "well,ill"]
    seen, shown, verified = (
        " ".join(privmix(*words).passed().out.split())
        for words in ([*line, *budget, "--out", folder], ["inspect", folder], ["verify", folder])
    )
    assert unit in seen
    assert f"adjacency {unit}, accountant" in shown
    assert "5% of the persons that are absent" in shown
    assert f"adjacency: {unit}" in verified
    assert "that each has an identifier of their own" in verified
    assert "one record" not in verified
    assert privmix("verify", folder, "--json").json()["unit"] == "person"
    if "release" in make:
        assert f"adjacency `add_remove`, {unit.partition(', ')[2]}" in (folder / "README.md").read_text()
        assert unit in (folder / "croissant.json").read_text()
    privmix("report", folder, "--out", tmp_path / "page.html").passed()
    page = (tmp_path / "page.html").read_text()
    assert "one person, with all records" in page
    assert "that a person is in the data" in page


def numbers(folder: Path, persons: int, each: int) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """Records of 16 numbers, so many of each person, that are never alike by chance."""
    rng = np.random.default_rng(0)
    whose = np.repeat(np.arange(persons), each)
    y = rng.integers(0, 2, len(whose))
    x = (rng.normal(0, 0.1, (len(whose), 16)) + y[:, None]).astype(np.float32)
    np.savez(folder / "own.npz", x=x, y=y, who=whose)
    return ["--data", str(folder / "own.npz"), "--person", "who", "--classes", "2"], x, y, whose


def trained(data: list[str], public: Path, out: Path, persons: int) -> Outcome:
    flags = ["--scenario", "extended", "--public-method", "multiplicity:batch_size=16", "--features", "identity"]
    budget = ["--epsilon", "30", "--delta", "1e-3", "--records", str(persons), "--batch-size", "10", "--epochs", "1"]
    return privmix("train", *flags, "--public", public, *data, *budget, "--out", out)


def test_records_of_one_person_decide_no_publication(tmp_path: Path) -> None:
    """All 50 of theirs are public, and nobody else's; also beside 29 others of whom one is."""
    data, x, y, whose = numbers(tmp_path, 40, 50)
    rng = np.random.default_rng(1)
    for name, chosen, refuse in (
        ("one person", whose == 7, False),
        ("twenty-nine persons", whose < 29, False),
        ("thirty persons", whose < 30, True),
        ("a record each", np.arange(2000) % 50 == 3, True),
    ):
        place = tmp_path / f"{name}.npz"
        np.savez(place, x=x[chosen], y=y[chosen] if len(set(y[chosen])) > 1 else rng.integers(0, 2, chosen.sum()))
        outcome = trained(data, place, tmp_path / name.replace(" ", "-"), 40)
        assert (outcome.code == 2) == refuse, (name, outcome.err)
        if refuse:
            refused(outcome, "--public", "records of the private dataset")
    as_records = [word for word in data if word not in ("--person", "who")]
    np.savez(tmp_path / "half.npz", x=x[whose < 20], y=y[whose < 20])
    assert trained(as_records, tmp_path / "half.npz", tmp_path / "AS-RECORDS", 2000).code == 2
