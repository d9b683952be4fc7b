"""The worst pair of neighbouring datasets of each design, and the best attack on the real engine's output.

A design's privacy is decided by its worst pair. The pair can be tiny: a record in a coordinate of its own and only the
other records that the worst case needs. The real engine runs with the real rows, rates, noise and clipping. Unused
features and classes are left out (:func:`privmix.audits.worst_case.worst_case_of` gives the reason that the law is the
same).

Several canaries in one run are independent trials where records are drawn independently: each has a coordinate and a
label (or, class by class, rows) that no other one touches.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import Scores
from privmix.engine.engines import make_engine
from privmix.engine.records import cores
from privmix.engine.rows import Engine, PrivateRecords, RowBlock
from privmix.engine.tiles import lattice_steps
from privmix.errors import InvalidInput, check_integer
from privmix.mechanisms.membership import ROW_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import BasePlan, Plan
from privmix.plans.registry import Deferred, made_by
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform

EngineFactory = Callable[[Plan, PrivateRecords, SecretStreams], Engine]
"""Makes the engine that is audited."""

P = TypeVar("P", bound=BasePlan)
Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]

MOST_TRIALS: Final = 64
"""Canaries of a run, at most."""

LONG: Final = 4.0
"""Length of a canary before clipping, in clipping bounds: one that is not clipped shows."""

_LARGEST_SEED: Final = 2**31 - 1
# Rows and tiles between two rows that are searched for the same noise.
_LAGS: Final = (1, 2, 3, 4, 8, 16)
_TILES_BACK: Final = 4
_MOST_STEPS: Final = 2.0**30 - 1
# Numbers that a run releases.
_SMALL: Final = 2**17


def real_engine(plan: Plan, records: PrivateRecords, streams: SecretStreams) -> Engine:
    """Return the engine that releases are made with, on one thread: an audit runs several at once."""
    return make_engine(plan, records, streams, workers=1)


@dataclass(frozen=True)
class WorstCase(ABC, Generic[P]):
    """A design's worst pair of neighbours, as ``trials`` independent canaries in one run of ``plan``."""

    plan: P
    trials: int

    @abstractmethod
    def records(self, present: Mask) -> PrivateRecords:
        """Return the dataset in which canary j is there exactly where ``present[j]``; (trials,) booleans."""

    @abstractmethod
    def of_rows(self, block: RowBlock, transform: RecordTransform) -> Scores:
        """(2, trials) what some released rows show: log-likelihood ratio, and the weaker linear statistic."""

    def of_all_rows(self, blocks: Sequence[RowBlock], transform: RecordTransform) -> Scores:
        """(2, trials) what all released rows show: the sum, as of rows that hold the canary independently."""
        return np.asarray(np.sum([self.of_rows(block, transform) for block in blocks], axis=0))

    def of_rest(self, engine: Engine) -> Scores:
        """(2, trials) what else was released shows: here nothing."""
        return np.zeros((2, self.trials))

    def of_repeats(self, x: Scores, transform: RecordTransform) -> Scores:
        """Return (trials,) counts of pairs of rows in (rows, d) that differ by exactly one canary: repeated noise."""
        return np.zeros(self.trials)

    def run(
        self, present: Mask, streams: SecretStreams, make: EngineFactory = real_engine, copies: int | None = None
    ) -> Scores:
        """Run the engine once and destroy the streams; return (3, trials) scores: exact, linear, repeated noise."""
        # copies: records of each person, as many as the unit has otherwise; None: K.
        try:
            engine = make(self.plan, as_persons(self.plan, self.records(present), copies), streams)
            blocks = list(engine.rows())
            total = self.of_all_rows(blocks, engine.transform) + self.of_rest(engine)
            repeats = self.of_repeats(np.concatenate([block.x for block in blocks]), engine.transform)
            return np.concatenate([total, repeats[None]])
        finally:
            streams.destroy()

    def contribution(self, transform: RecordTransform, features: NDArray[Any]) -> Scores:
        """Contribution of these records to a sum, in units of their bound: clipped, centred, on the lattice."""
        lattice = self.plan.lattice
        return np.asarray(lattice_steps(lattice, transform, features) * lattice.step)


def as_persons(plan: BasePlan, records: PrivateRecords, copies: int | None = None) -> PrivateRecords:
    """Return the records, or, where the plan's unit is a person, each as a person with several copies of it."""
    if plan.per_person is None:
        return records
    many = copies or plan.per_person
    whose = np.repeat(np.arange(len(records.labels)), many)
    return PrivateRecords(records.features[whose], records.labels[whose], whose)


