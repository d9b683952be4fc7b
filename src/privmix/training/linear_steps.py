"""Steps of the real DP-SGD trainer on a linear head, as audits look at them: what they move, and their noise alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from privmix.audits.empty_runs import GAUSSIAN, Keys, PureNoise, count_noises
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.training.config import OptimiserConfig
from privmix.training.dp_sgd import DpSgd
from privmix.training.gradients.clipping import Clipping
from privmix.training.gradients.closed_form import ClosedFormGradients
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.mechanisms.base import mechanism_of
from privmix.training.models import LinearHead
from privmix.training.noise import noise_scale
from privmix.training.optimiser import Optimiser
from privmix.training.plan import TrainingPlan
from privmix.training.records import TrainingRecords
from privmix.training.views.config import ViewConfig
from privmix.training.views.pipeline import ViewPipeline

_WEIGHTS: Final = 2048


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


def training_noises(
    plan: TrainingPlan, samples: int, seed: int | None = None, tell: Progress | None = None
) -> Iterator[PureNoise]:
    """Every noise of a training, one after the other: that of a private count, where there is one, and the steps'."""
    if plan.records_noise_multiplier is not None:
        yield from count_noises(plan, samples, Keys(seed, tell or (lambda name, done, total: None)))
    yield training_noise(plan, samples, seed, tell)


def training_noise(
    plan: TrainingPlan, samples: int, seed: int | None = None, tell: Progress | None = None
) -> PureNoise:
    """The noise that the real trainer adds to a sum of gradients, read from the weights that its steps move.

    The one record has features of zero, so that its gradient for the weights of a linear head is exactly zero.

    Args:
        plan: of the training; with microbatches too.
        samples: draws, at least.
        seed: for tests; None takes a fresh key.
        tell: told how much is done.

    Example:
        >>> plan = TrainingPlan(1000, 50, 5, 1.0, clip_norm=1.0, delta=1e-3)
        >>> noise = training_noise(plan, 10_000, seed=0)
        >>> noise.name, noise.certified, bool(abs(noise.values.std() - 1) < 0.05)
        ('gradients', 1.0, True)
    """
    steps = max(2, -(-samples // (2 * _WEIGHTS)))
    run = replace(plan, steps=steps, records_declared=True)
    records = TrainingRecords.of(np.zeros((1, _WEIGHTS), np.float32), np.zeros(1, np.int64), classes=2)
    keys = Keys(seed, tell or (lambda name, done, total: None))

    def one(streams: SecretStreams) -> NDArray[Any]:
        return np.stack([moved.numpy().ravel() * run.units for moved in linear_steps(run, records, 1.0, streams)])

    (drawn,) = keys.run("gradients", 1, one)
    drawn = mechanism_of(plan).whitened(plan, drawn)
    noise = PureNoise("gradients", GAUSSIAN, plan.noise_std, noise_scale(plan), 0.0, drawn)
    return noise.stated("plan.noise_multiplier", plan.noise_multiplier)
