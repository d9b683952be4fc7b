"""Files at addresses, read in place: by ranges of bytes, into memory only, of the very versions that were listed."""

import errno
import hashlib
import io
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final, Literal, NamedTuple

from privmix.data.files import know_hash, known_hash
from privmix.errors import InvalidInput, MissingExtra, PrivmixError, StorageError

WEB: Final = ("http://", "https://")
# File systems' names of marks that change with a file's content: the first tag that is present, or all such times.
_TAGS: Final = ("etag", "generation", "versionid", "checksum", "md5hash", "contentmd5", "crc32c", "blobid", "sha")
_TIMES: Final = ("mtime", "lastmodified", "modified", "updated", "created")
_ON_DISK: Final = frozenset({"simplecache", "filecache", "blockcache", "cached"})
# A tile has about a thousandth of the records, so what is read beyond it stays small.
_PIECES: Final = 4096
LEAST_PIECE: Final = 2**16
_MOST_PIECE: Final = 2**22
_TRIES: Final = 3
PAUSE: Final = 0.5


class FileVersion(NamedTuple):
    """Facts of a file system that distinguish a file's content from an earlier one."""

    # `tag`: a checksum or version counter (`strong`), else times; empty: the file system has neither.

    size: int
    tag: str
    strong: bool

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "FileVersion | None":
        """Read fsspec's ``info``; None where it lacks the file's size."""
        if not isinstance(info.get("size"), int):
            return None
        said = {re.sub(r"[^a-z0-9]", "", str(name).lower()): value for name, value in info.items()}
        strong = [f"{name} {str(said[name]).strip(chr(34))}" for name in _TAGS if said.get(name)][:1]
        times = [f"{name} {said[name]}" for name in _TIMES if said.get(name)]
        return cls(info["size"], ", ".join(strong or times), bool(strong))

    @property
    def st_size(self) -> int:
        return self.size


@dataclass(frozen=True)
class Entry:
    """A file at an address: its path in its file system (may hold a secret in a query) and its version when listed."""

    target: str
    version: FileVersion

    def __repr__(self) -> str:
        return "<Entry>"


@dataclass(unsafe_hash=True, repr=False)
class Tree:
    """The files at an address as they were listed; other processes receive the address and the list.

    Formal guarantees:
        - One version: :meth:`check` raises unless each file read since its last call is still the one that was listed.
          Files are compared by size and by checksum, counter of versions or time.
        - No secrets in messages: a file is shown without user, password and query, and messages of a remote library are
          dropped.
        - In memory: what is read is put nowhere else.
    """

    # `url` may hold secrets; `shown` stands for the folder of all files in messages.

    url: str
    shown: str
    entries: Mapping[str, Entry] = field(hash=False)
    _read: set[str] = field(default_factory=set, init=False, compare=False)

    def __repr__(self) -> str:
        return f"<Tree {self.shown}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, self.shown, self.entries)

    @cached_property
    def system(self) -> Any:
        return system_of(self.url)[0]

    @cached_property
    def folders(self) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {"": set()}
        for relative in self.entries:
            path = PurePosixPath(relative)
            for part in (path, *path.parents[:-1]):
                above = "" if len(part.parts) == 1 else str(part.parent)
                found.setdefault(above, set()).add(part.name)
        return found

    def read(self, relative: str, start: int, stop: int) -> bytes:
        entry = self.entries[relative]
        self._read.add(relative)
        with talking(f"{self.shown}/{relative}"):
            content = self._fetched(entry.target, start, stop)
        if len(content) != stop - start:
            self.check()
            raise StorageError(f"{self.shown}/{relative}: the file system returned other bytes than requested")
        return content

    def _fetched(self, target: str, start: int, stop: int) -> bytes:
        for again in range(_TRIES):
            try:
                found: bytes = self.system.cat_file(target, start=start, end=stop)
                return found
            except FileNotFoundError:
                raise
            except OSError:
                if again == _TRIES - 1:
                    raise
                time.sleep(PAUSE * 4**again)
        raise AssertionError

    def check(self) -> None:
        """Raise :class:`InvalidInput` where a file that was read since this was called last is another one by now."""
        for relative in sorted(self._read):
            if not self.unchanged(relative):
                allowed = "files that do not change while they are read"
                raise InvalidInput("data", f"{self.shown}/{relative}", allowed)
        self._read.clear()

    def unchanged(self, relative: str) -> bool:
        """Whether a file is the one that was listed, by what its file system now states."""
        entry = self.entries[relative]
        with talking(f"{self.shown}/{relative}"):
            try:
                # The file system may return cached facts.
                self.system.invalidate_cache()
                return FileVersion.of(self.system.info(entry.target)) == entry.version
            except FileNotFoundError:
                return False

    def state(self, relative: str) -> tuple[int, ...]:
        """Facts that differ when a file's content does, without secrets."""
        entry = self.entries[relative]
        facts = repr((self.shown, relative, *entry.version)).encode()
        return (int.from_bytes(hashlib.sha256(b"privmix address 1\n" + facts).digest()),)


