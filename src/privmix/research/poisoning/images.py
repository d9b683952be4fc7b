"""Images that trainers and attackers hold, and what an attack makes of them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix.errors import InvalidInput, check_integer


@dataclass(frozen=True, eq=False)
class VictimImages:
    """Labelled images in memory: (n, C, H, W) float32 in [0, 1], and (n,) int64 labels in [0, classes)."""

    pixels: NDArray[np.float32] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    classes: int

    @classmethod
    def of(cls, pixels: ArrayLike, labels: ArrayLike, *, classes: int) -> "VictimImages":
        check_integer("classes", classes, low=2)
        x, y = np.asarray(pixels, dtype=np.float32), np.asarray(labels)
        if x.ndim != 4 or 0 in x.shape[1:]:
            raise InvalidInput("pixels", f"shape {x.shape}", "images of shape (n, channels, height, width)")
        if x.size and not (x.min() >= 0 and x.max() <= 1):
            raise InvalidInput("pixels", "values outside", "numbers in [0, 1]")
        if y.shape != x.shape[:1] or y.dtype.kind not in "iu":
            raise InvalidInput("labels", f"shape {y.shape}", "one whole number an image")
        if len(y) and not (y.min() >= 0 and y.max() < classes):
            raise InvalidInput("labels", "values outside", f"numbers in [0, {classes})")
        return cls(x, y.astype(np.int64), classes)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.pixels.shape[1:]
        return channels, height, width

    def of_class(self, label: int) -> NDArray[np.int64]:
        return np.flatnonzero(self.labels == label)

    def take(self, chosen: Any) -> "VictimImages":
        """Return the images at these indices, or where a mask is true."""
        return VictimImages(self.pixels[chosen], self.labels[chosen], self.classes)

    def with_changed(
        self, indices: NDArray[np.int64], pixels: ArrayLike, labels: ArrayLike | None = None
    ) -> "VictimImages":
        """Return a copy in which the images at ``indices`` are others, clipped to [0, 1], and their labels if given."""
        x, y = self.pixels.copy(), self.labels.copy()
        x[indices] = np.clip(np.asarray(pixels, dtype=np.float32), 0, 1)
        if labels is not None:
            y[indices] = labels
        return VictimImages(x, y, self.classes)

    def with_inserted(self, pixels: ArrayLike, labels: ArrayLike) -> "VictimImages":
        more = VictimImages.of(pixels, labels, classes=self.classes)
        joined = np.concatenate([self.pixels, more.pixels]), np.concatenate([self.labels, more.labels])
        return VictimImages(*joined, self.classes)


@dataclass(frozen=True, eq=False)
class Poisoned:
    """An attack's result: records, which of them it controls, and the inputs that decide success."""

    # `goals`: test inputs with the attacker's target label. The first decides success; the share of all is reported.
    # One image for targeted attacks; all images of the victim class with their trigger for backdoors, the drawn one
    # first.
    records: VictimImages
    indices: NDArray[np.int64] = field(repr=False)
    goals: VictimImages
