from __future__ import annotations

from pathlib import Path

import pytest

from privmix.data import fingerprint
from privmix.errors import StorageError


def test_content_counts_and_names_do_not(tmp_path: Path) -> None:
    for name, files in {
        "one": {"a": "x", "b/c": "y"},
        "copy": {"q": "y", "r": "x"},
        "more": {"a": "x", "b": "z"},
    }.items():
        for file, text in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "copy") != fingerprint(tmp_path / "more")
    assert fingerprint(tmp_path / "one" / "a") != fingerprint(tmp_path / "one")


def test_links_are_followed_and_hidden_files_are_not_data(tmp_path: Path) -> None:
    for name, text in (("real", "x"), ("other", "y")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(text)
        (tmp_path / f"view-{name}").mkdir()
        (tmp_path / f"view-{name}" / "class").symlink_to(tmp_path / name)
    before = fingerprint(tmp_path / "real")
    (tmp_path / "real" / ".hidden").write_text("z")
    assert fingerprint(tmp_path / "view-real") == fingerprint(tmp_path / "real") == before
    assert fingerprint(tmp_path / "view-other") != before
    (tmp_path / "empty").mkdir()
    with pytest.raises(StorageError, match="nothing in it"):
        fingerprint(tmp_path / "empty")


def test_missing_data(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        fingerprint(tmp_path / "nothing")
