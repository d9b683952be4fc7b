"""Training without noise: the row "epsilon = infinity" of a table of accuracies, and nothing that could be published.

What clipping, batches and views leave of the accuracy, before noise takes its part, is a figure that papers show. It is
NOT private: the model may hold any of its records. So there is no option for it, no folder and no certificate, only
this function, for benchmarks on records that need no protection.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.training.dp_sgd import StepObserver
from privmix.training.models import Classifier
from privmix.training.records import TrainingRecords
from privmix.training.trained import ModelFacts, NetworkClassifier
from privmix.training.trainer import Trainer


@dataclass(frozen=True, eq=False, repr=False)
class NotPrivateModel(NetworkClassifier):
    """A network that was trained without noise. It is NOT private: it has no certificate, and no way to a folder.

    Attributes:
        network: takes images or vectors, as its ``takes_images`` says.
        facts_: public facts.
    """

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
    """Do all that a private training does, clipping too, but add no noise: NOT private, for benchmarks alone.

    Warm-up, batches, views, public methods and steps are those of :meth:`Trainer.run` with the same streams; each
    noisy mean is replaced by the mean of the clipped gradients. The figures that ``progress`` shows for epsilon are
    those of the private training that it stands beside.

    Args:
        trainer: as for the private training, with an epsilon > 0, which decides nothing here but the plan's noise.
        records: which this model does not protect.
        streams: of batches and views; None takes a fresh key.
        progress: called with (stage, steps done, steps in all).

    Raises:
        InvalidInput: the records don't fit the plan, or weights are no numbers any more.

    Example:
        >>> import numpy as np
        >>> from privmix.training import ModelFacts, TrainingConfig
        >>> config = TrainingConfig.for_model("linear", records=300, epsilon=0.1, delta=1e-4, epochs=5)
        >>> trainer = Trainer(config, ModelFacts(("no", "yes"), {"name": "identity"}, (4,), dim=4), records=300)
        >>> x = np.random.default_rng(0).normal(size=(300, 4))
        >>> model = train_without_noise(trainer, TrainingRecords.of(x, x[:, 0] > 0, classes=2))
        >>> model, bool((model.predict(x) == (x[:, 0] > 0)).mean() > 0.9)
        (<NOT PRIVATE: linear, trained without noise>, True)
    """
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
