"""The most that one record moves in a step of DP-SGD: the same step with it and without it, under one key."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.events import Adjacency
from privmix.audits.sensitivity import QuerySensitivity, distances
from privmix.mechanisms.streams import SecretStreams
from privmix.training.batches import Batch
from privmix.training.dp_sgd import DpSgd, StepObserver, TrainingRecords
from privmix.training.noise import noise_scale


def training_sensitivity(
    make: Callable[[TrainingRecords, SecretStreams, Sequence[StepObserver]], DpSgd],
    records: TrainingRecords,
    position: int,
    *,
    replacement: tuple[NDArray[Any], int] | None = None,
    seed: int = 0,
) -> QuerySensitivity:
    """Do a step with a record and without it (or another in its place) under one key, and compare the weights."""
    # The step is the first one. The difference is in the unit of the sum of gradients; the others' batch, views and
    # microbatches are replayed. make: a trainer on records, streams and observers, each time with the same initial
    # weights, plain SGD of learning rate 1 and a method that keeps the mean. Its plan must allow for one record less
    # (``records_declared``).
    replay = _Replay(position, replaced=replacement is not None)
    first = make(records, SecretStreams.from_seed(seed), [replay])
    plan = first.plan
    assert (replacement is not None) == (plan.adjacency is Adjacency.REPLACE_ONE)
    own = np.array([position])
    if records.units is not None:
        order, begins = records.units
        own = np.sort(order[begins[position] : begins[position + 1]])
    if replacement is None:
        others = records.kept(np.setdiff1d(np.arange(len(records.x)), own))
    else:
        x, labels = records.x.copy(), records.labels.copy()
        x[own[0]], labels[own[0]] = replacement
        # One record of a person takes the place of all.
        others = replace(records, x=x, labels=labels).kept(np.setdiff1d(np.arange(len(x)), own[1:]))
    second = make(others, SecretStreams.from_seed(seed), [replay])
    weights = []
    for trainer in (first, second):
        trainer.step(0)
        weights.append(trainer.gradients.flat.get().double().cpu().numpy()[None])
    length, rounding = distances(weights[0], weights[1], plan.units, "l2")
    # Means and weights are float32, the one before the other.
    room = noise_scale(plan) / plan.noise_std
    declared = plan.sensitivity * room * (1.0 if replacement is None else 2.0)
    return QuerySensitivity("gradients", declared, float(length[0]), 4 * float(rounding[0]))


@dataclass
class _Replay(StepObserver):
    """Keeps the batch of the first run, and gives the second the same one, without the record unless it is replaced."""

    position: int
    replaced: bool
    _batch: Batch | None = None

    def drawn(self, batch: Batch, step: int) -> Batch:
        if self._batch is None:
            self._batch = batch
            return batch
        if self.replaced:
            return self._batch
        kept = self._batch.indices != self.position
        indices = self._batch.indices[kept]
        groups = None if self._batch.groups is None else self._batch.groups[kept]
        # The records behind it have moved up by one.
        return Batch(indices - (indices > self.position), self._batch.seeds[kept], groups)
