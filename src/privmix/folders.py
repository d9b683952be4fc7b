"""Folders that appear whole or not at all: written beside their place, then renamed into it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from privmix.errors import InvalidInput, PrivmixError, StorageError
from privmix.held_folders import FolderLost
from privmix.private_files import PrivateFolder


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that privmix writes.

    Attributes:
        field: what the folder is called in messages, such as ``"out"``.
        holds: what it holds, such as ``"a release"``.
        marks: names of files that every folder of this kind has; a folder without them is never replaced.
    """

    field: str
    holds: str
    marks: frozenset[str]

    def check_target(self, path: Path, *, overwrite: bool) -> None:
        """Raise :class:`InvalidInput` unless ``path`` is free, or is of this kind and may be replaced.

        A folder that holds anything else is never replaced, whatever the flags.
        """
        if not path.exists() and not path.is_symlink():
            return
        if not overwrite:
            raise InvalidInput(self.field, str(path), "a folder that does not exist yet (or `overwrite`)")
        if path.is_symlink() or not all((path / mark).is_file() for mark in self.marks):
            raise InvalidInput(self.field, str(path), f"a folder that holds {self.holds}, to overwrite it")

    @contextmanager
    def new(self, path: Path, *, overwrite: bool = False) -> Iterator[PrivateFolder]:
        """Yield a hidden folder beside ``path`` that takes its place when the block succeeds and is removed when not.

        Whoever writes there does so by the folder itself, and not by its path. A killed run leaves only the hidden
        folder, never a half-written ``path``, and the next run removes it; a failed swap puts the old folder back.

        Raises:
            InvalidInput: ``path`` exists and may not be replaced.
            StorageError: it can't be written (no space, no permission), or the hidden folder was renamed or replaced.
        """
        self.check_target(path, overwrite=overwrite)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}.partial")
            with contextlib.suppress(FileNotFoundError), PrivateFolder(draft, self.field) as left:
                left.discard()
            # Nobody else's before it is whole.
            with PrivateFolder(draft, self.field, create=True) as held:
                try:
                    yield held
                    put_in_place(held, path, self.marks)
                finally:
                    if not held.is_at(path):
                        with contextlib.suppress(OSError):
                            held.discard()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StorageError(f"{self.field}: can't write {path}: {reason}") from None


def put_in_place(draft: PrivateFolder, path: Path, marks: Collection[str]) -> None:
    """Rename the folder ``draft`` to ``path``, for all to read; what is at ``path`` gives way once that worked.

    Args:
        draft: held, so that it is known what got the name.
        path: free, or a folder that may be replaced.
        marks: files of the replaced folder, by which what a killed swap left of it is known.

    Raises:
        FolderLost: the draft was renamed or replaced meanwhile; ``path`` is none of ours then, if there is one.
        OSError: it can't be renamed.
    """
    old = path.with_name(f".{path.name}.old")
    draft.check_in_place()
    if not path.exists():
        os.replace(draft.path, path)
    else:
        _remove_marked(old, marks)
        os.replace(path, old)
        try:
            os.replace(draft.path, path)
        except OSError:
            os.replace(old, path)
            raise
    if not draft.is_at(path):
        raise FolderLost(f"{path}: somebody put another folder there")
    # By its descriptor: whatever has its name by now, no other folder is opened to others.
    os.fchmod(draft.descriptor, 0o755)
    # Also what a swap that was killed half-way left.
    with contextlib.suppress(OSError, InvalidInput):
        _remove_marked(old, marks)


def _remove_marked(folder: Path, marks: Collection[str]) -> None:
    """Remove one's own folder if it has these files, or nothing else any more; they go last, so that a kill shows."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except OSError:
        raise InvalidInput(folder.name, str(folder), "no such name; move it away") from None
    try:
        names = set(os.listdir(descriptor))
        if os.fstat(descriptor).st_uid != os.geteuid() or not (names >= set(marks) or names <= set(marks)):
            raise InvalidInput(folder.name, str(folder), "what a replaced folder left; move it away")
        for name in [*sorted(names - set(marks)), *sorted(names & set(marks))]:
            if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=descriptor)
            else:
                os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    folder.rmdir()


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's list of names."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class PathLock:
    """``.{name}.lock`` beside a path, held until released or until the process ends, however it ends.

    Args:
        path: what only one process may write.
        busy: raised when another process has it.
    """

    def __init__(self, path: Path, busy: PrivmixError) -> None:
        # Not on every system; whoever writes nothing of the kind there can still import this.
        import fcntl

        self.held = False
        self._file = path.with_name(f".{path.name}.lock")
        while True:
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._descriptor)
                raise busy from None
            # The holder before us may have removed the file between our two steps: its lock says nothing then.
            if self._is_current():
                self.held = True
                return
            os.close(self._descriptor)

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._file))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others in; a second call does nothing."""
        if self.held:
            self.held = False
            self._file.unlink(missing_ok=True)
            os.close(self._descriptor)
