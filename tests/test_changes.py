"""Changelog fragments: a name that towncrier reads, and one line for users."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "changes"


def test_every_fragment_is_one_line_of_a_known_type() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    assert ROOT / settings["directory"] == FOLDER
    changelog = (ROOT / settings["filename"]).read_text(encoding="utf-8")
    assert changelog.count("<!-- towncrier release notes start -->") == 1
    types = [one["directory"] for one in settings["type"]]
    assert types == ["added", "changed", "removed", "fixed", "security"]
    for path in FOLDER.iterdir():
        if path.name != "README.md":
            assert re.fullmatch(rf"\+[a-z0-9-]+\.({'|'.join(types)})\.md", path.name), "see changes/README.md"
            assert re.fullmatch(r"[A-Z`].{20,400}\.\n", path.read_text(encoding="utf-8")), path.name
