"""Generators of public images: a program and a seed, without data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix._registry import Registry
from privmix.errors import InvalidInput, check_integer

# Images are drawn in blocks of this size, each from a stream of its own: memory is bounded, and a longer draw begins
# with a shorter one.
BLOCK: Final = 128
_SIDES: Final = (8, 512)


@dataclass(frozen=True)
class GeneratedImages:
    """Generated images: x ``(n, *shape)`` uint8, and y (n,) int64 class indices or None. Public."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.x)


class ImageGenerator(ABC):
    """A source of images from fonts, formulas and pseudo-random numbers, never from data.

    Formal guarantees:
        - No records: images follow from ``name``, ``version``, ``shape`` and the seed, and from files that packages
          bring (fonts), never from data that a user has.
        - Repeatable: the same seed gives the same images on the same versions of NumPy and matplotlib, and the first
          images of a longer draw are those of a shorter one.

    A subclass sets ``name`` (as in ``procedural:NAME``), ``version`` (raise it when images change) and ``words`` (after
    "images of", for certificates and cards). It also sets ``classes`` if images have labels, and implements
    :meth:`_block`. The subclass is one file; ``GENERATORS.register`` makes it known.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    words: ClassVar[str]
    classes: ClassVar[tuple[str, ...] | None] = None

    def __init__(self, shape: tuple[int, ...]) -> None:
        sides = tuple(int(side) for side in shape)
        low, high = _SIDES
        if (
            len(sides) not in (2, 3)
            or not all(low <= side <= high for side in sides[:2])
            or sides[2:] not in ((), (3,))
        ):
            allowed = f"(H, W) or (H, W, 3), sides from {low} to {high}"
            raise InvalidInput(f"shape of images for procedural:{self.name}", tuple(shape), allowed)
        self.shape = sides

    def draw(self, count: int, seed: int = 0) -> GeneratedImages:
        """Return the first ``count`` images of a public seed."""
        check_integer("count", count, low=1)
        check_integer("seed", seed, low=0)
        x = np.empty((count, *self.shape), np.uint8)
        y = None if self.classes is None else np.empty(count, np.int64)
        for block, start in enumerate(range(0, count, BLOCK)):
            found = self._block(np.random.default_rng([seed, self.version, block]))
            size = min(BLOCK, count - start)
            x[start : start + size] = found.x[:size]
            if y is not None:
                assert found.y is not None, f"{self.name} has classes, and images without labels"
                y[start : start + size] = found.y[:size]
        return GeneratedImages(x, y)

    @abstractmethod
    def _block(self, generator: np.random.Generator) -> GeneratedImages:
        """``BLOCK`` images of ``self.shape`` (with labels, if there are ``classes``), by this generator alone."""

    def card(self) -> dict[str, Any]:
        """Identity of its images besides count and seed; JSON values."""
        return {"generator": self.name, "version": self.version, "shape": list(self.shape)}


GENERATORS: Final[Registry[type[ImageGenerator]]] = Registry("procedural", "privmix.procedural", "privmix.generators")
"""Generators by name, those of other packages too."""


def get_generator(name: str, shape: tuple[int, ...]) -> ImageGenerator:
    """Return the generator of this name for images of this shape."""
    return GENERATORS[name](shape)
