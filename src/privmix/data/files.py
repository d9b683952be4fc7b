"""Opening files: errors of one line, and which split a name stands for."""

import gzip
import io
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import IO, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from privmix.errors import WITHHELD, InvalidInput, StorageError

_GZIP: Final = b"\x1f\x8b"
# Least allowance for unpacked bytes: records shrink a few times to tenfold, and only a trap hundreds of times.
FREE_BYTES: Final = 2**28
_MOST_TIMES: Final = 256
PIECE: Final = 2**20
_SUFFIX: Final = re.compile(r"\.[a-z][a-z0-9]{0,5}")


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Translate failures while reading ``path``; drop the cause, since libraries quote bytes of records."""
    try:
        yield
    except (InvalidInput, StorageError):
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise _damaged(path, kind) from None
    except OSError as error:
        if error.errno is None:
            # Not from the operating system: a decoder that calls damaged content an I/O error.
            raise _damaged(path, kind) from None
        raise StorageError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except MemoryError:
        raise StorageError(f"{path}: does not fit in memory") from None


@contextmanager
def decoding(path: Path, kind: str) -> Iterator[None]:
    """As :func:`reading`, for decoders that may raise anything at all on damaged input."""
    with reading(path, kind):
        try:
            yield
        except (InvalidInput, StorageError, OSError, EOFError, MemoryError):
            raise
        except Exception:
            raise _damaged(path, kind) from None


def open_binary(path: Path) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(_Bounded(path), PIECE)) if is_zipped(path) else path.open("rb")


def is_zipped(path: Path) -> bool:
    """Whether a file is packed, by its first bytes: a packed file is always read from its beginning."""
    with path.open("rb", 0) as file:
        return file.read(len(_GZIP)) == _GZIP


def plain_name(name: str) -> str:
    return name.removesuffix(".gz")


def is_here(path: object) -> bool:
    """Whether a path is one of this machine, and not of files at an address, which have the methods of one."""
    return isinstance(path, Path)


def is_hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.name.lower() in ("thumbs.db", "desktop.ini")


def files_below(folder: Path) -> Iterator[Path]:
    """Files at any depth, those of a folder before those of its sub-folders, by name; links to folders do not count."""

    def fail(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        yield from (Path(place, name) for name in sorted([*names, *links]))


def unread_words(paths: Iterable[Path], read: str) -> str:
    """Return a note for the owner on files that are not read, by suffix; empty where there are none."""
    kinds: Counter[str] = Counter()
    for path in paths:
        if not is_hidden(path):
            # A longer suffix may be part of a name.
            known = _SUFFIX.fullmatch(path.suffix.lower())
            kinds["folder" if path.is_dir() else known.group() if known else "other"] += 1
    if not kinds:
        return ""
    listed = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items(), key=lambda one: (-one[1], one[0])))
    total = sum(kinds.values())
    subject = "1 file is" if total == 1 else f"{total:,} files are"
    return f"{subject} not read: {listed}. Convert them, or move them away: {read} are read"


class CopyFirst(StorageError):
    """The files at an address cannot be read in place."""


class Limited(io.RawIOBase):
    """The next bytes of a stream as if no others came."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        super().__init__()
        self._stream, self._left = stream, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._stream.read(min(len(buffer), self._left))
        self._left -= len(content)
        buffer[: len(content)] = content
        return len(content)


class Entries:
    """Places in a text where records begin, about one per megabyte, noted by the pass that counts records."""

    def __init__(self) -> None:
        self._noted: list[tuple[int, int]] = []
        # Lines at the beginning that were counted and are no records.
        self.less = 0

    def note(self, place: int, before: int) -> None:
        """Note a record that begins at byte ``place``, behind ``before`` others; drop notes near the last one."""
        if place - (self._noted[-1][0] if self._noted else 0) >= PIECE:
            self._noted.append((place, before))

    def stretches(self, start: int, records: int, *, usable: bool = True) -> NDArray[np.int64]:
        """(k, 2) places from ``start`` on, and the number of records up to the next one; one row if not ``usable``."""
        noted = [(place, before - self.less) for place, before in self._noted] if usable else []
        places = [start, *(place for place, _ in noted)]
        befores = [0, *(before for _, before in noted), records]
        return np.column_stack([places, np.diff(befores)]).astype(np.int64)


def filled_lines(stream: IO[bytes], most: int, *, entries: Entries | None = None) -> Iterator[bytes]:
    """Lines that are not blank, without leading blanks; lines over ``most`` bytes come in pieces."""
    # Millions of empty lines cost no more than their bytes. `entries` notes where lines begin.
    line = re.compile(rb"\S[^\n]*")
    rest, read, count = b"", 0, 0
    while piece := stream.read(PIECE):
        content = rest + piece
        end = content.rfind(b"\n") + 1
        rest, read = content[end:], read + len(piece)
        for found in line.finditer(content, 0, end):
            count += 1
            yield found.group()
        if entries is not None and end:
            entries.note(read - len(rest), count)
        if len(rest) >= most:
            count += 1
            yield rest
            rest = b""
    yield from line.findall(rest)


def check_unpacked(place: Path, unpacked: int, stored: int) -> None:
    """Refuse more than 256 MiB unpacked, unless it is at most 256 times ``stored``."""
    if unpacked > max(FREE_BYTES, _MOST_TIMES * stored):
        allowed = f"content that unpacks to at most {_MOST_TIMES} times its size or to {FREE_BYTES // 2**20} MiB"
        raise InvalidInput(str(place), WITHHELD, allowed)


class _Bounded(io.RawIOBase):
    """A packed file's content, which stops where it would become absurdly large."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        if not is_here(path):
            raise CopyFirst()
        self._path, self._stored, self._unpacked = path, path.stat().st_size, 0
        self._stream = gzip.GzipFile(path)

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._unpacked

    def readinto(self, buffer: Any) -> int:
        # No further than one step: a header is read though what follows is damaged.
        content = self._stream.read1(len(buffer))
        self._unpacked += len(content)
        check_unpacked(self._path, self._unpacked, self._stored)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _damaged(path: Path, kind: str) -> InvalidInput:
    return InvalidInput(str(path), WITHHELD, f"a complete, undamaged file: {kind}")


# MNIST calls its test split t10k.
SPLITS: Final = {"train": "train", "test": "test t10k", "val": "val valid validation dev"}


def split_of(name: str) -> str | None:
    words = name.lower().replace("-", "_").replace(".", "_").split("_")
    return next((split for split, marks in SPLITS.items() if any(word in marks.split() for word in words)), None)


def folder_split(name: str) -> str | None:
    """Return the split that a folder's whole name is, if it is one."""
    return next((split for split, marks in SPLITS.items() if name.lower() in marks.split()), None)


def may_belong(relative: PurePath, split: str) -> bool:
    """Whether a file, by its path within a dataset's folder, may belong to a split: no name gives another split."""
    top = relative.parts[0]
    marked = split_of(top) if len(relative.parts) == 1 else folder_split(top)
    return marked in (None, split)


# Hashes of files that this process has read.
_MOST: Final = 2**17
_hashes: Final[dict[tuple[int, ...], str]] = {}


def known_hash(state: tuple[int, ...]) -> str | None:
    return _hashes.get(state)


def know_hash(state: tuple[int, ...], digest: str) -> None:
    if len(_hashes) >= _MOST:
        _hashes.clear()
    _hashes[state] = digest
