"""The hidden trigger backdoor: images of the target class whose features are those of victims with the trigger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.fields import Count, Number, Size
from privmix.optimisers import Adam
from privmix.research.poisoning.base import ATTACKS, Attack, Defence
from privmix.research.poisoning.images import Poisoned
from privmix.research.poisoning.poisons.triggers import Trigger, side_of
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.threat import ThreatModel
from privmix.research.poisoning.victims.ordinary import TrainedNetwork

# Poisons are paired again with the images they are to resemble after this many steps.
_REMATCH: Final = 10
# As many poisons are moved at a time, so that memory doesn't grow with the budget.
BLOCK: Final = 256


@ATTACKS.register
@dataclass(frozen=True)
class HiddenTrigger(Attack):
    """Poisons that look like the target class and, in features, like triggered victims (Saha et al. 2020)."""

    # Images x of the target class move within a box to minimise the sum over pairs of ||f(x) - f(s)||^2. The s are the
    # trainer's own images of the victim class with the trigger. Pairs are one to one, of least total distance, made
    # again as the poisons move. Saha et al. take 5,000 plain steps within 16/255, Schwarzschild et al. (2021) 8/255.
    radius: Annotated[float, Number(0, 255, low_open=True)] = 16.0
    side: Size = 0
    steps: Count = 100
    name: ClassVar[str] = "hidden-trigger"
    about: ClassVar[str] = "a trigger that no training image shows (Saha et al. 2020)"
    setting: ClassVar[str] = "transfer"

    def threat(self, scene: PoisoningScene, records: int, *, knows_defence: bool) -> ThreatModel:
        side_of(self.side, scene.train.shape)
        if scene.victim.extractor is None:
            raise InvalidInput("victim", "a whole network", "one that trains the last layer on a public extractor")
        scene.check_held(scene.wanted, records)
        scene.check_held(scene.source, 1)
        return ThreatModel(
            records,
            radius=self.radius / 255,
            knows_defence=knows_defence,
            success="an image of the victim class, drawn before the attack and shown with the trigger, gets the target "
            "class",
        )

    def craft(self, scene: PoisoningScene, threat: ThreatModel, defence: Defence | None) -> Poisoned:
        side = side_of(self.side, scene.train.shape)
        trigger = Trigger.draw(scene, side, margin=5 * side // 8, purpose="hidden-trigger")
        chosen = scene.choose(scene.wanted, threat.records, "hidden-trigger records")
        # As many victims as poisons; some of them twice where there are fewer.
        victims = scene.generator("hidden-trigger victims").permutation(scene.train.of_class(scene.source))
        shown = trigger.on(scene.train.pixels[np.resize(victims, threat.records)])
        extractor = scene.victim.extractor
        assert extractor is not None  # threat() has looked
        bases, wanted = scene.train.pixels[chosen], extractor.features(shown)
        blocks = [slice(at, at + BLOCK) for at in range(0, len(chosen), BLOCK)]
        moved = np.concatenate([self._collided(extractor, bases[one], wanted[one]) for one in blocks])
        return Poisoned(scene.train.with_changed(chosen, moved), chosen, trigger.goals(scene))

    def _collided(
        self, extractor: TrainedNetwork, bases: NDArray[np.float32], wanted: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """``bases`` (m, C, H, W), moved so that their features come near ``wanted`` (m, d), each to another."""
        radius, body = self.radius / 255, extractor.network.body.eval()
        start, features = (torch.from_numpy(one).to(extractor.device) for one in (bases, wanted))
        low, high = (start - radius).clamp(min=0), (start + radius).clamp(max=1)
        moved = start.clone().requires_grad_()
        optimiser = Adam([moved], lr=radius / 10)
        for step in range(self.steps):
            found = body(moved)
            if step % _REMATCH == 0:
                paired = features[_pairs(found.detach(), features)]
            (gradient,) = torch.autograd.grad((found - paired).square().sum(), moved)
            moved.grad = gradient
            optimiser.step()
            with torch.no_grad():
                moved.copy_(torch.maximum(torch.minimum(moved, high), low))
        return moved.detach().cpu().numpy()


def _pairs(found: Tensor, wanted: Tensor) -> Tensor:
    """For each row of ``found`` (m, d) another row of ``wanted`` (m, d), by least total distance."""
    _, columns = linear_sum_assignment(torch.cdist(found, wanted).cpu().numpy())
    return torch.from_numpy(columns).to(wanted.device)
