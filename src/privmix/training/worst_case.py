"""The worst case of a training plan on the real trainer: canaries that nothing hides, and the best possible attack.

Each canary is a record with a feature that no other record has, so its clipped gradient is C in a direction that is
known and its own. Who sees the weights after every step sees, in that direction, noise, plus C in the steps that drew
the canary: this is the very pair of distributions that the price of the plan is about, so the attack by its likelihood
ratio is the best there is. Directions are orthogonal and records join independently of one another: each canary of a
run is an independent trial, and so is each direction whose canary was left out.

The learning rate is so small that weights stay where a canary's gradient is long, and all steps are alike. What a model
really learns with, its architecture, views and rates, changes no price: none of it is part of the worst case.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Final

import numpy as np

from privmix.accounting import Adjacency
from privmix.audits.audit import judge
from privmix.audits.bounds import Scores
from privmix.audits.defaults import CONFIDENCE, RUNS
from privmix.audits.looks import Stopping, audit_until
from privmix.audits.verdict import Audit
from privmix.audits.worst_case import AttackScores, Mask
from privmix.errors import InvalidInput, check_integer
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.training.linear_steps import linear_steps
from privmix.training.mechanisms.base import mechanism_of
from privmix.training.plan import TrainingPlan
from privmix.training.records import TrainingRecords

DIRECTIONS: Final = 400
"""Canaries and empty directions in one run."""

_STEP: Final = 1e-6
_LENGTH: Final = 1e3


def canary_readings(plan: TrainingPlan, present: Mask, streams: SecretStreams) -> Scores:
    """(steps, directions) what each step of a run shows of each canary, in clipping norms, from the weights alone.

    Args:
        plan: what runs; its record count stands, however many canaries there are.
        present: (directions,) which canaries are there, at least one. Under replace-one all are, and this says which
            have the one label (seen as +1) and which the other (-1).
        streams: fresh.
    """
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
    directions: int = DIRECTIONS,
    progress: Progress | None = None,
    first: int = 0,
    until: float = math.inf,
) -> AttackScores:
    """Exact log-likelihood ratios of ``runs`` directions, half of them with their canary.

    Args:
        plan: what runs; under replace-one, a canary's label is exchanged, which turns its gradient round.
        runs: trials in all, an even number of at least 2.
        seed: for tests; None takes fresh keys from the operating system.
        directions: trials of one run of the trainer, an even number.
        progress: called with "attack", trials done and trials in all.
        first: number of the first run of the trainer, which its seed follows from.
        until: moment of :func:`time.monotonic` after which no run begins but the first.

    Raises:
        InvalidInput: a number is out of range, or the plan has microbatches, whose worst case is another one.

    Example:
        >>> plan = TrainingPlan(1000, 50, 5, 1.0, clip_norm=1.0, delta=1e-3)
        >>> scores = attack_training(plan, 400, seed=0)
        >>> scores.present.shape, bool(scores.present.mean() > scores.without.mean())
        ((200,), True)
    """
    check_integer("runs", runs, low=2)
    if plan.microbatch_size > 1:
        raise InvalidInput("microbatch_size", plan.microbatch_size, "1 for a worst-case audit")
    mechanism, present = mechanism_of(plan), np.arange(directions) % 2 == 1
    found: list[Scores] = []
    for index in range(first, first - (-runs // directions)):
        if found and time.monotonic() > until:
            break
        streams = SecretStreams.from_entropy() if seed is None else SecretStreams.from_seed(seed * 2**32 + index)
        try:
            found.append(mechanism.scores(plan, canary_readings(plan, present, streams)))
        finally:
            streams.destroy()
        if progress:
            progress("attack", min(runs, len(found) * directions), runs)
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
) -> Audit:
    """Audit a training plan at its worst case. Reads no private data.

    Raises:
        InvalidInput: see :func:`attack_training`; or so few runs prove nothing at this confidence.

    Example:
        >>> plan = TrainingPlan(1000, 50, 5, 1.0, clip_norm=1.0, delta=1e-3)
        >>> audit_training(plan, plan.cost().epsilon, runs=400, confidence=1 - 1e-9, seed=0).violated
        False
    """

    def attacked(more: int, before: int, until: float, told: Progress | None) -> AttackScores:
        return attack_training(plan, more, seed=seed, progress=told, first=before, until=until)

    def judged(scores: AttackScores, level: float, share: float) -> Audit:
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
