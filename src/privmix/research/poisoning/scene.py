"""The subject of a trial: clean images, and which of them an attacker moves to which class."""

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privmix.errors import WITHHELD, InvalidInput
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.victims.ordinary import Victim


@dataclass(frozen=True, eq=False)
class PoisoningScene:
    """One trial before the attack, drawn from seed and number alone: all attacks and defences meet the same."""

    # `wanted`, `source`: target and victim class of backdoors. `drawn`: index in `test` of the image, of class
    # `source`, whose prediction decides success. An attacker may use `victim` with seeds of its own.
    train: VictimImages
    test: VictimImages
    wanted: int
    source: int
    drawn: int
    victim: Victim
    seed: tuple[int, int]

    @classmethod
    def draw(
        cls, train: VictimImages, test: VictimImages, victim: Victim, *, seed: int, number: int
    ) -> "PoisoningScene":
        """Trial `number` of a study with `seed`: a pair of classes, and an image of the one."""
        rng = np.random.default_rng([seed, number])
        held = np.intersect1d(train.labels, test.labels)
        if len(held) < 2:
            raise InvalidInput("data", WITHHELD, "two classes or more with records to train on and to test on")
        wanted, source = (int(label) for label in rng.choice(held, 2, replace=False))
        drawn = int(rng.choice(test.of_class(source)))
        return cls(train, test, wanted, source, drawn, victim, (seed, number))

    def generator(self, purpose: str) -> np.random.Generator:
        """Randomness for one purpose; the same at every call."""
        return np.random.default_rng([*self.seed, zlib.crc32(purpose.encode())])

    def number_for(self, purpose: str) -> int:
        return int(self.generator(purpose).integers(2**62))

    @property
    def targets(self) -> VictimImages:
        image = self.test.pixels[[self.drawn]]
        return VictimImages(image, np.full(1, self.wanted, dtype=np.int64), self.test.classes)

    @property
    def victims(self) -> VictimImages:
        """All test images of the victim class, the drawn one first, with the attacker's target label."""
        others = self.test.of_class(self.source)
        order = np.concatenate([[self.drawn], others[others != self.drawn]])
        return VictimImages(
            self.test.pixels[order], np.full(len(order), self.wanted, dtype=np.int64), self.test.classes
        )

    def choose(self, label: int, records: int, purpose: str) -> NDArray[np.int64]:
        return self.generator(purpose).choice(self.train.of_class(label), records, replace=False)

    def check_held(self, label: int, records: int) -> None:
        """Raise unless the trainer has as many records of a class; the message does not contain the count."""
        if records > len(self.train.of_class(label)):
            raise InvalidInput("poisoned", records, "no more than the attacked class has records")
