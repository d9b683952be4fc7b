"""Triggers of backdoors that lie at one place: a square of random pixels, and the images that are shown with it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.scene import PoisoningScene

Pixels = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Trigger:
    """A square of black and white pixels, (C, s, s), and the place of its upper left pixel."""

    patch: Pixels
    row: int
    column: int

    @classmethod
    def draw(cls, scene: PoisoningScene, side: int, *, margin: int, purpose: str) -> "Trigger":
        """Random pixels, ``margin`` pixels away from the lower right corner."""
        channels, height, width = scene.train.shape
        patch = scene.generator(purpose).integers(0, 2, (channels, side, side)).astype(np.float32)
        return cls(patch, height - side - margin, width - side - margin)

    def on(self, images: Pixels) -> Pixels:
        out, side = images.copy(), self.patch.shape[1]
        out[:, :, self.row : self.row + side, self.column : self.column + side] = self.patch
        return out

    def goals(self, scene: PoisoningScene) -> VictimImages:
        """All test images of the victim class with the trigger, drawn one first, under the attacker's target label."""
        victims = scene.victims
        return VictimImages(self.on(victims.pixels), victims.labels, victims.classes)


def side_of(side: int, shape: tuple[int, int, int]) -> int:
    """Return the side of a trigger in pixels: a quarter of the image's where it is 0 (8 of 32)."""
    image = min(shape[1:])
    found = check_integer("side", side, low=0) or max(1, image // 4)
    if found > image:
        raise InvalidInput("side", side, f"at most that of the images, {image} pixels")
    return found
