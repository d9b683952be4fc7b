"""Files and folders that are written: by descriptor, never through a link, whole or absent, private ones closed.

A path is looked up at every use, and other users who may write a folder on its way decide where it leads. A descriptor
stays with the opened folder: if it is renamed and replaced, bytes still go into the first. Files are made under new
names, so no planted link is followed. All that privmix writes goes through here, except keys and locks (opened without
following links) and ledgers (databases).

Run folders, feature stores, spilled data and temporary copies hold private rows or keys: :class:`PrivateFolder`. Opened
things are checked after opening: a real folder or regular file, one's own, closed to group and others. Not covered:
root, other processes of the same user, and names. Others who may write the parent folder can rename or hide its
content, so that work is lost; they cannot read it, nor make us overwrite or remove files elsewhere.

Every layer may use this module. Owners, modes and descriptors are those of POSIX systems.
"""

import contextlib
import errno
import os
import shutil
import stat
import sys
import threading
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from privmix.errors import InvalidInput, PrivmixError, StorageError

# Rights of group and others, which private files lack.
OWNER_ONLY: Final = 0o077
# By name: systems that are not POSIX lack some, and can still import this.
NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
ONLY_FOLDER: Final = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_LINK
# Without O_NONBLOCK, opening a planted pipe would wait for ever.
_MORE: Final = os.O_APPEND | os.O_WRONLY | NO_LINK | getattr(os, "O_NONBLOCK", 0)
_OPEN: Final = NO_LINK | getattr(os, "O_NONBLOCK", 0)
_mask_lock = threading.RLock()


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

    def folder(self, name: str) -> "HeldFolder":
        """Open a folder in it, made where missing; raise StorageError for another kind of entry or another owner."""
        refusal = StorageError(f"{self.path.name}/{name}: not a folder that the current user owns")
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.descriptor)
        try:
            descriptor = os.open(name, os.O_RDONLY | NO_LINK | ONLY_FOLDER, dir_fd=self.descriptor)
        except OSError:
            raise refusal from None
        found = HeldFolder(self.path / name, descriptor)
        if not found.is_own():
            found.close()
            raise refusal
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

    def is_own(self) -> bool:
        return os.fstat(self.descriptor).st_uid == os.geteuid()

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
        os.fsync(self.descriptor)

    def close(self) -> None:
        """Give the descriptor back; again does nothing."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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


@contextmanager
def storage_errors(field: str, what: str, place: Path) -> Iterator[None]:
    """Turn errors of files inside into a :class:`StorageError` that names the operation and the place."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{field}: cannot {what} {place}: {error.strerror or type(error).__name__}") from None


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

    Formal guarantees (in addition to those of :class:`HeldFolder`):
        * One's own: a link, a folder of another user, or one that group or others can enter is refused.
        * Nothing elsewhere: no file outside it is opened, overwritten or removed through a link inside it.
    """

    # name: of it in messages, such as "out"; create: make it, below an existing parent.

    def __init__(self, path: Path, name: str, *, create: bool = False) -> None:
        # Before it is open: refusals name it.
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
        super().__init__(path, descriptor)
        if not self.is_own() or stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o777 != 0o700:
            self.close()
            raise self._foreign()

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


def private_folder(path: Path, name: str) -> PrivateFolder:
    """Make a folder of mode 0700 at ``path``, with parents, or accept one's own; return it, open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    return PrivateFolder(path, name)


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
        with storage_errors(self.field, "write", path):
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


def _remove_marked(path: Path, marks: Collection[str]) -> None:
    """Remove one's own folder if it has these files, or nothing else any more; they go last, so that a kill shows."""
    try:
        folder = HeldFolder(path, os.open(path, os.O_RDONLY | NO_LINK | ONLY_FOLDER))
    except FileNotFoundError:
        return
    except OSError:
        raise InvalidInput(path.name, str(path), "a free name: move this file or folder away") from None
    with folder:
        names = folder.names()
        if not folder.is_own() or not (names >= set(marks) or names <= set(marks)):
            allowed = "a folder left by an interrupted replacement: move this one away"
            raise InvalidInput(path.name, str(path), allowed)
        for name in sorted(names, key=lambda name: (name in marks, name)):
            folder.remove(name)
    path.rmdir()


@contextmanager
def whole_file(path: Path, field: str, *, private: bool) -> Iterator[IO[bytes]]:
    """Yield a stream that becomes the file ``path`` if the block succeeds; ``private``: for its owner alone."""
    with storage_errors(field, "write", path), file_mode(private=private):
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as stream:
            yield stream


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's list of names."""
    with hold(folder) as opened:
        opened.sync()


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
