"""What the noise of a release does to a table's pairs of columns, forecast from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from privmix.errors import InvalidInput
from privmix.learning.table_model import LARGEST_TABLE
from privmix.plans import Plan
from privmix.shown import Bar, Bars, Shown

Reals = NDArray[np.float64]

CARRIED: Final = 0.1
"""Cramer's V that has to stand out of its noise for a pair to be carried: a small association (Cohen's words)."""

# A chance of one in a thousand that noise alone looks like an association.
_CONFIDENCE: Final = 0.999
# Synthetic tables: parts in which columns are independent, and how alike the parts are.
_LATENT, _ALIKE, _TABLES, _DRAWS = 6, 1.5, 6, 4
_SAME: Final = 1e-12


@dataclass(frozen=True)
class TableColumn:
    """A declared column.

    Attributes:
        name: of it.
        states: how many values it tells apart.
        told: whether the release's numbers tell the share of each; of a number with a range they tell mean and spread.
    """

    name: str
    states: int
    told: bool = True


@dataclass(frozen=True)
class PairForecast:
    """What noise does to a pair of columns.

    Attributes:
        columns: their names; of a pair with the classes the second is the label's.
        cells: of their table.
        variation: expected total variation by the noise, from 0 to 1.
        weakest: the least Cramer's V that stands out of the noise; over 1 where none does.
    """

    columns: tuple[str, str]
    cells: int
    variation: float
    weakest: float

    @property
    def carried(self) -> bool:
        """Whether a small association stands out."""
        return self.weakest <= CARRIED


@dataclass(frozen=True)
class Advice:
    """A column with more states than the budget carries.

    Attributes:
        column: its name.
        states: that it has.
        enough: the most that would do; None where two would be too many.
    """

    column: str
    states: int
    enough: int | None

    def __str__(self) -> str:
        would = "not even 2 would do" if self.enough is None else f"{self.enough} would do"
        return f"{self.column} has {self.states} values; {would} at this budget, the other columns as advised."


@dataclass(frozen=True, repr=False)
class TableForecast(Shown):
    """What the noise of a plan does to a table. All of it is public.

    Attributes:
        pairs: of columns whose shares are told, the classes among them.
        advice: columns with more states than the budget carries.
        untold: columns of numbers with a range, of whose distribution a release tells mean and spread alone.
    """

    pairs: tuple[PairForecast, ...]
    advice: tuple[Advice, ...]
    untold: tuple[str, ...]

    @property
    def variation(self) -> float:
        """Expected total variation by the noise, mean over pairs."""
        return float(np.mean([pair.variation for pair in self.pairs]))

    @property
    def lost(self) -> tuple[PairForecast, ...]:
        """Pairs that lie within their noise, the worst first."""
        return tuple(sorted((pair for pair in self.pairs if not pair.carried), key=lambda pair: -pair.weakest))

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Pairs, and advice."""
        lost = ", ".join(" x ".join(pair.columns) for pair in self.lost)
        return "Forecast of a table", {
            "total variation of two columns by noise": f"{self.variation:.4f}",
            "pairs that are carried": f"{len(self.pairs) - len(self.lost)} of {len(self.pairs)}",
            **({"within their noise": lost} if lost else {}),
            **({"more values than are carried": " ".join(map(str, self.advice))} if self.advice else {}),
            **({"not forecast (ranges)": ", ".join(self.untold)} if self.untold else {}),
        }

    def picture(self) -> Bars:
        """The pairs that noise moves most."""
        worst = sorted(self.pairs, key=lambda pair: -pair.variation)
        bars = [Bar(" x ".join(one.columns), one.variation, f"{one.variation:.3f}", not one.carried) for one in worst]
        return Bars("Total variation by noise", bars)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "variation": self.variation,
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
            "not_forecast": list(self.untold),
        }


def has_pairs(plan: Plan) -> bool:
    """Whether what the plan releases holds second moments: of a table, every pair of its columns."""
    first = getattr(plan, "first", plan)
    return hasattr(first, "noise_std_second") and hasattr(first, "noise_std_cross")


def forecast_table(plan: Plan, columns: Sequence[TableColumn], *, label: str = "label") -> TableForecast | None:
    """What noise does to each pair of columns; None where the plan releases no table of pairs.

    A cell's noise follows from the plan. What is left of it in a table whose cells are shares (none below 0, together
    1) is simulated on synthetic tables of as many rows and columns: their columns have uneven shares and associations
    that are drawn. Where features are centred and clipped, a record's residual is taken to be as long as those of
    synthetic records are. What the fit of rows leaves besides the noise is not in it.

    Formal guarantees:
        * it depends on the plan and the declared columns alone, which are public: no record is an argument.

    Args:
        plan: with its noise; of design moments, or in stages, whose first is of moments.
        columns: the declared ones that are used.
        label: name of the column of classes.

    Raises:
        InvalidInput: a table of more features than rows are made of.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> config = ReleaseConfig(records=5000, dim=9, classes=("no", "yes"), design="moments")
        >>> wards = (TableColumn("ward", 4), TableColumn("stage", 5))
        >>> found = [forecast_table(config.calibrate(at, 1e-5), wards) for at in (1.0, 8.0)]
        >>> found[0].variation > found[1].variation, len(found[0].pairs)
        (True, 3)
    """
    noise = _noise(plan, columns)
    if noise is None:
        return None
    if plan.dim > LARGEST_TABLE:
        raise InvalidInput("features of the table", plan.dim, f"at most {LARGEST_TABLE}: fewer bins or categories")
    told = [one for one in columns if one.told]
    classes = TableColumn(label, len(plan.classes))
    pairs = [_pair(a, b, noise[0]) for a, b in combinations(told, 2)] + [_pair(a, classes, noise[1]) for a in told]
    if not pairs:
        raise InvalidInput("columns", 0, "a column of categories or bins: ranges have no shares to forecast")
    return TableForecast(
        tuple(pairs), _advice(told, classes, noise), tuple(one.name for one in columns if not one.told)
    )


