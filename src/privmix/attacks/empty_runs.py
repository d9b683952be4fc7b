"""What the real engines release of empty records: their noise alone, one array for every kind of noise.

An empty record is a vector of zeros. Where it still adds something that is known (its label, or the released mean that
is subtracted from it), that is taken off: all membership is drawn from streams whose key the audit holds. What is left
is noise and nothing else, whatever the owner's records are.

Features, classes, rows and records that play no part are changed to what shows most noise in little time. The noise of
a part depends on them by the plan's own figures only, and those are what it is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.attacks.bounds import Scores
from privmix.attacks.linear_steps import linear_steps
from privmix.attacks.worst_case import EngineFactory, real_engine
from privmix.designs import BasePlan, EmbeddingPlan, MomentsPlan, Plan, ReleasePlan, ThreeStagePlan, TwoStagePlan
from privmix.designs.embedding import SIZES
from privmix.designs.two_stage import NORM_EDGES
from privmix.errors import InvalidInput
from privmix.mechanisms.membership import ROW_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.releases import PrivateRecords, RecordTransform
from privmix.releases.count import private_record_count
from privmix.releases.embedding_engine import EmbeddingSums
from privmix.releases.engine import released_mean
from privmix.releases.feature_maps import feature_map
from privmix.releases.moments_engine import MomentSums
from privmix.releases.three_stage_engine import ClassScatter
from privmix.releases.two_stage_engine import NormCounts, WithinScatter
from privmix.training.mechanisms.base import mechanism_of
from privmix.training.noise import noise_scale
from privmix.training.plan import TrainingPlan
from privmix.training.records import TrainingRecords

GAUSSIAN: Final = "gaussian"
LAPLACE: Final = "laplace"

# Enough rows for three row tiles, which have streams of their own, and features for several draws in each.
_ROWS: Final = 2 * ROW_TILE + 512
_FEATURES: Final = 256
# Features and classes of second moments: two groups of matrix rows, which have streams of their own.
_SIDE: Final = 192
# Records of a plan whose classes all have so many directions.
_MANY: Final = 2**40
_MEAN_FEATURES: Final = 4096
_WEIGHTS: Final = 2048
# A key's cipher takes as long as thousands of draws, and a count is one draw a key: it gets fewer.
_COUNT_SHARE: Final = 4
# Numbers of one noise that are kept where a run has more of them than are asked for.
_KEPT: Final = 2**20


@dataclass(frozen=True, eq=False)
class PureNoise:
    """Draws of one noise.

    Attributes:
        name: of what it is added to.
        law: ``gaussian`` or ``laplace``.
        certified: its standard deviation, as the certificate says under ``source``.
        expected: that of a right draw: with room for rounding where the product adds some on purpose.
        step: of the grid that draws are rounded to.
        values: (a, b) independent draws; axis 0 are rows, steps or keys.
        beside: draws of another noise of the same rows, (a, c), which must not depend on these; or None.
        source: where the certificate has the figure, such as ``noise_std.second / sqrt 2``.
    """

    name: str
    law: str
    certified: float
    expected: float
    step: float
    values: Scores
    beside: Scores | None = None
    source: str = ""

    def stated(self, source: str, figure: float) -> PureNoise:
        """The same draws in the unit in which the certificate has their standard deviation as ``figure``.

        What is drawn is of a plan that shows more noise in less time: other numbers of features and classes, and sums
        in place of averages, have other units.
        """
        unit = figure / self.certified
        return replace(
            self,
            certified=figure,
            expected=self.expected * unit,
            step=self.step * unit,
            values=self.values * unit,
            source=source,
        )


Tell = Callable[[str, int, int], None]


def release_noises(
    plan: Plan, samples: int, seed: int | None = None, make: EngineFactory = real_engine, tell: Tell | None = None
) -> Iterator[PureNoise]:
    """Every noise of a release, one after the other.

    Args:
        plan: of the release.
        samples: draws of each noise, at least.
        seed: for tests; None takes fresh keys.
        make: makes the engine.
        tell: told the name of what is drawn, and how much is done.

    Example:
        >>> from privmix.releases import ReleaseConfig
        >>> config = ReleaseConfig(records=1000, dim=9, classes=("a", "b"), mixup_degree=16, rows=50)
        >>> [noise.name for noise in release_noises(config.with_noise(3.0), 1000, seed=0)]
        ['mean', 'features', 'labels']
    """
    keys = Keys(seed, tell or (lambda name, done, total: None))
    if plan.records_noise_multiplier is not None:
        yield _count_noise(plan.records_noise_multiplier, samples // _COUNT_SHARE, keys)
    if plan.centred:
        yield _mean_noise(plan, samples, keys)
    yield from main_noises(plan, samples, keys, make)


class Keys:
    """Fresh streams for run after run, counted."""

    def __init__(self, seed: int | None, tell: Tell) -> None:
        self._seed, self._tell, self._next = seed, tell, 0

    def run(self, name: str, runs: int, work: Callable[[SecretStreams], NDArray[Any]]) -> list[NDArray[Any]]:
        """Results of ``work`` under ``runs`` keys, which are destroyed."""
        found = []
        for done in range(runs):
            streams = (
                SecretStreams.from_entropy()
                if self._seed is None
                else SecretStreams.from_seed(self._seed * 2**32 + self._next)
            )
            self._next += 1
            try:
                found.append(work(streams))
            finally:
                streams.destroy()
            if done % 64 == 63 or done + 1 == runs:
                self._tell(name, done + 1, runs)
        return found


def _count_noise(multiplier: float, samples: int, keys: Keys) -> PureNoise:
    # So many that no estimate is cut off at 1.
    count = 10**6 + math.ceil(100 * multiplier)
    margin = math.ceil(4 * multiplier)

    def one(streams: SecretStreams) -> NDArray[Any]:
        return np.array([private_record_count(count, multiplier, streams) - count + margin], np.float64)

    drawn = np.stack(keys.run("count", samples, one))
    noise = PureNoise("record count", GAUSSIAN, multiplier, multiplier, 1.0, drawn)
    return noise.stated("plan.records_noise_multiplier", multiplier)


def _mean_noise(plan: Plan, samples: int, keys: Keys) -> PureNoise:
    assert plan.centre_noise_multiplier is not None
    # A multiple of the plan's own: features may lie on channels.
    wide = replace(plan, dim=plan.dim * math.ceil(_MEAN_FEATURES / plan.dim))
    nothing = np.zeros(wide.dim)

    def one(streams: SecretStreams) -> NDArray[Any]:
        mean = released_mean(wide, nothing.copy, streams)
        assert mean is not None
        return mean.astype(np.float64) * plan.records

    std = plan.clip_norm * plan.centre_noise_multiplier
    drawn = np.stack(keys.run("mean", -(-samples // wide.dim), one))
    noise = PureNoise("mean", GAUSSIAN, std, std, plan.clip_norm * 2.0**-plan.lattice_bits, drawn)
    return noise.stated("plan.centre_noise_multiplier", plan.centre_noise_multiplier)


def _of_part(noise: PureNoise, plan: BasePlan, part: str, *, off_diagonal: bool = False) -> PureNoise:
    """Draws in the unit of what ``plan`` releases as ``part``."""
    if off_diagonal:
        return noise.stated(f"noise_std.{part} / sqrt 2", plan.noise_std[part] / math.sqrt(2))
    return noise.stated(f"noise_std.{part}", plan.noise_std[part])


@singledispatch
def main_noises(plan: BasePlan, samples: int, keys: Keys, make: EngineFactory) -> Iterator[PureNoise]:
    """The noises of what a plan releases after count and mean; a function of the plan's class.

    Raises:
        InvalidInput: nobody said which there are.
    """
    raise InvalidInput("design", plan.design, "one whose noises are known")


@main_noises.register
def _(plan: MomentsPlan, samples: int, keys: Keys, make: EngineFactory) -> Iterator[PureNoise]:
    names = plan.classes + tuple(f"{number} more" for number in range(_SIDE - plan.num_classes))
    wide = replace(plan, dim=_SIDE, classes=names, rows=1)
    below = np.tril_indices(_SIDE, -1)
    parts: dict[str, list[NDArray[Any]]] = {"diagonal": [], "off": [], "cross": [], "labels": []}

    def one(streams: SecretStreams) -> NDArray[Any]:
        released = MomentSums(wide).released(streams)
        parts["diagonal"].append(np.diag(released.second).astype(np.float64))
        parts["labels"].append(released.label_sums.astype(np.float64))
        if len(parts["off"]) * len(below[0]) < max(samples, _KEPT):
            parts["off"].append(released.second[below].astype(np.float64))
        if len(parts["cross"]) * released.cross.size < max(samples, _KEPT):
            parts["cross"].append(released.cross.astype(np.float64).ravel())
        return np.zeros(0)

    keys.run("moments", -(-samples // _SIDE), one)
    step = 2.0**-wide.lattice_bits
    bound, std = wide.final_clip_norm, wide.noise_std
    for name, drawn, part, deviation, grid in (
        ("second moments: diagonal", "diagonal", "second", std["second"], step**2 * bound**2),
        ("second moments: off diagonal", "off", "second", std["second"] / math.sqrt(2), step**2 * bound**2),
        ("cross moments", "cross", "cross", std["cross"], step**2 * bound),
        ("label sums", "labels", "counts", std["counts"], step),
    ):
        noise = PureNoise(name, GAUSSIAN, deviation, deviation, grid, np.stack(parts[drawn]))
        # Of other numbers of classes: a label's norm, and with it the noise in what holds labels, depends on that.
        yield _of_part(noise, plan, part, off_diagonal=drawn == "off")


@main_noises.register
def _(plan: EmbeddingPlan, samples: int, keys: Keys, make: EngineFactory) -> Iterator[PureNoise]:
    names = plan.classes + tuple(f"{number} more" for number in range(_SIDE - plan.num_classes))
    wide = replace(plan.with_small_map(), classes=names, rows=1)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in wide.noise_std}

    def one(streams: SecretStreams) -> NDArray[Any]:
        released = EmbeddingSums(wide).released(streams)
        for name, values in {**released.sums, SIZES: released.sizes}.items():
            if len(parts[name]) * values.size < max(samples, _KEPT):
                parts[name].append(values.astype(np.float64).ravel())
        return np.zeros(0)

    keys.run("class embeddings", -(-samples // _SIDE), one)
    norms, std = feature_map(wide).norms(wide.lattice_bits), wide.noise_std
    for name, drawn in parts.items():
        grid = 1 / norms[name] if name in norms else wide.lattice.step
        label = "class sizes" if name == SIZES else name
        yield _of_part(PureNoise(label, GAUSSIAN, std[name], std[name], grid, np.stack(drawn)), plan, name)


@main_noises.register
def _(plan: TwoStagePlan, samples: int, keys: Keys, make: EngineFactory) -> Iterator[PureNoise]:
    yield from main_noises(plan.first, samples, keys, make)
    wide = replace(plan, dim=_SIDE, directions=_SIDE, channels=1)
    below = np.tril_indices(_SIDE, -1)
    parts: dict[str, list[NDArray[Any]]] = {"diagonal": [], "off": [], "norms": []}

    def one(streams: SecretStreams) -> NDArray[Any]:
        released = WithinScatter(wide).released(streams)
        parts["diagonal"].append(np.diag(released).astype(np.float64))
        parts["norms"].append(NormCounts(wide).released(streams).astype(np.float64))
        if len(parts["off"]) * len(below[0]) < max(samples, _KEPT):
            parts["off"].append(released[below].astype(np.float64))
        return np.zeros(0)

    keys.run("second stage", -(-samples // len(NORM_EDGES)), one)
    std = wide.noise_std
    for name, drawn, part, deviation, grid in (
        ("scatter within classes: diagonal", "diagonal", "within", std["within"], wide.unit_within),
        ("scatter within classes: off diagonal", "off", "within", std["within"] / math.sqrt(2), wide.unit_within),
        ("norms", "norms", "norms", std["norms"], 1.0),
    ):
        noise = PureNoise(name, GAUSSIAN, deviation, deviation, grid, np.stack(parts[drawn]))
        yield _of_part(noise, plan, part, off_diagonal=drawn == "off")


@main_noises.register
def _(plan: ThreeStagePlan, samples: int, keys: Keys, make: EngineFactory) -> Iterator[PureNoise]:
    yield from main_noises.dispatch(TwoStagePlan)(plan, samples, keys, make)
    # So many records that each class has all the directions there are.
    wide = replace(plan, dim=_SIDE, directions=_SIDE, channels=1, records=_MANY)
    below = np.tril_indices(wide.class_directions, -1)
    parts: dict[str, list[NDArray[Any]]] = {"diagonal": [], "off": []}

    def one(streams: SecretStreams) -> NDArray[Any]:
        released = ClassScatter(wide).released(streams).astype(np.float64)
        parts["diagonal"].append(np.diagonal(released, axis1=1, axis2=2).ravel())
        if len(parts["off"]) * len(below[0]) * len(released) < max(samples, _KEPT):
            parts["off"].append(released[:, *below].ravel())
        return np.zeros(0)

    keys.run("third stage", -(-samples // (plan.num_classes * wide.class_directions)), one)
    std = wide.noise_std["class_within"]
    for name, part, deviation in (
        ("scatter of each class: diagonal", "diagonal", std),
        ("scatter of each class: off diagonal", "off", std / math.sqrt(2)),
    ):
        noise = PureNoise(name, GAUSSIAN, deviation, deviation, wide.unit_within, np.stack(parts[part]))
        yield _of_part(noise, plan, "class_within", off_diagonal=part == "off")


@main_noises.register
def _(plan: ReleasePlan, samples: int, keys: Keys, make: EngineFactory) -> Iterator[PureNoise]:
    step = 2.0**-plan.lattice_bits * plan.weight_step
    law = LAPLACE if plan.noise == LAPLACE else GAUSSIAN
    wide = _with_few_records(replace(plan, dim=_FEATURES, rows=max(_ROWS, -(-samples // _FEATURES))))
    x, y = _rows(wide, keys, make, "features")
    std = wide.noise_std_x * wide.divisor
    beside = None if plan.public_labels else y
    yield _of_part(PureNoise("features", law, std, std, step * wide.final_clip_norm, x, beside), plan, "x")
    if plan.public_labels:
        return
    tall = _with_few_records(replace(plan, dim=1, rows=max(_ROWS, -(-samples // plan.num_classes))))
    _, y = _rows(tall, keys, make, "labels")
    std = tall.noise_std_y * tall.divisor
    yield _of_part(PureNoise("labels", law, std, std, step, y), plan, "y")


def _with_few_records(plan: ReleasePlan) -> ReleasePlan:
    """Rows of a fixed size need so many records; the noise of others does not know how many there are."""
    if not plan.kind.fixed_size:
        return plan
    return replace(plan, records=plan.mixup_degree, record_rate=1.0)


def _rows(plan: ReleasePlan, keys: Keys, make: EngineFactory, name: str) -> tuple[Scores, Scores]:
    """(T, d) and (T, K) noise of the sums behind released rows, in the units of features and labels."""
    count = plan.records if plan.kind.fixed_size else 1
    records = PrivateRecords(np.zeros((count, plan.dim), np.float32), np.zeros(count, np.int64))

    def one(streams: SecretStreams) -> NDArray[Any]:
        engine = make(plan, records, streams)
        blocks = list(engine.rows())
        x = np.concatenate([block.x for block in blocks]).astype(np.float64) * plan.divisor
        y = np.concatenate([block.y for block in blocks]).astype(np.float64) * plan.divisor
        weights = _members(plan, streams, records.labels)[:, None]
        label = np.eye(plan.num_classes)[0] - plan.label_offset
        x -= weights * _contribution(plan, engine.transform)
        return np.concatenate([x, y - weights * label], axis=1)

    (both,) = keys.run(name, 1, one)
    return both[:, : plan.dim], both[:, plan.dim :]


def _members(plan: ReleasePlan, streams: SecretStreams, labels: NDArray[np.int64]) -> Scores:
    """(T,) total weight of the records, which are all alike, in each row."""
    membership, sampler = streams.derive("membership"), plan.sampler_for(len(labels))
    totals = []
    for tile in range(sampler.row_tiles):
        drawn = sampler.draw(membership, tile, 0, labels)
        row = np.repeat(np.arange(drawn.rows), drawn.counts)
        totals.append(np.bincount(row, drawn.weights, drawn.rows))
    return np.concatenate(totals).astype(np.float64)


def _contribution(plan: ReleasePlan, transform: RecordTransform) -> Scores:
    """(d,) what an empty record adds to a sum: nothing, or the centre taken from it, clipped and on the lattice."""
    lattice = plan.lattice
    bound = transform.final_clip_norm
    steps = lattice.quantise(transform(np.zeros((1, plan.dim))) / bound)[0]
    return np.asarray(steps * (lattice.step * bound))


def training_noise(plan: TrainingPlan, samples: int, seed: int | None = None, tell: Tell | None = None) -> PureNoise:
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
