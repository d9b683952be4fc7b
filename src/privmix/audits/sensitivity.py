"""A grey-box check of sensitivity: how far does one record really move what the engines release?

Noise is only as good as the number that it is scaled to. Here the real engine runs on two neighbouring datasets under
one key: all noise is the same and cancels in the difference, and every other record joins the same rows. What is left
is what the record did, and it must not be more than what the plan scales its noise to (Desfontaines et al. 2026, who
record and replay randomness in the same way).

Two things are replayed by hand. Where a record is added or removed, the draws of the others are those of the larger
dataset, since a shorter dataset would draw them anew. Where the mean is released first, the second run gets the sum
that the first one had: later queries are judged for each answer of the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import Adjacency
from privmix.audits.bounds import Scores
from privmix.audits.worst_case import EngineFactory, real_engine
from privmix.engine import PrivateRecords
from privmix.engine.rows import RowEngine
from privmix.engine.tiles import TileSummer
from privmix.errors import InvalidInput, check_integer
from privmix.mechanisms.membership import RECORD_TILE, Membership, offsets_of
from privmix.mechanisms.private_count import noisy_count, query_noise, records_of_persons, weight_of_persons
from privmix.mechanisms.streams import SecretStreams
from privmix.plans import BasePlan, Plan, made_by
from privmix.plans.registry import Door

# Half a unit in the last place of float32, which released numbers are rounded to.
_ULP: Final = 2.0**-24


@dataclass(frozen=True)
class QuerySensitivity:
    """How far one record moved one query.

    Attributes:
        query: its name.
        declared: the most that one record may move it, by the plan.
        measured: how far it was moved, in the same norm and unit.
        rounding: how much of ``measured`` may be rounding of released numbers to float32, which is no part of the sum.
    """

    query: str
    declared: float
    measured: float
    rounding: float = 0.0

    @property
    def exceeded(self) -> bool:
        """Whether the record did more than the plan allows."""
        return not self.measured <= self.declared + self.rounding

    @property
    def share(self) -> float:
        """Of what is declared; 1 where nothing is, and nothing happened."""
        return self.measured / self.declared if self.declared > 0 else 1.0 if self.measured == 0 else math.inf


MOVED: Final = Door[Callable[[Any, "Pair"], list[QuerySensitivity]]]("moved", "one whose queries are known")
"""How far a record moves what a plan releases after count and mean."""


def release_sensitivity(
    plan: Plan,
    records: PrivateRecords,
    position: int,
    *,
    replacement: tuple[NDArray[Any], int] | None = None,
    seed: int = 0,
    make: EngineFactory = real_engine,
) -> tuple[QuerySensitivity, ...]:
    """Run the engine with a record and without it, or with another in its place, and measure every query.

    Args:
        plan: what runs. Its adjacency says whether the record is removed or replaced.
        records: a dataset that holds the record, of at least two records and at most a record tile (65,536). Secrets
            must not be given: what is returned shows them. Where persons are the units, so many persons.
        position: of the record; of persons, in the order in which their first records stand there.
        replacement: features (d,) and label that take its place, exactly where the adjacency is replace-one. Of a
            person one record takes the place of all.
        seed: of the key that both runs share.
        make: makes the engine: any that makes its sums in this process.

    Returns:
        The record count and the mean where they are released; then, of rows, ``features`` and ``labels`` of the row
        that is moved most, ``rows`` (both together, in units of their noise), ``rows without the record`` and
        ``rows touched``; or of moments each part and ``all moments``, of two stages each part and ``all of both
        stages``; of other designs what they say.

    Raises:
        InvalidInput: records or replacement do not fit the plan.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> config = ReleaseConfig(records=8, dim=2, classes=("a", "b"), mixup_degree=4, rows=30, centre="none")
        >>> records = PrivateRecords(np.full((8, 2), 9.0), np.zeros(8, np.int64))
        >>> for found in release_sensitivity(config.with_noise(1.0), records, 3):
        ...     print(found.query, round(found.share, 3), found.exceeded)
        features 1.0 False
        labels 1.0 False
        rows 1.0 False
        rows without the record 1.0 False
        rows touched 0.333 False
    """
    count = check_integer("records", records.units, low=2, high=RECORD_TILE)
    check_integer("position", position, low=0, high=count - 1)
    if (replacement is not None) != (plan.adjacency is Adjacency.REPLACE_ONE):
        raise InvalidInput("replacement", replacement is not None, "one exactly where the plan is for replaced records")
    pair = Pair(plan, records, position, replacement, seed, make)
    found = []
    if plan.records_noise_multiplier is not None:
        found += _count_moved(pair, seed)
    if plan.centred:
        found.append(_mean_moved(pair))
    return tuple(found + MOVED.of(made_by(plan))(plan, pair))


class Pair:
    """Two runs under one key that differ by one record."""

    def __init__(
        self,
        plan: Plan,
        records: PrivateRecords,
        position: int,
        replacement: tuple[NDArray[Any], int] | None,
        seed: int,
        make: EngineFactory,
    ) -> None:
        self.plan, self.present, self.position = plan, records, position
        self._seed, self._make = seed, make
        self.factor = 1.0 if replacement is None else 2.0
        own = records.of_unit(position)
        self.removed = own if replacement is None else own[1:]
        features, labels = records.features.copy(), records.labels.copy()
        if replacement is not None:
            features[own[0]], labels[own[0]] = replacement
        kept = np.setdiff1d(np.arange(len(labels)), self.removed)
        persons = None if records.persons is None else records.persons[kept]
        self.other = PrivateRecords(features[kept], labels[kept], persons)

    def engine(self, records: PrivateRecords) -> Any:
        return self._make(self.plan, records, SecretStreams.from_seed(self._seed))

    def replayed(self) -> tuple[Any, Any, _Replayed | None]:
        """Both engines, the second with the membership and the clipped sum of the first; and who replays."""
        first, second = self.engine(self.present), self.engine(self.other)
        honest, kept = first._clipped_sum, []

        def recorded(progress: Any) -> NDArray[np.float64]:
            kept.append(honest(progress).copy())
            return np.array(kept[0])

        first._clipped_sum, second._clipped_sum = recorded, lambda progress: np.array(kept[0])
        if not isinstance(first, RowEngine) or self.other.units == self.present.units:
            return first, second, None
        replay = _Replayed(first._summer, second._summer, self.position)
        second._summer.members = replay.members
        return first, second, replay


class _Replayed:
    """Members as they were in a dataset with a unit more, without that unit. ``rows`` are those that it was in."""

    def __init__(self, larger: TileSummer, smaller: TileSummer, position: int) -> None:
        self._members = larger.members
        spans = [summer.spans(0) for summer in (larger, smaller)]
        # Places of the unit's own records (or means) in the larger dataset's tile.
        self._own = range(spans[0][position], spans[0][position + 1])
        assert spans[0][-1] - len(self._own) == spans[1][-1]
        self.rows: dict[int, NDArray[np.int64]] = {}

    def members(self, row_tile: int, index: int) -> Membership:
        assert index == 0
        drawn, own = self._members(row_tile, 0), self._own
        row = np.repeat(np.arange(drawn.rows), drawn.counts)
        others = (drawn.indices < own.start) | (drawn.indices >= own.stop)
        self.rows[row_tile] = row[~others]
        indices = drawn.indices[others] - (drawn.indices[others] >= own.stop) * len(own)
        weights = None if drawn.weights is None else drawn.weights[others]
        return Membership(offsets_of(np.bincount(row[others], minlength=drawn.rows)), indices, weights)


def _count_moved(pair: Pair, seed: int) -> list[QuerySensitivity]:
    """What is estimated before anything is planned; of a number and a quantile each by half of the price."""
    noise = query_noise(pair.plan)
    held = [
        np.ones(len(records.labels), np.int64)
        if records.persons is None
        else np.unique(records.persons, return_counts=True)[1]
        for records in (pair.present, pair.other)
    ]

    def moved(query: str, ask: Callable[[NDArray[np.int64], SecretStreams], Any]) -> QuerySensitivity:
        larger, smaller = (np.atleast_1d(ask(counts, SecretStreams.from_seed(seed))) for counts in held)
        return QuerySensitivity(query, 1.0, float(np.linalg.norm(larger - smaller)))

    most = pair.plan.per_person or 1
    count = moved("record count", lambda counts, streams: noisy_count(weight_of_persons(counts, most), noise, streams))
    if pair.plan.person_quantile is None:
        return [count]
    return [count, moved("records of persons", lambda counts, streams: records_of_persons(counts, noise, streams))]


def _mean_moved(pair: Pair) -> QuerySensitivity:
    """Both means as they are released: nothing of them is replayed but the noise."""
    plan, centres = pair.plan, []
    for records in (pair.present, pair.other):
        engine = pair.engine(records)
        # From the row after the last on: nothing is made that need not be.
        for _ in engine.rows(first=plan.rows):
            pass
        centres.append(engine.transform.centre[None])
    moved, rounding = distances(centres[0], centres[1], plan.records, plan.norm)
    return QuerySensitivity("mean", pair.factor * plan.clip_norm, float(moved[0]), float(rounding[0]))


# Name, declared bound, standard deviation of the noise, and the released numbers of both runs.
Part = tuple[str, float, float, list[NDArray[Any]]]


def triangle(matrix: NDArray[np.float32]) -> NDArray[np.float64]:
    """The upper triangle with its entries off the diagonal times sqrt(2): of the norm that the whole matrix has."""
    below = matrix[np.tril_indices(len(matrix), -1)].astype(np.float64)
    return np.concatenate([np.diag(matrix), math.sqrt(2) * below])


def moved_parts(plan: BasePlan, factor: float, parts: Sequence[Part], together: str) -> list[QuerySensitivity]:
    """Each part, and all of them in units of their noise."""
    found, sums = [], np.zeros(2)
    for name, declared, noise, (one, other) in parts:
        moved, rounding = (float(value[0]) for value in distances(one[None], other[None], 1.0, "l2"))
        found.append(QuerySensitivity(name, factor * declared, moved, rounding))
        sums += np.square([moved / noise, rounding / noise])
    moved, rounding = np.sqrt(sums)
    return [*found, QuerySensitivity(together, factor / plan.noise_multiplier, float(moved), float(rounding))]


ORDERS: Final = {"l1": 1, "l2": 2}


def distances(one: NDArray[Any], other: NDArray[Any], unit: float, norm: str) -> tuple[Scores, Scores]:
    """(a, b) twice -> (a,) norms of differences times ``unit``, and how much of each may be float32's rounding."""
    first, second = one.astype(np.float64), other.astype(np.float64)
    order = ORDERS[norm]
    moved = np.linalg.norm(first - second, axis=1, ord=order) * unit
    rounding = np.linalg.norm(np.abs(first) + np.abs(second), axis=1, ord=order) * (unit * _ULP)
    return moved, rounding


def largest(moved: Scores, rounding: Scores) -> tuple[float, float]:
    """The entry that exceeds its rounding by most."""
    worst = int(np.argmax(moved - rounding))
    return float(moved[worst]), float(rounding[worst])
