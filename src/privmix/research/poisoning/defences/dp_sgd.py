"""Private training: DP-SGD with the clip and the noise on single records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privmix.fields import Fraction, Positive
from privmix.research.poisoning.base import DEFENCES
from privmix.research.poisoning.private import TrainingDefence


@DEFENCES.register
@dataclass(frozen=True)
class DpSgd(TrainingDefence):
    """A model trained by DP-SGD (Abadi et al. 2016), priced and bounded as ``privmix train`` does.

    Unlike noise on the clipped gradient of a batch, which guarantees nothing, every record's gradient is clipped.

    Attributes:
        epsilon, delta: of the model.
        features: public extractor before the model.
        model: as ``privmix train`` calls it.
    """

    epsilon: Positive = 1.0
    delta: Fraction = 1e-5
    features: str = "pixels"
    model: str = "linear"
    name: ClassVar[str] = "dp-sgd"
    about: ClassVar[str] = "private training (Abadi et al. 2016), single records clipped: dp-sgd:1,1e-5"

    @property
    def extractor(self) -> str:
        return self.features
