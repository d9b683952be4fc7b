"""The folder of a synthesis that goes on: whose run it is, the model's checkpoint, and images drawn so far."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, StorageError
from privmix.folders import HeldFolder, PrivateFolder, storage_errors
from privmix.progress import Progress
from privmix.world import World

Drawer = Callable[[NDArray[np.int64], int], Iterator[NDArray[np.uint8]]]
"""(classes, number of the first image) -> images, block by block."""

BLOCK: Final = 500
_MARK: Final = "run"
_MOST_BYTES: Final = 2**20


class SynthesisWork:
    """The state that a killed run resumes from: a model's checkpoint, and the blocks drawn from it in any way."""

    def __init__(self, folder: PrivateFolder) -> None:
        self._folder = folder

    @classmethod
    def opened(cls, folder: Path, told: str) -> "SynthesisWork":
        """Return the folder, new or of the same model; raises InvalidInput for a folder of another user or run."""
        with storage_errors("work", "write", folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            held = PrivateFolder(folder, "work")
            # A kill may have come while the mark was written.
            names = held.names() - {f".{_MARK}.draft"}
            if _MARK in names and held.read(_MARK, _MOST_BYTES) != told.encode():
                raise InvalidInput(
                    "work", str(folder), "a folder for this model; it holds one of other images or settings"
                )
            if _MARK not in names and names:
                raise InvalidInput("work", str(folder), "an empty folder, or that of an interrupted run")
            if _MARK not in names:
                held.write(_MARK, told.encode())
        return cls(held)

    @property
    def checkpoint(self) -> HeldFolder:
        return self._folder

    def drawn(
        self, draw: Drawer, labels: NDArray[np.int64], how: str, tell: Progress, world: World
    ) -> NDArray[np.uint8]:
        """Draw the missing blocks; processes share them, and each block has the bits of one process."""
        # `how`: a hash of what decides the images, given the model; blocks drawn otherwise are others.
        chosen = {first: labels[first : first + BLOCK] for first in range(0, len(labels), BLOCK)}
        places = {first: self._folder.path / f"drawn-{how[:16]}-{first:08d}.npy" for first in chosen}
        for number, (first, place) in enumerate(places.items()):
            if number % world.size == world.rank and _read(place, len(chosen[first])) is None:
                self._write(place, np.concatenate(list(draw(chosen[first], first))))
            tell("images", first + len(chosen[first]), len(labels))
        world.wait()
        blocks = [_read(place, len(chosen[first])) for first, place in places.items()]
        found = [block for block in blocks if block is not None]
        if len(found) < len(blocks):
            raise StorageError(f"work: {self._folder.path} has lost images, or is not the same for every process")
        # No process clears the folder before all have read it.
        world.wait()
        return np.concatenate(found)

    def _write(self, place: Path, block: NDArray[np.uint8]) -> None:
        self._folder.check_in_place()
        with storage_errors("work", "write", self._folder.path), self._folder.new(place.name) as file:
            np.save(file, block)

    def discard(self) -> None:
        self._folder.discard()


def _read(place: Path, count: int) -> NDArray[np.uint8] | None:
    if not place.exists():
        return None
    try:
        found: NDArray[np.uint8] = np.load(place, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        # NumPy's word for an empty file is EOFError.
        return None
    return found if len(found) == count else None
