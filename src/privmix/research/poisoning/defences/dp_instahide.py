"""DP-InstaHide with its price paid: mixup of a fixed number of records with Laplace noise, labels included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from privmix.designs.rows.fixed import Fixed
from privmix.fields import Count, Fraction, Positive
from privmix.plans.design import Design
from privmix.research.poisoning.base import DEFENCES
from privmix.research.poisoning.private import ReleaseDefence


@DEFENCES.register
@dataclass(frozen=True)
class DpInstaHide(ReleaseDefence):
    """Means of k records, drawn without replacement, plus Laplace noise (Borgnia et al. 2021, Theorem 2)."""

    # Records are clipped in l1, labels get noise too, and the noise follows from the true diameter: the paper's own
    # levels cost an epsilon beyond all use. The guarantee is pure where delta is 0; the design's learner trains on
    # the rows.
    epsilon: Positive = 8.0
    delta: Fraction = 0.0
    mixup_degree: Count = 4
    features: str = "pixels"
    name: ClassVar[str] = "dp-instahide"
    about: ClassVar[str] = "mixup of k with Laplace noise at its true price (Borgnia et al. 2021): dp-instahide:8,0,4"

    @property
    def made_by(self) -> Design[Any]:
        return Fixed(mixup_degree=self.mixup_degree, noise="laplace")
