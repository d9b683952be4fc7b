"""What a trial is about: clean images, who wants which of them taken for what, and the records after the attack."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix.errors import WITHHELD, InvalidInput, check_integer

if TYPE_CHECKING:
    from privmix.research.poisoning.victims.ordinary import Victim


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images in memory.

    Attributes:
        pixels: (n, C, H, W) float32 in [0, 1].
        labels: (n,) int64 in [0, classes).
        classes: number of classes.

    Example:
        >>> some = Images.of(np.zeros((3, 1, 8, 8)), [0, 1, 1], classes=2)
        >>> len(some), some.shape, len(some.of_class(1))
        (3, (1, 8, 8), 2)
    """

    pixels: NDArray[np.float32] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    classes: int

    @classmethod
    def of(cls, pixels: ArrayLike, labels: ArrayLike, *, classes: int) -> Images:
        """Check arrays and take them.

        Raises:
            InvalidInput: a shape, a value or a label doesn't fit.
        """
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
        """(channels, height, width)."""
        channels, height, width = self.pixels.shape[1:]
        return channels, height, width

    def of_class(self, label: int) -> NDArray[np.int64]:
        """Indices of the images of one class."""
        return np.flatnonzero(self.labels == label)

    def take(self, chosen: Any) -> Images:
        """The images at these indices, or where a mask says so."""
        return Images(self.pixels[chosen], self.labels[chosen], self.classes)

    def with_changed(self, indices: NDArray[np.int64], pixels: ArrayLike, labels: ArrayLike | None = None) -> Images:
        """A copy in which the images at ``indices`` are others, clipped to [0, 1], and their labels if given."""
        x, y = self.pixels.copy(), self.labels.copy()
        x[indices] = np.clip(np.asarray(pixels, dtype=np.float32), 0, 1)
        if labels is not None:
            y[indices] = labels
        return Images(x, y, self.classes)

    def with_inserted(self, pixels: ArrayLike, labels: ArrayLike) -> Images:
        """These and further ones behind them."""
        more = Images.of(pixels, labels, classes=self.classes)
        joined = np.concatenate([self.pixels, more.pixels]), np.concatenate([self.labels, more.labels])
        return Images(*joined, self.classes)


@dataclass(frozen=True, eq=False)
class Scene:
    """One trial before the attack. Drawn from seed and number alone, so that all attacks and defences meet the same.

    Attributes:
        train: the trainer's clean records.
        test: images that no trainer sees.
        wanted: the class that the attacker wants (target class of backdoors).
        source: the class of the images that are to get it (victim class of backdoors).
        drawn: index in ``test`` of the one image, of class ``source``, whose prediction decides success.
        victim: how models are trained where no defence is in the way; an attacker may use it with seeds of its own.
        seed: of this trial: :meth:`generator` makes its randomness of it.
    """

    train: Images
    test: Images
    wanted: int
    source: int
    drawn: int
    victim: Victim
    seed: tuple[int, int]

    @classmethod
    def draw(cls, train: Images, test: Images, victim: Victim, *, seed: int, number: int) -> Scene:
        """Trial ``number`` of a study with ``seed``: a pair of classes, and an image of the one.

        Raises:
            InvalidInput: fewer than two classes have records and test images.
        """
        rng = np.random.default_rng([seed, number])
        held = np.intersect1d(train.labels, test.labels)
        if len(held) < 2:
            raise InvalidInput("data", WITHHELD, "two classes or more with records to train on and to test on")
        wanted, source = (int(label) for label in rng.choice(held, 2, replace=False))
        drawn = int(rng.choice(test.of_class(source)))
        return cls(train, test, wanted, source, drawn, victim, (seed, number))

    def generator(self, purpose: str) -> np.random.Generator:
        """Randomness for one purpose; the same at every call.

        Example:
            >>> scene = Scene(None, None, 0, 1, 0, None, (7, 3))
            >>> scene.generator("patch").random() == scene.generator("patch").random()
            True
        """
        return np.random.default_rng([*self.seed, zlib.crc32(purpose.encode())])

    def number_for(self, purpose: str) -> int:
        """A seed for torch, for one purpose."""
        return int(self.generator(purpose).integers(2**62))

    @property
    def targets(self) -> Images:
        """The drawn image alone, with the label that the attacker wants."""
        image = self.test.pixels[[self.drawn]]
        return Images(image, np.full(1, self.wanted, dtype=np.int64), self.test.classes)

    @property
    def victims(self) -> Images:
        """All test images of the victim class, the drawn one first, with the label that the attacker wants."""
        others = self.test.of_class(self.source)
        order = np.concatenate([[self.drawn], others[others != self.drawn]])
        return Images(self.test.pixels[order], np.full(len(order), self.wanted, dtype=np.int64), self.test.classes)

    def choose(self, label: int, records: int, purpose: str) -> NDArray[np.int64]:
        """Indices of as many of the trainer's records of a class, at random."""
        return self.generator(purpose).choice(self.train.of_class(label), records, replace=False)

    def check_held(self, label: int, records: int) -> None:
        """Raise unless the trainer has as many records of a class.

        Raises:
            InvalidInput: it has fewer; how many is not said.
        """
        if records > len(self.train.of_class(label)):
            raise InvalidInput("poisoned", records, "no more than the attacked class has records")


@dataclass(frozen=True, eq=False)
class Poisoned:
    """What an attack made of the records, and which inputs tell whether it worked.

    Attributes:
        records: what the trainer gets.
        indices: which of ``records`` the attacker controls. Defences don't see them.
        goals: inputs at test time, each with the label that the attacker wants; the first decides success, the share
            of all is reported beside it. One image for targeted attacks, all images of the victim class with their
            trigger for backdoors, the drawn one first.
    """

    records: Images
    indices: NDArray[np.int64] = field(repr=False)
    goals: Images
