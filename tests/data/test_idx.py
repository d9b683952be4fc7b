"""The idx reader, by itself and on MNIST."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from privmix.data import open_dataset
from privmix.data.idx import IdxSource
from privmix.errors import InvalidInput, StorageError
from tests.data.helpers import IDX_CODES, idx_bytes, write_mnist

CLASSES = ("0", "1", "2")
X = np.random.default_rng(0).integers(0, 256, size=(5, 4, 3), dtype=np.uint8)
Y = np.array([0, 1, 2, 1, 0], dtype=np.uint8)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("dtype", sorted(IDX_CODES))
@pytest.mark.parametrize("zipped", [False, True])
def test_every_type_is_read_back(tmp_path: Path, dtype: str, zipped: bool) -> None:
    x = np.arange(-6, 18).astype(dtype).reshape(4, 3, 2)
    pack = gzip.compress if zipped else bytes
    source = IdxSource(
        write(tmp_path / "x", pack(idx_bytes(x))),
        write(tmp_path / "y", pack(idx_bytes(np.array([0, 1, 2, 0], dtype=np.int32)))),
        CLASSES,
    )
    assert source.schema.records == 4
    assert source.schema.input_shape == (3, 2)
    data = source.read()
    assert np.array_equal(data.x, x)
    assert data.x.dtype == (np.uint8 if dtype == "uint8" else np.float32)
    assert data.y.tolist() == [0, 1, 2, 0]
    assert np.array_equal(np.concatenate([batch.x for batch in source.batches(3)]), x)


def test_the_schema_comes_from_headers_alone(tmp_path: Path) -> None:
    """Formal guarantee: public facts first."""
    source = IdxSource(
        write(tmp_path / "x", gzip.compress(idx_bytes(X))[:-20]),
        write(tmp_path / "y", gzip.compress(idx_bytes(Y))),
        CLASSES,
    )
    assert source.schema.records == 5
    with pytest.raises(InvalidInput, match="undamaged"):
        source.read()


DAMAGED = {
    "empty": (b"", "begins with two zero bytes"),
    "text": (b"Mrs Smith, positive", "begins with two zero bytes"),
    "magic": (b"\1\0\x08\1\0\0\0\1\0", "begins with two zero bytes"),
    "type": (b"\0\0\x07\1\0\0\0\1\0", "begins with two zero bytes"),
    "no-dimensions": (b"\0\0\x08\0", "begins with two zero bytes"),
    "header": (b"\0\0\x08\3\0\0\0\1", "truncated header"),
    "short": (idx_bytes(X)[:-1], "truncated"),
    "header-only": (idx_bytes(X)[:16], "truncated"),
    "long": (idx_bytes(X) + b"\0", "the file is longer"),
    "zipped-short": (gzip.compress(idx_bytes(X)[:-1]), "truncated"),
    "zipped-long": (gzip.compress(idx_bytes(X) + b"\0"), "the file is longer"),
    "zip-cut": (gzip.compress(idx_bytes(X))[:30], "undamaged"),
    "no-zip": (b"\x1f\x8bnothing that was ever zipped", "undamaged"),
    "shape-of-all": (b"\0\0\x08\3" + b"\xff" * 12, "shape of y"),
    "shape-of-one": (b"\0\0\x08\3\0\0\0\5" + b"\xff" * 8, "values in one record"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_are_refused(tmp_path: Path, case: str) -> None:
    content, message = DAMAGED[case]
    y = write(tmp_path / "y", idx_bytes(Y))
    with pytest.raises(InvalidInput, match=message) as caught:
        IdxSource(write(tmp_path / "x", content), y, CLASSES).read()
    assert not re.search(f"\n|Mrs|{b'Mrs '.hex()}", str(caught.value))


def test_the_mnist_layout_has_ten_classes_and_two_splits(tmp_path: Path) -> None:
    write_mnist(tmp_path, "train", X, Y)
    write_mnist(tmp_path, "t10k", X[:2], Y[:2], zipped=False)
    train, test = open_dataset(tmp_path), open_dataset(tmp_path, split="test")
    assert train.schema.classes == tuple("0123456789")
    assert (train.schema.records, test.schema.records) == (5, 2)
    assert np.array_equal(test.read().x, X[:2])
    assert open_dataset(tmp_path, classes=3).schema.classes == CLASSES
    assert open_dataset(tmp_path / "train-images-idx3-ubyte.gz").schema.records == 5
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(StorageError, match="the labels of train-images"):
        open_dataset(tmp_path)
