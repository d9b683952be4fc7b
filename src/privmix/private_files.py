"""Files and folders that only their owner can open: checked by descriptor, never through a link.

Run folders, feature stores, spilled data and temporary copies hold private rows or keys. Other users who can write the
folder above may plant a link, folder or file. So opened things are checked after opening: a real folder or regular
file, one's own, closed to group and others. Files of a :class:`PrivateFolder` are opened relative to its descriptor.

Not covered: root, other processes of the same user, and names. Others who may write the parent folder can rename or
hide its content, so that work is lost; they cannot read it, nor make us overwrite or remove files elsewhere.

Every layer may use this module. Owners and modes are those of POSIX systems.
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
    """Make files inside readable by their owner only where ``private``, else by all."""
    # The mask belongs to the process: other threads wait at their own file_mode; what they write without one has ours.
    with _mask_lock:
        old = os.umask(OWNER_ONLY if private else 0o022)
        try:
            yield
        finally:
            os.umask(old)


def no_core_dumps() -> None:
    """Keep the memory of this process, and of those that it starts, out of core dumps from now on."""
    # Linux takes a limit of one byte as "no dump" also where dumps are piped to a program; 0 does not stop that.
    # Debuggers of the same user still work: PR_SET_DUMPABLE would also break the shared memory of processes that train
    # together.
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
    closed: bool = True,
    buffered: bool = True,
    dir_fd: int | None = None,
) -> IO[bytes]:
    """Open an existing file of one's own.

    Formal guarantees:
        * The last step of ``path`` is no link: a link is refused, to any target.
        * Nothing is read or written before it is known to be a regular file of this user.
    """
    # path: relative to ``dir_fd`` if that is an open folder. name: in messages. closed: no
    # rights for group and others and no other name (hard link); unneeded in a closed folder. buffered: False leaves no
    # copies of the bytes in Python's buffers.
    allowed = "a regular file that only its owner can open, not a link"
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
    return os.fdopen(descriptor, "r+b" if update else "rb", buffering=-1 if buffered else 0)


def shred(path: str | Path, name: str, size: int, *, closed: bool = True, dir_fd: int | None = None) -> None:
    """Overwrite a file of at most ``size`` bytes with zeros, wait for the disk, and remove it, if it is there."""
    # Gone on file systems that write in place (ext4 and XFS as usually mounted). SSDs keep old blocks until erased;
    # copy-on-write or fully journalled file systems, snapshots and backups may keep them: only disk encryption protects
    # there.
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

    Formal guarantees (in addition to those of :class:`privmix.held_folders.HeldFolder`):
        * One's own: a link, a folder of another user, or one that group or others can enter is refused.
        * Nothing elsewhere: no file outside it is opened, overwritten or removed through a link inside it.
    """

    # name: of it in messages, such as "out"; create: make it, below an existing parent.

    def __init__(self, path: Path, name: str, *, create: bool = False) -> None:
        self.path: Path = path
        self.name: Final = name
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
            self.name,
            str(self.path),
            "a folder that only its owner can open (mode 0700), not a link: remove or rename this one",
        )

    def open(self, name: str, *, update: bool = False) -> IO[bytes]:
        """Return a file of one's own; see :func:`open_private`."""
        return open_private(name, f"{self.path.name}/{name}", update=update, closed=False, dir_fd=self.descriptor)

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the content of a file of at most ``most_bytes``."""
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
            raise InvalidInput(
                self.name, str(self.path), "a folder with privmix's own files only: move the other files away"
            )

    def keep_only(self, files: Collection[str]) -> None:
        """Remove all files but these (paths relative to it), however deep, and links, but not where they lead."""
        for place, folders, names, descriptor in os.fwalk(".", dir_fd=self.descriptor, follow_symlinks=False):
            for name in folders:
                if stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    names.append(name)
            for name in names:
                if os.path.normpath(f"{place}/{name}") not in files:
                    os.unlink(name, dir_fd=descriptor)

    def discard(self, *, last: str | None = None) -> None:
        """Remove its content, ``last`` at the end, and the folder if it still has its place. Then :meth:`close`."""
        for name in sorted(self.names() - {last}):
            self.remove(name)
        if last is not None:
            if self.names() - {last}:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            self.remove(last)
        if self.is_in_place():
            # This removes only an empty folder, even if another one replaced ours meanwhile.
            self.path.rmdir()
        self.close()


def check_private_folder(path: Path, name: str) -> None:
    """Raise :class:`InvalidInput` unless ``path`` is one's own real folder of mode 0700."""
    PrivateFolder(path, name).close()


def private_folder(path: Path, name: str) -> Path:
    """Make a folder of mode 0700 at ``path``, with parents, or accept one's own; return ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    check_private_folder(path, name)
    return path


def _is_own_folder(found: os.stat_result) -> bool:
    mode = stat.S_IMODE(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and mode & 0o777 == 0o700
