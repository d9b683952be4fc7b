"""Data in memory: what people hold in their hands gives the records that files of it would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pytest
import torch

from privmix.data import content_hashes, open_dataset
from privmix.data.frames import frame_inputs
from privmix.errors import InvalidInput
from tests.refusals import refuses

X = np.arange(12, dtype=np.float64).reshape(4, 3) / 4
Y = [1, 0, 1, 0]
FRAME = {"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "label": ["cat", "dog", "cat"]}
CLASSES = ["cat", "dog"]


def read(data: Any, **options: Any) -> tuple[Any, list[int]]:
    found = open_dataset(data, **options).read()
    return found.x.tolist(), found.y.tolist()


@pytest.mark.parametrize(
    "x",
    [X, X.astype(np.float32), torch.tensor(X), torch.tensor(X, dtype=torch.bfloat16), X.astype(object)],
    ids=["float64", "float32", "tensor", "bfloat16", "objects"],
)
@pytest.mark.parametrize(
    "y",
    [Y, np.array(Y), torch.tensor(Y), np.array(Y, float), [["cat", "dog"][k] for k in Y], pandas.Series(Y), [[1]] * 0],
    ids=["list", "array", "tensor", "floats", "names", "series", "none"],
)
def test_arrays_of_any_kind_are_the_same_records(x: Any, y: Any) -> None:
    if len(y) == 0:
        with refuses("y"):
            open_dataset((x, y), classes=CLASSES)
        return
    assert read((x, y), classes=CLASSES) == (X.tolist(), Y)


def test_lists_need_a_declared_length() -> None:
    with refuses("x"):
        open_dataset((X.tolist(), Y), classes=2)
    assert read((X.tolist(), Y), classes=2, feature_length=3) == (X.tolist(), Y)
    images = X.reshape(4, 3, 1)
    assert open_dataset((list(images), Y), classes=2, input_shape=(3, 1)).read().x.shape == (4, 3, 1)
    pixels = images.astype(np.uint8)
    assert open_dataset((pixels, Y), classes=2).read().x.dtype == np.uint8
    with refuses("x"):
        open_dataset((list(pixels), Y), classes=2, input_shape=(3, 1)).read()


def test_frames_and_datasets_are_the_records_of_a_csv(tmp_path: Path) -> None:
    pandas.DataFrame(FRAME).to_csv(tmp_path / "d.csv", index=False)
    features = datasets.Features(
        a=datasets.Value("int64"), b=datasets.Value("float64"), label=datasets.ClassLabel(names=CLASSES)
    )
    held = datasets.Dataset.from_dict(FRAME).cast(features)
    frames = [pandas.DataFrame(FRAME), pandas.DataFrame(FRAME).convert_dtypes(), polars.DataFrame(FRAME), held]
    for options in ({}, {"number_columns": ["b"]}, {"columns": ["b", "a"]}):
        wanted = read(tmp_path / "d.csv", classes=CLASSES, **options)
        if "columns" in options:
            wanted = [[float(cell) for cell in row] for row in wanted[0]], wanted[1]
        assert all(read(frame, classes=CLASSES, **options) == wanted for frame in frames)
    assert read((frames[0][["a", "b"]], FRAME["label"]), classes=CLASSES) == read(frames[0], classes=CLASSES)
    assert read(datasets.DatasetDict(validation=held), split="val", classes=CLASSES) == read(held, classes=CLASSES)
    assert read(held.select([2, 0]), classes=CLASSES)[0] == [[3, 2.5], [1, 0.5]]


def test_missing_cells_of_frames_are_missing_values() -> None:
    cells = {"a": ["x", None, ""], "b": [1, None, 3], "label": [0, 1, 0]}
    wanted = [["x", 1.0], [None, None], ["", 3.0]]
    for frame in (pandas.DataFrame(cells), pandas.DataFrame(cells).convert_dtypes(), polars.DataFrame(cells)):
        assert read(frame, classes=2, columns=["a", "b"])[0] == wanted
        with refuses("inputs"):
            read(frame, classes=2, number_columns=["b"])


def test_inputs_of_a_frame_are_found_by_name() -> None:
    """Whatever the order of its columns; with the cells that a source of it has."""
    for frame in (pandas.DataFrame(FRAME), polars.DataFrame(FRAME)):
        source = open_dataset(frame, classes=CLASSES, columns=["b", "a"])
        assert frame_inputs(frame, ("b", "a")).tolist() == source.read().x.tolist()
        with refuses("columns"):
            frame_inputs(frame, ("c",))
    assert frame_inputs(polars.DataFrame(FRAME).drop("label"), None).tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]


def test_texts_and_rows() -> None:
    for texts in (["x", "y"], np.array(["x", "y"]), pandas.Series(["x", "y"]), polars.Series(["x", "y"])):
        assert read((texts, [0, 1]), classes=2, columns=["t"])[0] == [["x"], ["y"]]
    for rows in ([["x", 1], ("y", None)], np.array([["x", 1], ["y", None]], object)):
        assert read((rows, [0, 1]), classes=2, columns=["a", "b"])[0] == [["x", 1.0], ["y", None]]


REFUSED = {
    "a scalar": (3, "a path or address"),
    "a dictionary": ({"a": [1]}, "a path or address"),
    "three": ((X, Y, Y), "a path or address"),
    "no labels": ((X, None), "y: got 'NoneType'"),
    "masked": ((np.ma.masked_array(X), Y), "masked"),
    "one number": ((np.float64(3), Y), "x: got"),
    "one axis": ((X[:, 0], Y), "declared shape"),
    "one-hot": ((X, np.eye(4)), "shape of y"),
    "no record": ((X[:0], []), "number of records"),
    "no column": (pandas.DataFrame({"a": [1]}), "label column"),
    "twice": (pandas.DataFrame([[1, 2, 3]], columns=["a", "a", "label"]), "a unique name for each"),
    "sparse": ((torch.eye(4).to_sparse(), Y), "sparse"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_dataset_is_refused_in_words(name: str) -> None:
    data, words = REFUSED[name]
    with pytest.raises(InvalidInput, match=words):
        open_dataset(data, classes=2)


def test_the_split_and_what_is_declared_in_vain() -> None:
    for options in ({"split": "test"}, {"image_size": 4}, {"number_columns": ["a"]}, {"classes": None}):
        with pytest.raises(InvalidInput):
            open_dataset((X, Y), **{"classes": 2, **options})
    with refuses("classes"):
        open_dataset(open_dataset((X, Y), classes=2), classes=2)


def test_equal_records_have_one_hash_and_others_have_others() -> None:
    """Whatever type one record may have given an array or a column."""
    held = [(X, Y), (X.astype(object), np.array(Y, float)), (torch.tensor(X), torch.tensor(Y))]
    frames = [pandas.DataFrame(FRAME), polars.DataFrame(FRAME), pandas.DataFrame(FRAME).astype({"a": float})]
    for same in (held, frames):
        assert len({content_hashes(open_dataset(one, classes=CLASSES)) for one in same}) == 1
    changed = [(X, Y), (X + 1, Y), (X, [1, 1, 1, 0]), (X[:3], Y[:3]), (X[:, :2], Y), (X[::-1], Y[::-1])]
    assert len({content_hashes(open_dataset(one, classes=2)) for one in changed}) == len(changed)
    assert len({content_hashes(open_dataset((X, Y), classes=classes)) for classes in (2, [1, 0], [0, 1])}) == 1
    table = {"classes": CLASSES, "columns": ["a", "b"]}
    cells = [(["1", "x"], 0), ([1, "x"], 0), ([None, "x"], 0), (["", "x"], 0), (["", "x"], 1), (["x", ""], 0)]
    assert len({content_hashes(open_dataset(([row], [label]), **table)) for row, label in cells}) == len(cells)


def test_a_hash_is_made_of_records_that_no_reader_takes() -> None:
    for x in ([[1, 2], [3]], [[1, object()], [1, 2]], [[10**400, 1], [1, 2]]):
        assert len(content_hashes(open_dataset((x, [0, "cow"]), classes=CLASSES, feature_length=2))) == 1


def test_optional_libraries_are_not_imported_for_arrays() -> None:
    code = (
        "import sys, numpy; from privmix.data import open_dataset; "
        "open_dataset((numpy.eye(2), [0, 1]), classes=2).read(); "
        "sys.exit(bool([one for one in ('pandas', 'polars', 'datasets', 'torch') if one in sys.modules]))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
