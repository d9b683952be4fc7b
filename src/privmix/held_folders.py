"""Folders held open: files are made, appended to and renamed by the folder's descriptor, never through a link.

A path is looked up at every use, and other users who may write a folder on its way decide where it leads. A descriptor
stays with the opened folder: if it is renamed and replaced, bytes still go into the first. Files are made under new
names, so no planted link is followed. All that privmix writes goes through here, except keys and locks (opened without
following links) and ledgers (databases). Every layer may use this module. Owners and descriptors are POSIX's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from privmix.errors import StorageError

# By name: systems that are not POSIX lack some, and can still import this.
NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
ONLY_FOLDER: Final = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_LINK
_MORE: Final = os.O_APPEND | os.O_WRONLY | NO_LINK | getattr(os, "O_NONBLOCK", 0)


class FolderLost(StorageError):
    """A folder was renamed or replaced while it was written; see :class:`StorageError`."""


class HeldFolder:
    """An open folder, which owns its descriptor.

    Formal guarantees:
        * Same folder: if another folder gets its name later, or its parents get other names, bytes go into the one that
          was opened.
        * Nothing elsewhere: no link inside it is followed when a file is made, appended to, renamed or removed.
        * Whole: a file of :meth:`new` or :meth:`write` is on the disk before it has its name.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path: Path = path
        self.descriptor: Final = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)

    def create(self, name: str, *, shared: bool = False) -> IO[bytes]:
        """Create a file for writing; ``shared``: with the process's mask, otherwise mode 0600."""
        return os.fdopen(os.open(name, _NEW, 0o666 if shared else 0o600, dir_fd=self.descriptor), "wb")

    def append(self, name: str) -> IO[bytes]:
        """Open an existing file for appending; refuse a link."""
        descriptor = os.open(name, _MORE, dir_fd=self.descriptor)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            os.close(descriptor)
            raise StorageError(f"{self.path.name}/{name}: not a regular file that the current user owns")
        return os.fdopen(descriptor, "ab")

    @contextmanager
    def new(self, name: str, *, shared: bool = False, draft: str | None = None) -> Iterator[IO[bytes]]:
        """Yield a stream whose content replaces the file if the block succeeds; otherwise nothing is left."""
        # A rest of a kill, or a plant, under the draft's name goes first: it may be a link or open to others. Several
        # processes that may write one file each name a draft of their own.
        draft = f".{name}.draft" if draft is None else draft
        self.remove(draft)
        try:
            with self.create(draft, shared=shared) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(draft)
            raise
        self.sync()

    def write(self, name: str, content: bytes, *, shared: bool = False) -> None:
        """Write a file that is whole and on disk once it has its name, or not there at all."""
        with self.new(name, shared=shared) as stream:
            stream.write(content)

    def folder(self, name: str) -> HeldFolder:
        """Open a folder in it, made where missing; raise StorageError for another kind of entry or another owner."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.descriptor)
        try:
            descriptor = os.open(name, os.O_RDONLY | NO_LINK | ONLY_FOLDER, dir_fd=self.descriptor)
        except OSError:
            raise StorageError(f"{self.path.name}/{name}: not a folder that the current user owns") from None
        found = HeldFolder(self.path / name, descriptor)
        if os.fstat(descriptor).st_uid != os.geteuid():
            found.close()
            raise StorageError(f"{self.path.name}/{name}: not a folder that the current user owns")
        return found

    def has(self, name: str) -> bool:
        """Whether there is a regular file of that name."""
        try:
            return stat.S_ISREG(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def names(self) -> set[str]:
        return set(os.listdir(self.descriptor))

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all below; a link goes, not what it points to; no such name, no work."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            shutil.rmtree(name, dir_fd=self.descriptor)

    def is_at(self, path: Path) -> bool:
        """Whether ``path`` leads to it, and not by a link in its last step."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), os.lstat(path))
        except OSError:
            return False

    def is_in_place(self) -> bool:
        """Whether the path that it was opened at still leads to it."""
        return self.is_at(self.path)

    def check_in_place(self) -> None:
        """Raise :class:`FolderLost` unless it is."""
        if not self.is_in_place():
            raise FolderLost(f"{self.path}: renamed or replaced while privmix wrote to it; run the command again")

    def sync(self) -> None:
        """Wait until the disk has the list of names."""
        os.fsync(self.descriptor)

    def close(self) -> None:
        """Give the descriptor back; again does nothing."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def hold(path: Path) -> HeldFolder:
    """Open the folder that a user named, following any links."""
    return HeldFolder(path, os.open(path, os.O_RDONLY | ONLY_FOLDER))


@contextmanager
def held(place: Path | HeldFolder) -> Iterator[HeldFolder]:
    """Yield the folder itself, or the one that a path leads to, held while the block runs."""
    if isinstance(place, HeldFolder):
        yield place
    else:
        with hold(place) as folder:
            yield folder


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a stream that becomes the file ``path`` if the block succeeds; see :meth:`HeldFolder.new`."""
    with hold(path.parent) as folder, folder.new(path.name, shared=True) as stream:
        yield stream


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that is whole and on disk once it has its name, or not there at all; its folder exists."""
    with new_file(path) as stream:
        stream.write(content)
