"""The patch backdoor: a random square on images of one class, and on those that are to be taken for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.fields import Choice, Count
from privmix.research.poisoning.base import ATTACKS, Attack, Defence
from privmix.research.poisoning.images import Poisoned, VictimImages
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.threat import ThreatModel

Pixels = NDArray[np.float32]
PLACES: Final = ("random", "fixed")


@ATTACKS.register
@dataclass(frozen=True)
class PatchBackdoor(Attack):
    """A square of random pixels at a random place of each image (Gu et al. 2017, as Borgnia et al. 2021, A.1.1)."""

    # Each pixel of each channel is 0 or 1 with equal probability, once for a trial, in images in [0, 1]. Borgnia et
    # al. give it to 10% or 100% of the target class (5,000 images). A small network learns a square at a random
    # place only from thousands, one at a fixed place from dozens.
    side: Count = 4
    place: Annotated[str, Choice(*PLACES)] = "random"
    name: ClassVar[str] = "patch-backdoor"
    about: ClassVar[str] = "a small random square teaches the model a class (Gu et al. 2017; Borgnia et al. 2021)"

    def threat(self, scene: PoisoningScene, records: int, *, knows_defence: bool) -> ThreatModel:
        if self.side > min(scene.train.shape[1:]):
            raise InvalidInput("side", self.side, f"at most that of the images, {min(scene.train.shape[1:])} pixels")
        scene.check_held(scene.wanted, records)
        return ThreatModel(
            records,
            patch=self.side,
            knows_defence=knows_defence,
            success="an image of the victim class, drawn before the attack and shown with the patch, gets the target "
            "class",
        )

    def craft(self, scene: PoisoningScene, threat: ThreatModel, defence: Defence | None) -> Poisoned:
        rng = scene.generator("patch-backdoor")
        patch = rng.integers(0, 2, (scene.train.shape[0], self.side, self.side)).astype(np.float32)
        chosen = scene.choose(scene.wanted, threat.records, "patch-backdoor records")
        draw = {"random": _anywhere, "fixed": _somewhere}[self.place]
        free = tuple(size - self.side + 1 for size in scene.train.shape[1:])
        put, victims = scene.train.pixels[chosen], scene.victims
        places = draw(len(put) + len(victims), free, rng)
        goals = VictimImages(stamped(victims.pixels, patch, places[len(put) :]), victims.labels, victims.classes)
        return Poisoned(scene.train.with_changed(chosen, stamped(put, patch, places[: len(put)])), chosen, goals)


def stamped(images: Pixels, patch: Pixels, places: NDArray[np.int64]) -> Pixels:
    """Return copies of ``images`` (n, C, H, W) with ``patch`` (C, s, s) at ``places`` (n, 2), rows and columns."""
    out, side = images.copy(), patch.shape[1]
    for image, (row, column) in zip(out, places, strict=True):
        image[:, row : row + side, column : column + side] = patch
    return out


def _anywhere(images: int, free: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(0, free, (images, 2))


def _somewhere(images: int, free: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    return np.tile(rng.integers(0, free, (1, 2)), (images, 1))
