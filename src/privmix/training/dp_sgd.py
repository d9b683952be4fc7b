"""Private records, and private steps (Bao et al. 2023, Algorithm 1): no other code below the plan reads records."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.mechanisms.persons import grouped
from privmix.mechanisms.streams import SecretStreams
from privmix.optimisers import Adam, Sgd
from privmix.training.batches import Batch, PoissonBatches, refuse_foreign_loader
from privmix.training.config import OptimiserConfig
from privmix.training.gradients.execution import Chunks, whole
from privmix.training.gradients.parameters import FlatParameters, SideInformation
from privmix.training.gradients.strategies import GradientStrategy
from privmix.training.mechanisms.base import mechanism_of
from privmix.training.noise import GroupedSum, call_size, check_processes, deal
from privmix.training.plan import TrainingPlan
from privmix.training.public.base import ExtendedMethod
from privmix.training.views.augmentation import RecordRandom
from privmix.training.views.pipeline import MicrobatchMixer, ViewPipeline
from privmix.world import World

# Rows hashed at once, and rows checked at once.
BLOCK = 8192


@dataclass(frozen=True, eq=False)
class TrainingRecords:
    """Features and labels of n records. Private.

    Formal guarantees:
        * Silent: no message or ``repr`` holds a value, a label, the number of a record or how many there are.
        * Closed class list: a label outside the declared classes is refused, never added.
    """

    # x: (n, d), or (n, V, d): V precomputed views of each record. labels: in [0, classes). units: with persons as
    # units, the order that groups records by person, and each person's first place.

    x: NDArray[np.float32]
    labels: NDArray[np.int64]
    classes: int
    units: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def __repr__(self) -> str:
        return f"<TrainingRecords of {self.x.shape[-1]} features, {self.classes} classes>"

    @classmethod
    def of(cls, x: Any, labels: Any, *, classes: int, persons: NDArray[np.int64] | None = None) -> "TrainingRecords":
        """Check arrays x (n, d) or (n, V, d), labels (n,) and persons (n,); float32 and int64 are not copied."""
        refuse_foreign_loader(x)
        check_integer("classes", classes, low=2)
        features = np.asarray(x)
        if features.ndim not in (2, 3) or features.dtype.kind not in "biuf" or 0 in features.shape:
            # Without a size: that of texts is the longest one's.
            shown = features.dtype.type.__name__
            raise InvalidInput("x", shown, "numbers of shape (n, d) or (n, views, d), none of them 0")
        with np.errstate(over="ignore"):
            # Values too large for float32 become infinite, and are refused below.
            features = features.astype(np.float32, copy=False)
        y = np.asarray(labels)
        if y.shape != (len(features),):
            raise InvalidInput("labels", WITHHELD, "a vector of one label a record")
        if y.dtype.kind not in "biuf" or not np.logical_and(y >= 0, y < classes).all() or (y != np.trunc(y)).any():
            raise InvalidInput("labels", WITHHELD, f"integers from 0 to {classes - 1}: one of the declared classes")
        for start in range(0, len(features), BLOCK):
            if not np.isfinite(features[start : start + BLOCK]).all():
                raise InvalidInput("x", WITHHELD, "finite numbers")
        y = y.astype(np.int64, copy=False)
        if persons is None:
            return cls(features, y, classes)
        if np.shape(persons) != y.shape:
            raise InvalidInput("persons", WITHHELD, "one person a record")
        return cls(features, y, classes, grouped(persons, y))

    def __len__(self) -> int:
        """How many units there are: records, or persons."""
        return len(self.x) if self.units is None else len(self.units[1]) - 1

    @property
    def dim(self) -> int:
        return int(self.x.shape[-1])

    def in_unit_range(self) -> bool:
        blocks = (self.x[start : start + BLOCK] for start in range(0, len(self.x), BLOCK))
        return all(float(block.min()) >= 0 and float(block.max()) <= 1 for block in blocks)

    def take(self, indices: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
        x = torch.from_numpy(np.ascontiguousarray(self.x[indices]))
        return x.to(device), torch.from_numpy(self.labels[indices]).to(device)

    def of_persons(self, persons: NDArray[np.int64], starts: NDArray[np.float64], most: int) -> NDArray[np.int64]:
        """(b, most) indices of records of b persons, equally spaced from ``starts`` (b,), uniform in [0, 1)."""
        # Each record of a person is as likely. With fewer records than `most`, each is there as often as the others or
        # once more.
        assert self.units is not None
        order, begins = self.units
        counts = (begins[persons + 1] - begins[persons])[:, None]
        places = np.floor((np.arange(most) + starts[:, None]) * counts / most).astype(np.int64)
        return np.asarray(order[begins[persons][:, None] + np.minimum(places, counts - 1)])

    def whose(self) -> NDArray[np.int64]:
        """(n,) which unit each record is of; -1: of a person with more records than count, it does not."""
        if self.units is None:
            return np.arange(len(self.x))
        order, begins = self.units
        found = np.full(len(self.x), -1, np.int64)
        found[order] = np.repeat(np.arange(len(self)), np.diff(begins))
        return found

    def kept(self, kept: NDArray[np.int64]) -> "TrainingRecords":
        """Return these records alone, of the persons that they are of."""
        if self.units is None:
            return replace(self, x=self.x[kept], labels=self.labels[kept])
        whose = self.whose()
        kept = kept[whose[kept] >= 0]
        return TrainingRecords.of(self.x[kept], self.labels[kept], classes=self.classes, persons=whose[kept])

    def digest(self, key: bytes) -> str:
        """Keyed hash of all records: without the key it confirms no guess of the data."""
        digest = hashlib.blake2b(key=key, digest_size=32)
        digest.update(repr((self.x.shape, self.classes)).encode())
        for start in range(0, len(self.x), BLOCK):
            digest.update(np.ascontiguousarray(self.x[start : start + BLOCK]).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        for part in self.units or ():
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


class Optimiser:
    """Moves a model's weights along private directions; its state is tensors, for checkpoints."""

    def __init__(self, flat: FlatParameters, config: OptimiserConfig, steps: int) -> None:
        self._flat, self._config, self._steps = flat, config, steps
        self._weights = nn.Parameter(flat.get())
        self._average = None if config.ema_decay is None else self._weights.detach().clone()
        rate, decay = config.learning_rate, config.weight_decay
        self._torch: torch.optim.Optimizer = (
            Sgd([self._weights], lr=rate, momentum=config.momentum, weight_decay=decay)
            if config.name == "sgd"
            else Adam([self._weights], lr=rate, weight_decay=decay)
        )

    @torch.no_grad()
    def step(self, direction: Tensor, step: int) -> None:
        """Take step ``step`` (from 0) along ``direction`` (P,) and put the new weights into the model."""
        self._torch.param_groups[0]["lr"] = self._config.rate(step, self._steps)
        self._weights.grad = direction
        self._torch.step()
        self._flat.set(self._weights)
        if self._average is not None and self._config.ema_decay is not None:
            decay = min(self._config.ema_decay, (1 + step) / (10 + step))
            self._average.lerp_(self._weights, 1 - decay)

    @property
    def evaluated(self) -> Tensor:
        """(P,) the weights to evaluate: their average if there is one, else the last."""
        return self._weights.detach().clone() if self._average is None else self._average.clone()

    @property
    def finite(self) -> bool:
        """Whether all weights are numbers. They are private outputs already, so this may be published."""
        return bool(torch.isfinite(self._weights).all())

    def state(self) -> dict[str, Tensor]:
        """All that :meth:`load` needs to go on with the same bits."""
        state = {"weights": self._weights.detach()}
        if self._average is not None:
            state["average"] = self._average
        inner = self._torch.state_dict()["state"].get(0, {})
        state |= {f"optimiser.{name}": torch.as_tensor(value) for name, value in inner.items() if value is not None}
        return {name: tensor.clone() for name, tensor in state.items()}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        self._weights.copy_(state["weights"])
        self._flat.set(self._weights)
        if self._average is not None:
            self._average.copy_(state["average"])
        prefix = "optimiser."
        inner = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        if inner:
            groups = self._torch.state_dict()["param_groups"]
            self._torch.load_state_dict({"state": {0: inner}, "param_groups": groups})


