"""The stretches of records in a dataset's files where reading can begin, from headers and footers alone."""
# The pass that counts CSV and JSON lines notes where some begin; only the length in bytes enters from a record.

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

PARTS: Final = np.dtype([("file", "<i4"), ("place", "<i8"), ("first", "<i8"), ("count", "<i8"), ("anywhere", "?")])
"""A stretch: the number of its file; its start there (row group, batch or byte, by format); its first record; its
number of records; whether a reader can begin with any of them."""

# Records that a reader passes over to get to a tile, as a share of it: beyond that, the tiles before it come along.
_PASSED: Final = 0.25


@dataclass(frozen=True, eq=False)
class Manifest:
    """The stretches of a dataset, in order and without gaps: (k,) of type ``PARTS``. Private, as file names are."""

    files: tuple[Path, ...]
    parts: NDArray[Any]

    def __repr__(self) -> str:
        return f"<Manifest of {len(self.parts)} stretches>"

    @classmethod
    def of(
        cls, stretches: Sequence[tuple[int, int]] | NDArray[np.int64], *, file: Path | None, anywhere: bool = False
    ) -> "Manifest":
        """Make the manifest of one file, or of data in memory, from (place, records) of each stretch."""
        # `anywhere`: a reader can begin with any record.
        given = np.asarray(stretches, np.int64).reshape(-1, 2)
        parts = np.zeros(len(given), PARTS)
        parts["place"], parts["count"], parts["anywhere"] = given[:, 0], given[:, 1], anywhere
        parts["first"] = np.cumsum(given[:, 1]) - given[:, 1]
        return cls(() if file is None else (file,), parts)

    @classmethod
    def joined(cls, manifests: "Iterable[Manifest]") -> "Manifest":
        """Return the manifests of the same data, one after the other, as one."""
        files: list[Path] = []
        # The empty array covers a list without manifests, which `np.concatenate` refuses.
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
        return int(self.parts["first"][-1] + self.parts["count"][-1]) if len(self.parts) else 0

    def entry(self, record: int) -> int:
        """Return the last record, not behind ``record``, that a reader can begin with."""
        part = self.parts[self._part(record)]
        return record if part["anywhere"] else int(part["first"])

    def spans(self, first: int, stop: int) -> tuple[int, list[tuple[Path, int, int | None]]]:
        """Return how many records to pass over, and each file with the places to begin at and to end before."""
        file, place, passed, *_ = self.parts[self._part(first)].item()
        last = self._part(max(0, stop - 1))
        after, end = self.parts[last + 1 : last + 2], None
        if len(after) and after["file"][0] == self.parts["file"][last]:
            end = int(after["place"][0])
        stop_file = int(self.parts["file"][last])
        spans = [
            (self.files[number], place if number == file else 0, end if number == stop_file else None)
            for number in range(file, stop_file + 1)
        ]
        return first - passed, spans

    def tiles(self, records: int) -> int:
        return -(-self.records // records)

    def runs(self, missing: Sequence[int], records: int) -> Iterator[range]:
        """Group the tiles ``missing``, of ``records`` records each, into runs of neighbours for one reader."""
        # A tile that a reader can (nearly) begin with is a run of its own. One inside a long row group, or in a file
        # that is read from its beginning, joins those before it.
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
        # A stretch without records begins where another does: the last of these stretches has the record.
        return int(np.searchsorted(self.parts["first"], record, side="right")) - 1
