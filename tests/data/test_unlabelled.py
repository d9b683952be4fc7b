"""Records without labels: in every format the same inputs as with them, and the labels' column is no input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest

from privmix.data import open_dataset
from privmix.errors import InvalidInput
from tests.data.helpers import columns, png, write

CLASSES = ["cat", "dog"]
X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 1, 1, 0])
NAMES = [CLASSES[label] for label in Y]


FILES = ["d.csv", "d.parquet", "d.feather", "d.jsonl", "d.npz", "x.npy", "d.safetensors", "train-images-idx2-ubyte"]
FORMATS: dict[str, Callable[[Path, Any], Any]] = {
    **{name: lambda folder, y, name=name: write(folder / name, X, y) for name in FILES},
    "folder of npy": lambda folder, y: write(folder / "x.npy", X, y).parent,
    "folder of idx": lambda folder, y: write(folder / "train-images-idx2-ubyte", X, y).parent,
    "pandas": lambda _, y: pandas.DataFrame(columns(X, y)),
    "polars": lambda _, y: polars.DataFrame(columns(X, y)),
    "arrays": lambda _, y: X if y is None else (X, y),
    "frame and labels": lambda _, y: (
        (pandas.DataFrame(columns(X)), y) if y is not None else pandas.DataFrame(columns(X))
    ),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_labels_may_be_there_or_not(kind: str, tmp_path: Path) -> None:
    more: dict[str, Any] = {"number_columns": list("abc")} if kind == "d.jsonl" else {}
    for y in (Y, None):
        (tmp_path / str(y is None)).mkdir()
        data = FORMATS[kind](tmp_path / str(y is None), y)
        source = open_dataset(data, classes=CLASSES, labelled=False, **more)
        assert source.schema.records == len(X)
        assert np.array_equal(np.concatenate(list(source.inputs(3))), X)
        with pytest.raises(InvalidInput):
            source.read()


def test_hugging_face_and_tables(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="makes the dataset that is read")
    found = open_dataset(datasets.Dataset.from_dict(columns(X)), classes=CLASSES, labelled=False)
    assert np.array_equal(np.concatenate(list(found.inputs(8))), X)
    table = open_dataset(
        write(tmp_path / "d.parquet", X, NAMES), columns=["label", "a"], classes=CLASSES, labelled=False
    )
    assert next(table.inputs(1)).tolist() == [["cat", 0.0]]


@pytest.mark.parametrize("flat", [True, False])
def test_images_without_classes(flat: bool, tmp_path: Path) -> None:
    for number, name in enumerate(NAMES):
        folder = tmp_path if flat else tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.png").write_bytes(png(np.full((2, 2), number, np.uint8)))
    source = open_dataset(tmp_path, classes=CLASSES, labelled=False, image_size=2, colour="grey")
    read = [int(x) for batch in source.inputs(3) for x in batch[:, 0, 0]]
    assert source.names == tuple(f"{number}.png" if flat else f"{NAMES[number]}/{number}.png" for number in read)
    assert sorted(read) == [0, 1, 2, 3]
    if flat:
        with pytest.raises(InvalidInput, match="no dataset"):
            open_dataset(tmp_path, classes=CLASSES, image_size=2, colour="grey")


def test_labels_that_are_there_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,label\n1,\n2,what\n")
    source = open_dataset(tmp_path / "d.csv", classes=CLASSES, labelled=False)
    assert np.concatenate(list(source.inputs(8))).tolist() == [[1.0], [2.0]]
