"""Forecast of how a release's noise changes a table's pairs of columns, from public facts alone."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from privmix.accounting.gdp import gdp_mu
from privmix.errors import InvalidInput
from privmix.learning.table_model import LARGEST_TABLE
from privmix.plans.plan import Plan
from privmix.rounding import exact
from privmix.shown import Bar, Bars, Shown

Reals = NDArray[np.float64]

CARRIED: Final = 0.1
"""Cramer's V that has to stand out of its noise for a pair to be carried: a small association (Cohen's words)."""

TOO_MUCH: Final = 0.2
"""Total variation by noise beyond which rows hold little about a pair."""

# Pairs that are forecast of a wide table, and names that a sentence lists.
_MOST_PAIRS, _MOST_NAMES = 5000, 8

# A class of fewer units than this many times the noise in one sum is small.
_FEW: Final = 10
# A chance of one in a thousand that noise alone looks like an association.
_CONFIDENCE: Final = 0.999
# Synthetic tables: parts in which columns are independent, and how alike the parts are.
_LATENT, _ALIKE, _TABLES, _DRAWS = 6, 1.5, 6, 4
_SAME: Final = 1e-12


@dataclass(frozen=True)
class TableColumn:
    """A declared column: name, number of values, whether a release shows each value's share (or mean and spread)."""

    name: str
    states: int
    told: bool = True
    more: str = "bins"
    """The field of a specification that releases shares of values, where they are not."""


@dataclass(frozen=True)
class PairForecast:
    """Effect of noise on a pair of columns; the second may be the label's."""

    # cells: of their table. variation: expected total variation by the noise, 0 to 1. weakest: the least Cramer's V
    # that stands out of the noise; over 1 where none does.

    columns: tuple[str, str]
    cells: int
    variation: float
    weakest: float

    @property
    def carried(self) -> bool:
        return self.weakest <= CARRIED


@dataclass(frozen=True)
class Advice:
    """A column with more states than the budget carries; ``enough`` states would do, None where two are too many."""

    column: str
    states: int
    enough: int | None

    def __str__(self) -> str:
        would = "not even 2 would do" if self.enough is None else f"{self.enough} would do"
        return f"{self.column} has {self.states} values; {would} at this budget, the other columns as advised."


@dataclass(frozen=True, repr=False)
class TableForecast(Shown):
    """Effect of a plan's noise on a table; all of it is public."""

    # pairs: of columns whose shares are released, a sample of ``of`` where there are more than 5,000. advice: columns
    # with more states than the budget carries. untold: columns that are released by mean and spread alone.

    pairs: tuple[PairForecast, ...]
    advice: tuple[Advice, ...]
    untold: tuple[TableColumn, ...]
    of: int

    @property
    def variation(self) -> float:
        """Expected total variation by the noise, mean over pairs."""
        return float(np.mean([pair.variation for pair in self.pairs]))

    @property
    def lost(self) -> tuple[PairForecast, ...]:
        """Pairs that lie within their noise, the worst first."""
        return tuple(sorted((pair for pair in self.pairs if not pair.carried), key=lambda pair: -pair.weakest))

    @property
    def notes(self) -> tuple[str, ...]:
        """The effect of the noise in the rows' terms, a sentence each."""
        weak = sum(pair.variation > TOO_MUCH for pair in self.pairs)
        found = [
            f"Pairs of columns are known to about {self.variation:.2g} of total variation on average (0: exactly, 1: "
            "not at all)."
        ]
        if len(self.pairs) < self.of:
            found.append(f"{len(self.pairs):,} of {self.of:,} pairs were forecast, drawn at random from the columns.")
        if weak:
            found.append(f"{weak:,} of {len(self.pairs):,} pairs are known to no better than {TOO_MUCH}.")
        if lost := self.lost:
            names = listed(" x ".join(pair.columns) for pair in lost)
            small = f"Noise hides a small association (Cramer's V {CARRIED})"
            found.append(f"{small} in {len(lost):,} of {len(self.pairs):,} pairs: {names}.")
        return (*found, *untold_note(self.untold))

    @property
    def warning(self) -> str | None:
        """Warning if noise leaves little of the pairs."""
        if self.variation <= TOO_MUCH:
            return None
        return (
            f"noise is forecast to move pairs of columns by {self.variation:.2g} of total variation on average: too "
            "much for rows to be of use. More records, a larger epsilon, fewer columns or fewer values a column help"
        )

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return "Forecast of a table", {
            "total variation of two columns by noise": f"{self.variation:.4f}",
            "pairs that are carried": f"{len(self.pairs) - len(self.lost)} of {len(self.pairs)}",
            **({"forecast": self.notes[1]} if len(self.pairs) < self.of else {}),
            **({"within their noise": listed(" x ".join(pair.columns) for pair in self.lost)} if self.lost else {}),
            **({"more values than are carried": listed(map(str, self.advice), " ")} if self.advice else {}),
            **({"not forecast (ranges)": listed(one.name for one in self.untold)} if self.untold else {}),
        }

    def picture(self) -> Bars:
        worst = sorted(self.pairs, key=lambda pair: -pair.variation)
        bars = [Bar(" x ".join(one.columns), one.variation, f"{one.variation:.3f}", not one.carried) for one in worst]
        return Bars("Total variation by noise", bars)

    def to_dict(self) -> dict[str, Any]:
        return {
            "variation": self.variation,
            "pairs_in_all": self.of,
            "pairs": [
                {
                    "columns": list(pair.columns),
                    "cells": pair.cells,
                    "variation": pair.variation,
                    "weakest_association": pair.weakest,
                    "carried": pair.carried,
                }
                for pair in self.pairs
            ],
            "advice": [vars(one) for one in self.advice],
            "not_forecast": [one.name for one in self.untold],
        }


