"""Data and options that are wrong: one line, no private value, nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.datasets import (
    CLASSES,
    Data,
    columns_csv,
    evaluate,
    image_folder,
    release,
    table,
)
from tests.cli.helpers import SECRET, privmix, refused


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


def nothing_made(tmp_path: Path) -> bool:
    return [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--label-column", "nothing"], ["label column", "nothing"]),
        (["--label-column", "label", "--classes", "well,unwell"], ["label", "--classes", "private"]),
        (["--features", "minilm", "--columns", "a,b"], ["--columns", "texts"]),
        (["--features", "magic"], ["features", "minilm"]),
        (["--features", "vision"], ["vision:MODEL"]),
        (["--image-size", "8"], ["--image-size"]),
        (["--split", "val"], ["split", "val"]),
        (["--engine", "local:memory_gb=nan"], ["--engine memory_gb"]),
        (["--engine", "local:address=x:1"], ["--engine", "memory_gb, workers for local"]),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, list) else None,
)
def test_bad_options(source: Path, tmp_path: Path, flags: list[str], words: list[str]) -> None:
    for split in ("train", "test"):
        (source / f"{split}.csv").write_bytes(columns_csv(split))
    refused(release(Data(str(source), str(source)), tmp_path / "REL", *flags), *words)
    assert nothing_made(tmp_path)


@pytest.mark.parametrize(
    ("cell", "label", "words"),
    [
        ("0.5", SECRET, ["--classes", "private"]),
        ("0.5", "", ["label"]),
        (SECRET, "well", []),
        ("", "well", []),
        ("nan", "well", []),
        ("1e400", "well", []),
        ("1,2", "well", []),
    ],
)
def test_a_bad_record_is_not_shown(source: Path, tmp_path: Path, cell: str, label: str, words: list[str]) -> None:
    lines = columns_csv("train").decode().splitlines()
    lines.insert(100, f"0.1,0.2,{cell},0.3,{label}")
    (source / "train.csv").write_text("\n".join(lines) + "\n")
    outcome = release(Data(str(source), str(source)), tmp_path / "REL")
    refused(outcome, *words)
    # Places have numbers of their own.
    shown = outcome.err.replace(str(source), "DATA").replace(str(tmp_path), "HERE")
    assert not any(text in shown for text in (cell, "101", "100") if text)
    assert nothing_made(tmp_path)


def test_classes_are_never_taken_from_labels(source: Path, tmp_path: Path) -> None:
    (source / "train.csv").write_bytes(columns_csv("train"))
    refused(release(Data(str(source), str(source), own=()), tmp_path / "REL"), "classes")
    (source / "names.txt").write_text("\n".join(CLASSES))
    given = Data(str(source / "train.csv"), str(source), own=("--classes", f"@{source}/names.txt"))
    assert release(given, tmp_path / "REL").code == 0


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"ward": {"categories": ["A", "B"]}, "weight": {"range": [0, 1]}}, ["weight"]),
        ("no JSON", ["JSON"]),
    ],
    ids=["missing-column", "text"],
)
def test_a_wrong_table_specification(source: Path, tmp_path: Path, columns: object, words: list[str]) -> None:
    data = table(source)
    (source / "spec.json").write_text(columns if isinstance(columns, str) else json.dumps(columns))
    refused(release(data, tmp_path / "REL"), *words)
    assert nothing_made(tmp_path)


def test_missing_files(source: Path, tmp_path: Path) -> None:
    data = table(source)
    out = tmp_path / "REL"
    refused(release(data, out, features=f"tabular:{source}/none.json"), "none.json", code=1)
    refused(release(data, out, train=f"{source}/none-*.csv"), "none-*.csv", code=1)
    refused(release(data, out, "--classes", f"@{source}/none.txt"), "none.txt", code=1)
    refused(release(data, out, features=f"text:{source}/none"), "model", "folder that exists")
    refused(release(data, out, train="memory://nothing/here.csv"), "memory://nothing/here.csv", code=1)
    refused(release(data, out, train="nowhere://user:pass@host/x.csv"), "nowhere://host")
    assert nothing_made(tmp_path)


def test_a_damaged_image_is_not_named(source: Path, tmp_path: Path) -> None:
    data = image_folder(source)
    victim = sorted((source / "train" / "ill").iterdir())[5]
    victim.write_bytes(b"no image, " + SECRET.encode())
    outcome = release(data, tmp_path / "REL")
    refused(outcome)
    assert victim.stem not in outcome.err
    assert nothing_made(tmp_path)


def test_evaluate_says_what_does_not_fit(source: Path, tmp_path: Path) -> None:
    data = table(source)
    out, model = tmp_path / "REL", tmp_path / "MODEL"
    assert release(data, out).code == 0
    assert privmix("fit", str(out), "--out", str(model)).code == 0
    before = sorted(model.rglob("*"))
    (source / "data" / "test.csv").write_text(f"name,age,ward,state\nx,3,A,{SECRET}\n")
    refused(evaluate(data, model), "label", "private")
    (source / "data" / "test.csv").write_text("name,age,state\nx,3,well\n")
    refused(evaluate(data, model), "ward")
    refused(evaluate(data, model, "--columns", "name"), "--columns")
    refused(evaluate(data, model, "--features-model", str(source)), "--features-model")
    assert sorted(model.rglob("*")) == before
