"""A mixture in whose parts columns are independent: what a release of its records would hold, and its descent."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.publication.dataset import RecordTransform
from privmix.publication.second_moments import SecondMoments

Reals = NDArray[np.float64]
# float32 where a fit is made.
Floats = NDArray[Any]
Sums = tuple[Floats, Floats, Floats]

PARTS: Final = 400
"""Parts of the mixture."""

# The least divisor, and the least argument of a logarithm.
_TINY: Final = 1e-12
# How far the parts' columns start from those of the whole table, in logarithms of shares.
_APART: Final = 1.0
_RAREST: Final = 1e-4
_MOMENTUM: Final = (0.9, 0.99)
# Rows of which the effect of clipping is taken.
_CLIPPED_ROWS: Final = 50_000
# Features that are multiplied at once: those of different columns meet nowhere, so that wide tables go in blocks.
_BLOCK: Final = 64
# Numbers of the rows that clipping is measured on, at most.
_CLIPPED_NUMBERS: Final = 20_000_000


@dataclass(frozen=True, eq=False)
class ColumnStates:
    """States of a column: (s, width) ``features`` before clipping, and (s,) default ``shares`` that sum to 1."""

    name: str
    features: Reals
    shares: Reals

    @property
    def one_hot(self) -> bool:
        """Whether each feature belongs to one state."""
        return bool((np.count_nonzero(self.features, axis=0) <= 1).all())


@dataclass(frozen=True, eq=False)
class Numbers:
    """Released numbers per record, and one over the standard deviation of their noise; ``second`` on its diagonal."""

    second: Floats
    cross: Floats
    counts: Floats
    weights: tuple[float, float, float]

    @property
    def count(self) -> int:
        blocks, side, _ = self.second.shape
        return int(blocks * side * (side + 1) // 2 + (self.cross.size + self.counts.size) * (self.weights[1] > 0))

    def misfit(self, of: Sums) -> tuple[float, Sums]:
        """Sum of squares over the noise's variance, and half its slopes."""
        # An entry off the diagonal of X'X stands twice, with twice the variance.
        parts = zip((self.second, self.cross, self.counts), of, self.weights, strict=True)
        left = [((found - released) * weight, weight) for released, found, weight in parts]
        second, cross, counts = (part * weight for part, weight in left)
        return sum(float(np.square(part).sum()) for part, _ in left), (second, cross, counts)


