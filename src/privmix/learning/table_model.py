"""A model of a table's records, fitted to released second moments: a mixture in whose parts columns are independent."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from privmix.errors import InvalidInput
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform
from privmix.publication.second_moments import SecondMoments

Reals = NDArray[np.float64]
# float32 where a fit is made.
Floats = NDArray[Any]
_Sums = tuple[Floats, Floats, Floats]

LARGEST_TABLE: Final = 2048
"""Features of a table: beyond this a fit takes hours."""

PARTS: Final = 400
"""Parts of the mixture."""

FINE: Final = 0.005
"""Total variation that row sampling and the end of a fit leave at almost no noise."""

LOST: Final = 0.05
"""Total variation beyond the noise by which a fit may miss a pair, before it is tried again."""

# Pairs of columns are no closer after 300 steps (benchmarks/results/ended.md); triples are, since a start's information
# that no number asks for takes long to fade.
_STEPS, _TRIAL_STEPS, _AGAIN_STEPS = 1500, 150, 100
_RATE, _MOMENTUM = 0.08, (0.9, 0.99)
# The least divisor, and the least argument of a logarithm.
_TINY: Final = 1e-12
# How far the parts' columns start from those of the whole table, in logarithms of shares.
_APART: Final = 1.0
_RAREST: Final = 1e-4
# The weight on a unit of information that the parts hold, in units of the likelihood. From loose to stiff: parts that a
# stiff fit has made alike stay so in a looser one, with a class or a state that no part has any more.
_STIFF: Final = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
# Share of the noise's standard deviation that is added to make what a trial is fitted to, see `_halves`.
_THINNED: Final = 0.5
# Trials end after this number in a row that are worse by more than this share of chance; else the stiffest is best.
# With little noise chance is small. Of a trial whose pairs are off by so little that the end of a fit makes up for it,
# more is as good: what parts hold beyond need, no number asks for, and it spoils triples (chosen on one run each of
# Adult, diamonds and fertility).
_WORSE: Final = 2
_ALIKE: Final = 0.5
_NEAR, _NEAR_ALIKE = 0.3 * FINE, 2.5
# Rows of which the effect of clipping is taken, those of a trial, and how often.
_CLIPPED_ROWS, _TRIAL_ROWS, _CLIPPED_ROUNDS = 50_000, 10_000, 3
# A pair of columns is met where chance alone would leave more in a case out of a thousand.
_MET: Final = 0.999
# If a fit loses a pair: the number of starts, and how much looser each is.
_STARTS, _LOOSER = 4, 3.0
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


@dataclass(frozen=True)
class PairFit:
    """Fit of a pair of columns (the second may be the label's) to the released ``numbers`` about it."""

    # ratio: mean of (model - released)^2 / variance of the noise: about 1 is noise alone, less follows the noise. met:
    # noise alone could leave as much, once in a thousand pairs, or ``beyond`` is at most :data:`FINE`. beyond:
    # estimated total variation, beyond the noise, between model and released numbers; 0 to 1.

    columns: tuple[str, str]
    numbers: int
    ratio: float
    met: bool
    beyond: float

    @property
    def lost(self) -> bool:
        """Whether the model misses what was released of the pair, by more than noise and rounding explain."""
        return not self.met and self.beyond > LOST


@dataclass(frozen=True, eq=False)
class TableModel:
    """Mixture of k parts with independent columns; ``states`` are (k, s) shares for each column, any label last."""

    weights: Reals
    states: tuple[Reals, ...]
    pairs: tuple[PairFit, ...]
    stiffness: float

    @property
    def lost(self) -> tuple[PairFit, ...]:
        """The pairs that no start could meet, the furthest first."""
        return tuple(sorted((pair for pair in self.pairs if pair.lost), key=lambda pair: -pair.beyond))

    def sample(self, records: int, generator: np.random.Generator) -> NDArray[np.int64]:
        return draw(self.weights, self.states, records, generator)


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Released numbers per record, and one over the standard deviation of their noise; ``second`` on its diagonal."""

    second: Floats
    cross: Floats
    counts: Floats
    weights: tuple[float, float, float]

    @property
    def count(self) -> int:
        blocks, side, _ = self.second.shape
        return int(blocks * side * (side + 1) // 2 + (self.cross.size + self.counts.size) * (self.weights[1] > 0))

    def misfit(self, of: _Sums) -> tuple[float, _Sums]:
        """Sum of squares over the noise's variance, and half its slopes."""
        # An entry off the diagonal of X'X stands twice, with twice the variance.
        parts = zip((self.second, self.cross, self.counts), of, self.weights, strict=True)
        left = [((found - released) * weight, weight) for released, found, weight in parts]
        second, cross, counts = (part * weight for part, weight in left)
        return sum(float(np.square(part).sum()) for part, _ in left), (second, cross, counts)


class _Fit:
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
        self.released = _Numbers(next(numbers), next(numbers), next(numbers), (second, cross, counts))
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
        sums = _by_block(terms, self.member)
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
    ) -> tuple[_Sums, Floats, Callable[[_Sums, Floats], tuple[Floats, Floats]]]:
        """Return X'X, X'Y and label sums per record, the features' mean, and the map of slopes to parameters."""
        x, y, lengths = (
            _by_block(within, self.features),
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

        def back(slopes: _Sums, of_mean: Floats) -> tuple[Floats, Floats]:
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
            in_within += _by_block(in_x, [part.T for part in self.features]) + np.outer(in_lengths, self.lengths)
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

    def loss(self, target: _Numbers, stiffness: float) -> tuple[float, tuple[Floats, Floats, float]]:
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
        in_logits = in_within - within * self._spread(_by_block(in_within, self.member))
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

    def descend(self, target: _Numbers, stiffness: float, steps: int, rate: float, progress: Any = None) -> None:
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
        drawn = draw(*_arrays(weights, within, self.sizes), rows, np.random.default_rng(seed))
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


def fit_table(
    moments: SecondMoments,
    label_offset: float,
    transform: RecordTransform,
    columns: Sequence[ColumnStates],
    *,
    label: str,
    mean_noise_std: float = 0.0,
    free_total: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> TableModel:
    """Fit a mixture to released moments (in stages: of the first) by relaxed projection, at no privacy cost."""
    # With p_k a part's shares of all columns' states, the expected X'X, X'Y and label sums are polynomials of the
    # parts. Gradient descent lowers their distance from the released numbers, each divided by its noise (after Aydore
    # et al. 2021). The parts' information about records is weighed against the distance, since a mixture that follows
    # noise has much of it. The weight is found on the released numbers: Gaussian noise of known size splits each into
    # two with independent noises; one half is fitted, the other judges. Rows of the model are clipped as records were.
    # free_total: records' total weight is not their number (declared counts, persons).
    width = sum(column.features.shape[1] for column in columns)
    if width != moments.dim:
        raise InvalidInput("columns", width, f"columns of the release's {moments.dim} features")
    if width > LARGEST_TABLE:
        raise InvalidInput("features of the table", width, f"at most {LARGEST_TABLE}: fewer bins or categories")
    moments.check_finite()
    arguments = (moments, label_offset, transform, columns, mean_noise_std, free_total, seed)
    rounds = _CLIPPED_ROUNDS if _Fit(*arguments).clips else 0
    total, done = len(_STIFF) * _TRIAL_STEPS + _STEPS + rounds * _AGAIN_STEPS, 0

    def tell(step: int) -> None:
        if progress is not None and (step % 25 == 0 or done + step == total):
            progress("table", done + step, total)

    stiffness = _judged(_Fit(*arguments), seed, tell)
    done = len(_STIFF) * _TRIAL_STEPS
    models = []
    for start in range(_STARTS):
        fit = _Fit(*arguments[:-1], seed + start)
        fit.descend(fit.released, stiffness, _STEPS, _RATE, tell)
        for turn in range(rounds):
            done += _STEPS if turn == 0 else _AGAIN_STEPS
            fit.take_clipping(seed + turn)
            fit.descend(fit.released, stiffness, _AGAIN_STEPS, _RATE / 3, tell)
        if rounds:
            fit.take_clipping(seed + rounds)
        weights, within = fit.shares()
        found = fit.expected(weights, within)[0]
        parts, states = _arrays(weights, within, fit.sizes)
        states = states if fit.classes > 1 else states[:-1]
        models.append(TableModel(parts, states, _pairs(fit, found, weights @ within, label), stiffness))
        if not models[-1].lost:
            break
        stiffness, done = stiffness / _LOOSER, total - _STEPS - rounds * _AGAIN_STEPS
    return min(models, key=lambda one: sum(pair.beyond for pair in one.lost))


def _judged(fit: _Fit, seed: int, tell: Any) -> float:
    """Return the stiffness whose fit of one half of the noise is nearest to the other, or the stiffest as near."""
    fitted, judge = _halves(fit.released, seed)
    # What each leaves, and the most of it that would be as good.
    found, alike = list[float](), list[float]()
    # The judge's noise alone has that standard deviation: what differs by a part of it is as good.
    chance = math.sqrt(2 * judge.count)
    for place, stiffness in enumerate(_STIFF):
        least = [left - more for left, more in zip(found, alike, strict=True)][-_WORSE:]
        # A start's information fades over several trials: while they get better, the best is to come.
        if len(found) > _WORSE and min(least) > min(found) and found[-1] > found[-2]:
            break
        if fit.clips and place:
            fit.take_clipping(seed + place, _TRIAL_ROWS)
        fit.descend(fitted, stiffness, _TRIAL_STEPS, _RATE, lambda step, place=place: tell(place * _TRIAL_STEPS + step))
        weights, within = fit.shares()
        numbers = fit.expected(weights, within)[0]
        beyond = [pair.beyond for pair in _pairs(fit, numbers, weights @ within, "", by_block=True)]
        found.append(judge.misfit(numbers)[0])
        alike.append((_NEAR_ALIKE if beyond and sum(beyond) <= _NEAR * len(beyond) else _ALIKE) * chance)
    if not np.isfinite(found).all():
        raise InvalidInput("released moments", "numbers beyond any fit", "finite numbers")
    tried = zip(_STIFF, found, alike, strict=False)
    return max(stiffness for stiffness, left, more in tried if left - more <= min(found))


def _halves(released: _Numbers, seed: int) -> tuple[_Numbers, _Numbers]:
    """Split each number in two: with z the noise's size times a standard normal, add a z, subtract z / a."""
    # Their noises are uncorrelated and Gaussian, hence independent.
    generator = np.random.default_rng(seed + 1)

    def noise(like: Floats, weight: float) -> Floats:
        return generator.standard_normal(like.shape, np.float32) / np.float32(weight or np.inf)

    def symmetric(block: Floats) -> Floats:
        below = np.tril(noise(block, released.weights[0]) / np.float32(math.sqrt(2)), -1)
        return np.asarray(below + below.T + np.diag(noise(np.diag(block), released.weights[0])))

    second = np.stack([symmetric(block) for block in released.second])
    drawn = (second, noise(released.cross, released.weights[1]), noise(released.counts, released.weights[2]))
    numbers = (released.second, released.cross, released.counts)

    def made(times: float) -> _Numbers:
        larger = math.sqrt(1 + times**2)
        second, cross, counts = (number + np.float32(times) * z for number, z in zip(numbers, drawn, strict=True))
        first, other, last = (weight / larger for weight in released.weights)
        return _Numbers(second, cross, counts, (first, other, last))

    return made(_THINNED), made(-1 / _THINNED)


def _by_block(left: Floats, blocks: Sequence[Floats]) -> Floats:
    """``left`` times a matrix of these blocks on its diagonal."""
    edges = np.cumsum([len(block) for block in blocks])[:-1]
    return np.concatenate([p @ block for p, block in zip(np.split(left, edges, 1), blocks, strict=True)], axis=1)


def _pairs(fit: _Fit, found: _Sums, whole: Floats, label: str, *, by_block: bool = False) -> tuple[PairFit, ...]:
    """How well the numbers ``found`` meet each pair; ``whole`` are the shares of all states in the model's table."""
    # by_block: in each class for itself, where X'X is released by class.
    released, names = fit.released, [column.name for column in fit.columns]
    weight, off = released.weights[0], found[0] - released.second
    if not by_block:
        weight, off = weight / math.sqrt(len(off)), off.sum(axis=0)
    second = np.square(off * weight).astype(np.float64)
    cross = np.square((found[1] - released.cross) * released.weights[1]).astype(np.float64)
    # The share of a cell in a number: its columns' largest features, shortened as records are by clipping.
    mean = np.square(_by_block(whole[None], fit.features)).sum() if fit.centre is not None else 0.0
    length = float(whole @ fit.lengths - mean)
    kept = min(1.0, fit.transform.final_clip_norm / math.sqrt(max(length, 1e-12)))
    tops = [kept * float(np.abs(column.features).max()) or 1.0 for column in fit.columns]
    pairs = []
    for i, span in enumerate(fit.spans):
        for j in range(i):
            # Off the diagonal of X'X noise has half the variance.
            noise = 1 / (math.sqrt(2) * weight * tops[i] * tops[j])
            pairs.append(_pair((names[j], names[i]), 2 * second[..., span, fit.spans[j]], noise))
        if fit.classes > 1:
            pairs.append(_pair((names[i], label), cross[span], 1 / (released.weights[1] * tops[i])))
    return tuple(pairs)


def _pair(columns: tuple[str, str], parts: Reals, noise: float) -> PairFit:
    """Fit of the squared remainders, in units of the noise's variance; ``noise`` is its size in shares of cells."""
    left = float(parts.sum())
    beyond = float(np.sqrt(parts).sum()) / 2 * noise * math.sqrt(max(0.0, 1 - parts.size / max(left, 1e-12)))
    met = left <= _most_left(parts.size) or beyond <= FINE
    return PairFit(columns, parts.size, left / parts.size, met, min(1.0, beyond))


@cache
def _most_left(numbers: int) -> float:
    # SciPy's laws take half a second to import.
    return 2 * float(gammaincinv(numbers / 2, _MET))


def _arrays(weights: Floats, within: Floats, sizes: Sequence[int]) -> tuple[Reals, tuple[Reals, ...]]:
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
