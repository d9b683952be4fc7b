"""The .npz and .npy readers."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.data import open_dataset
from privmix.errors import InvalidInput, StorageError
from tests.refusals import refuses

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
Y = np.array([0, 1, 1, 0, 1, 0])


def test_npz_splits_and_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x_train=X, y_train=Y, x_test=X[:2], y_test=Y[:2], classes=["cat", "dog"])
    assert open_dataset(tmp_path).schema.classes == ("cat", "dog")
    assert open_dataset(tmp_path / "d.npz", split="test").schema.records == 2
    assert open_dataset(tmp_path, split="test").schema.records == 2
    for path in (tmp_path, tmp_path / "d.npz"):
        with refuses("split"):
            open_dataset(path, split="val")


@pytest.mark.parametrize(("classes", "expected"), [(np.array(3), ("0", "1", "2")), (np.array([2]), ("0", "1"))])
def test_npz_number_of_classes(tmp_path: Path, classes: Any, expected: tuple[str, ...]) -> None:
    np.savez(tmp_path / "d.npz", x=X, y=Y, classes=classes)
    assert open_dataset(tmp_path / "d.npz").schema.classes == expected


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_folder_in_any_memory_order(tmp_path: Path, order: Any) -> None:
    np.save(tmp_path / "x.npy", np.asarray(X, order=order))
    np.save(tmp_path / "y.npy", Y)
    data = open_dataset(tmp_path, classes=2).read()
    assert np.array_equal(data.x, X)
    assert open_dataset(tmp_path / "x.npy", classes=2).schema.records == 6
    np.savez(tmp_path / "d.npz", x=np.asarray(X, order=order), y=Y)
    assert np.array_equal(open_dataset(tmp_path / "d.npz", classes=2).read().x, X)


def test_npy_splits(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("test", 2)):
        np.save(tmp_path / f"x_{split}.npy", X[:count])
        np.save(tmp_path / f"y_{split}.npy", Y[:count])
    assert open_dataset(tmp_path, classes=2).schema.records == 4
    assert open_dataset(tmp_path, classes=2, split="test").schema.records == 2
    assert open_dataset(tmp_path / "x_test.npy", classes=2).schema.records == 2


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, "no array y"),
        ({"y": Y}, "no array x"),
        ({"x": X.astype(object), "y": Y}, "Pickled objects are never loaded"),
        ({"x": X.astype("U"), "y": Y}, "type of x"),
        ({"x": X, "y": Y, "classes": X}, "classes in"),
    ],
)
def test_archives_that_are_no_dataset(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(InvalidInput, match=message):
        open_dataset(tmp_path / "d.npz", classes=None if "classes" in arrays else 2).read()


def test_an_array_shorter_than_its_header_says(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:-1])
    with refuses("size of array"):
        open_dataset(tmp_path, classes=2)
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", content[:-1])
        archive.write(tmp_path / "y.npy", "y.npy")
    with refuses("size of array"):
        open_dataset(tmp_path / "d.npz", classes=2)


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (pytest.fail, ("the pickle was run",))

    np.save(tmp_path / "x.npy", np.array([[Bomb()]], dtype=object), allow_pickle=True)
    np.save(tmp_path / "y.npy", Y[:1])
    with refuses("type of array"):
        open_dataset(tmp_path, classes=2)


def test_missing_labels_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(StorageError, match="No such file"):
        open_dataset(tmp_path, classes=2)
