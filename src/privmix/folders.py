"""Folders and files that appear whole or not at all: written next to their place, then renamed into it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from privmix.errors import InvalidInput, PrivmixError, StorageError
from privmix.held_folders import FolderLost, new_file
from privmix.private_files import PrivateFolder, file_mode


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that privmix writes."""

    # field: its name in messages, such as "out"; holds: "a release"; marks: files of every such folder, without which a
    # folder is never replaced.

    field: str
    holds: str
    marks: frozenset[str]

    def check_target(self, path: Path, *, overwrite: bool) -> None:
        """Raise :class:`InvalidInput` unless ``path`` is free, or is of this kind and may be replaced."""
        # With any flags, a folder of another kind is never replaced.
        if not path.exists() and not path.is_symlink():
            return
        if not overwrite:
            raise InvalidInput(self.field, str(path), "a folder that does not exist yet (or `overwrite`)")
        if path.is_symlink() or not all((path / mark).is_file() for mark in self.marks):
            raise InvalidInput(self.field, str(path), f"a new folder, or one with {self.holds} to overwrite")

    @contextmanager
    def new(self, path: Path, *, overwrite: bool = False) -> Iterator[PrivateFolder]:
        """Yield a hidden folder next to ``path`` that takes its place if the block succeeds and goes otherwise."""
        # Write by the folder's descriptor, not by its path. A killed run leaves only the hidden folder, which the next
        # run removes; a failed swap puts the old folder back. Raises StorageError where the hidden folder was renamed
        # or replaced.
        self.check_target(path, overwrite=overwrite)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}.partial")
            with contextlib.suppress(FileNotFoundError), PrivateFolder(draft, self.field) as left:
                left.discard()
            # Other users cannot open it before it is whole.
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
            raise StorageError(f"{self.field}: cannot write {path}: {reason}") from None


def put_in_place(draft: PrivateFolder, path: Path, marks: Collection[str]) -> None:
    """Rename the open folder ``draft`` to ``path``, for all to read; then remove the folder that was there."""
    # marks: files of the replaced folder, which identify a killed swap's rest. FolderLost: the draft was renamed or
    # replaced meanwhile, and a folder at path is not ours.
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
        raise FolderLost(f"{path}: another process replaced this folder; run the command again")
    # By its descriptor: another folder that has its name by now is not opened to others.
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
        raise InvalidInput(folder.name, str(folder), "a free name: move this file or folder away") from None
    try:
        names = set(os.listdir(descriptor))
        if os.fstat(descriptor).st_uid != os.geteuid() or not (names >= set(marks) or names <= set(marks)):
            raise InvalidInput(
                folder.name, str(folder), "a folder left by an interrupted replacement: move this one away"
            )
        for name in [*sorted(names - set(marks)), *sorted(names & set(marks))]:
            if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=descriptor)
            else:
                os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    folder.rmdir()


@contextmanager
def whole_file(path: Path, field: str, *, private: bool) -> Iterator[IO[bytes]]:
    """Yield a stream that becomes the file ``path`` if the block succeeds; ``private``: for its owner alone."""
    try:
        with file_mode(private=private):
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(path) as stream:
                yield stream
    except OSError as error:
        raise StorageError(f"{field}: cannot write {path}: {error.strerror or type(error).__name__}") from None


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's list of names."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class PathLock:
    """``.{name}.lock`` next to a path, until released or the process ends; ``busy`` is raised if another has it."""

    def __init__(self, path: Path, busy: PrivmixError) -> None:
        # Not on every system: importing this must still work there.
        import fcntl

        self.held: bool = False
        self._file = path.with_name(f".{path.name}.lock")
        while True:
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._descriptor)
                raise busy from None
            # The holder before us may have removed the file between our two steps: its lock is then no evidence.
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
        if self.held:
            self.held = False
            self._file.unlink(missing_ok=True)
            os.close(self._descriptor)
