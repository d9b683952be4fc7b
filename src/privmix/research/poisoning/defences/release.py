"""A release of any design, and the design's own learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from privmix.fields import Fraction, Positive
from privmix.plans.design import Design
from privmix.plans.registry import design_named
from privmix.research.poisoning.base import DEFENCES
from privmix.research.poisoning.private import ReleaseDefence


@DEFENCES.register
@dataclass(frozen=True)
class MixupDefence(ReleaseDefence):
    """Trains on a release of the records, priced and bounded as `privmix release` does."""

    design: str = "poisson"
    epsilon: Positive = 1.0
    delta: Fraction = 1e-5
    features: str = "pixels"
    name: ClassVar[str] = "release"
    about: ClassVar[str] = "a DP release of a design and its learner: release:poisson,1,1e-5"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.made_by

    @property
    def made_by(self) -> Design[Any]:
        return design_named(self.design)()
