"""The noise alone of releases in stages, and their worst cases; see :mod:`privmix.audits.worst_case`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

import numpy as np

from privmix.audits.bounds import Scores
from privmix.audits.empty_runs import SIDE, FreshStreams, PureNoise, part_noises
from privmix.audits.worst_case import AddRemoveCase, EngineFactory, Mask, check_room, real_engine
from privmix.designs.moments.audit import MomentsCase, moments_noises
from privmix.designs.stages.engine import NormCounts, Scatter
from privmix.designs.stages.released import norm_bins
from privmix.designs.stages.three_plan import ThreeStagePlan
from privmix.designs.stages.two_plan import TwoStagePlan
from privmix.engine.rows import Engine, PrivateRecords, RowBlock
from privmix.engine.tiles import lattice_steps
from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import Plan
from privmix.publication.dataset import RecordTransform

# Records of a plan whose classes all have the full number of directions.
_MANY: Final = 2**40

S = TypeVar("S", bound=TwoStagePlan)


def two_stage_noises(plan: TwoStagePlan, samples: int, keys: FreshStreams, make: EngineFactory) -> Iterator[PureNoise]:
    yield from moments_noises(plan.first, samples, keys, make)
    wide = replace(plan, dim=SIDE, directions=SIDE, channels=1)
    sums = Scatter(wide, "within"), NormCounts(wide)
    parts = ("within", "norms")
    yield from part_noises(plan, wide, parts, lambda streams: [one.released(streams) for one in sums], samples, keys)


def three_stage_noises(
    plan: ThreeStagePlan, samples: int, keys: FreshStreams, make: EngineFactory
) -> Iterator[PureNoise]:
    yield from two_stage_noises(plan, samples, keys, make)
    # With this many records each class has all the directions there are.
    wide = replace(plan, dim=SIDE, directions=SIDE, channels=1, records=_MANY)
    sums = Scatter(wide, "class_within")
    yield from part_noises(plan, wide, ("class_within",), lambda streams: [sums.released(streams)], samples, keys)


@dataclass(frozen=True)
class TwoStageCase(AddRemoveCase[TwoStagePlan]):
    """The canary alone, in every query at once: mean, moments, one count of norms, and the scatter within classes."""

    # With one feature the noise of few records makes the map's weight large. The canary's residual is then longer than
    # any clipping bound and adds all that a record can to the scatter. The count of norms, with little of the budget,
    # is also tested by itself: if it is not paid for, it shows what all together hide.

    def of_rows(self, block: RowBlock, transform: RecordTransform) -> Scores:
        """Rows sampled from the first stage's moments add nothing to them."""
        return np.zeros((2, self.trials))

    def run(
        self, present: Mask, streams: SecretStreams, make: EngineFactory = real_engine, copies: int | None = None
    ) -> Scores:
        """As every worst case does; instead of repeated noise it returns what :meth:`alone` reads, all by itself."""
        made: list[Engine] = []

        def kept(plan: Plan, records: PrivateRecords, streams: SecretStreams) -> Engine:
            made.append(make(plan, records, streams))
            return made[-1]

        scores = super().run(present, streams, kept, copies)
        return np.concatenate([scores[:2], [[self.alone(made[0])]]])

    def alone(self, engine: Engine) -> np.float64:
        return self._seen(engine)[0]

    def of_rest(self, engine: Engine) -> Scores:
        plan = self.plan
        gain = MomentsCase(plan.first, self.trials).of_rest(engine)[0]
        count, scatter, adds = self._seen(engine)
        gain = gain + (2 * count - 1) / (2 * plan.norm_noise_multiplier**2)
        gain = gain + adds * (2 * scatter - adds) / (2 * plan.within_noise_multiplier**2)
        return np.stack([gain, np.full(self.trials, count)])

    def _seen(self, engine: Engine) -> tuple[np.float64, np.float64, np.float64]:
        """Return the canary's count of norms, the scatter along its residual and its share of it; others taken off."""
        lattice, transform, found = self.plan.lattice, engine.transform, engine.beside
        records = self.records(np.ones(1, bool))
        mapped = found.mapped(self.plan)
        steps = lattice_steps(lattice, transform, records.features)
        residuals = mapped.residuals(steps, records.labels)
        # The canary comes first, then who is in every dataset.
        bins = norm_bins(residuals)
        u = (lattice.quantise(clip_l2(residuals / found.bound, 1.0)) * lattice.step)[:, 0]
        count = found.norms[bins[0]] - np.float64((bins[1:] == bins[0]).sum())
        scatter = found.within[0, 0] - np.square(u[1:]).sum()
        return count, scatter, np.square(u[0])


def two_stage_case(plan: TwoStagePlan) -> TwoStageCase:
    return TwoStageCase(one_feature(plan), 1)


def one_feature(plan: S) -> S:
    """Return a plan in stages with one feature, so that there is one direction."""
    check_room(plan)
    # One canary a run: in the second stage records share a map.
    names = plan.classes if plan.centred else ("0", "1")
    reduced = replace(plan, dim=1, directions=1, channels=1, classes=names, rows=1)
    assert reduced.event == plan.event, "what runs is not what is audited"
    return reduced


@dataclass(frozen=True)
class ThreeStageCase(TwoStageCase):
    """The canary of :class:`TwoStageCase`, and what it adds to the scatter of its class."""

    # Few records against the plan's number make the released scatter, which divides residuals, small: the canary's
    # residual is longer than 1 again, and adds all that a record can.

    def of_rest(self, engine: Engine) -> Scores:
        scores, (scatter, adds) = super().of_rest(engine), self._own_class(engine)
        scores[0] += adds * (2 * scatter - adds) / (2 * cast(ThreeStagePlan, self.plan).class_noise_multiplier ** 2)
        return scores

    def alone(self, engine: Engine) -> np.float64:
        """Return the scatter of the canary's class; the count of norms is what the linear attack reads."""
        return self._own_class(engine)[0]

    def _own_class(self, engine: Engine) -> tuple[np.float64, np.float64]:
        """Return the scatter of the canary's class along its residual, others taken off, and what it adds to that."""
        lattice, found, transform = self.plan.lattice, engine.beside, engine.transform
        records = self.records(np.ones(1, bool))
        mapped = found.class_mapped(self.plan)
        steps = lattice_steps(lattice, transform, records.features)
        residuals = mapped.residuals(steps, records.labels)
        v = (lattice.quantise(clip_l2(residuals, 1.0)) * lattice.step)[:, 0]
        # The canary comes first, then who is in every dataset.
        own = records.labels == records.labels[0]
        return found.class_within[records.labels[0]][0, 0] - np.square(v[own])[1:].sum(), np.square(v[0])


def three_stage_case(plan: ThreeStagePlan) -> ThreeStageCase:
    return ThreeStageCase(one_feature(plan), 1)
