"""Log-likelihood ratios of canaries from released rows, a block at a time.

Take a canary with features a and one-hot label b (less the offset). A row shows its projection z = w . (row - mean row)
on the matched filter w = (a / s_x^2, C_y^-1 b). z is about normal with variance v, and shifted by D = w . (a, b) if the
canary joined, which has probability p. The row's ratio is log(1 - p + p e^u), u = t z - log E[e^(t z)], t = D / v. The
expectation, over noise and the other members, is exact: thousands of rows would add up the error of an estimate.

Canaries blur each other: their products move each other's projections in all rows alike. The part of the ratio that is
linear in projections is therefore replaced by the best linear estimate of the coins from S, the sums of projections.
With G the products of canaries and filters, S = p T G (coins - 1/2) + noise of covariance T G. The estimate is then
proportional to (1 + p^2 T G / 4)^-1 S.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from privmix.attacks.canary_records import CANARY_SHARE, Blocks, Side, persons_vectors
from privmix.mechanisms.membership import ROW_TILE
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform

Floats = NDArray[np.float32]

# Exponents beyond which a row's ratio is cut: it separates "here" from "not here" as clearly as any.
_CERTAIN: Final = 60.0
# Rows of a canary's class that must be seen before the noise is measured on them and not taken from the plan.
_ENOUGH: Final = 16
# Records that the variance of projections is estimated from.
_SOME: Final = 4096


@dataclass(frozen=True, eq=False, repr=False)
class Filters:
    """Effect of k canaries and of the other records on a row. Secret."""

    # labels: (k,); vectors: (k, d + K) contributions to a row's sum; weights: (d + K, k) matched filters; shift: (k,)
    # D. noise, spread: (k,) variances of projections from planned noise and from sampling the others. expected: (K, k)
    # sums of the projections of each class's records; counts: (K,) records of each class.

    labels: NDArray[np.int64]
    vectors: Floats
    weights: Floats
    shift: Floats
    noise: Floats
    spread: Floats
    expected: Floats
    counts: NDArray[np.float64]

    @classmethod
    def prepare(cls, plan: ReleasePlan, transform: RecordTransform, side: Side, others: Blocks) -> Filters:
        """Match filters to the k canaries ``side``, once the transform is known."""
        classes, rate = plan.num_classes, plan.record_rate
        onehot = np.eye(classes) - plan.label_offset
        sums, counts = np.zeros((classes, plan.dim)), np.zeros(classes)
        for block in others():
            sums += block.share * (block.by_class(classes).T @ transform(np.asarray(block.x)))
            counts += block.share * np.bincount(block.y, block.weights, minlength=classes)
        vectors, labels = _canary_vectors(plan, transform, side)
        weights = np.zeros((plan.dim + classes, len(vectors)), np.float32)
        std_x, std_y = plan.noise_std_x * plan.divisor, plan.noise_std_y * plan.divisor
        np.divide(vectors[:, : plan.dim].T, std_x**2, out=weights[: plan.dim])
        if not plan.public_labels:
            # Labels of the other members blur those of the canaries as much as the noise does.
            overall = rate * (plan.class_rate or 1.0)
            blur = (onehot * (counts * overall * (1 - overall))[:, None]).T @ onehot + np.eye(classes) * std_y**2
            weights[plan.dim :] = np.linalg.solve(blur, vectors[:, plan.dim :].T)
        noise = std_x**2 * np.square(weights[: plan.dim]).sum(axis=0)
        noise += std_y**2 * np.square(weights[plan.dim :]).sum(axis=0)
        expected = np.concatenate([sums, onehot * counts[:, None]], axis=1) @ weights
        return cls(
            labels,
            vectors,
            weights,
            np.einsum("kd,dk->k", vectors, weights),
            noise,
            cls._spread(plan, transform, weights, labels, others, counts.sum()),
            expected.astype(np.float32),
            counts,
        )

    @staticmethod
    def _spread(
        plan: ReleasePlan,
        transform: RecordTransform,
        weights: Floats,
        labels: NDArray[np.int64],
        others: Blocks,
        count: float,
    ) -> Floats:
        squares, seen = np.zeros((plan.num_classes, len(labels))), 0.0
        # Spread over all records, which may lie class by class.
        every = max(1, int(count / _SOME))
        for number, block in enumerate(others()):
            if number % every == 0:
                projected = contributions(plan, transform, block.x, block.y) @ weights
                squares += block.share * (block.by_class(plan.num_classes).astype(np.float32).T @ np.square(projected))
                seen += block.share * block.units
        met = (meetings(plan)[:, labels] * squares).sum(axis=0)
        return np.asarray(plan.record_rate * (1 - plan.record_rate) * met * count / max(seen, 1.0), np.float32)


def contributions(plan: ReleasePlan, transform: RecordTransform, x: Floats, y: NDArray[np.int64]) -> Floats:
    """(b, d + K) float32: what records add to the sums of features and labels."""
    made = np.empty((len(y), plan.dim + plan.num_classes), np.float32)
    made[:, : plan.dim] = transform(np.asarray(x))
    made[:, plan.dim :] = (np.eye(plan.num_classes) - plan.label_offset)[y]
    return made


def _canary_vectors(plan: ReleasePlan, transform: RecordTransform, side: Side) -> tuple[Floats, NDArray[np.int64]]:
    """Return (k, d + K) mean contributions of canaries to a row that holds them, and (k,) their classes."""
    # A person with records of several classes is looked for in the rows of the class with most of them.
    made = contributions(plan, transform, side.features, side.labels)
    if side.starts is None:
        return made, side.labels
    return persons_vectors(plan, made, side.starts, side.labels, side.copies)


def meetings(plan: ReleasePlan) -> Floats:
    """(K, K) how often a row that may hold records of one class may hold those of another, too."""
    return plan.kind.together(plan).astype(np.float32)


@dataclass(eq=False, repr=False)
class RowScores:
    """Sums of the rows' log-likelihood ratios (``totals``) and projections (``sums``) of k canaries. Secret."""

    plan: ReleasePlan
    transform: RecordTransform
    filters: Filters
    others: Blocks
    evidence: str
    totals: NDArray[np.float64] = field(init=False)
    sums: NDArray[np.float64] = field(init=False)
    tilt: Floats | None = field(default=None, init=False)
    _constant: Floats = field(init=False)
    _by_class: Floats = field(init=False)
    _before: tuple[Floats, NDArray[np.bool_]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.totals, self.sums = np.zeros(len(self.filters.labels)), np.zeros(len(self.filters.labels))

    def add(self, start: int, x: Floats, y: Floats) -> None:
        """Score released rows, (b, d) and (b, K), the first of which is row ``start``, a multiple of the row tile."""
        plan, filters = self.plan, self.filters
        for first in range(0, len(x), ROW_TILE):
            rows = slice(first, first + ROW_TILE)
            # (b, K) whether a row may hold records of a class, as far as the row itself shows.
            present = plan.kind.classes_present(plan, start + first, y[rows], filters.counts)
            seen = x[rows] @ filters.weights[: plan.dim]
            seen += y[rows] @ filters.weights[plan.dim :]
            seen *= np.float32(plan.divisor)
            seen -= (present * np.float32(plan.record_rate)) @ filters.expected
            if self.evidence == "rows":
                self._add_rows(seen, present)
            else:
                self._add_gaps(seen, present)

    def _add_rows(self, seen: Floats, present: NDArray[np.bool_]) -> None:
        own = present[:, self.filters.labels]
        if self.tilt is None:
            self._tune(self._noise_factor(seen, own, 1))
        assert self.tilt is not None
        self.sums += np.sum(seen, axis=0, where=own, dtype=np.float64)
        seen *= self.tilt
        seen -= present @ self._by_class
        seen -= self._constant
        self.totals += np.sum(_ratio(seen, self.plan.record_rate), axis=0, where=own, dtype=np.float64)

    def _add_gaps(self, seen: Floats, present: NDArray[np.bool_]) -> None:
        """Score differences of rows: a canary in one of the two moves them, one way or the other."""
        own = present[:, self.filters.labels]
        if self.evidence == "neighbours":
            pairs = len(seen) // 2 * 2
            gaps, both = seen[0:pairs:2] - seen[1:pairs:2], own[0:pairs:2] & own[1:pairs:2]
        else:
            before, self._before = self._before, (seen, own)
            if before is None or len(before[0]) < len(seen):
                return
            gaps, both = seen - before[0][: len(seen)], own & before[1][: len(seen)]
        if self.tilt is None:
            factor = self._noise_factor(gaps, both, 2)
            variance = 2 * (np.float32(factor) * self.filters.noise + self.filters.spread)
            self.tilt = self.filters.shift / variance
            self._constant = np.square(self.tilt) * variance / 2
        rate = self.plan.record_rate * (1 - self.plan.record_rate)
        up, down = gaps * self.tilt - self._constant, -gaps * self.tilt - self._constant
        for one in (up, down):
            np.clip(one, -_CERTAIN, _CERTAIN, out=one)
            np.expm1(one, out=one)
        up += down
        self.totals += np.sum(np.log1p(rate * up), axis=0, where=both, dtype=np.float64)

    def _noise_factor(self, seen: Floats, own: NDArray[np.bool_], rows: int) -> float:
        """Return the noise variance over the planned one, measured on all canaries together."""
        enough = own.sum(axis=0)
        if enough.min() < _ENOUGH:
            return 1.0
        measured = np.sum(np.square(seen, dtype=np.float64), axis=0, where=own) / enough / rows
        factor = np.median((measured - self.filters.spread) / self.filters.noise)
        return max(float(factor), 1e-4)

    def _tune(self, factor: float) -> None:
        """Choose t, and work out log E[e^(t z)] of the noise and, by class, of the other records' draws."""
        filters, rate = self.filters, self.plan.record_rate
        self.tilt = filters.shift / (np.float32(factor) * filters.noise + filters.spread)
        self._constant = np.asarray(np.square(self.tilt) * factor * filters.noise / 2, np.float32)
        by_class = np.zeros(filters.expected.shape)
        classes = np.eye(len(by_class), dtype=np.float32)
        weights = filters.weights * self.tilt
        if rate < 1:
            for block in self.others():
                projected = contributions(self.plan, self.transform, block.x, block.y) @ weights
                if block.persons is None:
                    by_class -= block.share * rate * (classes[block.y].T @ projected)
                    by_class += block.share * (classes[block.y].T @ _ratio(projected, rate))
                else:
                    by_class -= block.share * rate * (block.by_class(len(classes)).T @ projected)
                    first, exponents = block.persons.first, block.persons.exponents(projected)
                    by_class += block.share * (classes[block.y[first]].T @ _ratio(exponents, rate))
            # No canary blurs itself.
            itself = self.tilt * filters.shift
            own = (filters.labels, np.arange(len(itself)))
            by_class[own] -= CANARY_SHARE * (_ratio(itself.copy(), rate) - rate * itself)
        self._by_class = by_class.astype(np.float32)


def resolve(present: RowScores, absent: RowScores | None) -> NDArray[np.float64]:
    """Return (k,) final scores, with the influence of canaries on each other removed; ``absent``: of the opposites."""
    totals = present.totals if absent is None else present.totals - absent.totals
    if present.evidence != "rows" or present.tilt is None:
        # Differences of rows hold nothing linear.
        return totals
    plan, labels = present.plan, present.filters.labels
    vectors, weights, sums = present.filters.vectors, present.filters.weights, present.sums
    if absent is not None:
        vectors, weights, sums = vectors - absent.filters.vectors, weights - absent.filters.weights, sums - absent.sums
    products = vectors @ weights
    met = meetings(plan)
    products *= met[labels][:, labels]
    # Rows that may hold a canary: all, a class's share, or those that drew its class.
    rows = plan.rows * plan.kind.class_share(plan)
    slope = plan.record_rate * present.tilt.astype(np.float64)
    products *= np.float32(plan.record_rate * rows * slope.mean() / 4)
    products.flat[:: len(products) + 1] += 1
    own = np.diag(products).astype(np.float64)
    estimate = linalg.solve(products, sums.astype(np.float32), assume_a="pos", overwrite_a=True, check_finite=False)
    return np.asarray(totals + slope * (own * estimate - sums))


def _ratio(exponent: Floats, rate: float) -> Floats:
    """log(1 - p + p e^u), in place."""
    if rate == 1:
        return exponent
    np.clip(exponent, -_CERTAIN, _CERTAIN, out=exponent)
    np.expm1(exponent, out=exponent)
    exponent *= np.float32(rate)
    return np.asarray(np.log1p(exponent, out=exponent))
