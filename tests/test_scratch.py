"""Scratch folders go when the work ends, also after a kill; the living are spared."""

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

_OLD = time.time() - 2 * scratch._ABANDONED
_ROWS = """
import sys, time, tempfile
from privmix.scratch import ScratchFolder
tempfile.tempdir = sys.argv[1]
scratch = ScratchFolder()
(scratch.path / "below").mkdir()
(scratch.path / "below" / "rows").write_text("private")
print(scratch.path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def test_the_dead_go_and_the_living_stay(temporary: Path) -> None:
    """A process is killed with private rows on disk; the next start removes them, and nobody else's."""
    child = subprocess.Popen([sys.executable, "-c", _ROWS, str(temporary)], stdout=subprocess.PIPE, text=True)
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
    assert os.listdir(temporary) == []


def test_old_folders_without_a_lock_go_and_links_and_open_folders_stay(temporary: Path, tmp_path: Path) -> None:
    for place, mode in ((tmp_path / "elsewhere", 0o700), (temporary / "pmx-open", 0o755)):
        place.mkdir(mode=mode)
        (place / "lock").touch()
    (temporary / "pmx-link").symlink_to(tmp_path / "elsewhere")
    young = temporary / "pmx-without-lock"
    young.mkdir(mode=0o700)
    clear_scratch()
    assert young.exists()
    os.utime(young, (_OLD, _OLD))
    clear_scratch()
    assert not young.exists()
    assert (tmp_path / "elsewhere" / "lock").exists()
    assert (temporary / "pmx-open" / "lock").exists()


@pytest.mark.parametrize("held", [["model"], ["lock", "model"]])
def test_a_folder_of_that_name_which_is_none_of_these_is_left_alone(held: list[str], temporary: Path) -> None:
    """Somebody who may write there renamed a folder of ours."""
    place = temporary / "pmx-renamed"
    place.mkdir(mode=0o700)
    for name in held:
        (place / name).write_text("ours")
    os.utime(place, (_OLD, _OLD))
    clear_scratch()
    assert sorted(os.listdir(place)) == held


def test_where_no_file_can_be_locked_there_is_no_folder(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", none)
    with pytest.raises(StorageError, match="cannot create a private folder there: Function not implemented"):
        ScratchFolder()
    assert os.listdir(temporary) == []


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
    # Without an object that holds it, it goes.
    path = ScratchFolder().path
    assert not path.exists()
