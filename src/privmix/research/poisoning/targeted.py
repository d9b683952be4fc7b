"""Common part of targeted, clean-label attacks: images of the wanted class move, so that one image joins them."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput
from privmix.research.poisoning.base import Attack, Defence
from privmix.research.poisoning.images import Poisoned
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.threat import ThreatModel

# Pixels as files hold them: papers and settings state how far they move in these steps.
STEPS = 255


@dataclass(frozen=True)
class Box:
    """Limits of poisons: images within `radius` of `bases` (p, C, H, W), and within [0, 1]."""

    bases: Tensor
    radius: float

    def to(self, device: torch.device) -> "Box":
        return Box(self.bases.to(device), self.radius)

    def nearest(self, pixels: Tensor) -> Tensor:
        return (self.bases + (pixels - self.bases).clamp(-self.radius, self.radius)).clamp(0, 1)


class Targeted(Attack):
    """Some images of the wanted class move within a box, labels kept, so that the drawn image gets their class."""

    radius: float

    def threat(self, scene: PoisoningScene, records: int, *, knows_defence: bool) -> ThreatModel:
        if self.setting == "transfer" and scene.victim.extractor is None:
            raise InvalidInput("victim", "a whole network", "one that trains the last layer on a public extractor")
        scene.check_held(scene.wanted, records)
        return ThreatModel(records, radius=self.radius / STEPS, knows_defence=knows_defence)

    def craft(self, scene: PoisoningScene, threat: ThreatModel, defence: Defence | None) -> Poisoned:
        chosen = scene.choose(scene.wanted, threat.records, self.name)
        box = Box(torch.from_numpy(scene.train.pixels[chosen]), self.radius / STEPS)
        moved = box.nearest(self.moved(scene, box, defence).cpu())
        return Poisoned(scene.train.with_changed(chosen, moved.numpy()), chosen, scene.targets)

    @abstractmethod
    def moved(self, scene: PoisoningScene, box: Box, defence: Defence | None) -> Tensor:
        """Return the poisons (p, C, H, W) that are made of ``box.bases``; what lies outside the box is brought back."""


def extracted(scene: PoisoningScene, box: Box) -> tuple[nn.Module, Tensor, Box]:
    """Return the victim's extractor, the features (d,) of the drawn image in it, and the box, all on one device."""
    extractor = scene.victim.extractor
    assert extractor is not None  # threat() has looked
    wanted = torch.from_numpy(extractor.features(scene.targets.pixels)[0])
    return extractor.network.body, wanted.to(extractor.device), box.to(extractor.device)
