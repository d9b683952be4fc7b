"""Records are checked once, at the boundary, and tell nothing of themselves."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privmix.errors import InvalidInput
from privmix.training import dp_sgd as records_module
from privmix.training.dp_sgd import TrainingRecords
from tests.refusals import refuses

SECRET = 7_341_529.0
ROWS = 13


def good() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 3)).astype(np.float32), rng.integers(0, 4, ROWS)


def put(array: np.ndarray, place: Any, value: float, kind: Any = None) -> np.ndarray:
    changed = array.astype(kind or array.dtype)
    changed[place] = value
    return changed


BROKEN: dict[str, Callable[[np.ndarray, np.ndarray], tuple[Any, Any]]] = {
    "nan": lambda x, y: (put(x, (4, 1), np.nan), y),
    "infinite": lambda x, y: (put(x, (4, 1), -np.inf), y),
    "too large for float32": lambda x, y: (put(x, (4, 1), SECRET * 1e300, np.float64), y),
    "label above": lambda x, y: (x, put(y, 3, 7_341_529)),
    "label below": lambda x, y: (x, put(y, 3, -7_341_529)),
    "label between": lambda x, y: (x, put(y, 3, 1.7341529, np.float64)),
    "label nan": lambda x, y: (x, put(y, 3, np.nan, np.float64)),
    "names": lambda x, y: (x, ["7341529"] * ROWS),
    "too few labels": lambda x, y: (x, y[:-1]),
    "one-hot labels": lambda x, y: (x, np.eye(4)[y]),
    "one axis": lambda x, y: (x[:, 0], y),
    "four axes": lambda x, y: (x[:, None, None], y),
    "no features": lambda x, y: (x[:, :0], y),
    "no records": lambda x, y: (x[:0], y[:0]),
    "words": lambda x, y: (np.full((ROWS, 3), "7341529"), y),
    "objects": lambda x, y: (np.full((ROWS, 3), object()), y),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_does_not_fit_is_refused_in_silence(kind: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        TrainingRecords.of(*BROKEN[kind](*good()), classes=4)
    text = "".join(traceback.format_exception_only(caught.value)) + repr(caught.value.args)
    assert not any(secret in text for secret in ("7341529", "7.34", "1.73", "13", "(4,", "12"))
    assert caught.value.field in ("x", "labels")
    with refuses("classes"):
        TrainingRecords.of(good()[0], np.zeros(ROWS), classes=1)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.uint8, np.int32, np.bool_])
def test_numbers_of_any_type(dtype: Any) -> None:
    x = np.array([[0, 1], [1, 0]], dtype=dtype)
    for labels in ([0, 1], [0.0, 1.0], np.array([False, True]), np.array([0, 1], np.uint64)):
        records = TrainingRecords.of(x, labels, classes=2)
        assert (records.x.dtype, records.labels.dtype) == (np.float32, np.int64)
        assert records.x.tolist() == [[0.0, 1.0], [1.0, 0.0]]
        assert records.labels.tolist() == [0, 1]


def test_a_memory_map_is_not_copied(tmp_path: Path) -> None:
    x, y = good()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    records = TrainingRecords.of(mapped, y, classes=4)
    assert np.shares_memory(records.x, mapped)
    taken, labels = records.take(np.array([5, 2]), torch.device("cpu"))
    assert np.array_equal(taken.numpy(), x[[5, 2]])
    assert labels.tolist() == y[[5, 2]].tolist()
    assert repr(records) == "<TrainingRecords of 3 features, 4 classes>"
    bank = TrainingRecords.of(np.stack([x, -x], axis=1), y, classes=4)
    assert (len(bank), bank.dim, bank.x.shape[1]) == (ROWS, 3, 2)


def test_the_digest_changes_with_any_value_and_with_the_key() -> None:
    x, y = good()
    records = TrainingRecords.of(x, y, classes=4)
    moved, relabelled = x.copy(), y.copy()
    moved[-1, -1] = np.nextafter(moved[-1, -1], np.float32(9))
    relabelled[0] = (relabelled[0] + 1) % 4
    parts = [(moved, y, 4), (x, relabelled, 4), (x, y, 5), (x[:, None], y, 4), (x[::-1], y, 4)]
    others = [TrainingRecords.of(features, labels, classes=classes) for features, labels, classes in parts]
    digests = {found.digest(b"key") for found in (records, *others)} | {records.digest(b"other")}
    assert len(digests) == 7
    assert TrainingRecords.of(x.astype(np.float64), y.tolist(), classes=4).digest(b"key") == records.digest(b"key")


def test_the_digest_does_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    records = TrainingRecords.of(*good(), classes=4)
    whole = records.digest(b"key")
    monkeypatch.setattr("privmix.training.dp_sgd.BLOCK", 4)
    assert records.digest(b"key") == whole
    x, y = good()
    x[-1, 0] = np.nan
    with refuses("x"):
        TrainingRecords.of(x, y, classes=4)


@pytest.mark.parametrize("value", [0.0, 1.0, -1e-6, 1.00001, 1e6])
def test_images_are_told_by_their_range(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "BLOCK", 2)
    x = np.full((5, 3), 0.5)
    x[4, 1] = value
    assert TrainingRecords.of(x, [0] * 5, classes=2).in_unit_range() == (0 <= value <= 1)
