"""Arrays of an encrypted feature store: files of sealed blocks of rows, opened block by block as they are read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.sealing import Sealer
from privmix.errors import WITHHELD, InvalidInput

_BLOCK_BYTES: Final = 2**20
_KEPT: Final = 4


def block_rows(dim: int) -> int:
    """Rows of a block: about a mebibyte of features.

    Example:
        >>> block_rows(512)
        512
    """
    return max(1, _BLOCK_BYTES // (4 * dim))


def sealed_bytes(rows: int, row_bytes: int) -> int:
    """Size of a sealed block."""
    return rows * row_bytes + Sealer.MORE


class BlockWriter:
    """Collects rows until they fill a block, and seals it. The last one is filled up with zeros.

    Args:
        sealer: of the store.
        rows: of a block.
        first: number of the first block.
    """

    def __init__(self, sealer: Sealer, rows: int, first: int) -> None:
        self._sealer, self._rows, self._next = sealer, rows, first
        self._rest: dict[str, NDArray[Any]] = {}
        self.held = 0

    def add(self, arrays: dict[str, NDArray[Any]]) -> Iterator[dict[str, bytes]]:
        """The blocks that are full now: by file, what it gets. To be taken before anything else is added."""
        if self.held:
            arrays = {name: np.concatenate([self._rest[name], array]) for name, array in arrays.items()}
        many = len(next(iter(arrays.values())))
        full = many - many % self._rows
        # A copy: the rest of a large array would keep all of it.
        self._rest = {name: array[full:].copy() for name, array in arrays.items()}
        self.held = many - full
        return (self._block(arrays, start) for start in range(0, full, self._rows))

    def last(self) -> list[dict[str, bytes]]:
        """The block of the rows that are left, if any are."""
        found = [self._block(self._rest, 0)] if self.held else []
        self._rest, self.held = {}, 0
        return found

    def _block(self, arrays: dict[str, NDArray[Any]], start: int) -> dict[str, bytes]:
        rows = {name: array[start : start + self._rows] for name, array in arrays.items()}
        sealed = {name: self._sealer.seal(_of(name, self._next), self._filled(one)) for name, one in rows.items()}
        self._next += 1
        return sealed

    def _filled(self, array: NDArray[Any]) -> bytes:
        spare = self._rows - len(array)
        return array.tobytes() + bytes(spare * array[:1].nbytes)


class SealedArray:
    """Rows in a file of sealed blocks, as an array that is read by slices or by lists of rows. Secret.

    Args:
        path: of the file, whose name its blocks are sealed under.
        sealer: of the store.
        shape: (n,) or (n, d).
        dtype: of its numbers.
        rows: of a block.

    Raises:
        InvalidInput: the file has another size; and later, a block is not as it was sealed.
    """

    def __init__(self, path: Path, sealer: Sealer, shape: tuple[int, ...], dtype: str, rows: int) -> None:
        self.shape, self.dtype, self.ndim = shape, np.dtype(dtype), len(shape)
        self._path, self._sealer, self._rows = path, sealer, rows
        self._size = sealed_bytes(rows, self.dtype.itemsize * int(np.prod(shape[1:], dtype=int)))
        self._file = np.memmap(path, np.uint8, "r")
        if len(self._file) != -(-shape[0] // rows) * self._size:
            raise InvalidInput(str(path), WITHHELD, "as many blocks as its store says")
        self._block = lru_cache(_KEPT)(self._opened)

    def __repr__(self) -> str:
        return "<SealedArray>"

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._span(start, stop) if step == 1 else self[np.arange(start, stop, step)]
        if isinstance(index, int | np.integer):
            row: NDArray[Any] = self[np.array([index])][0]
            return row
        places = np.asarray(index)
        places = np.flatnonzero(places) if places.dtype == bool else np.where(places < 0, places + len(self), places)
        found = np.empty((len(places), *self.shape[1:]), self.dtype)
        blocks = places // self._rows
        for block in np.unique(blocks).tolist():
            own = blocks == block
            found[own] = self._block(block)[places[own] - block * self._rows]
        return found

    def part(self, start: int, stop: int) -> SealedPart:
        """Rows ``start`` to before ``stop``, none of which is opened yet."""
        return SealedPart(self, start, min(stop, len(self)))

    def _span(self, start: int, stop: int) -> NDArray[Any]:
        found = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        place = start
        while place < stop:
            block, first = divmod(place, self._rows)
            some = self._block(block)[first : first + stop - place]
            found[place - start : place - start + len(some)] = some
            place += len(some)
        return found

    def _opened(self, block: int) -> NDArray[Any]:
        sealed = self._file[block * self._size : (block + 1) * self._size].tobytes()
        content = self._sealer.opened(_of(self._path.name, block), sealed)
        if content is None:
            raise InvalidInput(str(self._path), WITHHELD, "what was sealed by this key, as it was written")
        found: NDArray[Any] = np.frombuffer(content, self.dtype).reshape(self._rows, *self.shape[1:])
        return found


class SealedPart:
    """Some rows side by side of a :class:`SealedArray`; a slice of them is opened at a time. Secret."""

    def __init__(self, array: SealedArray, start: int, stop: int) -> None:
        self._array, self._start, self._stop = array, start, stop
        self.dtype, self.ndim, self.shape = array.dtype, array.ndim, (stop - start, *array.shape[1:])

    def __repr__(self) -> str:
        return "<SealedPart>"

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, part: slice) -> NDArray[Any]:
        start, stop, step = part.indices(len(self))
        return self._array[self._start + start : self._start + stop : step]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)


def _of(name: str, block: int) -> bytes:
    return f"privmix {name} {block}".encode()
