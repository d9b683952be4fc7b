"""What a generator of public images is: a program and a seed, and no data of anybody."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix._registry import Registry
from privmix.errors import InvalidInput, check_integer

# Images are drawn in blocks of so many, each from a stream of its own: memory is bounded, and a longer draw begins
# with a shorter one.
BLOCK: Final = 128
_SIDES: Final = (8, 512)


@dataclass(frozen=True)
class Images:
    """Images that were drawn. Public.

    Attributes:
        x: (n, *shape) uint8, 0 to 255.
        y: (n,) int64 indices into the generator's ``classes``; None where it has none.
    """

    x: NDArray[np.uint8]
    y: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.x)


class ImageGenerator(ABC):
    """A source of images that knows nothing of anybody: fonts, formulas and pseudo-random numbers.

    Formal guarantees:
        - No records: images follow from ``name``, ``version``, ``shape`` and the seed, and from files that packages
          bring (fonts), never from data that a user has.
        - Repeatable: the same seed gives the same images on the same versions of NumPy and matplotlib, and the first
          images of a longer draw are those of a shorter one.

    A subclass sets ``name``, ``version`` (raise it when images change), ``words`` and, where images have labels,
    ``classes``, and implements :meth:`_block`. It is one file; ``GENERATORS.register`` makes it known.

    Args:
        shape: of an image, (H, W) or (H, W, 3), sides from 8 to 512.

    Attributes:
        name: as in ``procedural:NAME``.
        version: of the images.
        words: what the images are, for certificates and cards; goes on after "images of".
        classes: names of the classes, or None.
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

    def draw(self, count: int, seed: int = 0) -> Images:
        """The first ``count`` images of a seed.

        Args:
            count: >= 1.
            seed: >= 0; public.
        """
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
        return Images(x, y)

    @abstractmethod
    def _block(self, generator: np.random.Generator) -> Images:
        """``BLOCK`` images of ``self.shape`` (with labels, if there are ``classes``), by this generator alone."""

    def card(self) -> dict[str, Any]:
        """What tells its images from others, beside count and seed; JSON values."""
        return {"generator": self.name, "version": self.version, "shape": list(self.shape)}


GENERATORS: Final[Registry[type[ImageGenerator]]] = Registry("procedural", "privmix.procedural", "privmix.generators")
"""Generators by name, those of other packages too."""


def generator_names() -> list[str]:
    """Names that :func:`get_generator` knows."""
    return list(GENERATORS)


def get_generator(name: str, shape: tuple[int, ...]) -> ImageGenerator:
    """The generator of this name, for images of this shape.

    Raises:
        InvalidInput: unknown name, or a shape that no image has.

    Example:
        >>> images = get_generator("digits", (28, 28)).draw(3, seed=1)
        >>> images.x.shape, images.x.dtype.name
        ((3, 28, 28), 'uint8')
    """
    return GENERATORS[name](shape)
