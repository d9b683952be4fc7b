"""Gradient matching: training on the poisons moves the network as training on the mislabelled target would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import torch
from torch import Tensor
from torch.nn import functional

from privmix.fields import Count, Number, Positive, Size
from privmix.optimisers import Adam
from privmix.research.poisoning.base import ATTACKS, Defence, DefenceAugmentation
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.targeted import Box, Targeted


@ATTACKS.register
@dataclass(frozen=True)
class GradientMatching(Targeted):
    """Poisons whose gradient points where that of the drawn image with the wanted label does (Witches' Brew).

    Geiping et al. (2021), Equations 2 and 3 and Algorithm 1, on a network that the attacker trains on the clean
    records: minimise one minus the cosine of both gradients, over all weights. Adam runs on the signs of the slope,
    from several random starts, and the best is kept. An attacker who knows the defence trains and matches through it
    (Borgnia et al. 2021, Appendix A.1.2), with `companions` clean records next to each poison and fresh randomness in
    each step. The paper poisons 500 images of CIFAR-10 within 16/255, with 250 steps and 8 starts on one ResNet-18; of
    2,000 records, 100 poisons within 16/255 to 32/255 are needed.
    """

    # `step`: of the signs at first, as a share of the radius; a tenth of it after 3/8, 5/8 and 7/8 of the steps.
    radius: Annotated[float, Number(0, 255, low_open=True)] = 16
    steps: Count = 30
    starts: Count = 1
    networks: Count = 2
    step: Positive = 0.3
    companions: Size = 0
    name: ClassVar[str] = "gradient-matching"
    about: ClassVar[str] = "poisons whose gradients are the target's: Witches' Brew (Geiping et al. 2021)"
    adapts: ClassVar[bool] = True

    def moved(self, scene: PoisoningScene, box: Box, defence: Defence | None) -> Tensor:
        through = defence if isinstance(defence, DefenceAugmentation) else None
        matches = []
        for number in range(self.networks):
            seed = scene.number_for(f"surrogate {number}")
            trained = scene.victim.fit(scene.train, seed=seed, augmentation=through)
            matches.append(Match(trained.network, scene, through, self.companions))
        found = [self._from(matches, box.to(matches[0].device)) for _ in range(self.starts)]
        return min(found, key=lambda one: one[0])[1]

    def _from(self, matches: Sequence[Match], box: Box) -> tuple[float, Tensor]:
        """Return the match of one random start, and its poisons."""
        noise = torch.randn(box.bases.shape, generator=matches[0].generator, device=matches[0].device)
        x = box.nearest(box.bases + box.radius * noise).requires_grad_()
        optimiser = Adam([x], self.step * box.radius)
        late = []
        for done in range(self.steps):
            drops = sum(done >= share * self.steps for share in _DROPS)
            for group in optimiser.param_groups:
                group["lr"] = self.step * box.radius / 10**drops
            loss = torch.stack([one.loss(x) for one in matches]).mean()
            (slope,) = torch.autograd.grad(loss, x)
            x.grad = slope.sign()
            optimiser.step()
            with torch.no_grad():
                x.copy_(box.nearest(x))
            if done >= _DROPS[-1] * self.steps:
                late.append(float(loss.detach()))
        # Through a defence each loss is a random one: starts are compared by the mean of the last.
        return sum(late) / max(1, len(late)), x.detach()


class Match:
    """Distance of the poisons' gradient from the wanted one, on the attacker's trained network, through a defence."""

    def __init__(
        self, network: Any, scene: PoisoningScene, defence: DefenceAugmentation | None, companions: int
    ) -> None:
        self._network, self._scene, self._defence, self._companions = network.eval(), scene, defence, companions
        self._weights = [one for one in network.parameters() if one.requires_grad]
        self.device: Final = self._weights[0].device
        self.generator: Final = torch.Generator(self.device).manual_seed(scene.number_for("matching"))
        target = torch.from_numpy(scene.targets.pixels).to(self._weights[0])
        loss = functional.cross_entropy(network(target), torch.tensor([scene.wanted], device=self.device))
        self._wanted = self._gradient(loss, graph=False)

    def loss(self, poisons: Tensor) -> Tensor:
        """One minus the cosine, in [0, 2]; gradients pass to ``poisons`` (p, C, H, W)."""
        wanted = torch.full((len(poisons),), self._scene.wanted, device=self.device)
        if self._defence is None:
            seen = self._scene.victim.view(poisons, self.generator)
            loss = functional.cross_entropy(self._network(seen), wanted)
        else:
            pixels, labels = self._company(poisons, wanted)
            targets = functional.one_hot(labels, self._scene.train.classes).float()
            pixels = self._scene.victim.view(pixels, self.generator)
            loss = self._defence.loss(self._network, pixels, targets, self.generator, _PROGRESS)
        return 1 - functional.cosine_similarity(self._gradient(loss, graph=True), self._wanted, dim=0)

    def _company(self, poisons: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        train: VictimImages = self._scene.train
        size = (self._companions * len(poisons),)
        drawn = torch.randint(len(train), size, generator=self.generator, device=self.device).cpu().numpy()
        pixels, labels = torch.from_numpy(train.pixels[drawn]), torch.from_numpy(train.labels[drawn])
        return torch.cat([poisons, pixels.to(poisons)]), torch.cat([wanted, labels.to(self.device)])

    def _gradient(self, loss: Tensor, *, graph: bool) -> Tensor:
        return torch.cat([one.flatten() for one in torch.autograd.grad(loss, self._weights, create_graph=graph)])


_DROPS: Final = (0.375, 0.625, 0.875)
# Defences that start late have started.
_PROGRESS: Final = 0.99
