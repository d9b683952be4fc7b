"""A model of a table's records, fitted to released second moments: a mixture in whose parts columns are independent."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.stats import chi2

from privmix.errors import InvalidInput
from privmix.optimisers import Adam
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform
from privmix.publication.second_moments import SecondMoments

Reals = NDArray[np.float64]

LARGEST_TABLE: Final = 2048
"""Features of a table: beyond this a fit takes hours."""

PARTS: Final = 400
"""Parts of the mixture."""

FINE: Final = 0.005
"""Total variation that drawing rows and ending a fit leave where the noise is next to nothing."""

LOST: Final = 0.05
"""Total variation beyond the noise by which a fit may miss a pair, before it is tried again."""

# Chosen on two public tables of no other benchmark (bench_table_steps.py): rows are no better with three times as many.
_STEPS, _TRIAL_STEPS, _AGAIN_STEPS = 300, 150, 100
_RATE, _MOMENTUM = 0.08, (0.9, 0.99)
# How far the parts' columns start from those of the whole table, in logarithms of shares.
_APART: Final = 1.0
_RAREST: Final = 1e-4
# What a unit of information that the parts hold is weighed with, in units of the likelihood. From loose to stiff: parts
# that a stiff fit has made alike stay so in a looser one, with a class or a state that none of them has any more.
_STIFF: Final = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
# Share of the noise's standard deviation that is added to make what a trial is fitted to, see `_halves`.
_THINNED: Final = 0.5
# Trials end where so many in a row have not been better.
_WORSE: Final = 2
# Rows of which the effect of clipping is taken, those of a trial, and how often.
_CLIPPED_ROWS, _TRIAL_ROWS, _CLIPPED_ROUNDS = 50_000, 10_000, 3
# A pair of columns is met where chance alone would leave more in a case out of a thousand.
_MET: Final = 0.999
# Where a fit loses a pair: how many starts there are, and how much looser each is.
_STARTS, _LOOSER = 4, 3.0
# Features that are multiplied at once: those of different columns meet nowhere, so that wide tables go in blocks.
_BLOCK: Final = 64
# Numbers of the rows that clipping is measured on, at most.
_CLIPPED_NUMBERS: Final = 20_000_000


@dataclass(frozen=True, eq=False)
class ColumnStates:
    """What a column can hold, as features.

    Attributes:
        name: of the column.
        features: (s, width) float64, one row a state, before clipping.
        shares: (s,) what is taken for the states' shares where the release says nothing; they add up to 1.
    """

    name: str
    features: Reals
    shares: Reals

    @property
    def one_hot(self) -> bool:
        """Whether each feature tells of one state."""
        return bool((np.count_nonzero(self.features, axis=0) <= 1).all())


@dataclass(frozen=True)
class PairFit:
    """How well a pair of columns is met.

    Attributes:
        columns: their names; of a pair with the classes the second is the label's.
        numbers: how many released numbers tell of the pair.
        ratio: mean of (model - released)^2 / variance of the noise over these numbers: about 1 is noise alone, less is
            a model that follows the noise, more is what the model does not know.
        met: whether noise alone could leave as much, once in a thousand pairs, or ``beyond`` is at most :data:`FINE`.
        beyond: estimated total variation, beyond the noise, between the model and the released numbers; from 0 to 1.
    """

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
    """A mixture: a part is drawn, then each column on its own.

    Attributes:
        weights: (k,) of the parts.
        states: for each column, the label last, (k, s) shares of its states within each part.
        pairs: how well the released numbers are met, pair by pair.
        stiffness: what information of the parts was weighed with.
    """

    weights: Reals
    states: tuple[Reals, ...]
    pairs: tuple[PairFit, ...]
    stiffness: float

    @property
    def lost(self) -> tuple[PairFit, ...]:
        """The pairs that no start could meet, the furthest first."""
        return tuple(sorted((pair for pair in self.pairs if pair.lost), key=lambda pair: -pair.beyond))

    def sample(self, records: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """(records, columns) states; see :func:`privmix.learning.table_model.draw`."""
        return draw(self.weights, self.states, records, generator)


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Released numbers per record, and one over the standard deviation of their noise; ``second`` on its diagonal."""

    second: torch.Tensor
    cross: torch.Tensor
    counts: torch.Tensor
    weights: tuple[float, float, float]

    def misfit(self, of: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Sum of squares over the noise's variance; an entry off the diagonal of X'X stands twice, with twice it."""
        parts = zip((self.second, self.cross, self.counts), of, self.weights, strict=True)
        return torch.stack([(released - found).square().sum() * weight**2 for released, found, weight in parts]).sum()


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
        self.apart = 1 - torch.tensor(block_diag(*(np.ones((width, width)) for width in widths)), dtype=torch.float32)
        # By block: (states, features), and (states, columns) with one where a state is of a column.
        block = np.append(edges[:-1], edges[-2]) // _BLOCK
        grouped = [np.flatnonzero(block == one) for one in np.unique(block)]
        every = [*(column.features for column in columns), np.zeros((self.classes, 0))]
        self.features = [torch.tensor(block_diag(*(every[j] for j in group)), dtype=torch.float32) for group in grouped]
        self.member = [
            torch.tensor(block_diag(*(np.ones((self.sizes[j], 1)) for j in group)), dtype=torch.float32)
            for group in grouped
        ]
        self.lengths = torch.cat([part.square().sum(1) for part in self.features])
        self.centre = None if transform.centre is None else torch.tensor(transform.centre, dtype=torch.float32)
        largest = math.sqrt(sum(float(np.square(column.features).sum(axis=1).max()) for column in columns))
        self.clips = self.centre is not None or largest > transform.clip_norm * (1 + 1e-6)
        second, cross, counts = (
            n / max(std, 1e-6 * n)
            for std in (moments.noise_std_second, moments.noise_std_cross, moments.noise_std_counts)
        )
        self.released = _Numbers(
            torch.tensor(moments.second / n, dtype=torch.float32),
            torch.tensor(moments.cross / n, dtype=torch.float32),
            torch.tensor(moments.label_sums / n, dtype=torch.float32),
            (second, cross, counts),
        )
        self.mean_weight = 0.0 if mean_noise_std == 0 else 1 / mean_noise_std
        start = self._start(moments)
        torch_generator = torch.Generator().manual_seed(seed)
        self.logits = start + _APART * torch.randn(PARTS, len(start), generator=torch_generator)
        self.parts, self.total = torch.zeros(PARTS), torch.zeros(())
        self.base = torch.tensor(np.concatenate([c.shares for c in columns]), dtype=torch.float32).log()
        loose = torch.cat([torch.full((len(c.features),), float(not c.one_hot)) for c in columns])
        self.loose = loose if loose.any() else None
        self.parameters = [self.logits, self.parts, *([self.total] if free_total else [])]
        for parameter in self.parameters:
            parameter.requires_grad_()
        self._keep_small()
        self.beyond: list[torch.Tensor] = [torch.zeros(())] * 3

    def _start(self, moments: SecondMoments) -> torch.Tensor:
        """Logarithms of the shares that each state has in the whole table, as far as single numbers tell them."""
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
                # States that no feature tells of have what is left.
                shares = column.features / top @ told
                shares = np.where(column.features.any(axis=1), shares, 1 - told.sum())
            found.append(np.maximum(shares, _RAREST))
        found.append(np.maximum(moments.class_shares(self.offset), _RAREST))
        logs = np.concatenate([np.log(shares / shares.sum()) for shares in found])
        return torch.tensor(logs, dtype=torch.float32)

    def shares(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(k,) weights of parts and (k, all states) shares within them."""
        weights, within, _ = self._shares()
        return weights, within

    def _shares(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """These, and (k,) sums of shares times their logarithms: softmax of each column, of all columns in one go."""
        left = self.logits - self.highest
        terms = left.exp()
        sums = _by_block(terms, self.member)
        within = terms / _by_block(sums, [part.T for part in self.member])
        # The logarithm of a share is `left` less that of its column's sum, and a column's shares add up to 1.
        return torch.softmax(self.parts, 0), within, (within * left).sum(1) - sums.log().sum(1)

    def _keep_small(self) -> None:
        """Take each column's largest off its logarithms, so that their exponentials stay finite: shares are the same.

        A few steps change little of it.
        """
        columns = torch.split(self.logits.detach(), self.sizes, 1)
        self.highest = _by_block(torch.stack([column.amax(1) for column in columns], 1), [m.T for m in self.member])

    def expected(
        self, weights: torch.Tensor, within: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
        """X'X, X'Y and label sums per record, and the features' mean; clipped as a part's mean length says."""
        x, y, lengths = (
            _by_block(within, self.features),
            within[:, -self.classes :] - self.offset,
            within @ self.lengths,
        )
        first = (self.transform.clip_norm / lengths.clamp(min=1e-12).sqrt()).clamp(max=1.0)
        centre = torch.zeros(x.shape[1]) if self.centre is None else self.centre
        mean = (weights * first) @ x
        if self.clips:
            left = first.square() * lengths - 2 * first * (x @ centre) + centre @ centre
            second = (self.transform.final_clip_norm**2 / left.clamp(min=1e-12)).clamp(max=1.0)
        else:
            second = torch.ones_like(weights)
        once, twice = weights * second.sqrt(), weights * second
        scaled = first[:, None] * x
        # Of one column a record has one state.
        own = torch.split((twice * first.square()) @ within, [len(part) for part in self.features])
        alone = [part.T @ (share[:, None] * part) for part, share in zip(self.features, own, strict=True)]
        outer = scaled.T @ (twice[:, None] * scaled) * self.apart + torch.block_diag(*alone)  # type: ignore[no-untyped-call]
        cross = scaled.T @ (once[:, None] * y)
        if self.centre is not None:
            moved = torch.outer(twice @ scaled, centre)
            outer = outer - moved - moved.T + twice.sum() * torch.outer(centre, centre)
            cross = cross - torch.outer(centre, once @ y)
        scale = self.total.exp()
        beyond = self.beyond
        numbers = ((outer + beyond[0]) * scale, (cross + beyond[1]) * scale, weights @ y * scale)
        return numbers, mean * scale

    def descend(self, target: _Numbers, stiffness: float, steps: int, rate: float, progress: Any = None) -> None:
        """Lower the misfit of ``target``, and ``stiffness`` times what the parts tell of a record."""
        optimiser = Adam(self.parameters, lr=rate, betas=_MOMENTUM, fused=True)
        for step in range(steps):
            if step % 10 == 0:
                self._keep_small()
            warm, cool = min(1.0, (step + 1) / 20), (1 + math.cos(math.pi * step / steps)) / 2
            optimiser.param_groups[0]["lr"] = rate * warm * max(cool, 0.02)
            weights, within, ordered = self._shares()
            numbers, mean = self.expected(weights, within)
            loss = target.misfit(numbers) / 2
            if self.centre is not None:
                loss = loss + (mean - self.centre).square().sum() * self.mean_weight**2 / 2
            whole = weights @ within
            spread = whole.clamp(min=1e-12).log()
            told = weights @ ordered - whole @ spread
            if self.loose is not None:
                # Of numbers the release tells little but mean and spread: what else they are stays as it is declared.
                declared = torch.cat([self.base, spread[len(self.base) :]])
                told = told + ((whole * (spread - declared))[: len(self.base)] * self.loose).sum()
            loss = loss + stiffness * told
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if progress is not None:
                progress(step + 1)

    def take_clipping(self, seed: int, rows: int = _CLIPPED_ROWS) -> None:
        """Add to what is expected from now on what clipping does beyond :meth:`expected`, measured on so many rows."""
        weights, within = (found.detach() for found in self.shares())
        rows = min(rows, _CLIPPED_NUMBERS // len(self.apart))
        drawn = draw(*_arrays(weights, within, self.sizes), rows, np.random.default_rng(seed))
        x = np.concatenate([c.features[drawn[:, j]] for j, c in enumerate(self.columns)], axis=1)
        x = self.transform(x).astype(np.float32)
        y = np.eye(self.classes, dtype=np.float32)[drawn[:, -1]] - np.float32(self.offset)
        self.beyond = [torch.zeros(())] * 3
        (second, cross, _), _ = self.expected(weights, within)
        scale = self.total.detach().exp()
        self.beyond = [
            torch.from_numpy(x.T @ x / len(x)) - second.detach() / scale,
            torch.from_numpy(x.T @ y / len(x)) - cross.detach() / scale,
            torch.zeros(()),
        ]


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
    """Fit a mixture to released moments: relaxed projection, each part a record whose columns are in several states.

    With p_k a part's shares of all columns' states, the expected X'X, X'Y and label sums are polynomials of the parts,
    and records of the mixture have the same sums. Their distance from the released numbers, each divided by its noise,
    is lowered by gradient descent (Aydore et al. 2021, with parts that are drawn from and not rounded, and with the
    noise known). To follow noise a mixture needs parts that tell much of a record: their information about records
    is weighed against the distance. By how much is found on the released numbers themselves: Gaussian noise of a known
    size makes two of each number whose noises are independent; the one is fitted, the other judges.

    Where records were clipped, as after a private mean is subtracted, sums are no longer those of the table. Rows of
    the model go through the same clipping, and what it changes is added to what the model expects.

    Post-processing of a release: it costs no privacy.

    Args:
        moments: the released moments; of a release in stages those of its first.
        label_offset: what was subtracted from one-hot labels.
        transform: what was done to features.
        columns: what each column can hold; widths add up to the features of the release.
        label: name of the column of classes.
        mean_noise_std: standard deviation of the noise in each number of the released mean, if there is one.
        free_total: records weigh other than 1 in total, as where their number is declared or weighed by persons.
        seed: of the start, and of what judges.
        progress: called as work proceeds.

    Raises:
        InvalidInput: the release has more than 2,048 features, numbers that are not finite, or other features than the
            columns.
    """
    width = sum(column.features.shape[1] for column in columns)
    if width != moments.dim:
        raise InvalidInput("columns", width, f"columns of the release's {moments.dim} features")
    if width > LARGEST_TABLE:
        raise InvalidInput("features of the table", width, f"at most {LARGEST_TABLE}: fewer bins or categories")
    if not all(np.isfinite(part).all() for part in (moments.second, moments.cross, moments.label_sums)):
        raise InvalidInput("released moments", "NaN or infinity", "finite numbers")
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
        with torch.no_grad():
            weights, within = fit.shares()
            found, _ = fit.expected(weights, within)
        models.append(
            TableModel(*_arrays(weights, within, fit.sizes), _pairs(fit, found, weights @ within, label), stiffness)
        )
        if not models[-1].lost:
            break
        stiffness, done = stiffness / _LOOSER, total - _STEPS - rounds * _AGAIN_STEPS
    return min(models, key=lambda one: sum(pair.beyond for pair in one.lost))


def _judged(fit: _Fit, seed: int, tell: Any) -> float:
    """The stiffness whose fit of one half of the noise is nearest to the other."""
    fitted, judge = _halves(fit.released, seed)
    best, least, worse = _STIFF[0], math.inf, 0
    for place, stiffness in enumerate(_STIFF):
        if worse == _WORSE:
            break
        if fit.clips and place:
            fit.take_clipping(seed + place, _TRIAL_ROWS)
        fit.descend(fitted, stiffness, _TRIAL_STEPS, _RATE, lambda step, place=place: tell(place * _TRIAL_STEPS + step))
        with torch.no_grad():
            left = float(judge.misfit(fit.expected(*fit.shares())[0]))
        worse += 1
        if left < least:
            best, least, worse = stiffness, left, 0
    return best


def _halves(released: _Numbers, seed: int) -> tuple[_Numbers, _Numbers]:
    """Two of each number: with z the noise's size times a standard normal, one has a z added, one z / a taken off.

    Their noises are uncorrelated, and so, being Gaussian, independent.
    """
    generator = torch.Generator().manual_seed(seed + 1)

    def noise(like: torch.Tensor, weight: float) -> torch.Tensor:
        return torch.randn(like.shape, generator=generator) / weight

    second = torch.tril(noise(released.second, released.weights[0]) / math.sqrt(2), -1)
    second = second + second.T + torch.diag(noise(released.second.diag(), released.weights[0]))
    drawn = (second, noise(released.cross, released.weights[1]), noise(released.counts, released.weights[2]))
    numbers = (released.second, released.cross, released.counts)

    def made(times: float) -> _Numbers:
        larger = math.sqrt(1 + times**2)
        second, cross, counts = (number + times * z for number, z in zip(numbers, drawn, strict=True))
        first, other, last = (weight / larger for weight in released.weights)
        return _Numbers(second, cross, counts, (first, other, last))

    return made(_THINNED), made(-1 / _THINNED)


def _by_block(left: torch.Tensor, blocks: Sequence[torch.Tensor]) -> torch.Tensor:
    """``left`` times a matrix of these blocks on its diagonal."""
    if len(blocks) == 1:
        return left @ blocks[0]
    parts = torch.split(left, [len(block) for block in blocks], 1)
    return torch.cat([part @ block for part, block in zip(parts, blocks, strict=True)], 1)


def _pairs(fit: _Fit, found: tuple[torch.Tensor, ...], whole: torch.Tensor, label: str) -> tuple[PairFit, ...]:
    """How well the numbers ``found`` meet each pair; ``whole`` are the shares of all states in the model's table."""
    released, names = fit.released, [column.name for column in fit.columns]
    second = ((found[0] - released.second) * released.weights[0]).square().double().numpy()
    cross = ((found[1] - released.cross) * released.weights[1]).square().double().numpy()
    # What a cell's share adds to a number: its columns' largest features, shortened as records are by clipping.
    mean = _by_block(whole[None], fit.features).square().sum() if fit.centre is not None else 0.0
    length = float(whole @ fit.lengths - mean)
    kept = min(1.0, fit.transform.final_clip_norm / math.sqrt(max(length, 1e-12)))
    tops = [kept * float(np.abs(column.features).max()) or 1.0 for column in fit.columns]
    pairs = []
    for i, span in enumerate(fit.spans):
        for j in range(i):
            # Off the diagonal of X'X noise has half the variance.
            noise = 1 / (math.sqrt(2) * released.weights[0] * tops[i] * tops[j])
            pairs.append(_pair((names[j], names[i]), 2 * second[span, fit.spans[j]], noise))
        pairs.append(_pair((names[i], label), cross[span], 1 / (released.weights[1] * tops[i])))
    return tuple(pairs)


def _pair(columns: tuple[str, str], parts: Reals, noise: float) -> PairFit:
    """Of the squares of what is left, in units of the noise's variance; ``noise`` is its size in shares of cells."""
    left = float(parts.sum())
    beyond = float(np.sqrt(parts).sum()) / 2 * noise * math.sqrt(max(0.0, 1 - parts.size / max(left, 1e-12)))
    met = left <= _most_left(parts.size) or beyond <= FINE
    return PairFit(columns, parts.size, left / parts.size, met, min(1.0, beyond))


@cache
def _most_left(numbers: int) -> float:
    return float(chi2.ppf(_MET, numbers))


def _arrays(weights: torch.Tensor, within: torch.Tensor, sizes: Sequence[int]) -> tuple[Reals, tuple[Reals, ...]]:
    shares = weights.double().numpy()
    states = [part.double().numpy() for part in torch.split(within, list(sizes), 1)]
    return shares / shares.sum(), tuple(part / part.sum(axis=1, keepdims=True) for part in states)


def draw(weights: Reals, states: Sequence[Reals], records: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw rows of a mixture in whose parts columns are independent.

    Every part gets its number of rows but for rounding, and so does every state of a column within a part; which of a
    part's rows get it is drawn. What chance adds to the mixture is less than in independent draws: on Adult at epsilon
    8 half as much of the distance between pairs of columns is left.

    Args:
        weights: (k,) of the parts.
        states: for each column (k, s) shares within each part.
        records: how many rows.
        generator: randomness; it needs no secret.

    Returns:
        (records, columns) states, in an order that says nothing.

    Example:
        >>> draw(np.ones(1), [np.array([[0.5, 0.5]])], 4, np.random.default_rng(0)).sum()
        np.int64(2)
    """
    # Places that are evenly spread from a start that is drawn: each part is met as often as its weight says.
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
