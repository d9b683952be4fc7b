"""Changelog fragments: a name that towncrier reads, and one line for users."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "changes"


def test_every_fragment_is_one_line_of_a_known_type() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    assert ROOT / settings["directory"] == FOLDER
    changelog = (ROOT / settings["filename"]).read_text(encoding="utf-8")
    assert changelog.count("<!-- towncrier release notes start -->") == 1
    types = [one["directory"] for one in settings["type"]]
    assert types == ["added", "changed", "removed", "fixed", "security"]
    faults = [path.name for path in FOLDER.iterdir() if path.name != "README.md" and fault_of(path, types)]
    assert not faults, f"{faults}: see changes/README.md"


@pytest.mark.parametrize(
    ("name", "text", "right"),
    [
        ("+model-card.added.md", "A trained model has its card on disk.\n", True),
        ("model-card.added.md", "A trained model has its card on disk.\n", False),
        ("+model-card.mended.md", "A trained model has its card on disk.\n", False),
        ("+model-card.added.md", "Two lines.\nOf text.\n", False),
        ("+model-card.added.md", "no sentence\n", False),
    ],
)
def test_a_fault_is_found(tmp_path: Path, name: str, text: str, right: bool) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert bool(fault_of(tmp_path / name, ["added"])) != right


def fault_of(path: Path, types: list[str]) -> str:
    """A fragment's fault, in words, or nothing."""
    if not re.fullmatch(rf"\+[a-z0-9-]+\.({'|'.join(types)})\.md", path.name):
        return "name"
    return "" if re.fullmatch(r"[A-Z`].{20,400}\.\n", path.read_text(encoding="utf-8")) else "text"
