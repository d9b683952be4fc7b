"""The root that a certificate commits to records by: binding with its key, and telling nothing without it."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from privmix.data import FeatureStore
from privmix.engine import record_tree
from privmix.engine.grouping import store_by_person
from privmix.engine.record_tree import FAN_IN, HEIGHT, commitment_key, records_root
from privmix.engine.records import tiles_of
from privmix.engine.rows import PrivateRecords
from privmix.mechanisms.streams import SecretStreams
from tests.engine.test_grouping import stored

KEY = bytes(range(32))


def some(count: int = 300, persons: int | None = None, seed: int = 0) -> PrivateRecords:
    random = np.random.default_rng(seed)
    whose = None if persons is None else random.integers(0, persons, count)
    return PrivateRecords(random.normal(size=(count, 5)).astype(np.float32), random.integers(0, 3, count), whose)


def root(records: PrivateRecords | FeatureStore, key: bytes = KEY, workers: int = 1) -> str:
    return records_root(tiles_of(records), key, workers)


def test_it_is_the_tree_that_it_says() -> None:
    """By a reference that builds the whole of a small tree, level by level."""
    records = some(40)

    def keyed(content: bytes, person: bytes) -> bytes:
        return hashlib.blake2b(content, key=KEY, digest_size=32, person=person).digest()

    level = [
        keyed(b"<f4 5" + np.int64(label).tobytes() + row.tobytes(), b"privmix-leaf")
        for row, label in zip(records.features, records.labels, strict=True)
    ]
    for height in range(HEIGHT):
        while len(level) % FAN_IN:
            level.append(keyed(bytes([height]), b"privmix-empty"))
        groups = [b"".join(level[at : at + FAN_IN]) for at in range(0, len(level), FAN_IN)]
        level = [keyed(bytes([height]) + group, b"privmix-node") for group in groups]
    assert root(records) == level[0].hex()


def test_other_records_have_another_root() -> None:
    records = some()
    features, labels = records.features, records.labels
    last_bit, swapped = features.copy(), features.copy()
    last_bit[-1, -1] = np.nextafter(last_bit[-1, -1], np.float32(9))
    swapped[[3, 4]] = swapped[[4, 3]]
    others = [
        PrivateRecords(last_bit, labels),
        PrivateRecords(swapped, labels),
        PrivateRecords(features, (labels + 1) % 3),
        PrivateRecords(features[:-1], labels[:-1]),
        PrivateRecords(np.concatenate([features, features[-1:]]), np.append(labels, labels[-1])),
        PrivateRecords(-features * np.float32(0), labels),
        PrivateRecords(features * np.float32(0), labels),
        PrivateRecords(features.astype(np.float64), labels),
        PrivateRecords(features, labels, np.arange(len(labels))),
        PrivateRecords(features, labels, np.arange(len(labels)) // 2),
    ]
    roots = [root(one) for one in [records, *others]]
    # A person of one record each is a unit as records are.
    assert roots[9] == roots[0]
    assert len(set(roots)) == len(roots) - 1


def test_without_its_key_no_guess_is_confirmed() -> None:
    """Not at the records, nor at their number: under another key it is another number altogether."""
    records = some()
    roots = [bytes.fromhex(root(records, key=bytes([number]) * 32)) for number in range(200)]
    ones = np.unpackbits(np.array([list(one) for one in roots], np.uint8)).mean()
    # 51,200 bits: further than this from a half by chance once in 10^9.
    assert abs(ones - 0.5) < 6.2 * 0.5 / np.sqrt(200 * 256)
    assert all(len(one) == 32 for one in (*roots, bytes.fromhex(root(some(1)))))


def test_neither_height_nor_size_of_nodes_tells_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path from a unit to the root is as long as every other."""
    seen: list[int] = []
    above = record_tree._above
    monkeypatch.setattr(
        record_tree, "_above", lambda level, height, key: seen.append(height) or above(level, height, key)
    )
    for count in (1, 17, 300):
        seen.clear()
        root(some(count))
        assert seen == list(range(HEIGHT))


def test_its_key_is_of_the_run_and_tells_nothing_of_it() -> None:
    one, other = SecretStreams.from_seed(1), SecretStreams.from_seed(2)
    assert commitment_key(one) == commitment_key(SecretStreams.from_seed(1))
    assert commitment_key(one) != commitment_key(other)
    assert commitment_key(one) not in (one.derive("membership").share(), one.derive("fingerprint").share())
    assert one.entrust(bytes)[1:] != commitment_key(one)


def test_wherever_records_lie_and_however_many_work(tmp_path: Path) -> None:
    records = some(70_000)
    assert root(records) == root(records, workers=3)
    store = stored(tmp_path, records)
    assert root(store) == root(records)
    whose = np.random.default_rng(1).integers(0, 9_000, 70_000)
    by_person = store_by_person(store, whose, tmp_path / "by-person")
    assert root(by_person) == root(PrivateRecords(records.features, records.labels, whose))


def test_what_persons_are_called_changes_nothing() -> None:
    records = some(persons=40)
    assert records.persons is not None
    called = PrivateRecords(records.features, records.labels, records.persons * 7 + 3)
    assert root(called) == root(records)
