"""Records without labels: in every format the same inputs as with them, and the labels' column is no input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from privmix.data import open_dataset
from privmix.errors import InvalidInput
from tests.data.helpers import idx_bytes, png

CLASSES = ["cat", "dog"]
X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 1, 1, 0])
NAMES = [CLASSES[label] for label in Y]


def columns(labelled: bool) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: X[:, place].tolist() for place, name in enumerate("abc")}
    return {**found, "label": NAMES} if labelled else found


def csv(folder: Path, labelled: bool) -> Path:
    pandas.DataFrame(columns(labelled)).to_csv(folder / "d.csv", index=False)
    return folder / "d.csv"


def parquet(folder: Path, labelled: bool) -> Path:
    pq.write_table(pa.table(columns(labelled)), folder / "d.parquet")
    return folder / "d.parquet"


def arrow(folder: Path, labelled: bool) -> Path:
    feather.write_feather(pa.table(columns(labelled)), folder / "d.feather", compression="uncompressed")
    return folder / "d.feather"


def jsonl(folder: Path, labelled: bool) -> Path:
    rows = pandas.DataFrame(columns(labelled)).to_dict("records")
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "d.jsonl"


def npz(folder: Path, labelled: bool) -> Path:
    np.savez(folder / "d.npz", x=X, **({"y": Y} if labelled else {}))
    return folder / "d.npz"


def npy(folder: Path, labelled: bool) -> Path:
    np.save(folder / "x.npy", X)
    if labelled:
        np.save(folder / "y.npy", Y)
    return folder


def one_npy(folder: Path, labelled: bool) -> Path:
    return npy(folder, labelled) / "x.npy"


def safetensors(folder: Path, labelled: bool) -> Path:
    save_file({"x": X, **({"y": Y} if labelled else {})}, folder / "d.safetensors")
    return folder / "d.safetensors"


def idx(folder: Path, labelled: bool) -> Path:
    (folder / "train-images-idx2-ubyte").write_bytes(idx_bytes(X.astype(np.uint8)))
    if labelled:
        (folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(Y.astype(np.uint8)))
    return folder


def in_pandas(folder: Path, labelled: bool) -> Any:
    return pandas.DataFrame(columns(labelled))


def in_polars(folder: Path, labelled: bool) -> Any:
    return polars.DataFrame(columns(labelled))


def in_arrays(folder: Path, labelled: bool) -> Any:
    return (X, Y) if labelled else X


def frame_and_labels(folder: Path, labelled: bool) -> Any:
    return (pandas.DataFrame(columns(False)), Y) if labelled else pandas.DataFrame(columns(False))


FORMATS: list[Callable[[Path, bool], Any]] = [
    csv, parquet, arrow, jsonl, npz, npy, one_npy, safetensors, idx, in_pandas, in_polars, in_arrays, frame_and_labels,
]  # fmt: skip


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_labels_may_be_there_or_not(write: Callable[[Path, bool], Any], tmp_path: Path) -> None:
    more: dict[str, Any] = {"number_columns": list("abc")} if write is jsonl else {}
    for labelled in (True, False):
        folder = tmp_path / str(labelled)
        folder.mkdir()
        source = open_dataset(write(folder, labelled), classes=CLASSES, labelled=False, **more)
        assert source.schema.records == len(X)
        assert np.array_equal(np.concatenate(list(source.inputs(3))), X)
        with pytest.raises(InvalidInput):
            source.read()


def test_hugging_face_and_tables(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="makes the dataset that is read")
    found = open_dataset(datasets.Dataset.from_dict(columns(False)), classes=CLASSES, labelled=False)
    assert np.array_equal(np.concatenate(list(found.inputs(8))), X)
    table = open_dataset(parquet(tmp_path, True), columns=["label", "a"], classes=CLASSES, labelled=False)
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
