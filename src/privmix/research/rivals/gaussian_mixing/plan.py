"""Design ``gaussian-mixing``: every row is a sum of ALL records with normal weights, after Lev et al. 2025."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.events import Adjacency, Composed, Event, Gaussian, NormalWeighted, Repeated
from privmix.errors import InvalidInput
from privmix.mechanisms.membership import RECORD_TILE, Membership, offsets_of, tile_length
from privmix.mechanisms.sampling import Sampler
from privmix.mechanisms.streams import SecretStreams
from privmix.options import described
from privmix.plans.design import BOTH
from privmix.plans.registry import register
from privmix.plans.rows import NoisyLabels, ReleasePlan
from privmix.plans.setting import AssumedRecords, MomentForecast, Setting

RECORD_BLOCK: Final = 4096
"""Records whose weights are drawn from one stream a row tile: changing it changes every draw under a key."""

WEIGHT_BITS: Final = 16
"""Weights are multiples of 2^-16."""

_LARGEST_WEIGHT: Final = 16.0
# Share of the noise's variance that pays for rounding weights to their grid.
_ROUNDING_SHARE: Final = 2.0**-10
# As many as are sampled from moments. The published code has 2.5 for each feature and class.
_ROWS: Final = 10_000
_DRAWN_AT_ONCE: Final = 128
# Bits of exact sums in float64, and of the noise in lattice steps.
_SUM_BITS, _NOISE_BITS = 53, 46


@dataclass(frozen=True)
class NormalWeights(Sampler):
    """Every record is in every row, with a weight N(0, 1) of its own, rounded to a grid and cut at 16.

    Formal guarantees:
        * The event is the law, rounding included. Let h be the grid, e = rounded weight - weight, |e| <= h / 2, and
          split the noise of standard deviation s (in the norm of a record) in two independent parts. Their variances
          are (1 - f) s^2 and f s^2. A record changes the sum of (N_1 + w a) and (N_2 + e a). The first is priced as a
          sum with normal weights. Given it, e is some number of at most h / 2. The second is then a mixture of
          Gaussian queries that move by at most h / 2. It is dominated by one of multiplier 2 s sqrt(f) / h (joint
          convexity), and both compose adaptively.
        * No float64 normal is beyond 12.2, so that the cut changes only which bounds on sums are certain. Other
          differences between the sampler and the ideal law are stated where noise is drawn
          (:mod:`privmix.mechanisms.noise`).
    """

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency.ADD_REMOVE

    def event(self, query: Event) -> Event:
        assert isinstance(query, Gaussian)
        whole = query.noise_multiplier
        spread = NormalWeighted(Gaussian(whole * math.sqrt(1 - _ROUNDING_SHARE)))
        rounding = Gaussian(2 * whole * math.sqrt(_ROUNDING_SHARE) * 2.0**WEIGHT_BITS)
        return Composed((Repeated(spread, self.rows), Repeated(rounding, self.rows)))

    def block(self, streams: SecretStreams, row_tile: int, block: int) -> NDArray[np.float64]:
        """(rows of the tile, records of the block) weights, as integers in steps of their grid."""
        rows, _ = self._tile_shape(row_tile, block * RECORD_BLOCK // RECORD_TILE)
        records = tile_length(self.records, block, RECORD_BLOCK)
        weights = np.empty((rows, records))
        with streams.lent("normal weights", row_tile, block) as generator:
            for start in range(0, rows, _DRAWN_AT_ONCE):
                part = weights[start : start + _DRAWN_AT_ONCE]
                generator.standard_normal(out=part)
                np.clip(part, -_LARGEST_WEIGHT, _LARGEST_WEIGHT, out=part)
                part *= 2.0**WEIGHT_BITS
                np.rint(part, out=part)
        return weights

    def draw(
        self, streams: SecretStreams, row_tile: int, record_tile: int, labels: NDArray[np.int64] | None = None
    ) -> Membership:
        rows, records = self._tile_shape(row_tile, record_tile)
        first = record_tile * RECORD_TILE // RECORD_BLOCK
        blocks = range(first, first + -(-records // RECORD_BLOCK))
        weights = np.hstack([self.block(streams, row_tile, number) for number in blocks]) * 2.0**-WEIGHT_BITS
        every = np.tile(np.arange(records, dtype=np.int64), rows)
        return Membership(offsets_of(np.full(rows, records, dtype=np.int64)), every, weights.ravel())


@dataclass(frozen=True, kw_only=True)
class GaussianMixingPlan(ReleasePlan):
    """Public constants of rows that are sums of all records with normal weights, over sqrt(n).

    Given the records, released rows are independent N(0, (X'X + g I) / n), of features and labels together (each with a
    noise of its own). Their covariance depends on the records, their mean does not.

    Formal guarantees:
        * the price holds for every dataset: a record's bound is enforced by clipping, and no smallest eigenvalue of
          the data plays a part (:mod:`privmix.accounting.spreads`);
        * sums of n weighted records are exact integers below 2^53: other lattices are refused.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lattice_bits > _most_bits(self.records):
            raise InvalidInput("lattice_bits", self.lattice_bits, f"at most {_most_bits(self.records)}")

    @property
    def weight_step(self) -> float:
        return 2.0**-WEIGHT_BITS

    @property
    def weighs_persons(self) -> bool:
        return True


def _most_bits(records: int) -> int:
    """Bits of the lattice at which a sum of weighted records is an exact integer, with one to spare."""
    return _SUM_BITS - 1 - WEIGHT_BITS - int(math.log2(_LARGEST_WEIGHT)) - records.bit_length()


@register
@described
@dataclass(frozen=True)
class GaussianMixing(NoisyLabels):
    """Gaussian Mixing (Lev et al. 2025): a Gaussian sketch of records and labels, with noise."""

    # The published price needs the smallest eigenvalue of the data, estimated privately; here it is that of the worst
    # dataset. At the same price the noise in X'X is that of second moments off the diagonal, and sampling T rows adds
    # to it. Second moments are better, and the planner never takes this. Use: rows for any method that takes rows.
    name = "gaussian-mixing"
    persons = True
    worst_case = "privmix.research.rivals.gaussian_mixing.worst_case:gaussian_mixing_case"
    words = "each row is a sum of all records with normal weights"
    draws = "each row takes all records, each with a random weight from N(0, 1)"
    averages = False
    engines: ClassVar[Mapping[str, str]] = dict.fromkeys(
        BOTH, "privmix.research.rivals.gaussian_mixing.engine:GaussianMixingEngine"
    )
    moved = "privmix.research.rivals.gaussian_mixing.audit:gaussian_mixing_moved"
    plan_type: ClassVar[type[ReleasePlan]] = GaussianMixingPlan
    lost = "Rows hold means of products of features and labels, and nothing beyond them."
    statements: ClassVar[tuple[str, ...]] = (
        "Rows are priced by what one record can change in their covariance, for the worst dataset: noise alone hides a "
        "record, and other records hide nothing of it.",
    )
    # No option: every record is in every row.
    mixup_degree: ClassVar[int] = 1  # type: ignore[misc]

    @property
    def weighs_persons(self) -> bool:
        return True

    def check(self, setting: Setting) -> None:
        if _most_bits(setting.records) < 8:
            raise InvalidInput("records", setting.records, f"fewer for design {self.name}: sums must be exact")

    def plan(self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None) -> ReleasePlan:
        ratio = self.label_noise_ratio
        largest = noise_multiplier * math.sqrt(1 + ratio**-2) * max(1.0, ratio)
        # Much noise needs no fine grid, and must stay within what float64 counts exactly.
        bits = min(setting.lattice_bits, _most_bits(setting.records))
        bits = max(8, min(bits, _NOISE_BITS - WEIGHT_BITS - math.ceil(math.log2(max(1.0, largest)))))
        return super().plan(replace(setting, lattice_bits=bits), noise_multiplier, centre_noise_multiplier)

    def fields(self, setting: Setting) -> dict[str, Any]:
        return {**super().fields(setting), "rows": setting.rows or min(setting.records, _ROWS)}

    def rate(self, setting: Setting) -> float:
        return 1.0

    @property
    def rows_follow(self) -> bool:
        return True

    def settings(self) -> dict[str, Any]:
        return {"design": self.name, "label_noise_ratio": self.label_noise_ratio}

    @classmethod
    def rate_of(cls, plan: ReleasePlan) -> float:
        return 1.0

    @classmethod
    def sampler(cls, plan: ReleasePlan, records: int) -> Sampler:
        return NormalWeights(records, plan.rows)

    @classmethod
    def divisor(cls, plan: ReleasePlan) -> float:
        """sqrt(n): rows then vary as records do."""
        return math.sqrt(plan.records)

    @classmethod
    def label_counts(
        cls, plan: ReleasePlan, sizes: NDArray[np.int64], rows: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Weights are no counts."""
        raise InvalidInput("design", plan.design, "one whose rows are averages of records")

    @classmethod
    def mechanism(cls, plan: ReleasePlan, multiplier: str) -> str:
        return (
            f"{plan.rows} rows, each a sum of all n = {plan.records} records with weights drawn from N(0, 1). Each row "
            f"has Gaussian noise, {multiplier} times a record's bound, drawn once."
        )

    @classmethod
    def card(cls, plan: ReleasePlan, extractor: str) -> str:
        return f"""{plan.rows} rows; {cls.words}, over the root of the number of records. A row is not a record: it is a noisy random
combination of all, with mean 0, and rows vary together as records do.

| column | type | meaning |
|---|---|---|
| `x` | list of {plan.dim} float32 | sums of `{extractor}` features; noise of standard deviation {plan.noise_std_x:.6g} |
| `y` | list of {plan.num_classes} float32 | sums of one-hot labels minus {plan.label_offset:.6g}; noise {plan.noise_std_y:.6g} |
"""  # noqa: E501

    @classmethod
    def summary(cls, plan: ReleasePlan, about: str) -> str:
        return f"{plan.rows:,} rows, each a noisy sum with normal weights of all of {about}"

    @classmethod
    def shown(cls, plan: ReleasePlan) -> dict[str, str]:
        return {"rows": str(plan.rows)}

    @classmethod
    def forecast(cls, plan: ReleasePlan, assumed: AssumedRecords) -> MomentForecast:
        """Entry (i, j) of n times the rows' second moments varies by about the root of a_i a_j, a = n var + g."""
        records, classes = plan.records, plan.num_classes
        noise = plan.feature_noise_multiplier**2
        features = records * (assumed.within + assumed.between) + noise
        labels = records * (1 - 1 / classes) / classes + (plan.label_bound * plan.label_noise_multiplier) ** 2
        scale = assumed.unseen / math.sqrt(plan.rows)
        return MomentForecast(scale * features, scale * np.sqrt(features * labels))
