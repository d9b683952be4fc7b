"""Feature collision: each poison looks like one image and has the features of another (Poison Frogs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import torch
from torch import Tensor

from privmix.fields import Amount, Count, Fraction, Number
from privmix.research.poisoning.base import ATTACKS, Defence
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.targeted import Box, Targeted, extracted


@ATTACKS.register
@dataclass(frozen=True)
class FeatureCollision(Targeted):
    """Each poison minimises |f(x) - f(t)|^2 / |f(t)|^2 + similarity |x - b|^2 by forward-backward splitting."""

    # Shafahi et al. (2018), Equation 1 and Algorithm 1: b is the base image, t the drawn image, f the extractor. It
    # starts at b with a watermark of t; a step that would raise the objective is halved. The radius and 120 steps
    # are Schwarzschild et al.'s (2021); black and white digits need 96. `similarity` is the paper's beta over the
    # squared length of f(t).
    radius: Annotated[float, Number(0, 255, low_open=True)] = 8
    steps: Count = 60
    watermark: Fraction = 0.3
    similarity: Amount = 0.0
    name: ClassVar[str] = "feature-collision"
    about: ClassVar[str] = "poisons with the features of the target: Poison Frogs (Shafahi et al. 2018)"
    setting: ClassVar[str] = "transfer"

    def moved(self, scene: PoisoningScene, box: Box, defence: Defence | None) -> Tensor:
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
