"""Scratch folders: private folders for temporary files that are gone when the work ends, also after a kill.

This module sits beside the floors, so every floor may use it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import tempfile
import time
import weakref
from pathlib import Path
from typing import Final

from privmix.errors import InvalidInput, StorageError
from privmix.private_files import PrivateFolder

_LOCK: Final = "lock"
# Short: sockets have short paths.
_ROOM: Final = "r"
_PREFIX: Final = "pmx-"
_TMPDIR: Final = "TMPDIR"
# A folder without a lock is one that is just being made, unless it is as old as this (seconds).
_ABANDONED: Final = 3600.0
_ATTEMPTS: Final = 20


class ScratchFolder:
    """A private folder below the folder for temporary files (TMPDIR), or below another one, gone at the end.

    Its process holds a lock on a file in it. What a kill left is recognised by that lock being free, and removed when
    the same user's next scratch folder is made there, or by :func:`clear_scratch`. In a folder that machines share each
    looks at its own alone: a lock may be seen by no other machine.

    Args:
        place: an existing folder to make it in, hidden; None is the one for temporary files.

    Formal guarantees:
        * Closed: mode 0700; only folders like that, one's own and called ``pmx-...`` or ``.pmx-...``, are removed.
        * The living are spared: a folder whose process lives, by its lock and not by a number, is left alone.
        * Gone: at :meth:`remove`, at the end of a ``with`` block, when the object is no longer used, when Python exits;
          a forked process does not remove what is its parent's.

    Attributes:
        path: an empty folder, the only one in the locked one; others can't reach it, whatever its own mode becomes.

    Raises:
        StorageError: no such folder can be made.

    Example:
        >>> with ScratchFolder() as folder:
        ...     (folder / "rows").touch()
        >>> folder.exists()
        False
    """

    def __init__(self, place: Path | None = None) -> None:
        clear_scratch(place)
        above, prefix, name = _found_in(place)
        try:
            folder, lock = _locked_folder(above, prefix, name)
            self.path = folder.path / _ROOM
            self.path.mkdir(mode=0o700)
        except OSError as error:
            raise StorageError(f"{name}: can't make a private folder there: {error.strerror}") from None
        self._remove = weakref.finalize(self, _end, folder, lock, os.getpid())

    def remove(self) -> None:
        """Remove it and all below; again does nothing."""
        self._remove()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


def clear_scratch(place: Path | None = None) -> None:
    """Remove the scratch folders of processes that ended without doing so; ``place`` as of :class:`ScratchFolder`."""
    above, prefix, name = _found_in(place)
    with contextlib.suppress(OSError):
        for entry in os.scandir(above):
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                _clear_if_dead(Path(entry.path), name)


def _found_in(place: Path | None) -> tuple[str, str, str]:
    """The folder that scratch folders are in, how their names begin, and what messages call the folder."""
    if place is None:
        return tempfile.gettempdir(), _PREFIX, _TMPDIR
    machine = hashlib.blake2b(platform.node().encode(), digest_size=4).hexdigest()
    return str(place.absolute()), f".{_PREFIX}{machine}-", str(place)


def _locked_folder(above: str, prefix: str, name: str) -> tuple[PrivateFolder, int]:
    while True:
        folder = PrivateFolder(Path(tempfile.mkdtemp(prefix=prefix, dir=above)), name)
        try:
            with folder.create(_LOCK) as stream:
                lock = os.dup(stream.fileno())
        except FileNotFoundError:
            # Somebody who clears up took the empty folder for one that a kill left.
            folder.close()
            continue
        if _try_lock(lock) and folder.has(_LOCK):
            return folder, lock
        os.close(lock)
        folder.close()


def _clear_if_dead(path: Path, name: str) -> None:
    with contextlib.suppress(OSError, InvalidInput), PrivateFolder(path, name) as folder:
        if not folder.has(_LOCK):
            if time.time() - os.fstat(folder.descriptor).st_mtime > _ABANDONED:
                folder.discard()
            return
        with folder.open(_LOCK, update=True) as lock:
            if _try_lock(lock.fileno()):
                folder.discard(last=_LOCK)


def _try_lock(descriptor: int) -> bool:
    # Not on every system; whoever makes no such folder there can still import this.
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _end(folder: PrivateFolder, lock: int, owner: int) -> None:
    if os.getpid() == owner:
        # Processes that were told to end may write for a moment more.
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(OSError):
                folder.discard(last=_LOCK)
                break
            time.sleep(0.1)
        # What still is there goes when the next folder is made.
        os.close(lock)
        folder.close()
