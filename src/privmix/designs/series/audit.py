"""The noise alone of a step of a series."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from privmix.audits.empty_runs import FreshStreams, PureNoise
from privmix.audits.sums import part_noises
from privmix.audits.worst_case import EngineFactory
from privmix.designs.moments.audit import widened
from privmix.designs.series.engine import SeriesSums
from privmix.designs.series.plan import SeriesPlan
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
