"""The feature store: what is written is read back, privately and atomically."""

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.data import FeatureStore, FeatureStoreWriter, Schema
from privmix.errors import InvalidInput, StorageError
from tests.refusals import refuses

SCHEMA = Schema(records=5, input_shape=(2, 2), classes=("cat", "dog"))
X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
Y = np.array([0, 1, 1, 0, 1])
SPEC = {"name": "identity", "version": 1, "options": {}}


def begin(path: Path) -> FeatureStoreWriter:
    return FeatureStore.create(path, 5, 3, schema=SCHEMA, extractor=SPEC)


def make(path: Path) -> FeatureStore:
    with begin(path) as writer:
        writer.append(X, Y)
    return FeatureStore.open(path)


def test_what_is_written_is_read_back_by_its_owner_from_files_of_numpys(tmp_path: Path) -> None:
    with begin(tmp_path / "store") as writer:
        writer.append(X[:2], Y[:2])
        writer.append(X[2:], Y[2:])
        assert not (tmp_path / "store").exists()
        store = writer.finish()
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
    for name, array in (("features", X), ("labels", Y)):
        assert np.array_equal(getattr(store, name), array)
        assert np.array_equal(np.load(store.path / f"{name}.npy"), array)
    assert isinstance(store.features, np.memmap)
    assert not store.features.flags.writeable
    assert (store.schema, store.extractor, store.dim) == (SCHEMA, SPEC, 3)
    assert store.fingerprint == make(tmp_path / "other").fingerprint
    assert repr(store) == "<FeatureStore>"
    store.verify()


@pytest.mark.parametrize(
    ("error", "expected"),
    [(KeyboardInterrupt("stopped"), KeyboardInterrupt), (OSError(28, "No space left on device"), StorageError)],
)
def test_an_error_leaves_nothing(tmp_path: Path, error: BaseException, expected: type[BaseException]) -> None:
    class Failing:
        def __init__(self, file: Any) -> None:
            self.close = file.close

        def write(self, _: object) -> int:
            raise error

    def fill() -> None:
        with begin(tmp_path / "store") as writer:
            files = writer._partial._files
            files["features.npy"] = Failing(files["features.npy"])  # type: ignore[assignment]
            writer.append(X, Y)

    with pytest.raises(expected, match=str(error.args[-1])):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_places_and_counts_that_do_not_fit(tmp_path: Path) -> None:
    make(tmp_path / "store")
    with refuses("feature store"):
        begin(tmp_path / "store")
    with pytest.raises(StorageError, match="No such file"):
        begin(tmp_path / "no" / "store")
    with refuses("records"):
        FeatureStore.create(tmp_path / "other", 6, 3, schema=SCHEMA, extractor=SPEC)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (X[:4], Y[:4]),
        (X[:, :2], Y),
        (X[0], Y),
        (X, Y[:2]),
        (X, Y + 1),
        (X * np.inf, Y),
        (np.concatenate([X, X]), np.concatenate([Y, Y])),
    ],
)
def test_rows_that_do_not_fit(tmp_path: Path, x: Any, y: Any) -> None:
    with np.errstate(invalid="ignore"), pytest.raises(InvalidInput), begin(tmp_path / "store") as writer:
        writer.append(x, y)
    assert list(tmp_path.iterdir()) == []


def test_integer_features_are_stored_as_float32(tmp_path: Path) -> None:
    with begin(tmp_path / "store") as writer:
        writer.append(np.arange(15, dtype=np.uint8).reshape(5, 3), Y)
    assert FeatureStore.open(tmp_path / "store").features[4].tolist() == [12.0, 13.0, 14.0]


@pytest.mark.parametrize("change", [{"version": 1}, {"records": 4}, {"dim": 2}, {"records": "many"}, {"classes": None}])
def test_metadata_that_does_not_fit(tmp_path: Path, change: dict[str, Any]) -> None:
    path = make(tmp_path / "store").path / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InvalidInput):
        FeatureStore.open(path.parent)


def test_opening_what_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        FeatureStore.open(tmp_path)
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(InvalidInput, match="a feature store"):
        FeatureStore.open(tmp_path)
