"""Possible contents of a specification's columns: states, their features, and the draw of a cell from a state."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from functools import singledispatch
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.features.table_cells import ColumnKind, token_of
from privmix.features.table_dates import Dates
from privmix.features.table_kinds import Bins, Categories, Numeric, Ranks, Truth
from privmix.features.tabular import Tabular

# A number on [0, 1] is at an end, or in one of this many parts between.
_PARTS: Final = 30
_DIGITS: Final = 6
# Days between two bounds are grouped into this many parts.
_DAY_PARTS: Final = 32

Draw = Callable[[np.random.Generator, int], list[Any]]


@dataclass(frozen=True, eq=False)
class States:
    """The values that a column can hold.

    Formal guarantees:
        * everything is made of the specification, which is public;
        * each cell drawn from a state has that state's features, except that numbers and days are distinguished only to
          one thirtieth of the declared range.
    """

    # features: (s, width) float64, a row per state, as Tabular.transform makes them. shares: (s,) of an unknown column.
    # draws: a function per state that draws cells, None for a missing one. kind: Arrow type of the cells. unlisted:
    # place of the state of unlisted categories. open_end: a state is an interval with one end, the cells' value.

    name: str
    features: NDArray[np.float64]
    shares: NDArray[np.float64]
    draws: tuple[Draw, ...]
    kind: pa.DataType
    unlisted: int | None = None
    open_end: bool = False

    @property
    def field(self) -> pa.Field:
        """Name and type of the cells, and whether they can be missing."""
        return pa.field(self.name, self.kind, nullable=_MISSING in self.draws)

    def nearest(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """(n,) the state whose features are nearest to those of each of (n, width) cells."""
        distance = np.square(self.features).sum(axis=1) - 2 * features @ self.features.T
        return np.asarray(distance.argmin(axis=1), np.int64)

    def without_unlisted(self) -> "States":
        if self.unlisted is None:
            return self
        keep = np.arange(len(self.shares)) != self.unlisted
        draws = tuple(one for one, kept in zip(self.draws, keep, strict=True) if kept)
        shares = self.shares[keep] / self.shares[keep].sum()
        return replace(self, features=self.features[keep], shares=shares, draws=draws, unlisted=None)

    def cells(self, states: NDArray[np.int64], generator: np.random.Generator) -> pa.Array:
        """Cells of (n,) states, each drawn on its own."""
        found = np.empty(len(states), object)
        # State by state: a generator is quick for many numbers, not for one.
        order = np.argsort(states, kind="stable")
        starts = np.searchsorted(states[order], np.arange(len(self.draws) + 1))
        for draw, rows in zip(self.draws, np.split(order, starts[1:-1]), strict=True):
            if len(rows):
                found[rows] = draw(generator, len(rows))
        return pa.array(found.tolist(), self.kind)


def table_states(tabular: Tabular) -> tuple[States, ...]:
    entries = {entry["name"]: entry for entry in tabular.options()["columns"]}
    found = []
    for name, kind in tabular.kinds.items():
        states = _states(kind, entries[name])
        shares = states.shares / states.shares.sum()
        found.append(replace(states, name=name, features=tabular.scaled(kind, states.features), shares=shares))
    return tuple(found)


@singledispatch
def _states(kind: ColumnKind, entry: Mapping[str, Any]) -> States:
    raise NotImplementedError(type(kind).__name__)


@_states.register
def _(kind: Bins, entry: Mapping[str, Any]) -> States:
    ends = entry.get("range")
    low, high = (-math.inf, math.inf) if ends is None else ends
    # The declared end belongs to the last interval.
    edges = [low, *kind.edges, high + 1 if kind.integer and ends is not None else high]
    draws = [_within(a, b, kind.integer) for a, b in pairwise(edges)]
    states = _with_missing(_one_hot(draws, pa.int64() if kind.integer else pa.float64()), kind.missing.own)
    if low == kind.edges[0]:
        # No value is below the first edge.
        states = replace(states, features=states.features[1:], shares=states.shares[1:], draws=states.draws[1:])
    return replace(states, open_end=ends is None)


@_states.register
def _(kind: Numeric, entry: Mapping[str, Any]) -> States:
    def number(place: float) -> float:
        length = kind.high - kind.low
        above = math.expm1(place * math.log1p(length)) if kind.log else place * length
        found = kind.low + above
        found = round(found) if kind.integer else _short(found, length)
        return min(max(found, kind.low), kind.high)

    def between(low: float, high: float) -> Draw:
        return lambda generator, count: list(map(number, generator.uniform(low, high, count).tolist()))

    parts = np.linspace(0, 1, _PARTS + 1)
    draws = [_always(number(0.0)), *(between(a, b) for a, b in pairwise(parts)), _always(number(1.0))]
    places = np.concatenate([[0.0], (parts[:-1] + parts[1:]) / 2, [1.0]])
    states = _plain(places.reshape(-1, 1), draws, pa.int64() if kind.integer else pa.float64())
    return _with_missing(states, kind.missing.own)


@_states.register
def _(kind: Categories, entry: Mapping[str, Any]) -> States:
    listed: Sequence[Any] = entry["categories"]
    values = [*listed, *([] if kind.tokens is None else [None]), *([kind.unlisted] if kind.other else [])]
    draws, type_ = _draws(values)
    states = _one_hot(draws, type_)
    if kind.other:
        return states
    # If missing values have no place either, they have no feature, as these.
    named = kind.tokens is not None and type_ == pa.string()
    features = np.vstack([states.features, np.zeros(kind.width)])
    draws.append(_always(kind.unlisted) if named else _MISSING)
    return _plain(features, draws, type_, unlisted=len(features) - 1)


@_states.register
def _(kind: Ranks, entry: Mapping[str, Any]) -> States:
    draws, type_ = _draws(entry["ordinal"])
    places = np.linspace(0, 1, len(draws)).reshape(-1, 1)
    return _with_missing(_plain(places, draws, type_), kind.missing.own)


@_states.register
def _(kind: Truth, entry: Mapping[str, Any]) -> States:
    said = entry["boolean"]
    if said is True:
        draws, type_ = [_always(False), _always(True)], pa.bool_()
    else:
        draws, type_ = _draws([said["false"][0], said["true"][0]])
    return _with_missing(_plain(np.array([[0.0], [1.0]]), draws, type_), kind.missing.own)


@_states.register
def _(kind: Dates, entry: Mapping[str, Any]) -> States:
    text, length = entry.get("format"), (kind.high - kind.low).days
    days = [kind.low + timedelta(days=day) for day in range(length + 1)]
    if timed := "hour" in kind.parts:
        days = [datetime.combine(day, time(hour)) for day in days for hour in range(24)]
    width = kind.width - kind.missing.own
    encoded = kind.encode(list(days) if text is None else [day.strftime(text) for day in days], "")[:, :width]
    if "days" in kind.parts:
        # Their place is one number among the others: gathered, so that states are few.
        place = encoded[:, [kind.names("").index("")]]
        gathered = np.minimum(np.floor(place * math.sqrt(len(kind.parts)) * _DAY_PARTS), _DAY_PARTS - 1)
        which = np.concatenate([gathered, np.delete(encoded, kind.names("").index(""), axis=1)], axis=1)
    else:
        which = encoded
    _, group = np.unique(which, axis=0, return_inverse=True)
    group = group.reshape(-1)
    members = [np.flatnonzero(group == one) for one in range(group.max() + 1)]

    def one_of(places: NDArray[np.intp]) -> Draw:
        def drawn(generator: np.random.Generator, count: int) -> list[Any]:
            found = [days[place] for place in generator.choice(places, count).tolist()]
            if timed:
                minutes = generator.integers(60, size=count).tolist()
                found = [day + timedelta(minutes=more) for day, more in zip(found, minutes, strict=True)]
            return found if text is None else [day.strftime(text) for day in found]

        return drawn

    features = np.stack([encoded[places].mean(axis=0) for places in members])
    type_ = pa.string() if text is not None else pa.timestamp("s") if timed else pa.date32()
    states = _plain(features, [one_of(places) for places in members], type_)
    states = replace(states, shares=np.array([float(len(places)) for places in members]))
    return _with_missing(states, kind.missing.own)


def _always(value: Any) -> Draw:
    return lambda _, count: [value] * count


_MISSING: Final = _always(None)


def _short(number: float, length: float) -> float:
    """With few digits, unless they leave less than a thousand numbers of an interval of that length."""
    return float(f"{number:.{_DIGITS if abs(number) < 1e3 * length else 15}g}")


def _within(low: float, high: float, integer: bool) -> Draw:
    """Return a number from ``low`` on, below ``high``; of an interval with one end the number that is nearest to it."""
    if low == high or math.isinf(high):
        return _always(int(low) if integer else float(low))
    if math.isinf(low):
        return _always(int(high) - 1 if integer else math.nextafter(high, -math.inf))
    if integer:
        return lambda generator, count: generator.integers(int(low), int(high), count).tolist()

    def drawn(generator: np.random.Generator, count: int) -> list[float]:
        found = [_short(number, high - low) for number in generator.uniform(low, high, count).tolist()]
        return [number if low <= number < high else low for number in found]

    return drawn


def _draws(values: Sequence[Any]) -> tuple[list[Draw], pa.DataType]:
    """Draws of declared values, None for a missing one, and their type: texts unless all are numbers that it holds."""
    known = [value for value in values if value is not None]
    whole = all(type(value) is int and abs(value) < 2**63 for value in known)
    numbers = whole or all(type(value) is float or (type(value) is int and abs(value) <= 2**53) for value in known)
    kind = pa.int64() if whole else pa.float64() if numbers else pa.string()
    told = [value if value is None or numbers else token_of(value).strip() for value in values]
    return [_MISSING if value is None else _always(value) for value in told], kind


def _plain(
    features: NDArray[np.float64], draws: Sequence[Draw], kind: pa.DataType, unlisted: int | None = None
) -> States:
    return States("", features, np.ones(len(features)), tuple(draws), kind, unlisted)


def _one_hot(draws: Sequence[Draw], kind: pa.DataType) -> States:
    return _plain(np.eye(len(draws)), draws, kind)


def _with_missing(states: States, own: bool) -> States:
    if not own:
        return states
    count, width = states.features.shape
    features = np.zeros((count + 1, width + 1))
    features[:count, :width], features[count, width] = states.features, 1
    shares = np.append(states.shares / states.shares.sum(), 0.1)
    return replace(states, features=features, shares=shares, draws=(*states.draws, _MISSING))
