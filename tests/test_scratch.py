"""Scratch folders go when the work ends, also after a kill; the living are spared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from privmix import scratch
from privmix.errors import StorageError
from privmix.scratch import ScratchFolder, clear_scratch


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir(mode=0o700)
    (folder / "precious").write_bytes(b"precious")
    return folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()


@pytest.mark.parametrize("shared", [False, True])
def test_the_dead_go_and_the_living_stay(shared: bool, tmp_path: Path) -> None:
    """A process is killed with private rows on disk; the next start removes them, and nobody else's."""
    place = tmp_path / "tmp" if shared else None
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import pathlib, sys, time, tempfile; tempfile.tempdir = sys.argv[1]\n"
            "from privmix.scratch import ScratchFolder\n"
            "place = pathlib.Path(sys.argv[1]) if sys.argv[2] else None\n"
            "scratch = ScratchFolder(place); (scratch.path / 'below').mkdir()\n"
            "(scratch.path / 'below' / 'rows').write_text('private'); print(scratch.path, flush=True)\n"
            "time.sleep(600)",
            str(tmp_path / "tmp"),
            "shared" if shared else "",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    theirs = Path(child.stdout.readline().strip())
    clear_scratch(place)
    assert (theirs / "below" / "rows").exists()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with ScratchFolder(place) as mine:
        assert mine.stat().st_mode & 0o777 == 0o700
        assert mine.parent.name.startswith("." if shared else "pmx-")
        assert not theirs.exists()
        clear_scratch(place)
        assert mine.exists()
    assert os.listdir(tmp_path / "tmp") == []


def test_in_a_shared_folder_those_of_other_machines_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that another machine holds may not be seen: what is theirs looks as if nobody lived."""
    place = tmp_path / "tmp"
    monkeypatch.setattr(scratch, "_end", lambda *_: None)
    monkeypatch.setattr(scratch.platform, "node", lambda: "another")
    theirs = ScratchFolder(place).path
    monkeypatch.setattr(scratch.platform, "node", lambda: "this one")
    monkeypatch.setattr(scratch, "_try_lock", lambda _: True)
    mine = ScratchFolder(place).path
    clear_scratch(place)
    assert theirs.exists()
    assert not mine.exists()


def test_no_folder_no_scratch_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"nothing: can't make a private folder there"):
        ScratchFolder(tmp_path / "nothing")


def test_links_and_open_folders_by_that_name_are_left_alone(tmp_path: Path, precious: Path) -> None:
    (precious / "lock").touch()
    (tmp_path / "tmp" / "pmx-link").symlink_to(precious)
    (tmp_path / "tmp" / "pmx-open").mkdir(mode=0o755)
    (tmp_path / "tmp" / "pmx-open" / "lock").touch()
    clear_scratch()
    assert (precious / "precious").exists()
    assert (tmp_path / "tmp" / "pmx-open" / "lock").exists()


def test_a_folder_without_a_lock_goes_once_it_is_old(tmp_path: Path) -> None:
    place = tmp_path / "tmp" / "pmx-young"
    place.mkdir(mode=0o700)
    clear_scratch()
    assert place.exists()
    old = time.time() - 2 * scratch._ABANDONED
    os.utime(place, (old, old))
    clear_scratch()
    assert not place.exists()


def test_a_forked_process_removes_nothing() -> None:
    scratch = ScratchFolder()
    child = os.fork()
    if child == 0:
        scratch.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert scratch.path.exists()
    scratch.remove()
    assert not scratch.path.exists()


def test_it_goes_with_its_object() -> None:
    path = ScratchFolder().path
    assert not path.exists()
