"""Numbers for hashes, in the order in which they are first met, in memory or on disk."""
# Beyond a limit all hashes go to files of a private folder by their first bits: equal hashes share a file.

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.data.files import reading
from privmix.folders import hold
from privmix.scratch import ScratchFolder

DIGEST: Final = 16
"""Bytes of a hash. They should look random: the first one selects its file."""

# Hashes in memory, 64 MiB of them.
MOST_HELD: Final = 2**22
AT_ONCE: Final = 2**18
# Files that are open at once.
_PARTS: Final = 64
_ENTRY: Final = np.dtype([("digest", f"V{DIGEST}"), ("place", "<i8")])


class Numbering:
    """Number hashes that are added one after the other.

    Formal guarantees:
        * Same: numbers depend on which hashes are equal and on their order, and not on where they were kept.
        * Bounded: memory holds at most ``MOST_HELD`` hashes of any number, or a 64th of them if that is more. The
          numbers of more than that are mapped from a file, 8 bytes each.
        * Private: files lie in a scratch folder, and are gone when the numbers are, also after a kill.
    """

    # The scratch folder (TMPDIR) needs 32 bytes per hash.

    def __init__(self) -> None:
        self._held, self._count = bytearray(), 0
        self._scratch: ScratchFolder | None = None
        self._files: list[IO[bytes]] = []

    def __repr__(self) -> str:
        return "<Numbering>"

    def __len__(self) -> int:
        return self._count

    def add(self, digest: bytes) -> None:
        self._held += digest
        self._count += 1
        if len(self._held) >= DIGEST * (MOST_HELD if self._scratch is None else AT_ONCE):
            self._spill()

    def numbers(self) -> NDArray[np.int64]:
        """(n,) their numbers; nothing can be added any more."""
        if self._scratch is None:
            return _in_order(np.frombuffer(self._held, f"V{DIGEST}")).astype(np.int64)
        self._spill()
        with self._scratch as folder, reading(folder, "a folder"):
            return self._numbers_on_disk(folder)

    def discard(self) -> None:
        self._held = bytearray()
        for file in self._files:
            file.close()
        if self._scratch is not None:
            self._scratch.remove()

    def _spill(self) -> None:
        """Move all hashes from memory to the files, with their places, by their first byte."""
        if self._scratch is None:
            self._scratch = ScratchFolder()
            with reading(self._scratch.path, "a folder"), hold(self._scratch.path) as folder:
                self._files = [folder.create(str(part)) for part in range(_PARTS)]
        with reading(self._scratch.path, "a folder"):
            write_parts(self._files, np.frombuffer(self._held, f"V{DIGEST}"), self._count)
        self._held = bytearray()

    def _numbers_on_disk(self, folder: Path) -> NDArray[np.int64]:
        """Return a number for each record: ordered by the first place of its hash, then by earlier other hashes."""
        with hold(folder) as held, held.create("numbers") as room:
            # Written, so that a full disk is an error here, and no signal later.
            for start in range(0, self._count, AT_ONCE):
                room.write(bytes(8 * min(AT_ONCE, self._count - start)))
        found: NDArray[np.int64] = np.memmap(folder / "numbers", np.int64, "r+", shape=(self._count,))
        for part, file in enumerate(self._files):
            file.close()
            entries = np.fromfile(folder / str(part), _ENTRY)
            (folder / str(part)).unlink()
            if len(entries):
                found[entries["place"]] = first_places(entries)
        met = 0
        for start in range(0, self._count, AT_ONCE):
            block = found[start : start + AT_ONCE]
            # A record whose first place is its own is the first one with its hash.
            new = block == np.arange(start, start + len(block))
            block[new] = met + np.arange(np.count_nonzero(new))
            # Hashes that occurred before already have their numbers.
            block[~new] = found[block[~new]]
            met += int(np.count_nonzero(new))
        return np.asarray(found)


def write_parts(files: Sequence[IO[bytes]], digests: NDArray[np.void], ended: int) -> None:
    """Append hashes to the files of their first bytes; the last one is number ``ended``, counted from 1."""
    first = ended - len(digests)
    for start in range(0, len(digests), AT_ONCE):
        entries = np.empty(len(digests[start : start + AT_ONCE]), _ENTRY)
        entries["digest"] = digests[start : start + AT_ONCE]
        entries["place"] = np.arange(first + start, first + start + len(entries))
        # Equal hashes share their first byte, so each file can be numbered without the others.
        part = entries.view(np.uint8).reshape(len(entries), -1)[:, 0] % _PARTS
        # A stable sort keeps the entries of a file in the order of places, as `first_places` needs.
        order = np.argsort(part, kind="stable")
        cuts = np.searchsorted(part[order], np.arange(_PARTS + 1))
        entries = entries[order]
        for index, file in enumerate(files):
            file.write(entries[cuts[index] : cuts[index + 1]].tobytes())


def first_places(entries: NDArray[np.void]) -> NDArray[np.int64]:
    """(k,) the place at which the hash of each entry was met first; entries are in the order of places."""
    number = _in_order(np.ascontiguousarray(entries["digest"]))
    # Indices of a dictionary rise by one at each new hash, so a new maximum marks a first occurrence.
    known = np.maximum.accumulate(number)
    new = np.ones(len(number), bool)
    new[1:] = known[1:] > known[:-1]
    return np.asarray(entries["place"][new][number])


def _in_order(digests: NDArray[np.void]) -> NDArray[np.int32]:
    """(k,) numbers from 0 in the order in which hashes are met: indices of a dictionary are."""
    hashes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(DIGEST), len(digests), [None, pa.py_buffer(digests)])
    return np.asarray(hashes.dictionary_encode().indices)
