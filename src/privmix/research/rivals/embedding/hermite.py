"""Design ``hermite``: class embeddings by Hermite features, after DP-HP (Vinaroz et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from privmix.fields import Share, Whole
from privmix.options import described, option
from privmix.plans.registry import register
from privmix.plans.setting import Setting
from privmix.research.rivals.embedding.plan import EmbeddingDesign, EmbeddingPlan

_Order = Annotated[int, Whole(1, 200, plain=True)]
_Pairs = Annotated[int, Whole(1, 2**14, plain=True)]


@dataclass(frozen=True, kw_only=True)
class HermitePlan(EmbeddingPlan):
    """Public constants of a release by Hermite features.

    By Mehler's formula (Vinaroz et al. 2022, eq. 9) the kernel exp(-(x - z)^2 / (2 width^2)) of two numbers is the sum
    over c of phi_c(x) phi_c(z). Here phi_c(x) = sqrt(l_c) h_c(x) are weighted Hermite polynomials, and ``order`` of
    them are kept. Part ``coordinates`` has the features of every coordinate over sqrt(d) (the sum kernel). Part
    ``pairs`` has the products of those of some public pairs of coordinates, over the root of their number (the product
    kernel). A coordinate is measured in clipping bounds over sqrt(d), so that those of a long record are of size 1.

    Formal guarantees:
        * Norm at most 1: the squares of all phi_c(x) sum to the kernel of x with itself, which is 1, those of some of
          them to less. Products of two such vectors, and averages over coordinates or pairs, have norm at most 1, too.
    """

    order: _Order
    pairs: _Pairs
    pair_order: _Order
    pair_share: Share

    made_by: ClassVar[str] = "hermite"

    @property
    def map_sizes(self) -> Mapping[str, int]:
        return {"coordinates": self.dim * self.order, "pairs": self.pairs * self.pair_order**2}

    @property
    def map_norms(self) -> Mapping[str, float]:
        one = 2.0**self.lattice_bits
        return {"coordinates": one * math.sqrt(self.dim), "pairs": one * math.sqrt(self.pairs)}

    @property
    def map_arrays(self) -> Mapping[str, tuple[int, ...]]:
        return {"chosen_pairs": (self.pairs, 2)}

    def response(self, within: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        # Features, measured in bounds over sqrt(d), have the variance of all axes together.
        width, variance = self.kernel_width**2, float(within.sum())
        level = math.sqrt(width / (width + variance)) * math.exp(-variance / (width + variance) / 2)
        # A pair's kernel is the product of two: as often smaller, and with the slopes of both.
        return np.full(len(within), width + variance), level + 2 * level**2

    @property
    def part_shares(self) -> Mapping[str, float]:
        return {"coordinates": 1 - self.pair_share, "pairs": self.pair_share}

    def with_small_map(self) -> Self:
        return replace(self, dim=4, order=min(self.order, 4), pairs=1, pair_order=min(self.pair_order, 4))

    @property
    def decay(self) -> float:
        """The rho of Mehler's formula: 1 / (2 width^2) = rho / (1 - rho^2)."""
        double = 2 * self.kernel_width**2
        return 2 / (math.sqrt(double**2 + 4) + double)


@register
@described
@dataclass(frozen=True)
class Hermite(EmbeddingDesign[HermitePlan]):
    """DP-HP: noisy class means of Hermite features of single coordinates and of pairs of them."""

    # Unlike the published code: pairs are drawn once, so there is one query; records are added or removed; class sizes
    # are paid for. The width is declared (the published median heuristic reads records). It has up to 100 features.
    name = "hermite"
    persons = True
    worst_case = "privmix.research.rivals.embedding.worst_case:hermite_case"
    plan_type: ClassVar[type[HermitePlan]] = HermitePlan
    feature_map = "privmix.research.rivals.embedding.feature_maps:HermiteMap"
    lost = "Sums of Hermite features hold smoothed densities of single features and of some pairs, by class."
    map_words = "Hermite features of every coordinate and of some pairs"

    order: _Order = option(10, "Number of features per coordinate.")
    pairs: _Pairs = option(64, "Number of public random pairs of coordinates.")
    pair_order: _Order = option(5, "Number of features per coordinate of a pair.")
    pair_share: Share = option(0.2, "Share of the budget for the pairs.")

    def plan(self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None) -> HermitePlan:
        return HermitePlan(
            order=self.order,
            pairs=self.pairs,
            pair_order=self.pair_order,
            pair_share=float(self.pair_share),
            **self.shared(setting, noise_multiplier, centre_noise_multiplier),
        )
