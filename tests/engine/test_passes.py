"""Passes in parts: whatever is cut, sent and merged, the sums are those of one pass on one machine, to the bit."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privmix.engine.engines import make_engine
from privmix.engine.passes import AnySums, Pass, Passes, Room
from privmix.engine.records import RecordTiles, record_tiles
from privmix.engine.rows import PrivateRecords
from privmix.engine.tiles import TileReader
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.plan import BasePlan, Plan
from privmix.progress import Progress
from tests.engine.test_persons import CLASSES, equal, released, some
from tests.refusals import refuses

OPTIONS: dict[str, dict[str, Any]] = {"merf": {"frequencies": 8}, "hermite": {"pairs": 2}}


class Cut:
    """In place of a cluster: each tile is a part of its own, and what travels is pickled."""

    def __init__(self, memory: int = 2**31) -> None:
        self._memory, self.sent = memory, list[bytes]()

    def memory(self) -> int:
        return self._memory

    def passes(self, plan: BasePlan, records: RecordTiles, *, workers: int | None) -> Passes:
        return CutPasses(self, plan, records, workers=workers)


class CutPasses(Passes):
    def __init__(self, cut: Cut, plan: BasePlan, records: RecordTiles, *, workers: int | None) -> None:
        super().__init__(plan, records, workers=workers)
        self._cut, self._plan = cut, plan

    def over(self, one: Pass[AnySums], tell: Progress) -> AnySums:
        parts = []
        for index in reversed(range(record_tiles(self.reader.records))):
            sent = pickle.dumps(one)
            there: Pass[AnySums] = pickle.loads(sent)
            sums = there.empty()
            there.add(TileReader(self._plan, self.reader.records), index, sums, lambda _: None)
            made = pickle.dumps(sums)
            self._cut.sent += [sent, made]
            parts.append(pickle.loads(made))
        while len(parts) > 1:
            joined = one.empty()
            joined.merge(parts.pop(0))
            joined.merge(parts.pop())
            parts.append(joined)
        return parts[0]


def plan_of(name: str, units: int, per_person: int | None = None, dim: int = 5, rows: int = 60) -> Plan:
    return ReleaseConfig(
        records=units, dim=dim, classes=CLASSES, rows=rows, per_person=per_person, design=name, **OPTIONS.get(name, {})
    ).with_noise(1.0)


def records_of(persons: int, records: int, per_person: int | None, **more: Any) -> PrivateRecords:
    """Records of persons, or on their own."""
    made = some(persons, records, **more)
    return made if per_person else replace(made, persons=None)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    """What a cluster would be."""
    made = Cut()
    monkeypatch.setattr("privmix.engine.engines.Cluster", lambda _address: made)
    return made


@pytest.fixture
def tiles_of_seven(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("records", "tiles"):
        monkeypatch.setattr(f"privmix.engine.{part}.RECORD_TILE", 7)


def numbers(found: list[Any]) -> list[Any]:
    """All arrays among what stands beside rows, also those of a dictionary."""
    flat = [part for one in found for part in (one.values() if isinstance(one, dict) else [one])]
    return [part for part in flat if isinstance(part, np.ndarray)]


@pytest.mark.usefixtures("tiles_of_seven")
@pytest.mark.parametrize(
    ("name", "per_person"),
    [
        *((name, many) for name in ("moments", "class-moments", "two-stage", "three-stage") for many in (None, 1, 3)),
        *(("corrected-moments", many) for many in (None, 3)),
        ("merf", None),
        ("hermite", 3),
    ],
)
def test_sums_in_parts_are_those_of_one_machine(cut: Cut, name: str, per_person: int | None) -> None:
    records = records_of(40, 150, per_person)
    plan = plan_of(name, records.units, per_person)
    one, other = numbers(released(plan, records)), numbers(released(plan, records, engine="ray"))
    assert len(one) >= 4
    assert equal(one, other)
    assert len(cut.sent) >= 2 * 6


@pytest.mark.parametrize("per_person", [None, 1])
def test_normal_weights_in_parts_are_those_of_one_machine(cut: Cut, per_person: int | None) -> None:
    """Streams of weights belong to whole tiles, so that there are more records than one holds."""
    records = records_of(RECORD_TILE + 300, RECORD_TILE + 500, per_person, dim=2)
    plan = plan_of("gaussian-mixing", records.units, per_person, dim=2, rows=5)
    assert equal(released(plan, records), released(plan, records, engine="ray"))
    assert len(cut.sent) == 2 * 2 * 2


def test_panels_of_products_in_parts_are_those_of_one_machine(cut: Cut) -> None:
    """A part's sums are no larger than a panel: 128 rows of X'X at the least."""
    rng = np.random.default_rng(0)
    records = PrivateRecords(rng.normal(size=(30, 300)), rng.integers(0, 3, 30))
    plan = plan_of("moments", 30, dim=300, rows=10)
    whole = released(plan, records)
    largest = max(map(len, cut.sent), default=0)
    assert largest == 0
    assert equal(whole, released(plan, records, engine="ray"))
    alone = max(map(len, cut.sent))
    cut.sent.clear()
    assert equal(whole, released(plan, records, engine="ray", memory_gb=1e-6))
    assert max(map(len, cut.sent)) < 0.6 * alone


@pytest.mark.parametrize("name", ["moments", "three-stage", "corrected-moments", "merf", "gaussian-mixing"])
def test_no_key_to_the_noise_and_no_record_travels_with_a_pass(cut: Cut, name: str) -> None:
    """Records go as a path or through the object store, which this stand-in leaves out."""
    records = records_of(150, 150, None)
    key = bytes(range(100, 132))
    plan = plan_of(name, 150)
    made = make_engine(plan, records, SecretStreams(bytearray(key), insecure_seed=False), "ray")
    list(made.rows())
    sent = b"".join(cut.sent)
    assert key not in sent
    assert not any(row.tobytes() in sent for row in records.features)


@pytest.mark.usefixtures("cut", "tiles_of_seven")
@pytest.mark.parametrize(("name", "steps"), [("three-stage", 4**15), ("merf", 2**15)])
def test_too_many_units_are_refused_in_parts_too(name: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has room for its own; together they have none."""
    monkeypatch.setattr("privmix.engine.passes.EXACT_FLOAT64", 100 * steps)
    with refuses("lattice sums"):
        released(plan_of(name, 150), records_of(150, 150, None), engine="ray")


def test_room_ends_below_the_limit() -> None:
    room = Room(2**30)
    room.take(2**23 - 1)
    with refuses("lattice sums"):
        room.take(1)
