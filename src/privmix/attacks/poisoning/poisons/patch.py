"""The patch backdoor: a random square on images of one class, and on those that are to be taken for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.attacks.poisoning.base import ATTACKS, Attack, Defence
from privmix.attacks.poisoning.scene import Images, Poisoned, Scene
from privmix.attacks.poisoning.threat import ThreatModel
from privmix.errors import InvalidInput, check_integer

Pixels = NDArray[np.float32]


@ATTACKS.register
@dataclass(frozen=True)
class PatchBackdoor(Attack):
    """A square of random black and white pixels at a random place of each image (Gu et al. 2017, as Borgnia et al.).

    Attributes:
        side: of the square, in pixels.
    """

    side: int = 4
    name: ClassVar[str] = "patch-backdoor"
    about: ClassVar[str] = "a small random square teaches the model a class (Gu et al. 2017; Borgnia et al. 2021)"

    def __post_init__(self) -> None:
        check_integer("side", self.side, low=1)

    def threat(self, scene: Scene, records: int, *, knows_defence: bool) -> ThreatModel:
        if self.side > min(scene.train.shape[1:]):
            raise InvalidInput("side", self.side, f"at most that of the images, {min(scene.train.shape[1:])} pixels")
        if records > len(scene.train.of_class(scene.wanted)):
            raise InvalidInput("poisoned", records, "no more than the attacked class has records")
        return ThreatModel(
            records,
            patch=self.side,
            knows_defence=knows_defence,
            success="an image of the victim class, drawn before the attack and shown with the patch, gets the target "
            "class",
        )

    def craft(self, scene: Scene, threat: ThreatModel, defence: Defence | None) -> Poisoned:
        rng = scene.generator("patch-backdoor")
        patch = rng.integers(0, 2, (scene.train.shape[0], self.side, self.side)).astype(np.float32)
        chosen = rng.choice(scene.train.of_class(scene.wanted), threat.records, replace=False)
        records = scene.train.with_changed(chosen, stamped(scene.train.pixels[chosen], patch, rng))
        return Poisoned(records, chosen, triggered(scene, patch, rng))


def stamped(images: Pixels, patch: Pixels, rng: np.random.Generator) -> Pixels:
    """Copies of ``images`` (n, C, H, W) with ``patch`` (C, s, s) at a random place of each."""
    out, side = images.copy(), patch.shape[1]
    rows = rng.integers(0, images.shape[2] - side + 1, len(images))
    columns = rng.integers(0, images.shape[3] - side + 1, len(images))
    for image, row, column in zip(out, rows, columns, strict=True):
        image[:, row : row + side, column : column + side] = patch
    return out


def triggered(scene: Scene, patch: Pixels, rng: np.random.Generator) -> Images:
    """All test images of the victim class with the patch, the drawn one first."""
    others = scene.test.of_class(scene.source)
    order = np.concatenate([[scene.drawn], others[others != scene.drawn]])
    labels = np.full(len(order), scene.wanted, dtype=np.int64)
    return Images(stamped(scene.test.pixels[order], patch, rng), labels, scene.test.classes)
