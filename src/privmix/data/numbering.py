"""Numbers for hashes, in the order in which they are first met, in memory or on disk."""
# Beyond a limit all hashes go to files of a private folder by their first bits: equal hashes share a file.

from __future__ import annotations

from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.data.files import reading
from privmix.held_folders import hold
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
        self._spilled: Spilled | None = None

    def __repr__(self) -> str:
        return "<Numbering>"

    def __len__(self) -> int:
        return self._count

    def add(self, digest: bytes) -> None:
        self._held += digest
        self._count += 1
        if len(self._held) >= DIGEST * (MOST_HELD if self._spilled is None else AT_ONCE):
            self._spill()

    def numbers(self) -> NDArray[np.int64]:
        """(n,) their numbers; nothing can be added any more."""
        if self._spilled is None:
            return _in_order(np.frombuffer(self._held, f"V{DIGEST}")).astype(np.int64)
        self._spill()
        return self._spilled.numbers(self._count)

    def discard(self) -> None:
        """Remove the files; the numbers are no longer needed."""
        self._held = bytearray()
        if self._spilled is not None:
            self._spilled.remove()

    def _spill(self) -> None:
        if self._spilled is None:
            self._spilled = Spilled()
        self._spilled.take(np.frombuffer(self._held, f"V{DIGEST}"), self._count)
        self._held = bytearray()


class Spilled:
    """Hashes on the disk, with their places, in files by their first byte."""

    def __init__(self) -> None:
        self._scratch = ScratchFolder()
        self._folder = self._scratch.path
        with reading(self._folder, "a folder"), hold(self._folder) as folder:
            self._files: list[IO[bytes]] = [folder.create(str(part)) for part in range(_PARTS)]

    def remove(self) -> None:
        for file in self._files:
            file.close()
        self._scratch.remove()

    def _place(self, part: int) -> Path:
        return self._folder / str(part)

    def take(self, digests: NDArray[np.void], ended: int) -> None:
        """Append some, of which the last one is number ``ended``, counted from 1."""
        first = ended - len(digests)
        with reading(self._folder, "a folder"):
            for start in range(0, len(digests), AT_ONCE):
                entries = np.empty(len(digests[start : start + AT_ONCE]), _ENTRY)
                entries["digest"] = digests[start : start + AT_ONCE]
                entries["place"] = np.arange(first + start, first + start + len(entries))
                part = entries.view(np.uint8).reshape(len(entries), -1)[:, 0] % _PARTS
                order = np.argsort(part, kind="stable")
                cuts = np.searchsorted(part[order], np.arange(_PARTS + 1))
                entries = entries[order]
                for index, file in enumerate(self._files):
                    file.write(entries[cuts[index] : cuts[index + 1]].tobytes())

    def numbers(self, count: int) -> NDArray[np.int64]:
        """Return a number for each record: ordered by the first place of its hash, then by earlier other hashes."""
        with self._scratch, reading(self._folder, "a folder"):
            with hold(self._folder) as folder, folder.create("numbers") as room:
                # Written, so that a full disk is an error here, and no signal later.
                for start in range(0, count, AT_ONCE):
                    room.write(bytes(8 * min(AT_ONCE, count - start)))
            found: NDArray[np.int64] = np.memmap(self._folder / "numbers", np.int64, "r+", shape=(count,))
            for part, file in enumerate(self._files):
                file.close()
                entries = np.fromfile(self._place(part), _ENTRY)
                self._place(part).unlink()
                if len(entries):
                    found[entries["place"]] = first_places(entries)
            met = 0
            for start in range(0, count, AT_ONCE):
                block = found[start : start + AT_ONCE]
                new = block == np.arange(start, start + len(block))
                block[new] = met + np.arange(np.count_nonzero(new))
                # Hashes that occurred before already have their numbers.
                block[~new] = found[block[~new]]
                met += int(np.count_nonzero(new))
        return np.asarray(found)


def first_places(entries: NDArray[np.void]) -> NDArray[np.int64]:
    """(k,) the place at which the hash of each entry was met first; entries are in the order of places."""
    number = _in_order(np.ascontiguousarray(entries["digest"]))
    known = np.maximum.accumulate(number)
    new = np.ones(len(number), bool)
    new[1:] = known[1:] > known[:-1]
    return np.asarray(entries["place"][new][number])


def _in_order(digests: NDArray[np.void]) -> NDArray[np.int32]:
    """(k,) numbers from 0 in the order in which hashes are met: indices of a dictionary are."""
    hashes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(DIGEST), len(digests), [None, pa.py_buffer(digests)])
    return np.asarray(hashes.dictionary_encode().indices)
