"""Whatever a command writes besides what is to be published, no other user can reach it: not for a moment."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import privmix
from tests.cli.training import that_write, write_own

# What others may read: the data and what is published, once it has its name.
OPEN = {"own", "REL", "STORED", "MODEL", "TRAINED"}


def reachable(top: Path) -> Iterator[str]:
    """What another user can enter, read or write below ``top``, by the modes on the whole way."""
    try:
        entries = list(os.scandir(top))
    except FileNotFoundError:
        return
    for entry in entries:
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue
        if mode & 0o077:
            yield entry.path
        if mode & 0o011 and entry.is_dir(follow_symlinks=False):
            yield from reachable(Path(entry.path))


class Watch:
    """Looks at all modes below some folders whenever the interpreter opens, makes or renames something there."""

    def __init__(self) -> None:
        self.tops: tuple[Path, ...] = ()
        self.found: set[str] = set()
        self.looked = 0
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.tops or event not in ("open", "os.mkdir", "os.rename", "os.chmod", "os.remove", "os.rmdir"):
            return
        tops, self.tops = self.tops, ()
        try:
            writes = event != "open" or not isinstance(arguments[2], int) or arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if writes:
                self.looked += 1
                for top in tops:
                    self.found |= {str(Path(path).relative_to(top)) for path in reachable(top)}
        finally:
            self.tops = tops


WATCH = Watch()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """A folder and a temporary folder that all can enter, under the usual mask."""
    work, temporary = tmp_path / "work", tmp_path / "tmp"
    old = os.umask(0o022)
    for folder in (work, temporary):
        folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.chdir(work)
    write_own(work)
    WATCH.tops, WATCH.found, WATCH.looked = (work, temporary), set(), 0
    try:
        yield WATCH
    finally:
        WATCH.tops = ()
        os.umask(old)


def test_nothing_private_is_within_reach(watched: Watch) -> None:
    for command in that_write():
        before = watched.looked
        privmix(*command).passed()
        assert watched.looked > before, command
    made = set(os.listdir())
    private = {"STORE", "STORE2", "RUN", "AUDIT", "WORK", "owner.html", "confusion.png", "predictions.csv"}
    assert made == private | OPEN
    strangers = {path for path in watched.found if Path(path).parts[0] not in OPEN}
    # torch makes this folder when it is imported; generated code would go there, and nothing does.
    assert all(path.startswith("torchinductor_") and "/" not in path for path in strangers), strangers
    # The watch sees what it should: what is published can be reached.
    assert {"REL", "REL/certificate.json", "MODEL", "TRAINED", "STORED"} <= watched.found


def test_the_watch_sees_a_moment(watched: Watch) -> None:
    Path("closed").mkdir(mode=0o700)
    Path("closed/inside").touch()
    Path("slip").touch()
    Path("slip").unlink()
    Path("late").touch(mode=0o600)
    assert watched.found - {"own", "own/train.npz", "own/test.npz"} == {"slip"}
