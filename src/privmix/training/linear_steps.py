"""Steps of the real DP-SGD trainer on a linear head, as audits look at them: what they move, and their noise alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from privmix.audits.empty_runs import GAUSSIAN, FreshStreams, PureNoise, count_noises
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress, silent
from privmix.training.config import OptimiserConfig
from privmix.training.dp_sgd import DpSgd
from privmix.training.gradients.clipping import Clipping
from privmix.training.gradients.closed_form import ClosedFormGradients
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.mechanisms.base import mechanism_of
from privmix.training.models.small import LinearHead
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
    """How far each step moves the weights of the features, (2, d) float64, along the noisy mean gradient."""
    # Two classes; with persons as units, each record is a person's, repeated as often as a step draws records of one.
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
        yield from count_noises(plan, samples, FreshStreams(seed, tell or silent))
    yield training_noise(plan, samples, seed, tell)


def training_noise(
    plan: TrainingPlan, samples: int, seed: int | None = None, tell: Progress | None = None
) -> PureNoise:
    """Draws of the real trainer's noise on a sum of gradients, read from the weights that its steps move."""
    # The one record has features of zero, so its gradient for the weights of a linear head is exactly zero.
    steps = max(2, -(-samples // (2 * _WEIGHTS)))
    run = replace(plan, steps=steps, records_declared=True)
    records = TrainingRecords.of(np.zeros((1, _WEIGHTS), np.float32), np.zeros(1, np.int64), classes=2)
    keys = FreshStreams(seed, tell or silent)

    def one(streams: SecretStreams) -> NDArray[Any]:
        return np.stack([moved.numpy().ravel() * run.units for moved in linear_steps(run, records, 1.0, streams)])

    (drawn,) = keys.run("gradients", 1, one)
    drawn = mechanism_of(plan).whitened(plan, drawn)
    noise = PureNoise("gradients", GAUSSIAN, plan.noise_std, noise_scale(plan), 0.0, drawn)
    return noise.stated("plan.noise_multiplier", plan.noise_multiplier)
