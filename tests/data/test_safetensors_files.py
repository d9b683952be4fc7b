"""safetensors files of features and labels."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from privmix.data import open_dataset
from privmix.errors import InvalidInput
from tests.refusals import refuses

X = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
Y = np.array([0, 1, 1, 0, 1])


def write(path: Path, tensors: dict[str, Any], classes: Any = None) -> Path:
    save_file(tensors, path, metadata=None if classes is None else {"classes": json.dumps(classes)})
    return path


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "uint8", "int32", "bool"])
def test_types(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "d.safetensors", {"x": X.astype(kind), "y": Y[:, None], "other": Y}, ["cat", "dog"])
    source = open_dataset(path)
    assert (source.schema.records, source.schema.input_shape, source.schema.classes) == (5, (2, 3), ("cat", "dog"))
    data = source.read()
    assert np.array_equal(data.x, X.astype(kind).astype(np.float32))
    assert (data.x.dtype == np.uint8) == (kind == "uint8")
    assert data.y.tolist() == Y.tolist()
    assert [len(batch) for batch in source.batches(2)] == [2, 2, 1]


def test_slices_are_no_longer_than_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privmix.data.array_files.PIECE_VALUES", 12)
    source = open_dataset(write(tmp_path / "d.safetensors", {"x": X, "y": Y}), classes=2)
    assert [len(batch) for batch in source.batches(100)] == [2, 2, 1]
    assert np.array_equal(source.read().x, X)


def test_splits(tmp_path: Path) -> None:
    tensors = {"x_train": X, "y_train": Y, "x_test": X[:2].copy(), "y_test": Y[:2].copy()}
    path = write(tmp_path / "d.safetensors", tensors)
    assert open_dataset(path, classes=2).schema.records == 5
    assert open_dataset(tmp_path, classes=2, split="test").schema.records == 2
    for place in (path, tmp_path):
        with refuses("split"):
            open_dataset(place, classes=2, split="val")


@pytest.mark.parametrize(
    ("tensors", "field"),
    [
        ({"x": X}, "d.safetensors"),
        ({"y": Y}, "d.safetensors"),
        ({"x": np.full(X.shape, 1e300), "y": Y}, "inputs"),
    ],
)
def test_bad_tensors_are_refused_silently(tmp_path: Path, tensors: dict[str, Any], field: str) -> None:
    path = write(tmp_path / "d.safetensors", tensors)
    with pytest.raises(InvalidInput) as caught:
        open_dataset(path, classes=2).read()
    assert field in caught.value.field


@pytest.mark.parametrize("classes", [3, "ab", {"cat": 0}, [], ["cat", "cat"], [1, 2], [""]])
def test_classes_that_are_no_list_of_names(tmp_path: Path, classes: Any) -> None:
    path = write(tmp_path / "d.safetensors", {"x": X, "y": Y}, classes)
    with pytest.raises(InvalidInput):
        open_dataset(path)
    assert open_dataset(path, classes=2).schema.records == 5


def raw(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(kind: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        raw(b"Smith"),
        raw({}, length=2**63),
        raw({"x": tensor("F32", [2**40, 2], 0, 8), "y": tensor("I64", [1], 8, 16)}, b"\0" * 16),
        raw({"x": tensor("F8_E5M2", [1, 8], 0, 8), "y": tensor("I64", [1], 8, 16)}, b"\0" * 16),
        raw({"x": tensor("F32", [0, 2**40], 0, 0), "y": tensor("I64", [0], 0, 0)}),
    ],
    ids=range(6),
)
def test_damaged_headers(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "d.safetensors"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        open_dataset(path, classes=2).read()
    assert "Smith" not in str(caught.value)
    assert "\n" not in str(caught.value)
