"""Steps of the real DP-SGD trainer on a linear head, as whoever sees the weights after each of them sees it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from privmix.mechanisms.streams import SecretStreams
from privmix.training.config import OptimiserConfig
from privmix.training.dp_sgd import DpSgd
from privmix.training.gradients.clipping import Clipping
from privmix.training.gradients.closed_form import ClosedFormGradients
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.models import LinearHead
from privmix.training.optimiser import Optimiser
from privmix.training.plan import TrainingPlan
from privmix.training.records import TrainingRecords
from privmix.training.views.config import ViewConfig
from privmix.training.views.pipeline import ViewPipeline


def linear_steps(
    plan: TrainingPlan, records: TrainingRecords, learning_rate: float, streams: SecretStreams
) -> Iterator[Tensor]:
    """How far each step moves the weights of the features, (2, d) float64, down the noisy mean gradient.

    Args:
        plan: what runs, by plain SGD.
        records: with two classes; where persons are the units, each is a person's, who has it as often as a step takes
            records of one.
        learning_rate: of all steps; what moves is so many times the mean.
        streams: fresh.

    Example:
        >>> import numpy as np
        >>> plan = TrainingPlan(8, 4, 3, 1.0, clip_norm=1.0, delta=1e-3)
        >>> records = TrainingRecords.of(np.ones((8, 5)), np.zeros(8, np.int64), classes=2)
        >>> [tuple(moved.shape) for moved in linear_steps(plan, records, 1.0, SecretStreams.from_seed(0))]
        [(2, 5), (2, 5), (2, 5)]
    """
    model = LinearHead(dim=records.dim, classes=2)
    flat = FlatParameters(model)
    trainer = DpSgd(
        plan=plan,
        records=_as_persons(plan, records),
        views=ViewPipeline(ViewConfig.plain(), classes=2),
        gradients=ClosedFormGradients(model, flat, Clipping(plan.clip_norm)),
        optimiser=Optimiser(flat, OptimiserConfig(learning_rate=learning_rate), plan.steps),
        streams=streams,
    )
    for step in range(plan.steps):
        before = flat.get().double()
        trainer.step(step)
        yield flat.unflatten(before - flat.get().double())["head.weight"]


def _as_persons(plan: TrainingPlan, records: TrainingRecords) -> TrainingRecords:
    if plan.per_person is None or records.units is not None:
        return records
    whose = np.repeat(np.arange(len(records)), plan.per_person)
    return TrainingRecords.of(records.x[whose], records.labels[whose], classes=records.classes, persons=whose)
