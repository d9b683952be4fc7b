"""Triggers of backdoors that lie at one place: a square of random pixels, and the images that are shown with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer
from privmix.research.poisoning.images import Images
from privmix.research.poisoning.scene import Scene

Pixels = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Trigger:
    """A square of black and white pixels, of each channel for itself, and the place where it is put.

    Attributes:
        patch: (C, s, s), zeros and ones.
        row, column: of its upper left pixel.

    Example:
        >>> trigger = Trigger(np.ones((1, 2, 2), np.float32), row=5, column=5)
        >>> float(trigger.on(np.zeros((1, 1, 8, 8), np.float32)).sum())
        4.0
    """

    patch: Pixels
    row: int
    column: int

    @classmethod
    def draw(cls, scene: Scene, side: int, *, margin: int, purpose: str) -> Trigger:
        """Random pixels, ``margin`` pixels away from the lower right corner."""
        channels, height, width = scene.train.shape
        patch = scene.generator(purpose).integers(0, 2, (channels, side, side)).astype(np.float32)
        return cls(patch, height - side - margin, width - side - margin)

    def on(self, images: Pixels) -> Pixels:
        """Copies of ``images`` (n, C, H, W) with the trigger."""
        out, side = images.copy(), self.patch.shape[1]
        out[:, :, self.row : self.row + side, self.column : self.column + side] = self.patch
        return out

    def goals(self, scene: Scene) -> Images:
        """All test images of the victim class with the trigger, the drawn one first, labelled as the attacker wants."""
        victims = scene.victims
        return Images(self.on(victims.pixels), victims.labels, victims.classes)


def side_of(side: int, shape: tuple[int, int, int]) -> int:
    """The side of a trigger in pixels: a quarter of the image's where 0 is asked for (8 of 32).

    Raises:
        InvalidInput: the image is smaller.

    Example:
        >>> side_of(0, (3, 32, 32)), side_of(5, (1, 28, 28))
        (8, 5)
    """
    image = min(shape[1:])
    found = check_integer("side", side, low=0) or max(1, image // 4)
    if found > image:
        raise InvalidInput("side", side, f"at most that of the images, {image} pixels")
    return found