def listed(names: Iterable[str], between: str = ", ") -> str:
    """Return the first of them, and how many more there are."""
    found = list(names)
    more = [] if len(found) <= _MOST_NAMES else [f"and {len(found) - _MOST_NAMES:,} more"]
    return between.join([*found[:_MOST_NAMES], *more])


def untold_note(columns: Sequence[TableColumn]) -> tuple[str, ...]:
    """Note on columns whose shares of values are not released, and what would release them."""
    if not columns:
        return ()
    by = {more: [one.name for one in columns if one.more == more] for more in dict.fromkeys(c.more for c in columns)}
    uses = "; ".join(f"{more} ({listed(names)})" for more, names in by.items())
    are = "1 column has" if len(columns) == 1 else f"{len(columns)} columns have"
    return (f"{are} a range only: mean and spread are released, not shares of values. Use {uses} to release more.",)


def has_pairs(plan: Plan) -> bool:
    """Whether what the plan releases holds second moments: of a table, every pair of its columns."""
    return {"second", *(["cross"] if plan.num_classes > 1 else [])} <= plan.noise_std.keys()


def few_for_noise(plan: Plan, epsilon: float, delta: float) -> str | None:
    """Warning about a budget whose noise hides a class of the average size; from public facts alone."""
    if not (0 < delta < 1 and math.isfinite(epsilon)):
        return None
    # A sum whose noise is this multiple of the part of one unit has about this budget.
    noise, share = 1 / gdp_mu(epsilon, delta), plan.records / plan.num_classes
    if share >= _FEW * noise:
        return None
    several = plan.num_classes > 1
    return (
        f"{plan.records:,} {plan.counted}{f' in {plan.num_classes:,} classes' * several} are few for epsilon "
        f"{exact(epsilon)}: {f'a class has {share:.3g} on average, and ' * several}the noise in one released sum is "
        f"worth {noise:.2g} of them or more. Little can be learnt from it: release more records, "
        f"{'fewer classes, ' * several}or at a larger epsilon"
    )


def forecast_table(plan: Plan, columns: Sequence[TableColumn], *, label: str = "label") -> TableForecast | None:
    """Return the effect of noise on each pair of columns; None where the plan releases no table of pairs.

    Formal guarantees:
        * it depends on the plan and the declared columns alone, which are public: no record is an argument.
    """
    # A cell's noise follows from the plan. The error after projection onto shares (>= 0, sum 1) is simulated on
    # synthetic tables with uneven shares and random associations. Centred residuals are as long as those of synthetic
    # records. The fit of rows is not included.
    noise = _noise(plan, columns)
    if noise is None:
        return None
    if plan.dim > LARGEST_TABLE:
        raise InvalidInput("features of the table", plan.dim, f"at most {LARGEST_TABLE}: fewer bins or categories")
    told = [one for one in columns if one.told]
    classes = TableColumn(label, len(plan.classes))
    if not told:
        raise InvalidInput("columns", 0, "a column of categories or bins: ranges have no shares to forecast")
    both = [*told, *([classes] if classes.states > 1 else [])]
    of = math.comb(len(both), 2)
    if not of:
        return None
    places: Iterable[tuple[int, int]] = combinations(range(len(both)), 2)
    if of > _MOST_PAIRS:
        # The same pairs for every plan, so that plans compare.
        first, second = np.triu_indices(len(both), 1)
        chosen = np.sort(np.random.default_rng(of).choice(of, _MOST_PAIRS, replace=False))
        places = zip(first[chosen].tolist(), second[chosen].tolist(), strict=True)
    pairs = [_pair(both[a], both[b], noise[both[b] is classes]) for a, b in places]
    untold = tuple(one for one in columns if not one.told)
    return TableForecast(tuple(pairs), _advice(told, classes, noise), untold, of)


