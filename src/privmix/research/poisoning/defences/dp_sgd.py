"""Private training: DP-SGD with the clip and the noise on single records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privmix.fields import Fraction, Positive
from privmix.research.poisoning.base import DEFENCES
from privmix.research.poisoning.private import TrainingDefence


@DEFENCES.register
@dataclass(frozen=True)
class DpSgdDefence(TrainingDefence):
    """A model trained by DP-SGD (Abadi et al. 2016), priced and bounded as `privmix train` does."""

    epsilon: Positive = 1.0
    delta: Fraction = 1e-5
    features: str = "pixels"
    model: str = "linear"
    name: ClassVar[str] = "dp-sgd"
    about: ClassVar[str] = "private training (Abadi et al. 2016), single records clipped: dp-sgd:1,1e-5"

    @property
    def extractor(self) -> str:
        return self.features
