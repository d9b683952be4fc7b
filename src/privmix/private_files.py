"""Files and folders that only their owner can open: checked by descriptor, never through a link.

Run folders, feature stores, spilled data and temporary copies hold private rows or keys. Whoever else can write the
folder above may plant a link, a folder of theirs or a file of theirs in the place of ours. So what is opened here is
looked at after it was opened: a real folder or a regular file, one's own, closed to group and others. Files of a held
:class:`PrivateFolder` are opened relative to its descriptor: if somebody renames the folder meanwhile and puts another
one in its place, bytes still go into ours.

Not covered: root, other processes of the same user, and names. Whoever may write the parent folder can rename or hide
what is in it, so that work is lost; but not read it, and not make us overwrite or remove files elsewhere.

This module sits beside the floors, so every floor may use it. Owners and modes are those of POSIX systems.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from privmix.errors import InvalidInput
from privmix.held_folders import NO_LINK, ONLY_FOLDER, HeldFolder

OWNER_ONLY: Final = 0o077
# By name: systems that are not POSIX lack some, and can still import this.
_OPEN: Final = NO_LINK | getattr(os, "O_NONBLOCK", 0)
_mask_lock = threading.RLock()


@contextmanager
def file_mode(*, private: bool) -> Iterator[None]:
    """Files made inside are readable by their owner only where they are private, else by all.

    The mask belongs to the whole process: other threads wait at their own ``file_mode``, and what they write without
    one meanwhile is as closed, or as open, as what is written here.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, file_mode(private=True):
        ...     Path(folder, "rows").touch()
        ...     oct(Path(folder, "rows").stat().st_mode & 0o777)
        '0o600'
    """
    with _mask_lock:
        old = os.umask(OWNER_ONLY if private else 0o022)
        try:
            yield
        finally:
            os.umask(old)


def no_core_dumps() -> None:
    """Keep this process's memory out of core dumps from now on; processes that it starts inherit that.

    Private rows and keys are in memory. A limit of one byte is what Linux takes as "no dump" also where dumps are piped
    to a program, which a limit of 0 does not stop. The process stays open to debuggers of the same user: closing it to
    them (``PR_SET_DUMPABLE``) would also break the shared memory of processes that train together.
    """
    if sys.platform == "win32":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    wanted = 1 if sys.platform == "linux" and most != 0 else 0
    # A sandbox may refuse even less.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (wanted, most))


def open_private(
    path: str | Path,
    name: str,
    *,
    update: bool = False,
    size: int | None = None,
    closed: bool = True,
    buffered: bool = True,
    dir_fd: int | None = None,
) -> IO[bytes]:
    """Open an existing file of one's own.

    Formal guarantees:
        * The last step of ``path`` is no link: a link is refused, wherever it points to.
        * Nothing is read or written before it is known to be a regular file of this user.

    Args:
        path: the file; relative to ``dir_fd`` if that is given.
        name: what messages call it.
        update: for reading and writing.
        size: bytes it must have.
        closed: group and others may have no right on it, and it may have no other name (hard link); not asked of files
            in a closed folder, where nobody else can put one.
        buffered: False leaves no copies of what is read in Python's buffers.
        dir_fd: an open folder.

    Raises:
        FileNotFoundError: there is none.
        InvalidInput: it is not as said above.
        OSError: it can't be opened.
    """
    allowed = "a regular file of this user's alone, not a link"
    try:
        descriptor = os.open(path, (os.O_RDWR if update else os.O_RDONLY) | _OPEN, dir_fd=dir_fd)
    except FileNotFoundError:
        raise
    except OSError:
        # A link, a pipe, a file of another user: it must not matter which.
        found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            raise
        raise InvalidInput(name, Path(path).name, allowed) from None
    found = os.fstat(descriptor)
    good = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    if not good or (closed and (stat.S_IMODE(found.st_mode) & OWNER_ONLY or found.st_nlink != 1)):
        os.close(descriptor)
        raise InvalidInput(name, Path(path).name, allowed)
    if size is not None and found.st_size != size:
        os.close(descriptor)
        raise InvalidInput(name, f"{found.st_size} bytes", f"a file of {size} bytes")
    return os.fdopen(descriptor, "r+b" if update else "rb", buffering=-1 if buffered else 0)


def shred(path: str | Path, name: str, size: int, *, closed: bool = True, dir_fd: int | None = None) -> None:
    """Overwrite a file of ``size`` bytes with zeros, wait until the disk has them, and remove it; no file, no work.

    The bytes are gone from the file's own blocks on file systems that write in place (ext4 and XFS as usually mounted).
    An SSD keeps old blocks until it erases them, and copy-on-write or fully journalled file systems, snapshots and
    backups may hold the old content: there only encryption of the disk protects what was in it.

    Raises:
        InvalidInput: it is larger, or see :func:`open_private`; nothing was overwritten.
        OSError: it can't be written.
    """
    try:
        with open_private(path, name, update=True, closed=closed, buffered=False, dir_fd=dir_fd) as stream:
            found = os.fstat(stream.fileno()).st_size
            if found > size:
                raise InvalidInput(name, f"{found} bytes", f"a file of {size} bytes")
            stream.write(bytes(found))
            os.fsync(stream.fileno())
    except FileNotFoundError:
        return
    os.unlink(path, dir_fd=dir_fd)


class PrivateFolder(HeldFolder):
    """One's own folder of mode 0700, held open; its files are reached through its descriptor.

    Formal guarantees (beside those of :class:`privmix.held_folders.HeldFolder`):
        * One's own: a link, a folder of another user, or one that group or others can enter is refused.
        * Nothing elsewhere: no file outside it is opened, overwritten or removed through a link inside it.

    Args:
        path: the folder.
        name: what messages call it, such as ``"out"``.
        create: make it; its parent exists.

    Raises:
        FileNotFoundError: there is none; FileExistsError: ``create`` and there is something.
        InvalidInput: it is not one's own, or open to others.
        OSError: it can't be made or opened.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as above, PrivateFolder(Path(above, "run"), "run", create=True) as run:
        ...     run.write("notes", b"secret")
        ...     run.read("notes", 100), run.names()
        (b'secret', {'notes'})
    """

    def __init__(self, path: Path, name: str, *, create: bool = False) -> None:
        self.path, self.name = path, name
        if create:
            path.mkdir(mode=0o700)
        try:
            descriptor = os.open(path, os.O_RDONLY | NO_LINK | ONLY_FOLDER)
        except FileNotFoundError:
            raise
        except OSError:
            if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid():
                raise
            raise self._foreign() from None
        if not _is_own_folder(os.fstat(descriptor)):
            os.close(descriptor)
            raise self._foreign()
        super().__init__(path, descriptor)

    def _foreign(self) -> InvalidInput:
        return InvalidInput(
            self.name, str(self.path), "a folder of this user's alone (mode 0700), not a link; remove or rename it"
        )

    def open(self, name: str, *, update: bool = False) -> IO[bytes]:
        """A file of one's own; see :func:`open_private`."""
        return open_private(name, f"{self.path.name}/{name}", update=update, closed=False, dir_fd=self.descriptor)

    def read(self, name: str, most_bytes: int) -> bytes:
        """The content of a file of at most ``most_bytes``.

        Raises:
            InvalidInput: it is larger; see also :func:`open_private`.
        """
        with self.open(name) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > most_bytes:
                raise InvalidInput(f"{self.path.name}/{name}", f"{size} bytes", f"at most {most_bytes}")
            content = bytearray()
            while piece := stream.read(size + 1 - len(content)):
                content += piece
            return bytes(content)

    def check_names(self, known: Collection[str]) -> None:
        """Raise :class:`InvalidInput` unless all that is in it is called one of ``known``, or is a draft of such."""
        if self.names() - {*known, *(f".{name}.draft" for name in known)}:
            raise InvalidInput(self.name, str(self.path), "nothing else in a folder of that name; move it away")

    def keep_only(self, files: Collection[str]) -> None:
        """Remove all files but these (paths relative to it), however deep, and links, but not where they lead."""
        for place, folders, names, descriptor in os.fwalk(".", dir_fd=self.descriptor, follow_symlinks=False):
            links = [name for name in folders if _is_link(name, descriptor)]
            for name in [*names, *links]:
                if os.path.normpath(f"{place}/{name}") not in files:
                    os.unlink(name, dir_fd=descriptor)

    def discard(self, *, last: str | None = None) -> None:
        """Remove what is in it, and the folder where it still has its place; :meth:`close` follows.

        Args:
            last: a file that goes at the end, when nothing else is left.

        Raises:
            OSError: somebody writes there meanwhile.
        """
        for name in sorted(self.names() - {last}):
            self.remove(name)
        if last is not None:
            if self.names() - {last}:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            self.remove(last)
        if self.is_in_place():
            # Only an empty folder goes by this, whoever may have been put in its place since we looked.
            self.path.rmdir()
        self.close()


def check_private_folder(path: Path, name: str) -> None:
    """Raise :class:`InvalidInput` unless ``path`` is one's own real folder of mode 0700.

    Raises:
        FileNotFoundError: there is none.
    """
    PrivateFolder(path, name).close()


def private_folder(path: Path, name: str) -> Path:
    """Make a folder of mode 0700 at ``path``, with its parents, or accept one's own; returns ``path``.

    Raises:
        InvalidInput: something else is there.
        OSError: it can't be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    check_private_folder(path, name)
    return path


def _is_link(name: str, descriptor: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode)


def _is_own_folder(found: os.stat_result) -> bool:
    mode = stat.S_IMODE(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and mode & 0o777 == 0o700
