"""Scratch folders go when the work ends, also after a kill; the living are spared."""

from __future__ import annotations

import errno
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


def test_the_dead_go_and_the_living_stay(tmp_path: Path) -> None:
    """A process is killed with private rows on disk; the next start removes them, and nobody else's."""
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time, tempfile; tempfile.tempdir = sys.argv[1]\n"
            "from privmix.scratch import ScratchFolder\n"
            "scratch = ScratchFolder(); (scratch.path / 'below').mkdir()\n"
            "(scratch.path / 'below' / 'rows').write_text('private'); print(scratch.path, flush=True)\n"
            "time.sleep(600)",
            str(tmp_path / "tmp"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    theirs = Path(child.stdout.readline().strip())
    clear_scratch()
    assert (theirs / "below" / "rows").exists()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with ScratchFolder() as mine:
        assert mine.stat().st_mode & 0o777 == 0o700
        assert not theirs.exists()
        clear_scratch()
        assert mine.exists()
    assert os.listdir(tmp_path / "tmp") == []


def test_links_and_open_folders_by_that_name_are_left_alone(tmp_path: Path, precious: Path) -> None:
    (precious / "lock").touch()
    (tmp_path / "tmp" / "pmx-link").symlink_to(precious)
    (tmp_path / "tmp" / "pmx-open").mkdir(mode=0o755)
    (tmp_path / "tmp" / "pmx-open" / "lock").touch()
    clear_scratch()
    assert (precious / "precious").exists()
    assert (tmp_path / "tmp" / "pmx-open" / "lock").exists()


@pytest.mark.parametrize("held", [["model"], ["lock", "model"]])
def test_a_folder_of_that_name_which_is_none_of_these_is_left_alone(held: list[str], tmp_path: Path) -> None:
    """Somebody who may write there renamed a folder of ours."""
    place = tmp_path / "tmp" / "pmx-renamed"
    place.mkdir(mode=0o700)
    for name in held:
        (place / name).write_text("ours")
    old = time.time() - 2 * scratch._ABANDONED
    os.utime(place, (old, old))
    clear_scratch()
    assert sorted(os.listdir(place)) == held


def test_where_no_file_can_be_locked_there_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", none)
    with pytest.raises(StorageError, match="cannot create a private folder there: Function not implemented"):
        ScratchFolder()
    assert os.listdir(tmp_path / "tmp") == []


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