def _noise(plan: Any, columns: Sequence[TableColumn]) -> tuple[float, float] | None:
    """Return the standard deviation of a cell's share, of a pair of columns and of one with the classes."""
    if not has_pairs(plan):
        return None
    used = len(columns)
    # The share that clipping takes off a record is missing in its cells, too.
    length = 1.0
    if plan.residual_clip_norm is not None:
        # A centred record is shorter where its columns have uneven shares.
        length = math.sqrt(max(1 - float(np.mean([np.square(_uneven(one.states)).sum() for one in columns])), _SAME))
    kept = min(1.0, plan.final_clip_norm / length)
    block = used * plan.noise_std["second"] / plan.records / kept**2
    cross = math.sqrt(used) * plan.noise_std.get("cross", 0.0) / plan.records / kept
    blocks = math.prod(plan.part("second").shape[:-2])
    if blocks == 1:
        return block / math.sqrt(2), cross
    # The diagonals of the classes' matrices count the values in each class, too.
    return block * math.sqrt(blocks / 2), 1 / math.hypot(1 / block, 1 / cross)


def _uneven(states: int) -> Reals:
    shares = 1 / np.arange(1, states + 1)
    return np.asarray(shares / shares.sum())


def _pair(first: TableColumn, second: TableColumn, noise: float) -> PairForecast:
    a, b = first.states, second.states
    return PairForecast(
        (first.name, second.name), a * b, _variation(min(a, b), max(a, b), noise), _weakest(a, b, noise)
    )


@lru_cache(maxsize=4096)
def _weakest(a: int, b: int, noise: float) -> float:
    """Cramer's V whose squares, in a table of even shares, stand out of the noise's: (min - 1) V^2 = ab sum d^2."""
    free = (a - 1) * (b - 1)
    if free == 0:
        return 0.0
    return noise * math.sqrt(_beyond(free) * a * b / (min(a, b) - 1))


@cache
def _beyond(free: int) -> float:
    """Most that chance alone adds to a sum of ``free`` squares."""
    # The chi-square law's quantile; SciPy's module of laws takes half a second.
    return 2 * float(gammaincinv(free / 2, _CONFIDENCE)) - free


@lru_cache(maxsize=256)
def _tables(a: int, b: int) -> tuple[tuple[Reals, Reals], ...]:
    """Synthetic shares of a pair, and standard normals for their noise: the same for every plan, so plans compare."""
    generator, found = np.random.default_rng((a, b)), []
    for _ in range(_TABLES):
        parts = [generator.dirichlet(_ALIKE * size * _uneven(size) + _SAME, _LATENT) for size in (a, b)]
        weights = _uneven(_LATENT)
        found.append(((parts[0].T * weights) @ parts[1], generator.standard_normal((_DRAWS, a, b))))
    return tuple(found)


@lru_cache(maxsize=4096)
def _variation(a: int, b: int, noise: float) -> float:
    """Mean total variation between shares and what is left of them with noise, taken to be shares again."""
    left = []
    for shares, normals in _tables(a, b):
        noisy = (shares + noise * normals).reshape(len(normals), -1)
        left += (np.abs(_as_shares(noisy) - shares.ravel()).sum(axis=1) / 2).tolist()
    return float(np.mean(left))


def _as_shares(values: Reals) -> Reals:
    """For each row the nearest point with entries of at least 0 that add up to 1 (Euclidean projection)."""
    ordered = np.sort(values)[:, ::-1]
    over = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, values.shape[1] + 1)
    last = values.shape[1] - 1 - np.argmax((ordered > over)[:, ::-1], axis=1)
    return np.asarray(np.maximum(values - np.take_along_axis(over, last[:, None], axis=1), 0.0))


def _advice(columns: Sequence[TableColumn], classes: TableColumn, noise: tuple[float, float]) -> tuple[Advice, ...]:
    """Return fewer states for columns of pairs that are not carried, the widest column first."""
    now = {place: one.states for place, one in enumerate(columns)}
    enough: dict[int, int | None] = {}
    # Columns of one size do alike: sizes are few where columns are many.
    sizes = Counter(now.values())

    def carries(own: int, states: int) -> bool:
        others = [size for size, count in sizes.items() if count > (size == own)]
        return all(_weakest(states, size, noise[0]) <= CARRIED for size in others) and (
            _weakest(states, classes.states, noise[1]) <= CARRIED
        )

    for _ in columns:
        failing = {size for size, count in sizes.items() if count and not carries(size, size)}
        left = [place for place in now if enough.get(place, 2) is not None and now[place] in failing]
        if not left:
            break
        widest = max(left, key=lambda place: now[place])
        fewer = [states for states in range(2, now[widest]) if carries(now[widest], states)]
        enough[widest] = max(fewer, default=None)
        sizes[now[widest]] -= 1
        now[widest] = enough[widest] or 2
        if enough[widest] is not None:
            sizes[now[widest]] += 1
    return tuple(Advice(columns[place].name, columns[place].states, most) for place, most in sorted(enough.items()))
