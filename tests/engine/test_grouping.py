"""A store sorted by person: the records that memory would hold, in its order, whatever the parts, and after a kill."""

import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.data import FeatureStore
from privmix.data.source import Schema
from privmix.engine import grouping
from privmix.engine.grouping import store_by_person
from privmix.engine.records import PersonStoreTiles, content_fingerprint, tiles_of
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput, StorageError
from privmix.mechanisms.persons import NO_ONE, grouped
from tests.engine.test_persons import CLASSES, equal, every_design, plan_of, released, some, whose_of
from tests.refusals import refuses

SMALL = 4_000
FACTS = {"name": "identity"}


@pytest.fixture(autouse=True)
def few_records_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "_AT_ONCE", 17)


def stored(folder: Path, records: PrivateRecords) -> FeatureStore:
    count, dim = records.features.shape
    schema = Schema(records=count, input_shape=(dim,), classes=CLASSES)
    with FeatureStore.create(folder / "store", count, dim, schema=schema, extractor=FACTS) as writer:
        writer.append(records.features, records.labels)
    return FeatureStore.open(folder / "store")


def of_32_bits(records: PrivateRecords) -> PrivateRecords:
    return PrivateRecords(records.features.astype(np.float32), records.labels, records.persons)


@pytest.mark.parametrize("memory", [1, SMALL, 10**9])
@pytest.mark.parametrize("most", [3, 1000])
@pytest.mark.parametrize("out", [[], [0, 7, 39]], ids=["all count", "some do not"])
def test_it_is_what_memory_would_hold(tmp_path: Path, memory: int, most: int, out: list[int]) -> None:
    """One part or many, where some have more records than count, and where persons do not count."""
    records = of_32_bits(some(40, 300))
    whose = np.where(np.isin(whose_of(records), out), NO_ONE, whose_of(records))
    made = store_by_person(stored(tmp_path, records), whose, tmp_path / "made", memory_bytes=memory, most=most)
    order, starts = grouped(whose, records.labels, most)
    # As if the records of persons who do not count were not there.
    kept = np.flatnonzero(whose != NO_ONE)
    alone, begins = grouped(whose[kept], records.labels[kept], most)
    assert np.array_equal(order, kept[alone])
    assert np.array_equal(starts, begins)
    assert np.array_equal(made.features, records.features[order])
    assert np.array_equal(made.labels, records.labels[order])
    assert np.array_equal(np.flatnonzero(made.begins), starts[:-1])
    assert made.path.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in tmp_path.iterdir() if "parts" in path.name or "partial" in path.name) == []


