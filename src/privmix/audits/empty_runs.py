"""Releases of empty records by the real engines: their noise alone, one array for every kind of noise.

An empty record is a vector of zeros, and its label and subtracted mean are taken off. Features, classes and rows that
do not matter are changed for more noise in less time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import Scores
from privmix.audits.worst_case import EngineFactory, real_engine
from privmix.engine.rows import released_mean
from privmix.mechanisms.private_count import RECORD_COUNTS, noisy_count, query_noise, records_of_persons
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import BasePlan, Plan
from privmix.plans.registry import Deferred, made_by
from privmix.progress import Progress

GAUSSIAN: Final = "gaussian"
LAPLACE: Final = "laplace"

# Features and classes of second moments: two groups of matrix rows, which have streams of their own.
SIDE: Final = 192
_MEAN_FEATURES: Final = 4096
# A key's cipher takes as long as thousands of draws, and a count is one draw a key: it gets fewer.
_COUNT_SHARE: Final = 4
# Numbers of one noise that are kept where a run has more of them than are asked for.
KEPT: Final = 2**20


@dataclass(frozen=True, eq=False)
class PureNoise:
    """Draws of one noise, (a, b) independent; axis 0 are rows, steps or keys."""

    # certified: standard deviation in the certificate, under ``source``; expected: with an allowance for rounding on
    # purpose; step: of the grid. beside: (a, c) draws of another noise of the same rows, independent of these, or None.

    name: str
    law: str
    certified: float
    expected: float
    step: float
    values: Scores
    beside: Scores | None = None
    source: str = ""

    def stated(self, source: str, figure: float) -> PureNoise:
        """Return the draws in the unit in which the certificate states their standard deviation as ``figure``."""
        # Other numbers of features and classes, and sums instead of averages, have other units.
        unit = figure / self.certified
        return replace(
            self,
            certified=figure,
            expected=self.expected * unit,
            step=self.step * unit,
            values=self.values * unit,
            source=source,
        )


NOISES: Final = Deferred[Callable[[Any, int, "FreshStreams", EngineFactory], Iterator[PureNoise]]](
    "pure_noises", "one whose noises are known"
)
"""The noises of what a plan releases after count and mean."""


def release_noises(
    plan: Plan, samples: int, seed: int | None = None, make: EngineFactory = real_engine, tell: Progress | None = None
) -> Iterator[PureNoise]:
    """Yield every noise of a release, with at least ``samples`` draws."""
    keys = FreshStreams(seed, tell or (lambda name, done, total: None))
    if plan.records_noise_multiplier is not None:
        yield from count_noises(plan, samples, keys)
    if plan.centred:
        yield _mean_noise(plan, samples, keys)
    yield from NOISES.of(made_by(plan))(plan, samples, keys, make)


class FreshStreams:
    """Fresh streams for run after run, counted."""

    def __init__(self, seed: int | None, tell: Progress) -> None:
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


def count_noises(plan: Any, samples: int, keys: FreshStreams) -> Iterator[PureNoise]:
    """Yield the noises of a private count, of a plan of a release or of a training that was made with one."""
    multiplier, quantile = query_noise(plan), getattr(plan, "person_quantile", None)
    count, samples = 10**6, samples // _COUNT_SHARE

    def one(streams: SecretStreams) -> NDArray[Any]:
        return np.array([noisy_count(count, multiplier, streams) - count], np.float64)

    def histogram(streams: SecretStreams) -> NDArray[Any]:
        return records_of_persons(np.empty(0, np.int64), multiplier, streams).astype(np.float64)

    source = "plan.records_noise_multiplier" + ("" if quantile is None else " x sqrt 2")
    if quantile is not None:
        drawn = np.stack(keys.run("records of persons", math.ceil(samples / len(RECORD_COUNTS)), histogram))
        yield PureNoise("records of persons", GAUSSIAN, multiplier, multiplier, 1.0, drawn).stated(source, multiplier)
    drawn = np.stack(keys.run("count", samples, one))
    yield PureNoise("record count", GAUSSIAN, multiplier, multiplier, 1.0, drawn).stated(source, multiplier)


def _mean_noise(plan: Plan, samples: int, keys: FreshStreams) -> PureNoise:
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


def of_part(noise: PureNoise, plan: BasePlan, part: str, *, off_diagonal: bool = False) -> PureNoise:
    if off_diagonal:
        return noise.stated(f"noise_std.{part} / sqrt 2", plan.noise_std[part] / math.sqrt(2))
    return noise.stated(f"noise_std.{part}", plan.noise_std[part])
