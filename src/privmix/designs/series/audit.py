"""Audits of a series: the noise alone of a step, and the worst case, all releases of one record together."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import Scores
from privmix.audits.empty_runs import FreshStreams, PureNoise, part_noises
from privmix.audits.worst_case import EngineFactory, Mask, as_persons, real_engine
from privmix.designs.moments.audit import MomentsCase, reduced, widened
from privmix.designs.series.engine import Before, SeriesSums
from privmix.designs.series.plan import SeriesPlan
from privmix.engine.rows import Engine, PrivateRecords
from privmix.mechanisms.streams import SecretStreams
from privmix.publication.second_moments import SecondMoments


def series_noises(plan: SeriesPlan, samples: int, keys: FreshStreams, make: EngineFactory) -> Iterator[PureNoise]:
    """Yield the noises of each moment as the plan's step releases it, the steps before made too."""
    first = wide = widened(plan.of_first())
    while wide.step < plan.step:
        wide = wide.after(1)

    def release(streams: SecretStreams) -> list[NDArray[np.float32]]:
        released = empty_series(first, plan.step, streams)[-1]
        return [released.arrays[part.name] for part in wide.parts]

    yield from part_noises(plan, wide, tuple(plan.noise_std), release, samples, keys)


def empty_series(plan: SeriesPlan, steps: int, streams: SecretStreams) -> list[SecondMoments]:
    """Return what the first ``steps`` steps release of no record; ``plan`` is that of the first."""
    found: list[SecondMoments] = []
    for step in range(steps):
        plan = plan if step == 0 else plan.after(1)
        sums = SeriesSums(plan)
        sums.before = found[-1] if found else None
        found.append(sums.released(streams))
    return found


def series_case(plan: SeriesPlan) -> "SeriesCase":
    return SeriesCase(*reduced(plan.of_first()))


@dataclass(frozen=True)
class SeriesCase(MomentsCase):
    """The canary is new in the first K steps, 1 for a record: no other steps have a longer sum of columns of C."""

    # All T releases are made under one key. From y_1..y_T the attack takes C x + z back, up to rounding: B^-1 y. Row t
    # of that holds the canary times C_t1, in noise that is independent from row to row.

    plan: SeriesPlan

    def run(
        self, present: Mask, streams: SecretStreams, make: EngineFactory = real_engine, copies: int | None = None
    ) -> Scores:
        """See :meth:`WorstCase.run`; a run is a whole series."""
        try:
            key = streams.derive("series").share()
            # Records of every later step are the bystander's.
            both = self.records(present), PrivateRecords(*self._others())
            new, later = (as_persons(self.plan, one, copies) for one in both)
            engines = list(series_of(self.plan, new, later, key, make))
            gain, linear = np.zeros(self.trials), np.zeros(self.trials)
            if self.plan.centred:
                gain = gain + super(MomentsCase, self).of_rest(engines[0])[0]
            for part, adds, noise in self._steps(engines):
                shown = np.array([self._undo @ column for column in part.T]).T
                # (T, trials): what row t of C x + z holds, in noise of one standard deviation.
                told = adds * self._column[:, None] / self.plan.factor.sensitivity
                shown = shown / self.plan.factor.sensitivity
                gain = gain + (told * (2 * shown - told)).sum(axis=0) / (2 * noise**2)
                linear = linear if linear.any() else (shown * self._column[:, None]).sum(axis=0)
            return np.stack([gain, linear, np.zeros(self.trials)])
        finally:
            streams.destroy()

    @cached_property
    def _undo(self) -> NDArray[np.float64]:
        """(T, T) B^-1."""
        return np.asarray(np.linalg.inv(matrix_of(self.plan)), np.float64)

    @cached_property
    def _column(self) -> NDArray[np.float64]:
        """(T,) the sum of the first K columns of C."""
        return np.asarray(self._undo @ np.minimum(np.arange(1, self.plan.steps + 1), self.plan.steps_per_person or 1))

    def _steps(self, engines: list[Engine]) -> Iterator[tuple[NDArray[np.float64], float, float]]:
        """For each part (T, trials) numbers that hold the canary once and no other record, what it adds, and s."""
        # A bystander a step.
        steps = [self._parts(one.beside, engines[0].transform, step) for step, one in enumerate(engines, 1)]
        for part in zip(*steps, strict=True):
            yield np.stack([shown for shown, _, _ in part]), part[0][1], part[0][2]


def matrix_of(plan: SeriesPlan) -> NDArray[np.float64]:
    found = np.zeros((plan.steps, plan.steps))
    for step in range(1, plan.steps + 1):
        found[step - 1, :step] = plan.factor.weights(step)
    return found


def series_of(
    first: SeriesPlan, records: PrivateRecords, later: PrivateRecords, key: bytes, make: EngineFactory
) -> Iterator[Any]:
    """Yield the engines of a series, each once it has run: ``records`` in the first K steps, then ``later``."""
    plan, before = first, None
    for step in range(first.steps):
        new = records if step < (first.steps_per_person or 1) else later
        engine: Any = make(plan, new, SecretStreams.of_shared(key))
        if before is not None:
            engine.goes_on(before)
        for _ in engine.rows():
            pass
        yield engine
        before = Before(engine.beside, engine.transform.centre)
        if not plan.is_last:
            plan = plan.after(1)