AnyCase = WorstCase[Any]
WORST_CASE: Final = Deferred[Callable[[Any], AnyCase]]("worst_case", "one whose worst case is known", inherited=False)


@dataclass(frozen=True)
class AttackScores:
    """(runs,) scores without and with the canary; higher speaks for it."""

    # without, present: exact log-likelihood ratios; linear: attack without rates and noise; repeats: noise used twice.

    without: Scores
    present: Scores
    linear_without: Scores
    linear_present: Scores
    repeats_without: Scores
    repeats_present: Scores

    def and_then(self, later: "AttackScores") -> "AttackScores":
        sides = zip(vars(self).values(), vars(later).values(), strict=True)
        return AttackScores(*(np.concatenate(pair) for pair in sides))


def attack(
    case: AnyCase,
    runs: int,
    *,
    seed: int | None = None,
    make: EngineFactory = real_engine,
    workers: int | None = None,
    progress: Progress | None = None,
    copies: int | None = None,
    first: int = 0,
    until: float = math.inf,
) -> AttackScores:
    """Attack ``runs`` independent trials, half of them with the canary, each engine run under fresh streams.

    Args:
        case: from :func:`privmix.audits.worst_case.worst_case_of`.
        runs: trials in total, even, at least 2.
        seed: for tests, from 0 to 2^31 - 1; None takes fresh keys from the operating system.
        make: makes the engine.
        workers: engines that run at once; None is one a core, or one alone where runs are small.
        progress: called with "attack", trials done and trials in total.
        copies: records of each person where the unit is a person; None: K.
        first: number of the first engine run, which its seed follows from.
        until: moment of :func:`time.monotonic` after which only the first two runs begin.
    """
    check_integer("runs", runs, low=2)
    if seed is not None:
        check_integer("seed", seed, low=0, high=_LARGEST_SEED)
    # With one trial a run, presence alternates; with more, half of the canaries are there.
    engines = runs if case.trials == 1 else -(-runs // case.trials) + (case.trials % 2)
    columns = np.arange(case.trials)

    def one(index: int) -> tuple[Mask, Scores]:
        present = (columns + index) % 2 == 1
        # An audit has fewer than 2^32 runs, so that audits with different seeds share no key.
        streams = SecretStreams.from_entropy() if seed is None else SecretStreams.from_seed(seed * 2**32 + index)
        return present, case.run(present, streams, make, copies)

    found: tuple[list[Scores], list[Scores]] = ([], [])
    done = 0
    # Small runs are mostly Python's own work, of which one thread does as much as several, with less waiting.
    small = case.plan.rows * (case.plan.dim + case.plan.num_classes) <= _SMALL
    for present, scores in _in_order(one, first, engines, workers or (1 if small else cores()), until):
        for side in (0, 1):
            found[side].append(scores[:, present == bool(side)])
        done = min(runs, done + case.trials)
        if progress:
            progress("attack", done, runs)
    sides = [np.concatenate(side, axis=1) for side in found]
    # A deadline may cut runs short: keep equally many with and without the canary.
    half = min(runs // 2, *(side.shape[1] for side in sides))
    absent, there = (side[:, :half] for side in sides)
    return AttackScores(absent[0], there[0], absent[1], there[1], absent[2], there[2])


def _in_order(
    work: Callable[[int], tuple[Mask, Scores]], first: int, count: int, workers: int, until: float
) -> Iterator[tuple[Mask, Scores]]:
    """Results for ``count`` numbers from ``first`` on, a few at work at a time: ctrl-C does not wait for all."""
    numbers = iter(range(first, first + count))
    if workers == 1:
        for number in numbers:
            # Two runs, one with and one without the canary, are the least that can be judged.
            if number >= first + 2 and time.monotonic() > until:
                return
            yield work(number)
        return
    with ThreadPoolExecutor(workers) as pool:
        while batch := list(islice(numbers, 4 * workers)):
            # The first batch runs in any case: without runs of both kinds no verdict is possible.
            if batch[0] > first and time.monotonic() > until:
                return
            yield from pool.map(work, batch)


def exact_pairs(x: Scores, unit: float, difference: float) -> Scores:
    """Return (rows, d) counts of nearby rows, in time or by tile, exactly ``difference`` below each row."""
    # The noise spans many grid steps: rows hardly ever differ by one given number, unless their noise is the same.
    steps = np.rint(np.clip(x / unit, -_MOST_STEPS, _MOST_STEPS)).astype(np.int32)
    wanted = round(difference / unit)
    found = np.zeros(steps.shape, np.int32)
    tiles = [ROW_TILE * number for number in range(1, _TILES_BACK + 1)]
    for lag in [*_LAGS, *tiles]:
        if lag >= len(steps):
            break
        apart = steps[lag:] - steps[:-lag]
        found[lag:] += apart == wanted
        found[:-lag] += apart == -wanted
    return found.astype(np.float64)


def worst_case_of(plan: Plan) -> AnyCase:
    """Return the worst case of a plan's design, under the plan's own rates, rows, noise and clipping.

    The case is the plan with fewer features and, where the class list plays no part, other classes. The law of the
    attacked coordinates is the same:

    * poisson, hierarchical: a record joins a row at rates that are constants of the plan, for any number of records and
      classes. So the dataset may be small; the accounting event is the same, and this is checked;
    * allocation: as poisson; a record's row in a block is independent of all others', so that they only add to rows;
    * classwise: classes stay, since they decide how many rows a record may touch;
    * fixed: a row holds the canary with probability m/n and the rest are alike. So m and n may be divided by their
      greatest common divisor; random weights depend on m itself, so that both stay;
    * moments, class-moments: one query; how many rows are sampled from its answer plays no part;
    * two-stage, three-stage: all queries show the canary; with one feature there is one direction, where it is clipped;
    * corrected-moments: all queries show the canary, whose errors are clipped: models know next to nothing;
    * centred plans keep their classes and have one canary a run: records share the released mean.
    """
    return WORST_CASE.of(made_by(plan))(plan)


def check_room(plan: Plan) -> None:
    """Raise unless the plan's clipping allows for a canary that is clipped."""
    if plan.centred and plan.final_clip_norm > 0.9 * plan.clip_norm:
        raise InvalidInput("residual_clip_norm", plan.final_clip_norm, "at most 0.9 of clip_norm for an audit")


def label_overlap(plan: Plan) -> float:
    """<label of the last class, label of the first> over the square of a label's norm."""
    offset = plan.label_offset
    return (plan.num_classes * offset**2 - 2 * offset) / plan.label_norm**2


@dataclass(frozen=True)
class AddRemoveCase(WorstCase[P]):
    """Canary j has all its length in coordinate j, more than C, and label j; a bystander is in every dataset."""

    def records(self, present: Mask) -> PrivateRecords:
        others, labels = self._others()
        canaries = np.flatnonzero(present)
        features = np.zeros((len(canaries), self.plan.dim))
        # A canary is longer than the bound: an engine that does not clip shows itself by a larger effect.
        features[np.arange(len(canaries)), self._coordinates[canaries]] = LONG * self.plan.clip_norm
        return PrivateRecords(
            np.concatenate([features, others]), np.concatenate([self._classes[canaries], labels]).astype(np.int64)
        )

    def _others(self) -> tuple[Scores, Indices]:
        return np.zeros((1, self.plan.dim)), np.array([self.plan.num_classes - 1])

    @property
    def _coordinates(self) -> Indices:
        return np.arange(self.trials)

    @property
    def _classes(self) -> Indices:
        return np.arange(self.trials) % self.plan.num_classes

    def of_rest(self, engine: Engine) -> Scores:
        """Scores of the released mean: a Gaussian query that holds the canary's clipped feature."""
        plan = self.plan
        if plan.centre_noise_multiplier is None or engine.transform.centre is None:
            return np.zeros((2, self.trials))
        own, others = self._in_the_mean
        seen = float(engine.transform.centre[0]) * plan.records / plan.clip_norm - others
        gain = own * (2 * seen - own) / (2 * plan.centre_noise_multiplier**2)
        return np.array([[gain], [0.0]])

    @cached_property
    def _in_the_mean(self) -> tuple[float, float]:
        """Contributions of the canary, and of all others, to the sum behind the released mean, alike in all runs."""
        clip = RecordTransform(self.plan.clip_norm)
        own = self.contribution(clip, np.full((1, 1), self.plan.clip_norm))[0, 0]
        return float(own), float(self.contribution(clip, self._others()[0]).sum())

    def _canary(self, transform: RecordTransform) -> float:
        """Contribution of a canary to its coordinate of a sum; kept for the last transform."""
        last: tuple[RecordTransform, float] | None = self.__dict__.get("_last")
        if last is None or last[0] is not transform:
            probe = np.zeros((1, self.plan.dim))
            probe[0, 0] = self.plan.clip_norm
            last = transform, float(self.contribution(transform, probe)[0, 0])
            self.__dict__["_last"] = last
        return last[1]
