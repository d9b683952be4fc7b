"""Convex polytope: some mean of the poisons' features is the target's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import torch
from torch import Tensor

from privmix.fields import Count, Number, Positive
from privmix.optimisers import Adam
from privmix.research.poisoning.base import ATTACKS, Defence
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.targeted import Box, Targeted, extracted


@ATTACKS.register
@dataclass(frozen=True)
class ConvexPolytope(Targeted):
    """The poisons surround the target: minimise |f(t) - sum_j c_j f(x_j)|^2 / 2 |f(t)|^2 over poisons and weights c."""

    # Zhu et al. (2019), Equation 2 and Algorithm 1: weights on the simplex by accelerated projected gradients,
    # images by Adam, in turn. A linear last layer that fits the poisons gives their class to all between them. The
    # radius is Schwarzschild et al.'s (2021; 1,200 steps), the paper's is 0.1 (4,000 steps); black and white digits
    # need 96.
    radius: Annotated[float, Number(0, 255, low_open=True)] = 8
    steps: Count = 60
    learning_rate: Positive = 0.04
    name: ClassVar[str] = "convex-polytope"
    about: ClassVar[str] = "poisons whose features surround the target's (Zhu et al. 2019)"
    setting: ClassVar[str] = "transfer"

    def moved(self, scene: PoisoningScene, box: Box, defence: Defence | None) -> Tensor:
        body, wanted, box = extracted(scene, box)
        x = box.bases.clone().requires_grad_()
        optimiser = Adam([x], self.learning_rate)
        weights = torch.full((len(x),), 1 / len(x), device=x.device)
        for _ in range(self.steps):
            features = body(x)
            weights = self.weights(features.detach(), wanted, weights)
            loss = (weights @ features - wanted).square().sum() / (2 * wanted.square().sum())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            with torch.no_grad():
                x.copy_(box.nearest(x))
        return x.detach()

    def weights(self, features: Tensor, wanted: Tensor, before: Tensor) -> Tensor:
        """Return the weights whose mean of ``features`` is nearest to ``wanted``, from those of the step before."""
        return nearest_weights(features, wanted, before)


def nearest_weights(features: Tensor, wanted: Tensor, start: Tensor, most: int = 200) -> Tensor:
    """Weights c >= 0 of sum 1 that minimise |wanted - sum_j c_j features_j|^2 (Zhu et al. 2019, Algorithm 1)."""
    inner, along = features @ features.T, features @ wanted
    rate = 1 / torch.linalg.matrix_norm(inner, 2).clamp_min(_SMALLEST)
    found, ahead, speed = start, start, 1.0
    for _ in range(most):
        following = onto_simplex(ahead - rate * (inner @ ahead - along))
        faster = (1 + (1 + 4 * speed**2) ** 0.5) / 2
        ahead = following + (speed - 1) / faster * (following - found)
        moved = float((following - found).abs().max())
        found, speed = following, faster
        if moved < _TOLERANCE:
            break
    return found


def onto_simplex(weights: Tensor) -> Tensor:
    """Return the point of {c >= 0, sum c = 1} nearest to `weights` (p,) (Duchi et al. 2008, Figure 1)."""
    falling = weights.sort(descending=True).values
    over = (falling.cumsum(0) - 1) / torch.arange(1, len(weights) + 1, device=weights.device)
    return (weights - over[int((falling > over).nonzero().max())]).clamp_min(0)


_TOLERANCE: Final = 1e-6
_SMALLEST: Final = 1e-12