class Mixture:
    """Parameters of a mixture and what would be released of records of it."""

    def __init__(
        self,
        moments: SecondMoments,
        label_offset: float,
        transform: RecordTransform,
        columns: Sequence[ColumnStates],
        mean_noise_std: float,
        free_total: bool,
        seed: int,
    ) -> None:
        self.offset, self.transform, self.columns = label_offset, transform, columns
        n = moments.records
        self.classes = len(moments.label_sums)
        self.sizes = [len(column.features) for column in columns] + [self.classes]
        widths = [column.features.shape[1] for column in columns]
        edges = np.cumsum([0, *widths])
        self.spans = [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
        # All columns at once: (all states, d) features, and where two of them are of different columns.
        self.apart = 1 - _blocks([np.ones((width, width), np.float32) for width in widths])
        # By block: (states, features), and (states, columns) with one where a state is of a column.
        block = np.append(edges[:-1], edges[-2]) // _BLOCK
        grouped = [np.flatnonzero(block == one) for one in np.unique(block)]
        every = [*(column.features.astype(np.float32) for column in columns), np.zeros((self.classes, 0), np.float32)]
        self.features = [_blocks([every[j] for j in group]) for group in grouped]
        self.member = [_blocks([np.ones((self.sizes[j], 1), np.float32) for j in group]) for group in grouped]
        self.lengths = np.concatenate([np.square(part).sum(axis=1) for part in self.features])
        self.centre = None if transform.centre is None else np.asarray(transform.centre, np.float32)
        largest = math.sqrt(sum(float(np.square(column.features).sum(axis=1).max()) for column in columns))
        self.clips = self.centre is not None or largest > transform.clip_norm * (1 + 1e-6)
        second, cross, counts = (
            n / max(std, 1e-6 * n)
            for std in (moments.noise_std_block, moments.noise_std_cross, moments.noise_std_counts)
        )
        if self.classes == 1:
            # Records without a label: nothing is released of labels.
            cross = counts = 0.0
        # (K, b): the classes of each block of X'X.
        self.blocks = (
            np.ones((self.classes, 1), np.float32)
            if len(moments.blocks) == 1
            else np.eye(self.classes, dtype=np.float32)
        )
        numbers = (np.asarray(one / n, np.float32) for one in (moments.blocks, moments.cross, moments.label_sums))
        self.released = Numbers(next(numbers), next(numbers), next(numbers), (second, cross, counts))
        self.mean_weight = 0.0 if mean_noise_std == 0 else 1 / mean_noise_std
        start = self._start(moments)
        apart = np.random.default_rng(seed).standard_normal((PARTS, len(start)), np.float32)
        self.logits, self.parts, self.total = start + np.float32(_APART) * apart, np.zeros(PARTS, np.float32), 0.0
        self.free_total = free_total
        self.base = np.log(np.concatenate([c.shares for c in columns]).clip(min=_TINY)).astype(np.float32)
        self.loose = np.repeat([np.float32(not c.one_hot) for c in columns], self.sizes[:-1])
        self._keep_small()
        self.beyond: tuple[Any, Any] = (np.float32(0), np.float32(0))

    def _start(self, moments: SecondMoments) -> Floats:
        """Logarithms of the shares that each state has in the whole table, as far as single numbers show them."""
        found = []
        for column, span in zip(self.columns, self.spans, strict=True):
            shares = column.shares
            if column.one_hot:
                top = column.features.max(axis=0)
                top = np.where(top > 0, top, 1.0)
                if self.transform.centre is not None:
                    told = self.transform.centre[span] / top
                else:
                    told = np.diag(moments.second)[span] / moments.records / top**2
                # States without a feature of their own have the rest.
                shares = column.features / top @ told
                shares = np.where(column.features.any(axis=1), shares, 1 - told.sum())
            found.append(np.maximum(shares, _RAREST))
        found.append(np.maximum(moments.class_shares(self.offset), _RAREST))
        return np.concatenate([np.log(shares / shares.sum()) for shares in found]).astype(np.float32)

    def shares(self) -> tuple[Floats, Floats]:
        """(k,) weights of parts and (k, all states) shares within them."""
        weights, within, _ = self._shares()
        return weights, within

    def _shares(self) -> tuple[Floats, Floats, Floats]:
        """Return these, and (k,) sums of shares times their logarithms: softmax of all columns at once."""
        left = self.logits - self.highest
        terms = np.exp(left)
        sums = by_blocks(terms, self.member)
        within = terms / self._spread(sums)
        parts = np.exp(self.parts - self.parts.max())
        # The logarithm of a share is `left` less that of its column's sum, and a column's shares add up to 1.
        return parts / parts.sum(), within, (within * left).sum(axis=1) - np.log(sums).sum(axis=1)

    def _spread(self, of_columns: Floats) -> Floats:
        """(k, columns) -> (k, all states): what a column has, for each of its states."""
        return np.repeat(of_columns, self.sizes, axis=1)

    def _keep_small(self) -> None:
        """Subtract each column's largest logarithm, so that exponentials stay finite: shares are the same."""
        starts = np.cumsum([0, *self.sizes[:-1]])
        self.highest = self._spread(np.maximum.reduceat(self.logits, starts, axis=1))

    def expected(
        self, weights: Floats, within: Floats
    ) -> tuple[Sums, Floats, Callable[[Sums, Floats], tuple[Floats, Floats]]]:
        """Return X'X, X'Y and label sums per record, the features' mean, and the map of slopes to parameters."""
        x, y, lengths = (
            by_blocks(within, self.features),
            within[:, -self.classes :] - self.offset,
            within @ self.lengths,
        )
        centre = np.zeros(x.shape[1], np.float32) if self.centre is None else self.centre
        first = np.minimum(self.transform.clip_norm / np.sqrt(lengths.clip(min=_TINY)), 1)
        along, left, second = x @ centre, np.ones_like(weights), np.ones_like(weights)
        if self.clips:
            left = (first**2 * lengths - 2 * first * along + centre @ centre).clip(min=_TINY)
            second = np.minimum(self.transform.final_clip_norm**2 / left, 1)
        once, twice, scaled = weights * np.sqrt(second), weights * second, first[:, None] * x
        # (b, k): share of each part's records that are in each block.
        blocks = (within[:, -self.classes :] @ self.blocks).T
        outer = np.stack([self._outer(twice * inside, first, within, scaled, centre) for inside in blocks])
        cross, mean = scaled.T @ (once[:, None] * y), (weights * first) @ x
        if self.centre is not None:
            cross -= np.outer(centre, once @ y)
        scale = math.exp(self.total)

        def back(slopes: Sums, of_mean: Floats) -> tuple[Floats, Floats]:
            in_outer, in_cross, in_counts = (slope * scale for slope in slopes)
            in_mean = of_mean * scale
            by_label, in_twice, told = y @ in_cross.T, np.zeros_like(twice), np.zeros_like(twice)
            in_scaled, in_blocks = once[:, None] * by_label, np.empty_like(blocks)
            in_within = np.zeros_like(within)
            for place, (inside, in_block) in enumerate(zip(blocks, in_outer, strict=True)):
                # Twice: X'X is symmetric. A part's row of `scaled` meets the other columns, and the centre.
                met, middle = scaled @ (in_block * self.apart), in_block @ centre
                in_scaled += (twice * inside)[:, None] * (2 * met - 2 * middle)
                alone = zip(self.features, self._split(in_block, 1), strict=True)
                in_own = np.concatenate([((part @ block) * part).sum(axis=1) for part, block in alone])
                in_within += np.outer(twice * inside * first**2, in_own)
                own = within @ in_own
                of_block = (scaled * met).sum(axis=1) - 2 * scaled @ middle + centre @ middle + first**2 * own
                in_twice, told = in_twice + inside * of_block, told + inside * own
                in_blocks[place] = twice * of_block
            in_once = ((scaled - centre) * by_label).sum(axis=1)
            root = np.sqrt(second)
            in_second = weights * (in_twice + in_once / (2 * root))
            in_left = np.where(second < 1, -in_second * second / left, 0)
            in_first = (
                2 * twice * first * told
                + weights * (x @ in_mean)
                + (x * in_scaled).sum(axis=1)
                + 2 * in_left * (first * lengths - along)
            )
            in_lengths = in_left * first**2 - np.where(first < 1, in_first * first / (2 * lengths), 0)
            in_x = (
                first[:, None] * in_scaled + np.outer(weights * first, in_mean) - np.outer(2 * in_left * first, centre)
            )
            in_within += by_blocks(in_x, [part.T for part in self.features]) + np.outer(in_lengths, self.lengths)
            in_within[:, -self.classes :] += once[:, None] * ((scaled - centre) @ in_cross) + np.outer(
                weights, in_counts
            )
            in_within[:, -self.classes :] += (self.blocks @ in_blocks).T
            in_weights = first * (x @ in_mean) + second * in_twice + root * in_once + y @ in_counts
            return in_weights, in_within

        return (
            ((outer + self.beyond[0]) * scale, (cross + self.beyond[1]) * scale, weights @ y * scale),
            mean * scale,
            back,
        )

    def _outer(self, twice: Floats, first: Floats, within: Floats, scaled: Floats, centre: Floats) -> Floats:
        """X'X per record of parts with these weights."""
        # A record has one state in each column.
        own = self._split((twice * first**2) @ within)
        alone = [part.T @ (share[:, None] * part) for part, share in zip(self.features, own, strict=True)]
        outer = scaled.T @ (twice[:, None] * scaled) * self.apart + _blocks(alone)
        if self.centre is not None:
            moved = np.outer(twice @ scaled, centre)
            outer += twice.sum() * np.outer(centre, centre) - moved - moved.T
        return np.asarray(outer)

    def loss(self, target: Numbers, stiffness: float) -> tuple[float, tuple[Floats, Floats, float]]:
        """Half the misfit, and ``stiffness`` times the parts' information; slopes in logits, parts and total."""
        weights, within, ordered = self._shares()
        numbers, mean, back = self.expected(weights, within)
        loss, slopes = target.misfit(numbers)
        off = np.zeros_like(mean) if self.centre is None else (mean - self.centre) * self.mean_weight
        in_weights, in_within = back(slopes, off * self.mean_weight)
        whole = weights @ within
        spread, some = np.log(whole.clip(min=_TINY)), whole > _TINY
        # The release gives little but mean and spread of numbers: the rest of their law stays as it is declared.
        apart, some, columns = spread[: len(self.base)] - self.base, some.astype(np.float32), slice(len(self.base))
        told = weights @ ordered - whole @ spread + (whole[columns] * apart) @ self.loose
        in_whole = -spread - some
        in_whole[columns] += self.loose * (apart + some[columns])
        in_weights += stiffness * (ordered + within @ in_whole)
        in_within += stiffness * weights[:, None] * (self.logits - self.highest + in_whole)
        in_within *= within
        in_logits = in_within - within * self._spread(by_blocks(in_within, self.member))
        in_total = sum(float((slope * found).sum()) for slope, found in zip(slopes, numbers, strict=True))
        in_total += float(off @ mean) * self.mean_weight
        in_parts = weights * (in_weights - weights @ in_weights)
        return (loss + float(off @ off)) / 2 + stiffness * float(told), (in_logits, in_parts, in_total)

    def _split(self, values: Floats, axis: int = 0) -> list[Floats]:
        """Values of all states by block; with ``axis`` 1 the blocks of features on the diagonal of a matrix."""
        edges = np.cumsum([part.shape[axis] for part in self.features])[:-1]
        if axis == 0:
            return np.split(values, edges)
        starts = [0, *edges]
        return [
            values[start : start + part.shape[1], start : start + part.shape[1]]
            for start, part in zip(starts, self.features, strict=True)
        ]

    def descend(self, target: Numbers, stiffness: float, steps: int, rate: float, progress: Any = None) -> None:
        """Lower the loss by Adam (Kingma and Ba 2015)."""
        kept, squares = 1.0, 1.0
        moments: list[Any] = [[0.0, 0.0] for _ in range(3)]
        for step in range(steps):
            if step % 10 == 0:
                self._keep_small()
            warm, cool = min(1.0, (step + 1) / 20), (1 + math.cos(math.pi * step / steps)) / 2
            _, slopes = self.loss(target, stiffness)
            kept, squares = kept * _MOMENTUM[0], squares * _MOMENTUM[1]
            length, moves = rate * warm * max(cool, 0.02) / (1 - kept), []
            slope: Any
            for moment, slope in zip(moments, slopes, strict=True):
                moment[0] = _MOMENTUM[0] * moment[0] + (1 - _MOMENTUM[0]) * slope
                moment[1] = _MOMENTUM[1] * moment[1] + (1 - _MOMENTUM[1]) * slope**2
                moves.append(length * moment[0] / (np.sqrt(moment[1] / (1 - squares)) + 1e-8))
            self.logits -= moves[0]
            self.parts -= moves[1]
            if self.free_total:
                self.total -= float(moves[2])
            if progress is not None:
                progress(step + 1)

    def take_clipping(self, seed: int, rows: int = _CLIPPED_ROWS) -> None:
        """Add clipping effects beyond :meth:`expected` to all later expectations, measured on this number of rows."""
        weights, within = self.shares()
        rows = min(rows, _CLIPPED_NUMBERS // len(self.apart))
        drawn = draw(*arrays_of(weights, within, self.sizes), rows, np.random.default_rng(seed))
        x = np.concatenate([c.features[drawn[:, j]] for j, c in enumerate(self.columns)], axis=1)
        x = self.transform(x).astype(np.float32)
        y = np.eye(self.classes, dtype=np.float32)[drawn[:, -1]] - np.float32(self.offset)
        self.beyond = (np.float32(0), np.float32(0))
        (second, cross, _), *_ = self.expected(weights, within)
        scale = math.exp(self.total)
        inside = self.blocks[drawn[:, -1]]
        own = np.stack([x.T @ (x * part[:, None]) for part in inside.T])
        self.beyond = own / len(x) - second / scale, x.T @ y / len(x) - cross / scale


def _blocks(parts: Sequence[NDArray[Any]]) -> Floats:
    rows, columns = (np.cumsum([0, *(part.shape[axis] for part in parts)]) for axis in (0, 1))
    whole = np.zeros((rows[-1], columns[-1]), parts[0].dtype)
    for place, part in enumerate(parts):
        whole[rows[place] : rows[place + 1], columns[place] : columns[place + 1]] = part
    return whole


def by_blocks(left: Floats, blocks: Sequence[Floats]) -> Floats:
    """``left`` times a matrix of these blocks on its diagonal."""
    edges = np.cumsum([len(block) for block in blocks])[:-1]
    return np.concatenate([p @ block for p, block in zip(np.split(left, edges, 1), blocks, strict=True)], axis=1)


def arrays_of(weights: Floats, within: Floats, sizes: Sequence[int]) -> tuple[Reals, tuple[Reals, ...]]:
    shares = weights.astype(np.float64)
    states = np.split(within.astype(np.float64), np.cumsum(sizes)[:-1], axis=1)
    return shares / shares.sum(), tuple(part / part.sum(axis=1, keepdims=True) for part in states)


def draw(weights: Reals, states: Sequence[Reals], records: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw ``records`` rows of a mixture in whose parts columns are independent: (records, columns), shuffled."""
    # Every part, and every state of a column within a part, gets its expected number of rows up to rounding; chance
    # decides which rows. On Adult at epsilon 8 half as much of the distance between pairs of columns is left as by
    # independent draws.
    # Places that are evenly spread from a start that is drawn: each part is met as often as its weight demands.
    places = (np.arange(records) + generator.random()) / records
    if records < len(weights):
        places = generator.random(records)
        places.sort()
    part = np.minimum(np.searchsorted(np.cumsum(weights), places, side="right"), len(weights) - 1)
    starts = np.searchsorted(part, np.arange(len(weights) + 1))
    rows = np.empty((records, len(states)), np.int64)
    for column, shares in enumerate(states):
        ladder = np.cumsum(shares, axis=1)
        for k in np.flatnonzero(np.diff(starts)):
            count = int(starts[k + 1] - starts[k])
            at = (generator.permutation(count) + generator.random()) / count
            rows[starts[k] : starts[k + 1], column] = np.searchsorted(ladder[k], at, side="right")
        np.minimum(rows[:, column], shares.shape[1] - 1, out=rows[:, column])
    return rows[generator.permutation(records)]