def _noise(plan: Any, columns: Sequence[TableColumn]) -> tuple[float, float] | None:
    """Standard deviation of a cell's share, of a pair of columns and of one with the classes."""
    if not has_pairs(plan):
        return None
    first = getattr(plan, "first", plan)
    used = len(columns)
    # What clipping takes off a record is taken off what its cells tell, too.
    kept = min(1.0, first.final_clip_norm / _length(plan, columns))
    return (
        used * first.noise_std_second / math.sqrt(2) / first.records / kept**2,
        math.sqrt(used) * first.noise_std_cross / first.records / kept,
    )


def _length(plan: Any, columns: Sequence[TableColumn]) -> float:
    """Of a record after centring, whose columns' shares are uneven ones."""
    if plan.residual_clip_norm is None:
        return 1.0
    return math.sqrt(max(1 - float(np.mean([np.square(_uneven(one.states)).sum() for one in columns])), _SAME))


def _uneven(states: int) -> Reals:
    shares = 1 / np.arange(1, states + 1)
    return np.asarray(shares / shares.sum())


def _pair(first: TableColumn, second: TableColumn, noise: float) -> PairForecast:
    a, b = first.states, second.states
    return PairForecast(
        (first.name, second.name), a * b, _variation(min(a, b), max(a, b), noise), _weakest(a, b, noise)
    )


def _weakest(a: int, b: int, noise: float) -> float:
    """Cramer's V whose squares, in a table of even shares, stand out of the noise's: (min - 1) V^2 = ab sum d^2."""
    free = (a - 1) * (b - 1)
    if free == 0:
        return 0.0
    return noise * math.sqrt(_beyond(free) * a * b / (min(a, b) - 1))


@cache
def _beyond(free: int) -> float:
    """What chance alone adds to a sum of so many squares, at most."""
    return float(chi2.ppf(_CONFIDENCE, free)) - free


@lru_cache(maxsize=256)
def _tables(a: int, b: int) -> tuple[tuple[Reals, Reals], ...]:
    """Synthetic shares of a pair, and standard normals for their noise: the same for every plan, so plans compare."""
    generator, found = np.random.default_rng((a, b)), []
    for _ in range(_TABLES):
        parts = [generator.dirichlet(_ALIKE * size * _uneven(size) + _SAME, _LATENT) for size in (a, b)]
        weights = _uneven(_LATENT)
        found.append(((parts[0].T * weights) @ parts[1], generator.standard_normal((_DRAWS, a, b))))
    return tuple(found)


def _variation(a: int, b: int, noise: float) -> float:
    """Mean total variation between shares and what is left of them with noise, taken to be shares again."""
    left = []
    for shares, normals in _tables(a, b):
        noisy = (shares + noise * normals).reshape(len(normals), -1)
        left += (np.abs(_as_shares(noisy) - shares.ravel()).sum(axis=1) / 2).tolist()
    return float(np.mean(left))


def _as_shares(values: Reals) -> Reals:
    """Of each row the nearest point whose entries are none below 0 and add up to 1 (Euclidean projection)."""
    ordered = np.sort(values)[:, ::-1]
    over = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, values.shape[1] + 1)
    last = values.shape[1] - 1 - np.argmax((ordered > over)[:, ::-1], axis=1)
    return np.asarray(np.maximum(values - np.take_along_axis(over, last[:, None], axis=1), 0.0))


def _advice(columns: Sequence[TableColumn], classes: TableColumn, noise: tuple[float, float]) -> tuple[Advice, ...]:
    """The widest column of a pair that is not carried gets as many states as its pairs carry, until all are."""
    now = {place: one.states for place, one in enumerate(columns)}
    enough: dict[int, int | None] = {}

    def carries(place: int, states: int) -> bool:
        others = [size for other, size in now.items() if other != place and enough.get(other, 2) is not None]
        return all(_weakest(states, size, noise[0]) <= CARRIED for size in others) and (
            _weakest(states, classes.states, noise[1]) <= CARRIED
        )

    for _ in columns:
        left = [place for place in now if enough.get(place, 2) is not None and not carries(place, now[place])]
        if not left:
            break
        widest = max(left, key=lambda place: now[place])
        fewer = [states for states in range(2, now[widest]) if carries(widest, states)]
        enough[widest] = max(fewer, default=None)
        now[widest] = enough[widest] or 2
    return tuple(Advice(columns[place].name, columns[place].states, most) for place, most in sorted(enough.items()))
