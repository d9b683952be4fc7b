"""What the real trainer adds to a sum of gradients: its noise alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.audits.empty_runs import GAUSSIAN, Keys, PureNoise, count_noises
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.training.linear_steps import linear_steps
from privmix.training.mechanisms.base import mechanism_of
from privmix.training.noise import noise_scale
from privmix.training.plan import TrainingPlan
from privmix.training.records import TrainingRecords

_WEIGHTS: Final = 2048


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
