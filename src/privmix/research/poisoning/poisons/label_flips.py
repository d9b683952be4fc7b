"""Label flips: records of the victim class under the attacker's target label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.fields import Choice
from privmix.research.poisoning.base import ATTACKS, Attack, Defence
from privmix.research.poisoning.images import Poisoned
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.threat import ThreatModel

CHOICES: Final = ("nearest", "similar", "random")


@ATTACKS.register
@dataclass(frozen=True)
class LabelFlips(Attack):
    """Records of the victim class get the label of the target class; their pixels stay (Biggio et al. 2011)."""

    # `nearest`: those nearest the drawn image, the only aim; `similar`: nearest the mean of the target class;
    # `random`. Euclidean distances of pixels, or of the victim's public extractor's features.
    choice: Annotated[str, Choice(*CHOICES)] = "nearest"
    name: ClassVar[str] = "label-flips"
    about: ClassVar[str] = "wrong labels: nearest the image aimed at, similar to its class to be, or at random"

    def threat(self, scene: PoisoningScene, records: int, *, knows_defence: bool) -> ThreatModel:
        scene.check_held(scene.source, records)
        return ThreatModel(records, radius=0, clean_label=False, knows_defence=knows_defence)

    def craft(self, scene: PoisoningScene, threat: ThreatModel, defence: Defence | None) -> Poisoned:
        chosen = _ORDERS[self.choice](scene)[: threat.records]
        labels = np.full(len(chosen), scene.wanted, dtype=np.int64)
        records = scene.train.with_changed(chosen, scene.train.pixels[chosen], labels)
        return Poisoned(records, chosen, scene.targets if self.choice == "nearest" else scene.victims)


def _nearest(scene: PoisoningScene) -> NDArray[np.int64]:
    return _by_distance(scene, scene.test.pixels[[scene.drawn]])


def _similar(scene: PoisoningScene) -> NDArray[np.int64]:
    return _by_distance(scene, scene.train.pixels[scene.train.of_class(scene.wanted)])


def _random(scene: PoisoningScene) -> NDArray[np.int64]:
    held = scene.train.of_class(scene.source)
    return scene.choose(scene.source, len(held), "label-flips")


_ORDERS: Final = dict(zip(CHOICES, (_nearest, _similar, _random), strict=True))


def _by_distance(scene: PoisoningScene, images: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return indices of the records of the victim class, the one nearest the mean of ``images`` first."""
    held = scene.train.of_class(scene.source)
    mean = _seen(scene, images).mean(axis=0)
    distances = np.linalg.norm(_seen(scene, scene.train.pixels[held]) - mean, axis=1)
    return held[np.argsort(distances, kind="stable")]


def _seen(scene: PoisoningScene, images: NDArray[np.float32]) -> NDArray[np.float32]:
    extractor = scene.victim.extractor
    return images.reshape(len(images), -1) if extractor is None else extractor.features(images)
