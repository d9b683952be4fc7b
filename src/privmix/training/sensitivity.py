"""The grey-box check of :mod:`privmix.audits.sensitivity` for a step of DP-SGD, on the real trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import Adjacency
from privmix.audits.sensitivity import QuerySensitivity, distances
from privmix.errors import InvalidInput, check_integer
from privmix.mechanisms.streams import SecretStreams
from privmix.training.batches import Batch
from privmix.training.dp_sgd import DpSgd, StepObserver
from privmix.training.mechanisms.base import mechanism_of
from privmix.training.noise import noise_scale
from privmix.training.records import TrainingRecords


def training_sensitivity(
    make: Callable[[TrainingRecords, SecretStreams, Sequence[StepObserver]], DpSgd],
    records: TrainingRecords,
    position: int,
    *,
    replacement: tuple[NDArray[Any], int] | None = None,
    seed: int = 0,
) -> QuerySensitivity:
    """Do a step with a record and without it, or with another in its place, under one key.

    The step is the first one, or where records have turns (:mod:`privmix.training.mechanisms`) the first of the
    record's.

    What is measured is how far the weights differ, in the unit of the sum of gradients. The others' batch, views and
    microbatches are replayed.

    Args:
        make: makes a trainer on records and streams, with observers, each time with the same initial weights, and with
            plain SGD of learning rate 1 and a public method, if any, that leaves the mean as it is: only then is what
            weights show in the unit of the sum. Its plan must allow for one record less (``records_declared``).
        records: a dataset that holds the record, of at least two records.
        position: of the record; where persons are the units, of the person.
        replacement: features and label that take its place, exactly where the plan's adjacency is replace-one.
        seed: of the key that both runs share.

    Raises:
        InvalidInput: records or replacement do not fit the plan.

    Example:
        >>> from privmix.training.gradients.clipping import Clipping
        >>> from privmix.training.gradients.closed_form import ClosedFormGradients
        >>> from privmix.training.models import LinearHead
        >>> from privmix.training.optimiser import Optimiser, OptimiserConfig
        >>> from privmix.training.gradients.parameters import FlatParameters
        >>> from privmix.training.plan import TrainingPlan
        >>> from privmix.training.views.pipeline import ViewConfig, ViewPipeline
        >>> plan = TrainingPlan(8, 8, 1, 1.0, clip_norm=0.5, delta=1e-3, records_declared=True)
        >>> def make(records, streams, observers):
        ...     model = LinearHead(dim=2, classes=2)
        ...     flat = FlatParameters(model)
        ...     views = ViewPipeline(ViewConfig.plain(), classes=2)
        ...     gradients = ClosedFormGradients(model, flat, Clipping(0.5))
        ...     optimiser = Optimiser(flat, OptimiserConfig(), 1)
        ...     return DpSgd(plan=plan, records=records, views=views, gradients=gradients, optimiser=optimiser,
        ...                  streams=streams, observers=observers)
        >>> records = TrainingRecords.of(np.full((8, 2), 9.0), np.zeros(8, np.int64), classes=2)
        >>> found = training_sensitivity(make, records, 3)
        >>> round(found.share, 2), found.exceeded
        (1.0, False)
    """
    count = check_integer("records", len(records), low=2)
    check_integer("position", position, low=0, high=count - 1)
    replay = _Replay(position, replaced=replacement is not None)
    first = make(records, SecretStreams.from_seed(seed), [replay])
    plan = first.plan
    if (replacement is not None) != (plan.adjacency is Adjacency.REPLACE_ONE):
        raise InvalidInput("replacement", replacement is not None, "one exactly where the plan is for replaced records")
    own = records.of_unit(position)
    if replacement is None:
        others = records.kept(np.setdiff1d(np.arange(len(records.x)), own))
    else:
        x, labels = records.x.copy(), records.labels.copy()
        x[own[0]], labels[own[0]] = replacement
        # Of a person one record takes the place of all.
        others = replace(records, x=x, labels=labels).kept(np.setdiff1d(np.arange(len(x)), own[1:]))
    second = make(others, SecretStreams.from_seed(seed), [replay])
    step, weights = _turn(first, position), []
    for trainer in (first, second):
        trainer.step(step)
        weights.append(trainer.gradients.flat.get().double().cpu().numpy()[None])
    length, rounding = distances(weights[0], weights[1], plan.units, "l2")
    # Means and weights are float32, the one before the other.
    room = noise_scale(plan) / plan.noise_std
    declared = plan.sensitivity * room * (1.0 if replacement is None else 2.0)
    return QuerySensitivity("gradients", declared, float(length[0]), 4 * float(rounding[0]))


def _turn(trainer: DpSgd, position: int) -> int:
    turns = range(min(mechanism_of(trainer.plan).period(trainer.plan), trainer.plan.steps))
    return next((step for step in turns if position in trainer.batches.draw(step).indices), 0)


@dataclass
class _Replay(StepObserver):
    """Keeps the batch of the first run, and gives the second the same one, without the record unless it is replaced."""

    position: int
    replaced: bool
    _batch: Batch | None = None

    def drawn(self, batch: Batch, step: int) -> Batch:
        """The first run's batch."""
        if self._batch is None:
            self._batch = batch
            return batch
        return self._batch if self.replaced else _batch_without(self._batch, self.position)


def _batch_without(batch: Batch, position: int) -> Batch:
    kept = batch.indices != position
    indices = batch.indices[kept]
    groups = None if batch.groups is None else batch.groups[kept]
    return Batch(indices - (indices > position), batch.seeds[kept], groups)
