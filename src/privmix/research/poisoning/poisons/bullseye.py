"""Bullseye polytope: the mean of the poisons' features is the target's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from privmix.research.poisoning.base import ATTACKS
from privmix.research.poisoning.poisons.convex import ConvexPolytope


@ATTACKS.register
@dataclass(frozen=True)
class BullseyePolytope(ConvexPolytope):
    """The target lies in the middle of the poisons: weights 1/p of each (Aghakhani et al. 2021, Equation 3)."""

    # The paper takes a radius of 0.1 and 4,000 steps, as for the convex polytope.
    name: ClassVar[str] = "bullseye-polytope"
    about: ClassVar[str] = "poisons whose mean has the features of the target (Aghakhani et al. 2021)"

    def weights(self, features: Tensor, wanted: Tensor, before: Tensor) -> Tensor:
        return torch.full_like(before, 1 / len(before))
