"""Bounds and bins of columns of numbers, and categories, estimated from private records and paid for.

A column of numbers takes two Gaussian queries: a histogram over public cells of all sizes, for bounds, and one over
equal cells between these bounds, for bins. A column of categories takes one: its values with a noisy count above a
threshold. A value that one record alone has passes with a small chance, which is paid for as a delta (partition
selection with Gaussian noise: Desfontaines, Voss, Gipson and Mandayam 2022).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from privmix.accounting.events import Bounded, Composed, Event, Gaussian
from privmix.mechanisms.noise import gaussian_on_lattice
from privmix.mechanisms.streams import SecretStreams

# Round numbers, ten a decade, from a millionth to a trillion, of both signs: bounds that a person would choose.
_ROUND: Final = [
    float(f"{digits}e{power}") for power in range(-6, 13) for digits in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
]
EDGES: Final = np.array([*(-one for one in reversed(_ROUND)), 0.0, *_ROUND])
"""Edges of the public cells of the first histogram: values below, between and above them."""

_CELLS: Final = 200
_INTERVALS: Final = 10
# Standard deviations of noise that count as records: in a thousand empty cells noise passes once in thirty columns.
_SEEN: Final = 4.0
# Rounding makes a whole record of little noise.
_ROUNDED: Final = 0.5
# Standard deviations of the noise in a cumulative count that an interval's records are to exceed.
_CLEAR: Final = 4.0
# Categories and characters of all columns together: a certificate holds the specification.
_MOST_CATEGORIES, _MOST_TEXT = 200, 2**15


@dataclass(frozen=True)
class ColumnQueries:
    """Queries of columns of ``numbers`` and ``categories``, at a noise for all of them together."""

    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    noise_multiplier: float
    selection_delta: float

    @property
    def event(self) -> Event:
        gaussian = Gaussian(self.noise_multiplier)
        return Composed((gaussian, Bounded(0.0, self.selection_delta))) if self.categories else gaussian

    @property
    def noise(self) -> float:
        """Standard deviation of the noise in each count: queries share the budget equally."""
        return self.noise_multiplier * math.sqrt(2 * len(self.numbers) + len(self.categories))

    @property
    def threshold(self) -> int:
        """Least noisy count of a category that is listed."""
        # Rounded noise reaches t - 1 only where noise reaches t - 1.5.
        return math.ceil(1.5 + self.noise * float(norm.isf(self.selection_delta / len(self.categories))))


def estimate_columns(
    queries: ColumnQueries,
    numbers: Mapping[str, NDArray[np.float64]],
    categories: Mapping[str, Counter[str]],
    streams: SecretStreams,
    whole: Sequence[str] = (),
) -> dict[str, dict[str, Any] | None]:
    """Return an entry of a table's specification for each column; None where noise hides all records.

    ``numbers`` has (n,) numbers of each column, NaN where a record has none, ``categories`` the number of records by
    value. Columns in ``whole`` hold whole numbers, by public knowledge. The streams serve one call.

    Formal guarantees:
        * Price: ``queries.event`` where one record is added or removed. A record is in at most one cell of each
          histogram and counts for at most one value of each column of categories. The second histogram's cells follow
          from the first one's noisy counts and public constants.
        * Integers: counts and noise are whole numbers, so no rounding shows a count.
        * Unseen values: a value without records is never listed. One that a single record has is listed with a chance
          of at most ``selection_delta`` over all columns together.
        * Values as they are: bounds and edges are public round numbers and their multiples, never a record's number.
    """
    found: dict[str, dict[str, Any] | None] = {}
    for place, name in enumerate(queries.numbers):
        found[name] = _number_entry(numbers[name], queries.noise, streams, place, name in whole)
    for place, name in enumerate(queries.categories):
        counts = categories[name]
        with streams.lent("categories of a column", place) as generator:
            noise = gaussian_on_lattice(generator, len(counts), queries.noise)
        # In an order that does not depend on how the records lie.
        noisy = {value: counts[value] + int(added) for value, added in zip(sorted(counts), noise, strict=True)}
        listed = sorted((value for value in noisy if noisy[value] >= queries.threshold), key=lambda one: -noisy[one])
        lengths = np.cumsum([len(value) for value in listed[:_MOST_CATEGORIES]])
        kept = sorted(listed[: int(np.searchsorted(lengths, _MOST_TEXT // len(queries.categories)))])
        found[name] = {"categories": kept, "other": True} if kept else None
    return found


def _counts(
    cells: NDArray[np.int64], size: int, noise: float, streams: SecretStreams, *index: int
) -> NDArray[np.int64]:
    with streams.lent("histogram of a column", *index) as generator:
        added = gaussian_on_lattice(generator, size, noise)
    return np.asarray(np.bincount(cells, minlength=size) + added.astype(np.int64))


def _number_entry(
    values: NDArray[np.float64], noise: float, streams: SecretStreams, place: int, whole: bool
) -> dict[str, Any] | None:
    values = values[np.isfinite(values)]
    counts = _counts(np.searchsorted(EDGES, values, side="right"), len(EDGES) + 1, noise, streams, place, 0)
    seen = np.flatnonzero(counts > _SEEN * noise + _ROUNDED)
    if not len(seen):
        return None
    low, high = EDGES[max(0, seen[0] - 1)], EDGES[min(len(EDGES) - 1, seen[-1])]
    step = _step((high - low) / _CELLS, whole)
    start = math.floor(low / step)
    cells = max(1, math.ceil(high / step) - start)
    inside = np.clip(np.floor(np.clip(values, low, high) / step) - start, 0, cells - 1).astype(np.int64)
    counts = _counts(inside, cells, noise, streams, place, 1)
    upto, beyond = np.cumsum(counts), np.cumsum(counts[::-1])[::-1]
    error = noise * np.sqrt(np.arange(1, cells + 1))
    # Ends are cut off as long as noise explains all records from there on, but inside the outermost cells of bounds.
    ends = [math.floor(EDGES[at] / step) - start for at in (min(seen[0], len(EDGES) - 1), max(seen[-1] - 1, 0))]
    first = min(int(np.argmax(upto > _SEEN * error + _ROUNDED)), ends[0])
    last = max(cells - 1 - int(np.argmax((beyond > _SEEN * error[::-1] + _ROUNDED)[::-1])), ends[1])
    first, last = (first, last) if first <= last else (0, cells - 1)
    parts = int(np.clip(upto[-1] / (_CLEAR * error[-1]), 1, _INTERVALS))
    wanted = upto[-1] * np.arange(1, parts) / parts
    # Noise lets cumulative counts fall.
    inner = {int(np.searchsorted(np.maximum.accumulate(upto), one)) + 1 for one in wanted}
    edges = [_edge(start + cell, step) for cell in sorted(inner) if first < cell <= last]
    bounds = [_edge(start + first, step), _edge(start + last + 1, step) - whole]
    if bounds[0] >= bounds[1]:
        # One whole number, or nothing but it: a range has two ends.
        bounds[1] = bounds[0] + 1
    shape = {"bins": edges, "range": bounds} if edges else {"range": bounds}
    return {**shape, "missing": "indicator", **({"integer": True} if whole else {})}


def _edge(cell: int, step: float) -> float:
    made = float(f"{cell * step:.12g}")
    return int(made) if made.is_integer() else made


def _step(least: float, whole: bool) -> float:
    """Return the least round number from ``least`` on; 1 or more for whole numbers."""
    power = math.floor(math.log10(least)) if least > 0 else 0
    steps = (float(f"{digits}e{more}") for more in (power, power + 1) for digits in (1, 2, 2.5, 5))
    found = next(one for one in steps if one >= least)
    return max(1.0, float(math.ceil(found))) if whole else found
