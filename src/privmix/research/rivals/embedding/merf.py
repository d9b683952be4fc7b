"""Design ``merf``: class embeddings by random Fourier features, after DP-MERF (Harder, Adamczewski and Park 2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from privmix.fields import Whole
from privmix.options import described, option
from privmix.plans.registry import register
from privmix.plans.setting import Setting
from privmix.research.rivals.embedding.plan import EmbeddingDesign, EmbeddingPlan

_Frequencies = Annotated[int, Whole(1, 2**15, plain=True)]


@dataclass(frozen=True, kw_only=True)
class MerfPlan(EmbeddingPlan):
    """Public constants of a release by random Fourier features (Rahimi and Recht 2007).

    phi(x) = (cos w_j'x, sin w_j'x) / sqrt(F) for F frequencies w_j ~ N(0, I / width^2). It has norm 1 and stands for
    the kernel exp(-|x - z|^2 / (2 width^2)).

    Formal guarantees:
        * Norm 1: for all frequencies, cos^2 + sin^2 = 1, so that no record's features are longer than 1.
    """

    frequencies: _Frequencies

    made_by: ClassVar[str] = "merf"

    @property
    def map_sizes(self) -> Mapping[str, int]:
        return {"embedding": 2 * self.frequencies}

    @property
    def map_norms(self) -> Mapping[str, float]:
        return {"embedding": 2.0**self.lattice_bits * math.sqrt(self.frequencies)}

    @property
    def map_arrays(self) -> Mapping[str, tuple[int, ...]]:
        return {"frequencies": (self.frequencies, self.dim)}

    def response(self, within: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        # The mean kernel of x and N(m, V) is exp(-(x - m)'D^-1 (x - m) / 2) width^d / |D|^1/2, D = V + width^2 I.
        spread = self.kernel_width**2 + within
        level = math.exp(-0.5 * float((np.log(spread / self.kernel_width**2) + within / spread).sum()))
        return spread, level

    def with_small_map(self) -> Self:
        return replace(self, dim=1, frequencies=min(self.frequencies, 16))


@register
@described
@dataclass(frozen=True)
class Merf(EmbeddingDesign[MerfPlan]):
    """DP-MERF: noisy class means in the feature space of a Gaussian kernel, by random Fourier features."""

    # Unlike the published code: records are added or removed, so that one moves the sum by 1 and not by 2. Class sizes
    # are paid for; noise is drawn once on exact integer sums; the width is declared. It has 5,000 frequencies.
    name = "merf"
    persons = True
    worst_case = "privmix.research.rivals.embedding.worst_case:merf_case"
    plan_type: ClassVar[type[MerfPlan]] = MerfPlan
    feature_map = "privmix.research.rivals.embedding.feature_maps:FourierMap"
    lost = "Sums of random Fourier features hold a smoothed density of each class, and nothing finer than the kernel."
    map_words = "random Fourier features"

    frequencies: _Frequencies = option(2048, "Number of random frequencies; the map has twice as many features.")

    def plan(self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None) -> MerfPlan:
        return MerfPlan(frequencies=self.frequencies, **self.shared(setting, noise_multiplier, centre_noise_multiplier))