@pytest.mark.parametrize("tile", [1, 7, 40, 41])
def test_its_tiles_are_those_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tile: int) -> None:
    records = of_32_bits(some(40, 300))
    for part in ("records", "tiles"):
        monkeypatch.setattr(f"privmix.engine.{part}.RECORD_TILE", tile)
    monkeypatch.setattr("privmix.engine.records._BEGINS_AT_ONCE", 11)
    made = tiles_of(
        store_by_person(stored(tmp_path, records), whose_of(records), tmp_path / "made", memory_bytes=SMALL)
    )
    assert isinstance(made, PersonStoreTiles)
    expected = tiles_of(records)
    assert (made.units, made.count, made.dim) == (40, 300, 5)
    for index in range(-(-40 // tile)):
        (x, y), (own_x, own_y) = expected.tile(index), made.tile(index)
        assert np.array_equal(np.asarray(x), own_x)
        assert np.array_equal(y, own_y)
        assert np.array_equal(expected.starts(index), made.starts(index))
        assert made.length(index) == len(own_y)
    assert content_fingerprint(made, b"key", 1) == content_fingerprint(expected, b"key", 1)


@every_design
def test_a_release_from_disk_is_that_from_memory(tmp_path: Path, name: str) -> None:
    """Bit for bit, read at once or again for every chunk."""
    records, plan = of_32_bits(some(40, 200)), plan_of(name, 40, 5)
    made: Any = store_by_person(stored(tmp_path, records), whose_of(records), tmp_path / "made", memory_bytes=SMALL)
    expected = released(plan, records)
    assert equal(expected, released(plan, made))
    assert equal(expected, released(plan, made, memory_gb=1e-6))


def test_workers_get_its_path_alone(tmp_path: Path) -> None:
    records = some(40, 300)
    made = tiles_of(store_by_person(stored(tmp_path, records), whose_of(records), tmp_path / "made"))
    sent = pickle.dumps(made)
    assert len(sent) < 500
    assert np.array_equal(pickle.loads(sent).tile(0)[0], made.tile(0)[0])


class Killed(Exception):
    """In place of a kill: nothing after it runs but what a kill would leave, too."""


def killed_after(calls: int, told: list[int]) -> Callable[[str, int, int], None]:
    def progress(stage: str, done: int, total: int) -> None:
        assert stage == "grouping"
        assert 0 < done <= total
        told.append(done)
        if len(told) > calls:
            raise Killed

    return progress


@pytest.mark.parametrize("calls", [0, 5, 17, 20, 30, 36])
def test_it_goes_on_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Interrupted while records are dealt, and while parts are sorted; what is written is not written again."""
    monkeypatch.setattr("privmix.data.partial.CHECKPOINT_SECONDS", 0.0)
    records = some(40, 300)
    store, before, after = stored(tmp_path, records), list[int](), list[int]()
    whole = store_by_person(store, whose_of(records), tmp_path / "whole", memory_bytes=SMALL)
    asked: Any = {"memory_bytes": SMALL}
    with pytest.raises(Killed):
        store_by_person(store, whose_of(records), tmp_path / "made", progress=killed_after(calls, before), **asked)
    made = store_by_person(store, whose_of(records), tmp_path / "made", progress=killed_after(1000, after), **asked)
    assert made.fingerprint == whole.fingerprint
    assert np.array_equal(made.features, whole.features)
    written = [done for done in before if done > 300]
    assert min(done for done in after if done > 300) > max(written, default=300)


def test_parts_that_a_kill_left_go_and_those_of_others_are_not_touched(tmp_path: Path) -> None:
    records = some(40, 300)
    store, parts = stored(tmp_path, records), tmp_path / ".made.parts"
    parts.mkdir(mode=0o700)
    (parts / "0").write_bytes(b"left")
    store_by_person(store, whose_of(records), tmp_path / "made")
    assert not parts.exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "kept").write_bytes(b"another's")
    (tmp_path / ".again.parts").symlink_to(elsewhere)
    with refuses(".again.parts"):
        store_by_person(store, whose_of(records), tmp_path / "again")
    assert (elsewhere / "kept").exists()


def test_it_is_reused_for_the_same_records_and_persons_alone(tmp_path: Path) -> None:
    records = some(40, 300)
    store = stored(tmp_path, records)
    made = store_by_person(store, whose_of(records), tmp_path / "made")
    calls: list[Any] = []
    again = store_by_person(store, whose_of(records), tmp_path / "made", progress=lambda *told: calls.append(told))
    assert again.fingerprint == made.fingerprint
    assert not calls
    with refuses("feature store"):
        store_by_person(store, whose_of(records)[::-1], tmp_path / "made")
    with refuses("persons"):
        store_by_person(store, whose_of(records)[1:], tmp_path / "made")
    with refuses("feature store"):
        store_by_person(store, whose_of(records), tmp_path / "store")
    begins = tmp_path / "made" / "begins.npy"
    content = bytearray(begins.read_bytes())
    content[-1] ^= 1
    begins.write_bytes(content)
    with pytest.raises(InvalidInput, match="as they were written"):
        store_by_person(store, whose_of(records), tmp_path / "made")


def test_memory_holds_a_part_and_little_of_each_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 400,000 persons of one record each: numbers, counts and places of all would take 40 bytes each, 16 MB."""
    monkeypatch.setattr(grouping, "_AT_ONCE", 4096)
    monkeypatch.setattr("privmix.mechanisms.persons._AT_ONCE", 4096)
    count = 400_000
    records = PrivateRecords(np.ones((count, 1), np.float32), np.zeros(count, np.int64))
    store, path = stored(tmp_path, records), tmp_path / "whose"
    np.arange(count).tofile(path)
    on_disk = np.asarray(np.memmap(path, np.int64, "r"))
    tracemalloc.start()
    try:
        store_by_person(store, on_disk, tmp_path / "made", memory_bytes=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * count


def test_a_full_disk_is_an_error_and_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = some(40, 300)
    store = stored(tmp_path, records)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(grouping, "of_many", full)
    with pytest.raises(StorageError, match="space"):
        store_by_person(store, whose_of(records), tmp_path / "made", most=3)
    assert not list(tmp_path.glob("*made*"))
