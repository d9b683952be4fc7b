"""Design ``two-class``: row t draws records of two classes, t and t + 1 modulo K; and a learner, ``class-means``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import Adjacency, Event, PoissonSampled, Repeated
from privmix.designs.rows.worst_case import PoissonCase
from privmix.engine.rows import RowBlock
from privmix.learning.base import LEARNERS, LinearLearner
from privmix.mechanisms.membership import ItemGroups, draw_blocks
from privmix.mechanisms.sampling import ROW_TILE, Membership, Sampler
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.registry import register
from privmix.plans.rows import NoisyLabels, ReleasePlan
from privmix.plans.setting import Setting
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform, ReleasedDataset


def holds(first: int, rows: int, classes: int) -> NDArray[np.bool_]:
    """(rows, K) which classes rows ``first`` and on may hold; public."""
    own = (first + np.arange(rows))[:, None] % classes == np.arange(classes)
    return own | np.roll(own, 1, axis=1)


@dataclass(frozen=True)
class TwoClassSampling(Sampler):
    """Members of rows, and their privacy cost."""

    classes: int
    rate: float

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency.ADD_REMOVE

    def event(self, query: Event) -> Event:
        # A record may be in the rows of its own class's number and in those before them.
        return Repeated(PoissonSampled(self.rate, query), 2 * -(-self.rows // self.classes))

    def draw(
        self, streams: SecretStreams, row_tile: int, record_tile: int, labels: NDArray[np.int64] | None = None
    ) -> Membership:
        assert labels is not None
        rows, _ = self._tile_shape(row_tile, record_tile)
        of_class, row = np.nonzero(holds(row_tile * ROW_TILE, rows, self.classes).T)
        may_hold = ItemGroups(row, np.searchsorted(of_class, np.arange(self.classes + 1)))
        generator = streams.generator("two-class membership", row_tile, record_tile)
        return draw_blocks(generator, rows, may_hold, ItemGroups.from_labels(labels, self.classes), self.rate)


@register
@dataclass(frozen=True)
class TwoClass(NoisyLabels):
    """Rows between Poisson mixup and class-wise mixing."""

    name = "two-class"
    worst_case = f"{__name__}:two_class_case"
    words = "each row holds records of two classes"
    draws = "each row takes records of two neighbouring classes"
    labels: ClassVar = {"two-class": "two-class mixup"}
    mixes_all_classes = False

    def rate(self, setting: Setting) -> float:
        return super().rate(setting) * len(setting.classes) / 2

    @classmethod
    def trials(cls, setting: Setting) -> list[tuple[str, TwoClass]]:
        return [(cls.name, cls(64))] if setting.records >= 64 * len(setting.classes) else []

    @classmethod
    def rate_of(cls, plan: ReleasePlan) -> float:
        return super().rate_of(plan) * plan.num_classes / 2

    @classmethod
    def sampler(cls, plan: ReleasePlan, records: int) -> Sampler:
        return TwoClassSampling(records, plan.rows, plan.num_classes, plan.record_rate)

    @classmethod
    def expected_members(cls, plan: ReleasePlan) -> float:
        return super().expected_members(plan) * cls.class_share(plan)

    @classmethod
    def class_share(cls, plan: ReleasePlan) -> float:
        return 2 / plan.num_classes

    @classmethod
    def rows_touched(cls, plan: ReleasePlan) -> int:
        return 2 * -(-plan.rows // plan.num_classes)

    @classmethod
    def label_counts(
        cls, plan: ReleasePlan, sizes: NDArray[np.int64], rows: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        drawn = generator.binomial(sizes, plan.record_rate, (rows, len(sizes)))
        return drawn * holds(0, rows, len(sizes))

    @classmethod
    def amplified(cls, plan: ReleasePlan) -> float:
        return plan.expected_members / 2


class TwoClassCase(PoissonCase):
    """One record of class 0, in the rows that may hold its class."""

    def of_rows(self, block: RowBlock, transform: RecordTransform) -> NDArray[np.float64]:
        told = holds(block.start, len(block.x), self.plan.num_classes)[:, 0]
        return super().of_rows(RowBlock(block.start, block.x[told], block.y[told]), transform)


def two_class_case(plan: ReleasePlan) -> TwoClassCase:
    """Return the worst pair of neighbours: one feature, one canary."""
    return TwoClassCase(replace(plan, dim=1), 1)


@LEARNERS.register
class ClassMeans(LinearLearner):
    """The class with the nearest mean, by least squares."""

    name = "class-means"

    def _check_params(self) -> None:
        pass

    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        means = np.linalg.lstsq(release.y, release.x, rcond=None)[0].astype(np.float32)
        self.coef_, self.intercept_ = means.T, -np.square(means).sum(axis=1) / 2
