"""Data and options that are wrong: one line, no private value, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.datasets import (
    CLASSES,
    Data,
    columns_csv,
    release,
)
from tests.cli.helpers import SECRET, refused


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
        (["--image-size", "8"], ["--image-size"]),
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
