"""Feature collision: each poison looks like one image and has the features of another (Poison Frogs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import torch
from torch import Tensor

from privmix.fields import Amount, Count, Fraction, Number
from privmix.research.poisoning.base import ATTACKS, Defence
from privmix.research.poisoning.scene import Scene
from privmix.research.poisoning.targeted import Box, Targeted, extracted


@ATTACKS.register
@dataclass(frozen=True)
class FeatureCollision(Targeted):
    """Each poison minimises |f(x) - f(t)|^2 / |f(t)|^2 + similarity |x - b|^2 by forward-backward splitting.

    Shafahi et al. (2018), Equation 1 and Algorithm 1: b is the image it is made of, t the drawn image, f the extractor.
    It starts at b with a watermark of t. A poison's step is halved, and not taken, where it would raise the objective.

    The paper's poisons for CIFAR-10 have a watermark of 0.3 and no radius; the radius is that of Schwarzschild et al.
    (2021), who take 120 steps. Digits of black and white move less for the same radius: 96 is what MNIST needs.

    Attributes:
        radius: most that a pixel moves, in 255ths; 255 leaves it to ``similarity``.
        steps: of the optimisation; more than the default change little.
        watermark: opacity of the drawn image in the first poison.
        similarity: how much likeness in pixels counts beside distance in features (the paper's beta, over the squared
            length of the features wanted).
    """

    radius: Annotated[float, Number(0, 255, low_open=True)] = 8
    steps: Count = 60
    watermark: Fraction = 0.3
    similarity: Amount = 0.0
    name: ClassVar[str] = "feature-collision"
    about: ClassVar[str] = "poisons with the features of the target: Poison Frogs (Shafahi et al. 2018)"
    setting: ClassVar[str] = "transfer"

    def moved(self, scene: Scene, box: Box, defence: Defence | None) -> Tensor:
        body, wanted, box = extracted(scene, box)
        target = torch.from_numpy(scene.targets.pixels).to(wanted.device)
        x = box.nearest((1 - self.watermark) * box.bases + self.watermark * target)
        step = torch.full((len(x), 1, 1, 1), _FIRST_STEP, device=x.device)
        value, slope = self._objective(body, wanted, box, x)
        for _ in range(self.steps):
            # Forward on the features' part, backward on the pixels', onto the box.
            forward = x - step * slope
            pulled = (forward + 2 * step * self.similarity * box.bases) / (1 + 2 * step * self.similarity)
            tried = box.nearest(pulled)
            value_tried, slope_tried = self._objective(body, wanted, box, tried)
            better = (value_tried < value)[:, None, None, None]
            x, slope = torch.where(better, tried, x), torch.where(better, slope_tried, slope)
            value = torch.minimum(value, value_tried)
            step = torch.where(better, 1.2 * step, 0.5 * step)
        return x

    def _objective(self, body: torch.nn.Module, wanted: Tensor, box: Box, x: Tensor) -> tuple[Tensor, Tensor]:
        """Each poison's objective (p,), and the gradient of its first part, the only one that steps go along."""
        x = x.detach().requires_grad_()
        distance = (body(x) - wanted).square().sum(1) / wanted.square().sum()
        (slope,) = torch.autograd.grad(distance.sum(), x)
        far = (x.detach() - box.bases).square().flatten(1).sum(1)
        return distance.detach() + self.similarity * far, slope


_FIRST_STEP: Final = 1.0
