"""What a trial is about: clean images, and who wants which of them taken for what."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privmix.errors import WITHHELD, InvalidInput
from privmix.research.poisoning.images import Images
from privmix.research.poisoning.victims.ordinary import Victim


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
