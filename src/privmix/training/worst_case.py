"""Audits of a training plan on a linear head: the real steps, and the worst case of their plan.

Each canary has a feature that no other record has, so its clipped gradient is C in a known direction of its own. An
attacker who sees the weights after every step sees noise in that direction, plus C in the steps that drew the canary.
This is the pair of distributions that the plan's price is about, so the likelihood ratio is the best attack. Directions
are orthogonal and records join independently: each canary of a run is an independent trial, as is each direction whose
canary was left out.

The learning rate is so small that weights stay where a canary's gradient is long, and all steps are alike.
Architecture, views and rates of a real training change no price and are no part of the worst case.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from privmix.accounting.events import Adjacency
from privmix.audits.audit import Stopping, audit_until, judge
from privmix.audits.bounds import AuditVerdict, Scores
from privmix.audits.defaults import CONFIDENCE, RUNS
from privmix.audits.empty_runs import GAUSSIAN, FreshStreams, PureNoise, count_noises
from privmix.audits.worst_case import AttackScores, Mask
from privmix.errors import InvalidInput, check_integer
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress, silent
from privmix.training.config import OptimiserConfig
from privmix.training.dp_sgd import DpSgd, Optimiser, TrainingRecords
from privmix.training.gradients.closed_form import ClosedFormGradients
from privmix.training.gradients.parameters import Clipping, FlatParameters
from privmix.training.mechanisms.base import mechanism_of
from privmix.training.models.networks import LinearHead
from privmix.training.noise import noise_scale
from privmix.training.plan import TrainingPlan
from privmix.training.views.config import ViewConfig
from privmix.training.views.pipeline import ViewPipeline

_WEIGHTS: Final = 2048


def linear_steps(
    plan: TrainingPlan, records: TrainingRecords, learning_rate: float, streams: SecretStreams
) -> Iterator[Tensor]:
    """How far each step moves the weights of the features, (2, d) float64, along the noisy mean gradient."""
    # Two classes; with persons as units, each record is a person's, repeated as often as a step draws records of one.
    if plan.per_person is not None and records.units is None:
        whose = np.repeat(np.arange(len(records)), plan.per_person)
        records = TrainingRecords.of(records.x[whose], records.labels[whose], classes=records.classes, persons=whose)
    model = LinearHead(dim=records.dim, classes=2)
    flat = FlatParameters(model)
    trainer = DpSgd(
        plan=plan,
        records=records,
        views=ViewPipeline(ViewConfig.plain(), classes=2),
        gradients=ClosedFormGradients(model, flat, Clipping(plan.clip_norm)),
        optimiser=Optimiser(flat, OptimiserConfig(learning_rate=learning_rate), plan.steps),
        streams=streams,
    )
    for step in range(plan.steps):
        before = flat.get().double()
        trainer.step(step)
        yield flat.unflatten(before - flat.get().double())["head.weight"]


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
    noise = PureNoise("gradients", GAUSSIAN, plan.noise_std, noise_scale(plan), 0.0, drawn)
    return noise.stated("plan.noise_multiplier", plan.noise_multiplier)


DIRECTIONS: Final = 400
"""Trials of one run of the trainer: canaries and empty directions. Even."""

_STEP: Final = 1e-6
_LENGTH: Final = 1e3


def canary_readings(plan: TrainingPlan, present: Mask, streams: SecretStreams) -> Scores:
    """Return (steps, directions) readings of each canary, in clipping norms, from the weights alone."""
    # The plan's record count stands, however many canaries there are. `present` (directions,) needs at least one. Under
    # replace-one all are there, and it selects the label: +1 or -1.
    width = len(present)
    shown = np.flatnonzero(present) if plan.adjacency is Adjacency.ADD_REMOVE else np.arange(width)
    features = np.zeros((len(shown), width), np.float32)
    # Long enough that every gradient is clipped.
    features[np.arange(len(shown)), shown] = _LENGTH * max(1.0, plan.clip_norm)
    records = TrainingRecords.of(features, np.where(present[shown], 0, 1), classes=2)
    plan = replace(plan, records_declared=True)
    rate = _STEP / max(1.0, plan.clip_norm) ** 2
    seen = np.empty((plan.steps, width))
    for step, moved in enumerate(linear_steps(plan, records, rate, streams)):
        weight = moved / rate * plan.units / plan.clip_norm
        seen[step] = ((weight[1] - weight[0]) / 2**0.5).numpy()
    return seen


def attack_training(
    plan: TrainingPlan,
    runs: int,
    *,
    seed: int | None = None,
    progress: Progress | None = None,
    first: int = 0,
    until: float = math.inf,
) -> AttackScores:
    """Return exact log-likelihood ratios of ``runs`` (even) directions, half of them with their canary."""
    # Under replace-one, a canary's label is exchanged, which turns its gradient round. first: number of the first run,
    # for its seed. until: after this moment only the first run begins.
    check_integer("runs", runs, low=2)
    if plan.microbatch_size > 1:
        raise InvalidInput("microbatch_size", plan.microbatch_size, "1 for a worst-case audit")
    mechanism, present = mechanism_of(plan), np.arange(DIRECTIONS) % 2 == 1
    found: list[Scores] = []
    for index in range(first, first - (-runs // DIRECTIONS)):
        if found and time.monotonic() > until:
            break
        streams = SecretStreams.from_entropy() if seed is None else SecretStreams.from_seed(seed * 2**32 + index)
        try:
            found.append(mechanism.scores(plan, canary_readings(plan, present, streams)))
        finally:
            streams.destroy()
        if progress:
            progress("attack", min(runs, len(found) * DIRECTIONS), runs)
    exact, linear, repeats = np.concatenate(found, axis=1)
    sides = np.tile(present, len(found))
    half = runs // 2
    exact_sides, linear_sides, repeats_sides = (
        (scores[~sides][:half], scores[sides][:half]) for scores in (exact, linear, repeats)
    )
    return AttackScores(*exact_sides, *linear_sides, *repeats_sides)


def audit_training(
    plan: TrainingPlan,
    claimed_epsilon: float,
    *,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    seed: int | None = None,
    progress: Progress | None = None,
    stopping: Stopping | None = None,
) -> AuditVerdict:
    """Audit a training plan at its worst case. Reads no private data."""

    def attacked(more: int, before: int, until: float, told: Progress | None) -> AttackScores:
        return attack_training(plan, more, seed=seed, progress=told, first=before, until=until)

    def judged(scores: AttackScores, level: float, share: float) -> AuditVerdict:
        return judge(
            scores,
            design=plan.mechanism,
            event=plan.event_after_count,
            adjacency=plan.adjacency,
            claimed_epsilon=claimed_epsilon,
            priced_epsilon=plan.cost().epsilon,
            delta=plan.delta,
            confidence=level,
            share=share,
            own_price=True,
        )

    said = {"claimed_epsilon": claimed_epsilon, "delta": plan.delta, "confidence": confidence}
    return audit_until(attacked, judged, stopping or Stopping(), runs=runs, progress=progress, **said)
