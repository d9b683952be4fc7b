"""Where reading can begin: the stretches of records that a dataset's files are made of, by headers and footers alone.

A reader that is to start at record 1,000,000 need not read those before: a Parquet file says where its row groups are,
an array how long a record is, and in CSV and JSON lines the pass that counts records notes where some of them begin.
Nothing here comes from what a record holds, but for how many bytes it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

PARTS: Final = np.dtype([("file", "<i4"), ("place", "<i8"), ("first", "<i8"), ("count", "<i8"), ("anywhere", "?")])
"""A stretch: number of its file, where it begins in it (row group, batch or byte, as its format counts), the number of
its first record, how many it has, and whether a reader can begin with any of them."""

# Records that a reader passes over to get to a tile, as a share of it: beyond that, the tiles before it come along.
_PASSED: Final = 0.25


@dataclass(frozen=True)
class Stretch:
    """One stretch; see ``PARTS``."""

    file: int
    place: int
    first: int
    count: int
    anywhere: bool


@dataclass(frozen=True, eq=False)
class Manifest:
    """The stretches of a dataset, in its order and without gaps. Private, as names of files are.

    Attributes:
        files: that they are in; none where the data are in memory.
        parts: (k,) of type ``PARTS``; 29 bytes a stretch.

    Example:
        >>> whole = Manifest.of([(0, 1000), (1, 500)], file=Path("a.parquet"))
        >>> whole.records, whole.entry(1200), whole.entry(999)
        (1500, 1000, 0)
    """

    files: tuple[Path, ...]
    parts: NDArray[Any]

    def __repr__(self) -> str:
        return f"<Manifest of {len(self.parts)} stretches>"

    @classmethod
    def of(
        cls, stretches: Sequence[tuple[int, int]] | NDArray[np.int64], *, file: Path | None, anywhere: bool = False
    ) -> Manifest:
        """Of one file, or of what is in memory.

        Args:
            stretches: place and number of records of each.
            file: that they are in.
            anywhere: a reader can begin with any record.
        """
        given = np.asarray(stretches, np.int64).reshape(-1, 2)
        parts = np.zeros(len(given), PARTS)
        parts["place"], parts["count"], parts["anywhere"] = given[:, 0], given[:, 1], anywhere
        parts["first"] = np.cumsum(given[:, 1]) - given[:, 1]
        return cls(() if file is None else (file,), parts)

    @classmethod
    def joined(cls, manifests: Iterable[Manifest]) -> Manifest:
        """Of the same data one after the other."""
        files: list[Path] = []
        parts, records = [np.empty(0, PARTS)], 0
        for one in manifests:
            moved = one.parts.copy()
            moved["file"] += len(files)
            moved["first"] += records
            records += one.records
            files += one.files
            parts.append(moved)
        return cls(tuple(files), np.concatenate(parts))

    @property
    def records(self) -> int:
        """How many there are."""
        return int(self.parts["first"][-1] + self.parts["count"][-1]) if len(self.parts) else 0

    def entry(self, record: int) -> int:
        """The last record, not behind ``record``, that a reader can begin with."""
        begin = self.begin(record)
        return record if begin.anywhere else begin.first

    def begin(self, record: int) -> Stretch:
        """The stretch that a record is in; behind the last one, that one."""
        if not len(self.parts):
            return Stretch(0, 0, 0, 0, False)
        file, place, first, count, anywhere = self.parts[self._part(record)].item()
        return Stretch(file, place, first, count, anywhere)

    def end(self, record: int) -> tuple[int, int | None]:
        """The file that a record is in, and where the stretch behind the record's begins in it; None: there is none."""
        part = self._part(record)
        file = int(self.parts["file"][part])
        last = part + 1 == len(self.parts) or int(self.parts["file"][part + 1]) != file
        return file, None if last else int(self.parts["place"][part + 1])

    def tile(self, number: int, records: int) -> Tile:
        """What tile ``number`` of ``records`` records holds."""
        first = number * records
        count = min(records, self.records - first)
        last = self._part(first + count - 1)
        return Tile(number, first, count, self.parts[self._part(first) : last + 1].copy())

    def tiles(self, records: int) -> int:
        """How many tiles of ``records`` records there are."""
        return -(-self.records // records)

    def runs(self, missing: Sequence[int], records: int) -> Iterator[range]:
        """The tiles ``missing``, of ``records`` records each, as stretches of neighbours that one reader takes at a go.

        A tile that a reader can begin with, or nearly, is a run of its own. One in the midst of a long row group, or of
        a file that is read from its beginning, comes with those before it.

        Example:
            >>> groups = Manifest.of([(0, 1000), (1, 1000)], file=None)
            >>> [list(run) for run in groups.runs(range(8), 250)]
            [[0, 1, 2, 3], [4, 5, 6, 7]]
        """
        run: range | None = None
        for number in missing:
            first = number * records
            if run is not None and number == run.stop and first - self.entry(first) > _PASSED * records:
                run = range(run.start, number + 1)
                continue
            if run is not None:
                yield run
            run = range(number, number + 1)
        if run is not None:
            yield run

    def _part(self, record: int) -> int:
        # Of stretches without records, which begin where others do, the last one has it.
        return int(np.searchsorted(self.parts["first"], record, side="right")) - 1


@dataclass(frozen=True, eq=False)
class Tile:
    """Some records side by side, and the stretches that they are in.

    Attributes:
        number: of the tile.
        first: number of its first record in the data.
        count: how many it has.
        parts: of type ``PARTS``.
    """

    number: int
    first: int
    count: int
    parts: NDArray[Any]
