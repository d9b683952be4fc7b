"""Tiles of a feature store in the making: files that several processes write, each whole or absent."""
# A tile's content follows from the data and the extractor alone: every process makes the same bytes.

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.data.files import reading
from privmix.errors import InvalidInput, StorageError
from privmix.private_files import PrivateFolder

_BEGIN: Final = "begin.json"
_PREFIX: Final = "tile-"
_MOST_FACTS: Final = 2**26
_DIGEST: Final = hashlib.sha256().digest_size
# As many tiles as make what a kill costs small, as few as keep their files and calls cheap.
_WANTED: Final = 1024
_FEWEST: Final = 256
_MOST: Final = 65_536
_MOST_BYTES: Final = 2**28
# How often a folder is emptied that another process keeps filling.
_TRIES: Final = 8


def tile_records(records: int, dim: int) -> int:
    """Return records per tile: a thousandth of all, between 256 and 65,536, and at most 256 MiB of features."""
    return max(1, min(_MOST_BYTES // (4 * dim), max(_FEWEST, min(_MOST, -(-records // _WANTED)))))


class TileFolder:
    """``.{name}.tiles`` next to the store ``path``: one owner-only file per tile; ``facts`` hashes the store's origin.

    Formal guarantees:
        * Whole: a tile has its name once all its bytes are on the disk; what reads it compares their hash.
        * Its own: a tile of other facts (data, extractor), or of another number, is none. One that a worker of an
          attempt before puts there late, for another store, is made again.
        * Again: two processes that make one tile, as one was taken for lost, do not disturb each other.
        * Closed: the folder and its files are the owner's only, and no link is followed.
    """

    def __init__(self, folder: PrivateFolder, facts: bytes) -> None:
        self._folder, self.facts = folder, facts

    @classmethod
    def beside(cls, path: Path, facts: Mapping[str, Any]) -> Self:
        """Open the folder of the store at ``path``, whose lock the caller holds; remove tiles of other facts."""
        place, wanted = tiles_of(path), json.dumps(facts, sort_keys=True).encode()
        mark = hashlib.sha256(wanted).digest()
        with reading(path.parent, "a folder"):
            with contextlib.suppress(FileNotFoundError):
                left = PrivateFolder(place, place.name)
                if left.has(_BEGIN) and left.read(_BEGIN, _MOST_FACTS) == wanted:
                    _remove_drafts(left)
                    return cls(left, mark)
                _check_ours(left)
                left.discard()
            folder = PrivateFolder(place, place.name, create=True)
            folder.write(_BEGIN, wanted)
        return cls(folder, mark)

    @classmethod
    def clear(cls, path: Path) -> None:
        """Remove tiles next to the store at ``path``, whose lock the caller holds; leave anything else of that name."""
        place = tiles_of(path)
        with reading(path.parent, "a folder"), contextlib.suppress(FileNotFoundError, InvalidInput):
            left = PrivateFolder(place, place.name)
            try:
                _check_ours(left)
                left.discard()
            finally:
                left.close()

    @classmethod
    def at(cls, path: Path, facts: bytes | None = None) -> Self:
        """Open the folder of a store that another process makes at ``path``; ``facts`` None: those of the folder."""
        # StorageError where it is absent: this machine does not share the file system, or another user owns the folder.
        place = tiles_of(path)
        try:
            folder = PrivateFolder(place, place.name)
            found = hashlib.sha256(folder.read(_BEGIN, _MOST_FACTS)).digest() if facts is None else facts
            return cls(folder, found)
        except FileNotFoundError:
            raise StorageError(f"{place}: missing. Every machine must share the folder of the store") from None

    def there(self) -> set[int]:
        found = (name.removeprefix(_PREFIX) for name in self._folder.names() if name.startswith(_PREFIX))
        return {int(number) for number in found if number.isdigit()}

    def write(self, number: int, features: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Put a tile in its place: (b, d) features and (b,) labels."""
        content = np.ascontiguousarray(features, "<f4").tobytes() + np.ascontiguousarray(labels, "<i8").tobytes()
        content += self._digest(number, content)
        with self._folder.new(_name(number), draft=f".{_name(number)}.{secrets.token_hex(8)}.draft") as stream:
            stream.write(content)

    def read(self, number: int, records: int, dim: int) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Return a tile's features (b, d) and labels (b,); None where there is no such tile, or another one's bytes."""
        size = records * (4 * dim + 8) + _DIGEST
        try:
            with self._folder.open(_name(number)) as stream:
                content = stream.read(size + 1)
        except FileNotFoundError:
            return None
        whole = memoryview(content)
        if len(whole) != size or self._digest(number, whole[:-_DIGEST]) != bytes(whole[-_DIGEST:]):
            return None
        end = records * dim * 4
        features = np.frombuffer(whole[:end], "<f4").reshape(records, dim)
        return features, np.frombuffer(whole[end:-_DIGEST], "<i8")

    def _digest(self, number: int, content: bytes | memoryview) -> bytes:
        hasher = hashlib.sha256(self.facts + number.to_bytes(8, "little"))
        hasher.update(content)
        return hasher.digest()

    def remove(self, number: int) -> None:
        self._folder.remove(_name(number))

    def discard(self) -> None:
        """Remove all of it, also what a worker that was taken for dead puts there meanwhile."""
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):
                self._folder.discard()
                return
        self._folder.close()

    def close(self) -> None:
        self._folder.close()


def tiles_of(path: Path) -> Path:
    """Return the folder of tiles of the store at ``path`` while it is made."""
    return path.with_name(f".{path.name}.tiles")


def missing(there: set[int], first: int, tiles: int) -> list[int]:
    """Numbers from ``first`` to before ``tiles`` that are absent: 8 bytes each."""
    return [number for number in range(first, tiles) if number not in there]


def _check_ours(folder: PrivateFolder) -> None:
    tiles = {name for name in folder.names() if name.removeprefix(".").startswith(_PREFIX)}
    folder.check_names({_BEGIN, *tiles})


def _remove_drafts(folder: PrivateFolder) -> None:
    """Partial tiles of killed workers; a worker that still runs loses its tile."""
    for name in folder.names():
        if name.startswith(f".{_PREFIX}"):
            folder.remove(name)


def _name(number: int) -> str:
    return f"{_PREFIX}{number:09d}"
