"""Folders held open: files in them are made, appended to and renamed by the folder's descriptor, never through a link.

A path is looked up anew whenever it is used, and whoever may write a folder on its way decides where it leads by then.
A descriptor stays with the folder that was opened: if somebody renames that one and puts a folder of theirs in its
place, bytes still go into the first. A file is made under a name that nothing has, so that no link that somebody
planted there is followed. All that privmix writes goes through here, but for keys and locks, which open their files
without following links, and ledgers, which are databases.

This module sits beside the floors, so every floor may use it. Owners and descriptors are those of POSIX systems.
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
    """An open folder.

    Formal guarantees:
        * Same folder: whatever gets its name later, and whatever its parents are called by then, bytes go into the one
          that was opened.
        * Nothing elsewhere: no link inside it is followed when a file is made, appended to, renamed or removed.
        * Whole: a file of :meth:`new` or :meth:`write` is on the disk before it has its name.

    Args:
        path: where it was opened.
        descriptor: open, and the object's own from now on.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor
        self._close = weakref.finalize(self, os.close, descriptor)

    def create(self, name: str, *, shared: bool = False) -> IO[bytes]:
        """A new file, for writing.

        Args:
            name: in this folder.
            shared: with the rights that the process's mask leaves; else for the owner only (mode 0600).

        Raises:
            FileExistsError: something has that name.
        """
        return os.fdopen(os.open(name, _NEW, 0o666 if shared else 0o600, dir_fd=self.descriptor), "wb")

    def append(self, name: str) -> IO[bytes]:
        """A file that is there, for writing behind its end.

        Raises:
            FileNotFoundError: there is none.
            OSError: it is a link, or can't be written.
        """
        descriptor = os.open(name, _MORE, dir_fd=self.descriptor)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            os.close(descriptor)
            raise StorageError(f"{self.path.name}/{name}: not a file of this user's")
        return os.fdopen(descriptor, "ab")

    @contextmanager
    def new(self, name: str, *, shared: bool = False, draft: str | None = None) -> Iterator[IO[bytes]]:
        """A stream whose content has its name, in place of what had it, once the block succeeds; else nothing is left.

        What a kill left under the draft's name, or somebody put there, goes first: it may be a link, or open to others.
        Where several processes may write one file, each names a ``draft`` of its own.
        """
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
        """A folder in it, made where it is missing.

        Raises:
            StorageError: something else has that name, or another user's folder.
        """
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.descriptor)
        try:
            descriptor = os.open(name, os.O_RDONLY | NO_LINK | ONLY_FOLDER, dir_fd=self.descriptor)
        except OSError:
            raise StorageError(f"{self.path.name}/{name}: not a folder of this user's") from None
        found = HeldFolder(self.path / name, descriptor)
        if os.fstat(descriptor).st_uid != os.geteuid():
            found.close()
            raise StorageError(f"{self.path.name}/{name}: not a folder of this user's")
        return found

    def has(self, name: str) -> bool:
        """Whether there is a regular file of that name."""
        try:
            return stat.S_ISREG(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def names(self) -> set[str]:
        """What is in it."""
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
            raise FolderLost(f"{self.path}: renamed, or another put in its place, while it was written")

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
    """The folder that a user named, by whatever links lead there.

    Raises:
        OSError: there is none, or it can't be opened.
    """
    return HeldFolder(path, os.open(path, os.O_RDONLY | ONLY_FOLDER))


@contextmanager
def held(place: Path | HeldFolder) -> Iterator[HeldFolder]:
    """The folder itself, or the one that a path leads to, held while the block runs."""
    if isinstance(place, HeldFolder):
        yield place
    else:
        with hold(place) as folder:
            yield folder


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A stream that becomes the file ``path`` once the block succeeds; its folder exists. See :meth:`HeldFolder.new`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as above:
        ...     with new_file(Path(above, "figure.svg")) as stream:
        ...         _ = stream.write(b"<svg/>")
        ...     Path(above, "figure.svg").read_bytes()
        b'<svg/>'
    """
    with hold(path.parent) as folder, folder.new(path.name, shared=True) as stream:
        yield stream


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that is whole and on disk once it has its name, or not there at all; its folder exists."""
    with new_file(path) as stream:
        stream.write(content)
