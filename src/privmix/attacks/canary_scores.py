"""Log-likelihood ratios of canaries from released rows, a block at a time.

A row's sum is that of its members and Gaussian noise. For a canary with features a and one-hot label b (less the
offset), the projection z = w . (row - what the other records are expected to add) on the matched filter
w = (a / s_x^2, C_y^-1 b) is about normal around 0, and around w . (a, b) where the canary joined, which it does with
probability p. Hence the log-likelihood ratio of a row is log(1 - p + p exp((z D - D^2 / 2) / v)), with D that distance
and v the variance of z: the noise's, and what sampling the other records adds to it. All projections are one product of
rows and canaries.

Canaries blur one another: those beside one, in or out, shift its projections in all rows alike. That part of the ratio
which is linear in the projections is therefore replaced by the best linear estimate of the coin from the sums of all
canaries' projections: with S these sums and G the products of canaries and filters, S = p T G (coins - 1/2) + noise of
covariance T G, so the estimate is proportional to (1 + p^2 T G / 4)^-1 S.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from privmix.mechanisms.membership import ROW_TILE
from privmix.release import RecordTransform, ReleasePlan

Side = tuple[NDArray[np.float32], NDArray[np.int64]]

# Rows that must be seen before variances are taken from them and not from the plan.
_ENOUGH: Final = 64
# Exponents beyond which a row's ratio is cut: it says "here" or "not here" as clearly as any.
_CERTAIN: Final = 60.0


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Sums of transformed records by class, (K, d), and how many there are, (K,). Secret."""

    features: NDArray[np.float64]
    counts: NDArray[np.float64]

    @classmethod
    def of(
        cls, plan: ReleasePlan, transform: RecordTransform, blocks: Iterable[tuple[NDArray[Any], NDArray[np.int64]]]
    ) -> ClassSums:
        """Those of records that come in blocks."""
        sums = cls(np.zeros((plan.num_classes, plan.dim)), np.zeros(plan.num_classes))
        for x, y in blocks:
            sums.add(transform, x, y)
        return sums

    def add(self, transform: RecordTransform, x: NDArray[Any], y: NDArray[np.int64], share: float = 1.0) -> None:
        """Add records, or a share of each."""
        classes = len(self.counts)
        self.features[:] += share * (np.eye(classes)[y].T @ transform(x))
        self.counts[:] += share * np.bincount(y, minlength=classes)


