"""Training without noise, for the row "epsilon = infinity" of a table of accuracies: NOT private."""
# The model may hold any of its records. So it has no option, folder or certificate, only this function.

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.training.dp_sgd import StepObserver
from privmix.training.facts import ModelFacts
from privmix.training.models.base import Classifier
from privmix.training.records import TrainingRecords
from privmix.training.trained import NetworkClassifier
from privmix.training.trainer import Trainer


@dataclass(frozen=True, eq=False, repr=False)
class NotPrivateModel(NetworkClassifier):
    """A network that was trained without noise. It is NOT private, and cannot be saved or certified."""

    network: Classifier = field(repr=False)
    facts_: ModelFacts

    def __repr__(self) -> str:
        return f"<NOT PRIVATE: {self.network.name}, trained without noise>"


def train_without_noise(
    trainer: Trainer,
    records: TrainingRecords,
    *,
    streams: SecretStreams | None = None,
    progress: Progress | None = None,
) -> NotPrivateModel:
    """Train as a private training does, with clipping, but add no noise: NOT private, for benchmarks alone."""
    # Warm-up, batches, views, public methods and steps are those of :meth:`Trainer.run` with the same streams; each
    # noisy mean is replaced by the mean of the clipped gradients. ``progress`` shows the epsilon of the private
    # counterpart.
    network = trainer.observed(records, [_WithoutNoise(trainer.plan.units)], streams=streams, progress=progress)
    return NotPrivateModel(network, trainer.facts)


class _WithoutNoise(StepObserver):
    """Puts the mean of a step's clipped gradients in the place of the noisy one."""

    def __init__(self, units: int) -> None:
        self._units = units
        self._sum = torch.zeros(0)

    def summed(self, total: Tensor, step: int) -> None:
        self._sum = total.clone()

    def noised(self, mean: Tensor, step: int) -> None:
        mean.copy_(self._sum / self._units)
