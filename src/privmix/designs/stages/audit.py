"""The noise alone of releases in stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from privmix.audits.empty_runs import SIDE, FreshStreams, PureNoise
from privmix.audits.sums import part_noises
from privmix.audits.worst_case import EngineFactory
from privmix.designs.moments.audit import moments_noises
from privmix.designs.stages.three_engine import ClassScatter
from privmix.designs.stages.three_plan import ThreeStagePlan
from privmix.designs.stages.two_engine import NormCounts, WithinScatter
from privmix.designs.stages.two_plan import TwoStagePlan

# Records of a plan whose classes all have the full number of directions.
_MANY: Final = 2**40


def two_stage_noises(plan: TwoStagePlan, samples: int, keys: FreshStreams, make: EngineFactory) -> Iterator[PureNoise]:
    """Yield the noises of the first stage, and of the second stage's release."""
    yield from moments_noises(plan.first, samples, keys, make)
    wide = replace(plan, dim=SIDE, directions=SIDE, channels=1)
    sums = WithinScatter(wide), NormCounts(wide)
    parts = ("within", "norms")
    yield from part_noises(plan, wide, parts, lambda streams: [one.released(streams) for one in sums], samples, keys)


def three_stage_noises(
    plan: ThreeStagePlan, samples: int, keys: FreshStreams, make: EngineFactory
) -> Iterator[PureNoise]:
    """Yield the noises of two stages, and of each class's scatter."""
    yield from two_stage_noises(plan, samples, keys, make)
    # With this many records each class has all the directions there are.
    wide = replace(plan, dim=SIDE, directions=SIDE, channels=1, records=_MANY)
    sums = ClassScatter(wide)
    yield from part_noises(plan, wide, ("class_within",), lambda streams: [sums.released(streams)], samples, keys)
