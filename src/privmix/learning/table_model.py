"""A model of a table's records, fitted to second moments: a mixture (:mod:`privmix.learning.table_mixture`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from privmix.errors import InvalidInput
from privmix.learning.table_mixture import (
    ColumnStates,
    Floats,
    Mixture,
    Numbers,
    Reals,
    Sums,
    arrays_of,
    by_blocks,
    draw,
)
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform
from privmix.publication.second_moments import SecondMoments

LARGEST_TABLE: Final = 2048
"""Features of a table: beyond this a fit takes hours."""

FINE: Final = 0.005
"""Total variation that row sampling and the end of a fit leave at almost no noise."""

LOST: Final = 0.05
"""Total variation beyond the noise by which a fit may miss a pair, before it is tried again."""

# Pairs of columns are no closer after 300 steps (benchmarks/results/ended.md); triples are, since a start's information
# that no number asks for takes long to fade.
_STEPS, _TRIAL_STEPS, _AGAIN_STEPS = 1500, 150, 100
_RATE: Final = 0.08
# The weight on a unit of information that the parts hold, in units of the likelihood. From loose to stiff: parts that a
# stiff fit has made alike stay so in a looser one, with a class or a state that no part has any more.
_STIFF: Final = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
# Share of the noise's standard deviation that is added to make what a trial is fitted to, see `_halves`.
_THINNED: Final = 0.5
# Trials end after this number in a row that are worse by more than this share of chance; else the stiffest is best.
# With little noise chance is small. Pairs that are off by this little are met at the end of a fit, so more is as good
# then. A looser fit would keep what no number asks for, and spoil triples. Chosen on one run each of Adult, diamonds
# and fertility.
_WORSE: Final = 2
_ALIKE: Final = 0.5
_NEAR, _NEAR_ALIKE = 0.3 * FINE, 2.5
# Rows of which the effect of clipping is taken in a trial, and how often in a fit.
_TRIAL_ROWS, _CLIPPED_ROUNDS = 10_000, 3
# A pair of columns is met where chance alone would leave more in a case out of a thousand.
_MET: Final = 0.999
# If a fit loses a pair: the number of starts, and how much looser each is.
_STARTS, _LOOSER = 4, 3.0


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
    rounds = _CLIPPED_ROUNDS if Mixture(*arguments).clips else 0
    total, done = len(_STIFF) * _TRIAL_STEPS + _STEPS + rounds * _AGAIN_STEPS, 0

    def tell(step: int) -> None:
        if progress is not None and (step % 25 == 0 or done + step == total):
            progress("table", done + step, total)

    stiffness = _judged(Mixture(*arguments), seed, tell)
    done = len(_STIFF) * _TRIAL_STEPS
    models = []
    for start in range(_STARTS):
        fit = Mixture(*arguments[:-1], seed + start)
        fit.descend(fit.released, stiffness, _STEPS, _RATE, tell)
        for turn in range(rounds):
            done += _STEPS if turn == 0 else _AGAIN_STEPS
            fit.take_clipping(seed + turn)
            fit.descend(fit.released, stiffness, _AGAIN_STEPS, _RATE / 3, tell)
        if rounds:
            fit.take_clipping(seed + rounds)
        weights, within = fit.shares()
        found = fit.expected(weights, within)[0]
        parts, states = arrays_of(weights, within, fit.sizes)
        states = states if fit.classes > 1 else states[:-1]
        models.append(TableModel(parts, states, _pairs(fit, found, weights @ within, label), stiffness))
        if not models[-1].lost:
            break
        stiffness, done = stiffness / _LOOSER, total - _STEPS - rounds * _AGAIN_STEPS
    return min(models, key=lambda one: sum(pair.beyond for pair in one.lost))


def _judged(fit: Mixture, seed: int, tell: Any) -> float:
    """Return the stiffness whose fit of one half of the noise is nearest to the other, or the stiffest as near."""
    fitted, judge = _halves(fit.released, seed)
    # Misfits, and the most above the least that is as good.
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


def _halves(released: Numbers, seed: int) -> tuple[Numbers, Numbers]:
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

    def made(times: float) -> Numbers:
        larger = math.sqrt(1 + times**2)
        second, cross, counts = (number + np.float32(times) * z for number, z in zip(numbers, drawn, strict=True))
        first, other, last = (weight / larger for weight in released.weights)
        return Numbers(second, cross, counts, (first, other, last))

    return made(_THINNED), made(-1 / _THINNED)


def _pairs(fit: Mixture, found: Sums, whole: Floats, label: str, *, by_block: bool = False) -> tuple[PairFit, ...]:
    """How well the numbers ``found`` meet each pair; ``whole`` are the shares of all states in the model's table."""
    # by_block: in each class for itself, where X'X is released by class.
    released, names = fit.released, [column.name for column in fit.columns]
    weight, off = released.weights[0], found[0] - released.second
    if not by_block:
        weight, off = weight / math.sqrt(len(off)), off.sum(axis=0)
    second = np.square(off * weight).astype(np.float64)
    cross = np.square((found[1] - released.cross) * released.weights[1]).astype(np.float64)
    # The share of a cell in a number: its columns' largest features, shortened as records are by clipping.
    mean = np.square(by_blocks(whole[None], fit.features)).sum() if fit.centre is not None else 0.0
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
