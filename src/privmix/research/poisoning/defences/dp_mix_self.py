"""Private training on mixes of a record's own views."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from privmix.fields import Fraction, Positive
from privmix.research.poisoning.base import DEFENCES
from privmix.research.poisoning.private import TrainingDefence
from privmix.training.config import TrainingConfig
from privmix.training.gradients.config import ExecutionConfig


@DEFENCES.register
@dataclass(frozen=True)
class DpMixSelfDefence(TrainingDefence):
    """DP-SGD on a record's augmented views and their mixes (Bao et al. 2023, Algorithm 1), which cost no privacy."""

    # An epoch takes 35 views of a record, so one epoch is the default.
    epsilon: Positive = 1.0
    delta: Fraction = 1e-5
    model: str = "wrn-10-1"
    epochs: Positive = 1.0
    name: ClassVar[str] = "dp-mix-self"
    about: ClassVar[str] = "DP-SGD on mixes of a record's own views (Bao et al. 2023): dp-mix-self:1,1e-5"
    views: ClassVar[str] = "dp-mix-self"

    @property
    def extractor(self) -> str:
        return "pixels"

    def config(self, records: int) -> TrainingConfig:
        # Choices by time and free memory would change the last digits from one run of a trial to the next.
        return replace(super().config(records), epochs=self.epochs, execution=ExecutionConfig("vmap", chunk=16))
