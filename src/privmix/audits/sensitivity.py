"""Grey-box checks of sensitivity: how far one record really moves what the engines release.

The real engine runs on two neighbouring datasets under one key. Noise cancels in the difference and the other records
join the same rows, which leaves the record's effect: at most what the plan scales its noise to (Desfontaines et al.
2026).

Replayed: under add/remove, the others' draws are those of the larger dataset. The second run centres by the first run's
mean, and maps as that did, since later queries are judged for each answer of earlier ones.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.events import Adjacency
from privmix.audits.bounds import Scores
from privmix.audits.worst_case import EngineFactory, real_engine
from privmix.engine.rows import PrivateRecords, RowEngine
from privmix.engine.tiles import TileSummer
from privmix.errors import InvalidInput, check_integer
from privmix.mechanisms.membership import RECORD_TILE, Membership, offsets_of
from privmix.mechanisms.private_count import noisy_count, query_noise, records_of_persons, weight_of_persons
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import Plan
from privmix.plans.registry import Deferred, made_by

# Half a unit in the last place of float32, which released numbers are rounded to.
_ULP: Final = 2.0**-24


@dataclass(frozen=True)
class QuerySensitivity:
    """Effect of one record on one query, next to the plan's bound."""

    # rounding: the part of ``measured`` that may be float32's rounding of released numbers.

    query: str
    declared: float
    measured: float
    rounding: float = 0.0

    @property
    def exceeded(self) -> bool:
        return not self.measured <= self.declared + self.rounding

    @property
    def share(self) -> float:
        """Share of the declared amount; 1 if nothing is declared and nothing happened."""
        return self.measured / self.declared if self.declared > 0 else 1.0 if self.measured == 0 else math.inf


MOVED: Final = Deferred[Callable[[Any, "Pair"], list[QuerySensitivity]]]("moved", "one whose queries are known")
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
    """Run the engine with a record and without it, or with another instead, and return how far every query moved."""
    # records: none is secret, since the result shows them; person plans take as many persons. replacement: exactly
    # under replace-one. Results of rows are in units of their noise; ``features`` and ``labels`` are of the row that
    # moved most.
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
        self.plan: Final = plan
        self.present: Final = records
        self.position: Final = position
        self._seed, self._make = seed, make
        self.factor: Final = 1.0 if replacement is None else 2.0
        own = records.of_unit(position)
        self.removed: Final = own if replacement is None else own[1:]
        features, labels = records.features.copy(), records.labels.copy()
        if replacement is not None:
            features[own[0]], labels[own[0]] = replacement
        kept = np.setdiff1d(np.arange(len(labels)), self.removed)
        persons = None if records.persons is None else records.persons[kept]
        self.other: Final = PrivateRecords(features[kept], labels[kept], persons)

    def engine(self, records: PrivateRecords) -> Any:
        return self._make(self.plan, records, SecretStreams.from_seed(self._seed))

    def replayed(self) -> "tuple[Any, Any, Replayed | None]":
        """Both engines, the second with the membership of the first and what that released; and who replays."""
        first, second = self.engine(self.present), self.engine(self.other)
        second.follow(first)
        if not isinstance(first, RowEngine) or self.other.units == self.present.units:
            return first, second, None
        replay = Replayed(first.summer, second.summer, self.position)
        second.draw_by(replay.members)
        return first, second, replay


class Replayed:
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
    """Return queries estimated before anything is planned; a number and a quantile each take half of the cost."""
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


ORDERS: Final = {"l1": 1, "l2": 2}


def distances(one: NDArray[Any], other: NDArray[Any], unit: float, norm: str) -> tuple[Scores, Scores]:
    """Return (a,) norms of differences of two (a, b) times ``unit``, and how much may be float32's rounding."""
    first, second = one.astype(np.float64), other.astype(np.float64)
    order = ORDERS[norm]
    moved = np.linalg.norm(first - second, axis=1, ord=order) * unit
    rounding = np.linalg.norm(np.abs(first) + np.abs(second), axis=1, ord=order) * (unit * _ULP)
    return moved, rounding


def largest(moved: Scores, rounding: Scores) -> tuple[float, float]:
    worst = int(np.argmax(moved - rounding))
    return float(moved[worst]), float(rounding[worst])