# Only the new weights leave a step: no loss, gradient norm or count of a batch is kept, shown or returned.


SAMPLING = "training sampling"
"""Purpose of the derived streams that draw batches, views and microbatches: all processes hold them, none the noise."""


class StepObserver:
    """An attacker inside a run, who sees private values and may insert gradients; each method does nothing here."""

    def drawn(self, batch: Batch, step: int) -> Batch:
        """Return the batch that was drawn -> the one that is computed."""
        return batch

    def summed(self, total: Tensor, step: int) -> None:
        """Receive the sum (P,) of the batch's clipped gradients, before the noise; may change it in place."""

    def noised(self, mean: Tensor, step: int) -> None:
        """Receive the noisy mean (P,), which is all that the accountant lets out of the step."""


@dataclass(eq=False, kw_only=True)
class DpSgd:
    """One private training run, step by step.

    Formal guarantees:
        * Matched: batches, noise and price come from one plan; the number of records must be that of the plan.
        * Bounded: each record, or each person with all of theirs where persons are the units, moves the sum by at most
          ``plan.sensitivity`` and one group's rounding. This is the group that it is dealt to
          (:mod:`privmix.training.noise`). The noise covers that rounding, however large the batch.
        * One shape: many records are multiplied together in calls of one public size. Calls are filled up with copies
          of one record that add exactly nothing, so that no choice of a library by their number changes with one
          record. A microbatch is a unit of its own, and is computed by itself.
        * Noise once: a step's noise is added after the sum over all chunks and processes, by the head alone.
        * Silent: nothing computed from records leaves a step but the noisy mean, unless observers look.
        * Repeatable: on one processor, the same weights and key give a step the same bits; cards add as it comes.
    """

    # streams: on the head, None on other processes. chunks: records computed at once. mixer: mixes the records of a
    # microbatch (Bao et al. 2023, section 3). observers: attackers inside, of runs by one process, which release
    # nothing.

    plan: TrainingPlan
    records: TrainingRecords
    views: ViewPipeline
    gradients: GradientStrategy
    optimiser: Optimiser
    streams: SecretStreams | None
    method: ExtendedMethod | None = None
    chunks: Chunks | None = None
    world: World = field(default_factory=World)
    mixer: MicrobatchMixer | None = None
    observers: Sequence[StepObserver] = ()

    def __post_init__(self) -> None:
        if self.gradients.clipping.clip_norm != self.plan.clip_norm:
            raise InvalidInput("clip_norm", self.gradients.clipping.clip_norm, f"{self.plan.clip_norm}, as planned")
        if (self.records.units is None) is not (self.plan.per_person is None):
            raise InvalidInput("persons", WITHHELD, "persons of records exactly where the plan's unit is a person")
        check_processes(self.plan, self.world.size)
        if self.world.size > 1 and self.observers:
            raise InvalidInput("observers", len(self.observers), "none with several processes")
        sampling = None if self.streams is None else self.streams.derive(SAMPLING)
        first, last = self.world.shard(len(self.records))
        shared = share_streams(self.world, sampling)
        self.batches: PoissonBatches = PoissonBatches(self.plan, shared, len(self.records), first, last)
        self._noised = None if self.streams is None else mechanism_of(self.plan).noise(self.plan, self.streams)
        self._chunks = self.chunks or Chunks(size=256)

    def step(self, step: int) -> None:
        side = SideInformation() if self.method is None else self.method.prepare(step)
        batch = self.batches.draw(step)
        for observer in self.observers:
            batch = observer.drawn(batch, step)
        own = self._clipped_sum(batch, side)
        for observer in self.observers:
            observer.summed(own, step)
        total = self.world.sum(own)
        mean = torch.empty(total.shape, dtype=torch.float32, device=total.device)
        if self.world.is_head:
            assert self._noised is not None
            mean = self._noised(total, step)
        direction = self.world.from_head(mean)
        for observer in self.observers:
            observer.noised(direction, step)
        if self.method is not None:
            # Public gradients may differ in their last bits between processes, and weights must not.
            direction = self.world.from_head(self.method.combine(direction, step))
        self.optimiser.step(direction, step)

    def _clipped_sum(self, batch: Batch, side: SideInformation) -> Tensor:
        if batch.groups is not None:
            return self._clipped_groups(batch, batch.groups, side)

        flat = self.gradients.flat
        total = GroupedSum(flat.size, self.plan.clip_norm, flat.device)
        # Each process of a world has its share of the batch.
        expected = self.plan.batch_size / self.world.size
        most = call_size(expected, self._chunks.size)
        for group in deal(batch.seeds, expected, self._chunks.size):
            if len(group) == 0:
                continue

            def part_of(part: slice, size: int, group: NDArray[np.int64] = group) -> Tensor:
                own, count = group[part], part.stop - part.start
                if self.gradients.together:
                    own = np.concatenate([own, np.repeat(own[:1], size - count)])
                views, targets = self._views(batch.indices[own], batch.seeds[own])
                return self.gradients.clipped_sum(views, targets, side, count)

            total.add(self._chunks.sum_over(len(group), part_of, flat.size, flat.device, most))
        return total.total

    def _clipped_groups(self, batch: Batch, groups: NDArray[np.int64], side: SideInformation) -> Tensor:
        """Each group of records is one unit: all views of all its records, or their mixtures, are its views."""
        flat = self.gradients.flat
        total = GroupedSum(flat.size, self.plan.clip_norm, flat.device)
        order = np.argsort(groups, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
            if len(members) > 0:
                total.add(whole(partial(self._clipped_group, batch.indices[members], batch.seeds[members], side)))
        return total.total

    def _clipped_group(self, indices: NDArray[np.int64], seeds: NDArray[np.int64], side: SideInformation) -> Tensor:
        if self.mixer is not None:
            x, labels = self.records.take(indices, self.gradients.flat.device)
            views, targets = self.mixer(x, labels, int(seeds[0]))
        else:
            views, targets = (part.flatten(0, 1) for part in self._views(indices, seeds))
        return self.gradients.clipped_sum(views[None], targets[None], side)

    def _views(self, indices: NDArray[np.int64], seeds: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        device, most = self.gradients.flat.device, self.plan.per_person
        if most is None:
            x, labels = self.records.take(indices, device)
            return self.views(x, labels, torch.from_numpy(seeds).to(device))
        # A person's views are those of up to K of their records: their mean gradient is clipped as one record's is.
        x, labels = self.records.take(drawn_records(self.records, indices, seeds, most).reshape(-1), device)
        own = RecordRandom(torch.from_numpy(seeds)).derive("records").bits("views", most)
        views, targets = self.views(x, labels, own.flatten().to(device))
        return tuple(part.reshape(len(indices), -1, *part.shape[2:]) for part in (views, targets))  # type: ignore[return-value]


def drawn_records(
    records: TrainingRecords, persons: NDArray[np.int64], seeds: NDArray[np.int64], most: int
) -> NDArray[np.int64]:
    """(b, most) which of their records b persons have in a step; see :meth:`TrainingRecords.of_persons`."""
    starts = RecordRandom(torch.from_numpy(seeds)).integers("first record", 2**30, 1)[:, 0].numpy() * 2.0**-30
    return records.of_persons(persons, starts, most)


def share_streams(world: World, streams: SecretStreams | None) -> SecretStreams:
    """Give the head's derived sampling streams (None elsewhere) to all processes.

    Formal guarantees:
        * The key stays with the head: others get derived streams, from which no noise can be made.
    """
    if world.size == 1:
        assert streams is not None
        return streams
    key = world.share(b"" if streams is None else streams.share())
    return streams if streams is not None else SecretStreams.of_shared(key)