@dataclass(eq=False)
class RowScores:
    """Adds up the rows' log-likelihood ratios of k canaries.

    Attributes:
        plan: public.
        labels: (k,) the canaries' classes.
        vectors: (k, d + K) float32, what each adds to a row's sum: features and label.
        filters: (d + K, k) float32, matched to them.
        expected: (K, k) what a class's records add to a projection, were all of them in the row.
        counts: (K,) records of each class.
        evidence: see :class:`privmix.attacks.canaries.CanaryConfig`.
        totals: (k,) sums of rows' ratios so far, and ``sums``, of projections.
    """

    plan: ReleasePlan
    labels: NDArray[np.int64]
    vectors: NDArray[np.float32]
    filters: NDArray[np.float32]
    expected: NDArray[np.float32]
    counts: NDArray[np.float64]
    evidence: str
    totals: NDArray[np.float64] = field(init=False)
    sums: NDArray[np.float64] = field(init=False)
    _variance: NDArray[np.float32] | None = field(default=None, init=False)
    _before: tuple[NDArray[np.float32], NDArray[np.bool_]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.totals, self.sums = np.zeros(len(self.labels)), np.zeros(len(self.labels))
        self.shift = np.einsum("kd,dk->k", self.vectors, self.filters)

    @classmethod
    def prepare(
        cls, plan: ReleasePlan, transform: RecordTransform, side: Side, others: ClassSums, evidence: str
    ) -> RowScores:
        """Make filters and expectations, once the transform is known.

        Args:
            plan: public.
            transform: of the release.
            side: features (k, d) and labels (k,) of the canaries.
            others: sums of all that is expected to be in the data.
            evidence: see :class:`privmix.attacks.canaries.CanaryConfig`.
        """
        classes, rate = plan.num_classes, plan.record_rate * (plan.class_rate or 1.0)
        onehot = np.eye(classes) - plan.label_offset
        vectors = np.empty((len(side[1]), plan.dim + classes), np.float32)
        vectors[:, : plan.dim], vectors[:, plan.dim :] = transform(side[0]), onehot[side[1]]
        filters = np.zeros((plan.dim + classes, len(vectors)), np.float32)
        np.divide(vectors[:, : plan.dim].T, (plan.noise_std_x * plan.divisor) ** 2, out=filters[: plan.dim])
        if not plan.public_labels:
            # Labels of the other members blur those of the canaries as much as the noise does.
            spread = (onehot * (others.counts * rate * (1 - rate))[:, None]).T @ onehot
            spread += np.eye(classes) * (plan.noise_std_y * plan.divisor) ** 2
            filters[plan.dim :] = np.linalg.solve(spread, vectors[:, plan.dim :].T)
        sums = np.concatenate([others.features, onehot * others.counts[:, None]], axis=1)
        expected = (sums @ filters).astype(np.float32)
        return cls(plan, side[1], vectors, filters, expected, others.counts, evidence)

    def add(self, start: int, x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
        """Score released rows, (b, d) and (b, K), the first of which is row ``start``, a multiple of the row tile."""
        dim = self.plan.dim
        for first in range(0, len(x), ROW_TILE):
            rows = slice(first, first + ROW_TILE)
            present = self._classes_present(start + first, y[rows])
            seen = x[rows] @ self.filters[:dim]
            seen += y[rows] @ self.filters[dim:]
            seen *= np.float32(self.plan.divisor)
            seen -= (present * np.float32(self.plan.record_rate)) @ self.expected
            self._add_tile(seen, present[:, self.labels])

    def _classes_present(self, start: int, y: NDArray[np.float32]) -> NDArray[np.bool_]:
        """(b, K) whether a row may hold records of a class, as far as the row itself tells."""
        plan, classes = self.plan, self.plan.num_classes
        if plan.design == "classwise":
            return (start + np.arange(len(y)))[:, None] % classes == np.arange(classes)
        if plan.design == "hierarchical":
            # A drawn class shows in the row's label sum: more than half its expected members.
            members = (y + plan.label_offset) * plan.divisor
            return np.asarray(members > self.counts * plan.record_rate / 2)
        return np.ones((len(y), classes), bool)

    def _add_tile(self, seen: NDArray[np.float32], present: NDArray[np.bool_]) -> None:
        rate = self.plan.record_rate
        if self.evidence == "rows":
            self.sums += np.sum(seen, axis=0, where=present, dtype=np.float64)
            ratio = _ratio(seen, self.shift, self._variance_of(seen, present), rate)
            self.totals += np.sum(ratio, axis=0, where=present, dtype=np.float64)
            return
        if self.evidence == "neighbours":
            pairs = len(seen) // 2 * 2
            gaps, both = seen[0:pairs:2] - seen[1:pairs:2], present[0:pairs:2] & present[1:pairs:2]
        else:
            before, self._before = self._before, (seen, present)
            if before is None or len(before[0]) < len(seen):
                return
            gaps, both = seen - before[0][: len(seen)], present & before[1][: len(seen)]
        # A canary in one of the two rows moves their difference one way or the other; in both, or none, it does not.
        ratio = _two_sided_ratio(gaps, self.shift, self._variance_of(gaps, both), rate * (1 - rate))
        self.totals += np.sum(ratio, axis=0, where=both, dtype=np.float64)

    def _variance_of(self, seen: NDArray[np.float32], present: NDArray[np.bool_]) -> NDArray[np.float32]:
        """(k,) variance of projections in which no canary is: measured on the first rows, where they are enough."""
        if self._variance is None:
            enough = present.sum(axis=0)
            squares = np.sum(np.square(seen, dtype=np.float64), axis=0, where=present)
            measured = squares / np.maximum(enough, 1)
            planned = self.shift * (1.0 if self.evidence == "rows" else 2.0)
            usable = (enough >= _ENOUGH) & (measured > 0)
            self._variance = np.where(usable, measured, planned).astype(np.float32)
        return self._variance

    @property
    def slope(self) -> NDArray[np.float64]:
        """(k,) how much a row's ratio grows with its projection."""
        assert self._variance is not None
        return np.asarray(self.plan.record_rate * self.shift / self._variance, np.float64)


def resolve(present: RowScores, absent: RowScores | None) -> NDArray[np.float64]:
    """(k,) final scores: ratios in which canaries no longer blur one another.

    Args:
        present: of the canaries.
        absent: of what stands in their place where their coins leave them out; None where nothing does.
    """
    totals = present.totals if absent is None else present.totals - absent.totals
    if present.evidence != "rows":
        # Differences of rows hold nothing linear.
        return totals
    plan, vectors, filters, sums = present.plan, present.vectors, present.filters, present.sums
    if absent is not None:
        vectors, filters, sums = vectors - absent.vectors, filters - absent.filters, sums - absent.sums
    rows, other_class = {
        "hierarchical": (plan.rows * (plan.class_rate or 1.0), plan.class_rate or 1.0),
        "classwise": (plan.rows / plan.num_classes, 0.0),
    }.get(plan.design, (float(plan.rows), 1.0))
    products = vectors @ filters
    if other_class < 1:
        # Canaries of two classes meet in the rows that hold both.
        products *= np.where(present.labels[:, None] == present.labels, np.float32(1), np.float32(other_class))
    slope = present.slope
    # What is less noisy than planned weighs more.
    products *= plan.record_rate * rows * slope.mean() / 4
    products.flat[:: len(products) + 1] += 1
    own = np.diag(products).astype(np.float64)
    estimate = linalg.solve(products, sums.astype(np.float32), assume_a="pos", overwrite_a=True, check_finite=False)
    return np.asarray(totals + slope * (own * estimate - sums))


def _ratio(
    seen: NDArray[np.float32], shift: NDArray[np.float32], variance: NDArray[np.float32], rate: float
) -> NDArray[np.float32]:
    """log(1 - p + p e^u), in place of ``seen``."""
    exponent = _exponent(seen, shift, variance)
    if rate == 1:
        return exponent
    np.clip(exponent, -_CERTAIN, _CERTAIN, out=exponent)
    np.expm1(exponent, out=exponent)
    exponent *= np.float32(rate)
    return np.asarray(np.log1p(exponent, out=exponent))


def _two_sided_ratio(
    gaps: NDArray[np.float32], shift: NDArray[np.float32], variance: NDArray[np.float32], rate: float
) -> NDArray[np.float32]:
    """log(1 - 2a + a e^u + a e^u'), u and u' for a canary in the first row or in the second."""
    up, down = _exponent(gaps.copy(), shift, variance), _exponent(-gaps, shift, variance)
    for one in (up, down):
        np.clip(one, -_CERTAIN, _CERTAIN, out=one)
        np.expm1(one, out=one)
    up += down
    up *= np.float32(rate)
    return np.asarray(np.log1p(up, out=up))


def _exponent(
    seen: NDArray[np.float32], shift: NDArray[np.float32], variance: NDArray[np.float32]
) -> NDArray[np.float32]:
    """(z D - D^2 / 2) / v, in place."""
    seen -= shift / 2
    seen *= shift / variance
    return seen