@dataclass(frozen=True)
class RemotePath:
    """A file or folder of a :class:`Tree`, with the path methods that readers use."""

    tree: Tree
    relative: str

    def __repr__(self) -> str:
        return f"<RemotePath {self}>"

    def __str__(self) -> str:
        return f"{self.tree.shown}/{self.relative}" if self.relative else self.tree.shown

    def __lt__(self, other: "RemotePath") -> bool:
        return self.relative < other.relative

    def __truediv__(self, name: str) -> "RemotePath":
        return RemotePath(self.tree, str(PurePosixPath(self.relative) / name))

    @property
    def name(self) -> str:
        return PurePosixPath(str(self)).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.relative).suffix

    @property
    def parent(self) -> "RemotePath":
        above = str(PurePosixPath(self.relative).parent)
        return RemotePath(self.tree, "" if above == "." else above)

    def with_name(self, name: str) -> "RemotePath":
        return self.parent / name

    def with_suffix(self, suffix: str) -> "RemotePath":
        return RemotePath(self.tree, str(PurePosixPath(self.relative).with_suffix(suffix)))

    def is_file(self) -> bool:
        return self.relative in self.tree.entries

    def is_dir(self) -> bool:
        return self.relative in self.tree.folders

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def iterdir(self) -> "Iterator[RemotePath]":
        return (self / name for name in sorted(self.tree.folders.get(self.relative, ())))

    def stat(self) -> FileVersion:
        return self._entry().version

    def open(self, mode: Literal["rb"] = "rb", buffering: int = -1) -> Any:
        """Return a stream of its bytes; without a buffer it asks for exactly what it is asked for."""
        stream = RangeStream(self.tree, self.relative, self._entry().version.size)
        return stream if buffering == 0 else io.BufferedReader(stream, stream.piece)

    def sha256(self) -> str:
        """SHA-256 of its bytes; they are read unless this process has already read them from the first to the last."""
        if (found := known_hash(self.tree.state(self.relative))) is not None:
            return found
        digest, size = hashlib.sha256(), self._entry().version.size
        for start in range(0, size, _MOST_PIECE):
            digest.update(self.tree.read(self.relative, start, min(start + _MOST_PIECE, size)))
        self.tree.check()
        know_hash(self.tree.state(self.relative), digest.hexdigest())
        return digest.hexdigest()

    def lasting_state(self) -> tuple[int, ...] | None:
        """Facts that differ when its content does, without secrets; None if only times do, perhaps too coarse."""
        return self.tree.state(self.relative) if self._entry().version.strong else None

    def _entry(self) -> Entry:
        if (entry := self.tree.entries.get(self.relative)) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(self))
        return entry


def as_remote(path: object) -> RemotePath | None:
    return path if isinstance(path, RemotePath) else None


class RangeStream(io.RawIOBase):
    """Bytes of a file of a :class:`Tree`, a range per read; a complete read hashes it (:meth:`RemotePath.sha256`)."""

    def __init__(self, tree: Tree, relative: str, size: int) -> None:
        super().__init__()
        self._tree, self._relative, self._size, self._place = tree, relative, size, 0
        self.piece: Final = max(LEAST_PIECE, min(_MOST_PIECE, size // _PIECES))
        self._digest, self._hashed = hashlib.sha256(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "Invalid argument")
        self._place = base + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        stop = min(self._place + len(buffer), self._size)
        if stop <= self._place:
            return 0
        content = self._tree.read(self._relative, self._place, stop)
        if self._hashed == self._place:
            self._digest.update(content)
            self._hashed = stop
            if stop == self._size and self._tree.unchanged(self._relative):
                know_hash(self._tree.state(self._relative), self._digest.hexdigest())
        buffer[: len(content)] = content
        self._place = stop
        return len(content)


def system_of(url: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path there; schemes that keep copies on disk are refused."""
    try:
        import fsspec
    except ImportError:
        raise MissingExtra("fsspec", "remote") from None
    schemes = {part.partition("://")[0] for part in url.split("::")}
    if schemes & _ON_DISK:
        allowed = f"an address without {', '.join(sorted(_ON_DISK))}, which leave private bytes on the disk"
        raise InvalidInput("data", public_name(url), allowed)
    try:
        system, target = fsspec.url_to_fs(url)
    except (ImportError, ValueError):
        allowed = "a scheme whose file system is installed (s3:// needs s3fs, gs:// gcsfs, https:// aiohttp)"
        raise InvalidInput("data", public_name(url), allowed) from None
    except Exception:
        raise StorageError(f"{public_name(url)}: cannot be opened") from None
    return system, target.rstrip("/")


def public_name(url: str) -> str:
    """Return the address without user, password, query and fragment."""
    # A password may hold @ and /, so everything up to the last @ after a colon goes.
    return re.split(r"[?#]", re.sub(r"://(?:.*:.*@|[^/]*@)", "://", url), maxsplit=1)[0]


@contextmanager
def talking(url: str) -> Iterator[None]:
    """Drop the message of any error of a remote library: it may quote the address with its secrets."""
    try:
        yield
    except PrivmixError:
        raise
    except FileNotFoundError:
        raise StorageError(f"{public_name(url)}: no such file or folder") from None
    except Exception as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        problem = "no space for a copy in the folder for temporary files (set TMPDIR)" if full else "cannot be read"
        raise StorageError(f"{public_name(url)}: {problem}") from None
