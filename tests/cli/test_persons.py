"""Persons on the command line: every verb that takes private data, what it says of them, and parting whole persons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.data import open_dataset
from privmix.data.persons import persons_in_column
from tests.cli.helpers import Outcome, privmix, refused
from tests.jobs.persons_data import CLASSES, PERSONS, RECORDS, SECRET, frame, given, images

# Thresholds of a random result hold for these keys: no run fails by chance.
pytestmark = pytest.mark.usefixtures("fixed_keys")

BUDGET = ["--epsilon", "30", "--delta", "1e-3", "--records", str(PERSONS), "--classes", "well,ill"]
RELEASE = ["release", "--features", "identity", "--design", "moments", "--rows", "20", "--clip-norm", "2", *BUDGET]
TRAIN = ["train", "--features", "identity", "--epochs", "1", "--batch-size", "10", *BUDGET]
VERBS = pytest.mark.parametrize("verb", [RELEASE, TRAIN], ids=["release", "train"])


def said(kind: str, folder: Path, data: Any = None) -> list[str]:
    place, words = given(kind, folder, frame() if data is None else data)
    columns = ["--columns", ",".join(words["columns"])] if "columns" in words else []
    return ["--data", place, "--person", words["person"], *columns]


def silent(outcome: Outcome) -> None:
    assert SECRET not in outcome.out + outcome.err
    assert str(RECORDS) not in (outcome.out + outcome.err).split()


@VERBS
def test_files_of_persons(verb: list[str], tmp_path: Path) -> None:
    outcome = privmix(*verb, *said("csv", tmp_path), "--out", str(tmp_path / "OUT"))
    assert outcome.code == 0, outcome.err
    silent(outcome)
    assert "person" in outcome.out + outcome.err
    verified = privmix("verify", str(tmp_path / "OUT"))
    assert verified.code == 0, verified.err
    silent(verified)


def test_folders_of_images_of_persons(tmp_path: Path) -> None:
    images(tmp_path / "scans", frame())
    flags = ["--data", str(tmp_path / "scans"), "--image-size", "6", "--colour", "grey", "--features", "pixels"]
    outcome = privmix(*RELEASE, *flags, "--person", rf"pattern=({SECRET}\d+)_", "--out", str(tmp_path / "OUT"))
    assert outcome.code == 0, outcome.err
    silent(outcome)


@VERBS
def test_errors_name_flags_and_nobody(verb: list[str], tmp_path: Path) -> None:
    data = said("csv", tmp_path)
    for more, words in (
        (["--person", "whose"], ["--person", "whose"]),
        (["--person", "pattern=(.)"], ["--person", "folders of images"]),
        (["--person", "who:missing=some"], ["--person"]),
        (["--per-person", "0"], ["--per-person"]),
    ):
        outcome = privmix(*verb, *data, *more, "--out", str(tmp_path / "OUT"))
        refused(outcome, *words)
        silent(outcome)
    alone = privmix(*verb, *data[:2], "--columns", "a,b,c", "--per-person", "2", "--out", str(tmp_path / "OUT"))
    refused(alone, "--per-person", "--person")


def test_new_records_may_have_the_column(tmp_path: Path) -> None:
    data = said("csv", tmp_path)
    for verb, out in ((RELEASE, "REL"), (TRAIN, "MODEL")):
        assert privmix(*verb, *data, "--out", str(tmp_path / out)).code == 0
    assert privmix("fit", str(tmp_path / "REL"), "--out", str(tmp_path / "FIT")).code == 0
    # It is no feature of the release or model: the columns of the inputs are named.
    place = data.index("--person")
    data = [*data[:place], *data[place + 2 :], "--columns", "a,b,c"]
    for model in ("FIT", "MODEL"):
        outcome = privmix("evaluate", str(tmp_path / model), *data, "--json")
        assert outcome.code == 0, outcome.err
        assert json.loads(outcome.out)["accuracy"] > 0.7
        outcome = privmix("predict", str(tmp_path / model), *data, "--out", str(tmp_path / f"{model}.csv"))
        assert outcome.code == 0, outcome.err
        assert len((tmp_path / f"{model}.csv").read_text().splitlines()) == RECORDS + 1


def test_a_specification_leaves_the_column_out(tmp_path: Path) -> None:
    data = said("csv", tmp_path)
    line = ["spec", data[1], "--out", str(tmp_path / "spec.json"), "--number", "a=-2:3", "--number", "b=-2:3"]
    line += ["--ignore", "c", "--person"]
    outcome = privmix(*line, "who")
    assert outcome.code == 0, outcome.err
    assert list(json.loads((tmp_path / "spec.json").read_text())) == ["a", "b", "c"]
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
    outcome = privmix(*line[:-1], f"{line[-1]}:missing=own")
    assert outcome.code == 0, outcome.err
    assert "persons: 31, at most 50 records each; 2 records without" in outcome.out
    assert "Keep this output private" in outcome.out
    refused(privmix(*line[:-1], "whose"), "--person")


# --- parting --------------------------------------------------------------------------------------------------------


def parted(folder: Path, data: list[str], ending: str, *more: str) -> Outcome:
    places = [f"--public={folder / 'public'}{ending}", f"--private={folder / 'private'}{ending}"]
    return privmix("split", *data, *places, "--classes", "well,ill", *more)


@pytest.mark.parametrize(("kind", "how"), [("csv", "per-class"), ("jsonl", "uniform"), ("npz", "uniform")])
def test_a_person_is_never_parted(kind: str, how: str, tmp_path: Path) -> None:
    data = frame(more=[50])
    count = ["--count", "4" if how == "uniform" else "2"]
    outcome = parted(tmp_path, said(kind, tmp_path, data), ".npz", *count, "--how", how, "--seed", "2", "--json")
    assert outcome.code == 0, outcome.err
    assert SECRET not in outcome.out + outcome.err
    public, private = (open_dataset(tmp_path / f"{name}.npz").read() for name in ("public", "private"))
    assert len(public) + len(private) == len(data)
    assert "who.npy" not in np.load(tmp_path / "public.npz").files
    # Inputs tell who somebody is; those of the person with fifty are the first record's.
    whose = [{name for x in part.x for name in owners(data, x)} for part in (public, private)]
    left = persons_in_column(tmp_path / "private.npz", "who")
    assert len(np.unique(left)) == PERSONS + 1 - 4
    several = whose[0] & whose[1]
    # Only copies may be on both sides.
    assert several <= set(owners(data, data[["a", "b", "c"]].iloc[0].to_numpy()))
    assert len(whose[0] - several) <= 4
    for name in ("public", "private"):
        assert SECRET.encode() not in (tmp_path / f"{name}.npz").read_bytes()
    if how == "per-class":
        firsts = data.drop_duplicates("who").set_index("who")["label"]
        drawn = [firsts[name] for name in whose[0] - several]
        assert max(drawn.count(name) for name in CLASSES) <= 2
    assert (
        privmix(
            *RELEASE, "--data", str(tmp_path / "private.npz"), "--person", "who", "--out", str(tmp_path / "OUT")
        ).code
        == 0
    )


def owners(data: Any, x: Any) -> list[str]:
    same = (data[["a", "b", "c"]].to_numpy(np.float32) == np.asarray(x, np.float32)).all(axis=1)
    return list(data["who"][same])


def test_tables_are_parted_by_persons(tmp_path: Path) -> None:
    data = said("csv", tmp_path)
    outcome = parted(tmp_path, [*data, "--table-columns", "a,b"], ".jsonl", "--share", "0.2", "--how", "uniform")
    assert outcome.code == 0, outcome.err
    lines = [json.loads(line) for line in (tmp_path / "private.jsonl").read_text().splitlines()]
    assert len({line["who"] for line in lines}) == PERSONS - 6
    assert not any("who" in json.loads(line) for line in (tmp_path / "public.jsonl").read_text().splitlines())


def test_shares_that_leave_nobody_are_refused_and_count_nobody(tmp_path: Path) -> None:
    data = said("csv", tmp_path)
    for more in (["--count", "30", "--how", "uniform"], ["--share", "0.001"], ["--count", "16"]):
        outcome = parted(tmp_path, data, ".npz", *more)
        refused(outcome)
        silent(outcome)
        assert str(PERSONS) not in outcome.err.replace("--count: got 30", "").split()
    refused(parted(tmp_path, [*data[:3], "whose"], ".npz", "--count", "2"), "--person")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.csv"]


# --- what is called public ------------------------------------------------------------------------------------------


def numbers(folder: Path, persons: int, each: int) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """Records of 16 numbers, so many of each person, that are never alike by chance."""
    rng = np.random.default_rng(0)
    whose = np.repeat(np.arange(persons), each)
    y = rng.integers(0, 2, len(whose))
    x = (rng.normal(0, 0.1, (len(whose), 16)) + y[:, None]).astype(np.float32)
    np.savez(folder / "own.npz", x=x, y=y, who=whose)
    return ["--data", str(folder / "own.npz"), "--person", "who", "--classes", "2"], x, y, whose


def trained(data: list[str], public: Path, out: Path, persons: int) -> Outcome:
    flags = ["--scenario", "extended", "--public-method", "multiplicity:batch_size=16"]
    budget = ["--epsilon", "30", "--delta", "1e-3", "--records", str(persons), "--batch-size", "10", "--epochs", "1"]
    return privmix(
        "train", "--features", "identity", *flags, "--public", str(public), *data, *budget, "--out", str(out)
    )


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


def test_tables_and_images_are_parted_by_persons(tmp_path: Path) -> None:
    data = said("csv", tmp_path)
    outcome = parted(tmp_path, [*data, "--table-columns", "a,b"], ".jsonl", "--share", "0.2", "--how", "uniform")
    assert outcome.code == 0, outcome.err
    lines = [json.loads(line) for line in (tmp_path / "private.jsonl").read_text().splitlines()]
    assert len({line["who"] for line in lines}) == PERSONS - 6
    assert not any("who" in json.loads(line) for line in (tmp_path / "public.jsonl").read_text().splitlines())
    images(tmp_path / "scans", frame())
    flags = ["--data", str(tmp_path / "scans"), "--image-size", "6", "--colour", "grey"]
    flags += ["--person", rf"pattern=({SECRET}\d+)_", "--how", "uniform", "--count", "3"]
    (tmp_path / "two").mkdir()
    outcome = parted(tmp_path / "two", flags, ".npz")
    assert outcome.code == 0, outcome.err
    assert len(np.unique(persons_in_column(tmp_path / "two" / "private.npz", "person"))) == PERSONS - 3
