"""Scratch folders: private temporary folders, removed when the work ends, also after a kill. For every layer."""

import contextlib
import os
import tempfile
import time
import weakref
from pathlib import Path
from typing import Final

from privmix.errors import InvalidInput, StorageError
from privmix.folders import PrivateFolder

_LOCK: Final = "lock"
# Short: sockets have short paths.
_ROOM: Final = "r"
_PREFIX: Final = "pmx-"
# A folder without a lock is one that is just being made, unless it is as old as this (seconds).
_ABANDONED: Final = 3600.0
# Attempts with pauses of 0.1 seconds: processes that end get two seconds to stop writing.
_ATTEMPTS: Final = 20


class ScratchFolder:
    """A private folder below TMPDIR, removed at the end.

    Its process locks a file in it. A free lock marks the rest of a kill, which the same user's next scratch folder or
    :func:`clear_scratch` removes.

    Formal guarantees:
        * Closed: mode 0700, and only folders like that, one's own and called ``pmx-...``, are ever removed.
        * The living are spared: a folder whose process lives, by its lock and not by a number, is left alone.
        * Gone: at :meth:`remove`, at the end of a ``with`` block, when the object is no longer used, when Python exits.
          A forked process does not remove what is its parent's.
    """

    # path: an empty folder inside the locked one, closed to others even if its own mode changes.

    def __init__(self) -> None:
        clear_scratch()
        try:
            folder, lock = _locked_folder()
            self.path: Final = folder.path / _ROOM
            self.path.mkdir(mode=0o700)
        except OSError as error:
            raise StorageError(
                f"TMPDIR: cannot create a private folder there: {error.strerror}. Set TMPDIR to a "
                f"folder that you can write"
            ) from None
        self._remove = weakref.finalize(self, _end, folder, lock, os.getpid())

    def remove(self) -> None:
        """Remove it and all below; again does nothing."""
        self._remove()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


def clear_scratch() -> None:
    """Remove the scratch folders of processes that ended without doing so."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                _clear_if_dead(Path(entry.path))


def _locked_folder() -> tuple[PrivateFolder, int]:
    while True:
        folder = PrivateFolder(Path(tempfile.mkdtemp(prefix=_PREFIX)), "TMPDIR")
        try:
            with folder.create(_LOCK) as stream:
                lock = os.dup(stream.fileno())
        except FileNotFoundError:
            # Another process that clears up took the empty folder for one that a kill left.
            folder.close()
            continue
        try:
            if _try_lock(lock) and folder.has(_LOCK):
                return folder, lock
        except OSError:
            # No locks on this file system: no process could distinguish this folder from one that a kill left.
            os.close(lock)
            folder.discard()
            raise
        os.close(lock)
        folder.close()


def _clear_if_dead(path: Path) -> None:
    with contextlib.suppress(OSError, InvalidInput), PrivateFolder(path, "TMPDIR") as folder:
        if not folder.has(_LOCK):
            # The lock is there before anything else, and goes last: what else has none is not one of these.
            if time.time() - os.fstat(folder.descriptor).st_mtime > _ABANDONED:
                os.rmdir(path)
            return
        folder.check_names({_LOCK, _ROOM})
        with folder.open(_LOCK, update=True) as lock:
            if _try_lock(lock.fileno()):
                folder.discard(last=_LOCK)


def _try_lock(descriptor: int) -> bool:
    # Not on every system: importing this must still work there.
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end(folder: PrivateFolder, lock: int, owner: int) -> None:
    if os.getpid() == owner:
        # Processes that are ending may write for a moment more.
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(OSError):
                folder.discard(last=_LOCK)
                break
            time.sleep(0.1)
        # The next folder's creation removes files that remain.
        os.close(lock)
        folder.close()
