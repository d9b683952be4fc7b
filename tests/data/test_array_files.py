"""The readers of .npz, .npy, safetensors and idx files."""

import gzip
import json
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from privmix.data import open_dataset
from privmix.data.idx import IdxSource
from privmix.errors import InvalidInput, StorageError
from tests.data.helpers import IDX_CODES, idx_bytes, put, refuses_silently, write_mnist
from tests.refusals import refuses

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
Y = np.array([0, 1, 1, 0, 1, 0])
LABELS = Y[:5].copy()
WIDE = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)


@pytest.mark.parametrize("kind", ["npz", "npy", "safetensors"])
def test_splits(tmp_path: Path, kind: str) -> None:
    arrays = {"x_train": X, "y_train": Y, "x_test": X[:2].copy(), "y_test": Y[:2].copy()}
    if kind == "npz":
        np.savez(tmp_path / "d.npz", **arrays, classes=["cat", "dog"])
        assert open_dataset(tmp_path).schema.classes == ("cat", "dog")
    elif kind == "safetensors":
        save_file(arrays, tmp_path / "d.safetensors")
    else:
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
        assert open_dataset(tmp_path / "x_test.npy", classes=2).schema.records == 2
    for place in [tmp_path] if kind == "npy" else [tmp_path, tmp_path / f"d.{kind}"]:
        assert open_dataset(place, classes=2).schema.records == 6
        assert open_dataset(place, split="test", classes=2).schema.records == 2
        with refuses("split"):
            open_dataset(place, split="val", classes=2)


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


@pytest.mark.parametrize(
    ("arrays", "field"),
    [
        ({"x": X}, "d."),
        ({"y": Y}, "d."),
        ({"x": np.full(X.shape, 1e300), "y": Y}, "inputs"),
        ({"x": X.astype(object), "y": Y}, "type of array"),
        ({"x": X.astype("U"), "y": Y}, "type of x"),
        ({"x": X, "y": Y, "classes": X}, "classes in"),
    ],
)
def test_archives_that_are_no_dataset(tmp_path: Path, arrays: dict[str, Any], field: str) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    files = [tmp_path / "d.npz"]
    if field in ("d.", "inputs"):
        files.append(save(tmp_path / "d.safetensors", arrays))
    for path in files:
        with pytest.raises(InvalidInput) as caught:
            open_dataset(path, classes=None if "classes" in arrays else 2).read()
        assert field in caught.value.field


def test_an_array_shorter_than_its_header_says(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(StorageError, match="No such file"):
        open_dataset(tmp_path, classes=2)
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


def save(path: Path, tensors: dict[str, Any], classes: Any = None) -> Path:
    save_file(tensors, path, metadata=None if classes is None else {"classes": json.dumps(classes)})
    return path


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "uint8", "int32", "bool"])
def test_types(tmp_path: Path, kind: str) -> None:
    path = save(
        tmp_path / "d.safetensors", {"x": WIDE.astype(kind), "y": Y[:5, None].copy(), "other": Y}, ["cat", "dog"]
    )
    source = open_dataset(path)
    assert (source.schema.records, source.schema.input_shape, source.schema.classes) == (5, (2, 3), ("cat", "dog"))
    data = source.read()
    assert np.array_equal(data.x, WIDE.astype(kind).astype(np.float32))
    assert (data.x.dtype == np.uint8) == (kind == "uint8")
    assert data.y.tolist() == LABELS.tolist()
    assert [len(batch) for batch in source.batches(2)] == [2, 2, 1]


def test_slices_are_no_longer_than_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privmix.data.array_files.PIECE_VALUES", 12)
    source = open_dataset(save(tmp_path / "d.safetensors", {"x": WIDE, "y": LABELS}), classes=2)
    assert [len(batch) for batch in source.batches(100)] == [2, 2, 1]
    assert np.array_equal(source.read().x, WIDE)


@pytest.mark.parametrize("classes", [3, "ab", {"cat": 0}, [], ["cat", "cat"], [1, 2], [""]])
def test_classes_that_are_no_list_of_names(tmp_path: Path, classes: Any) -> None:
    path = save(tmp_path / "d.safetensors", {"x": WIDE, "y": LABELS}, classes)
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
    path = put(tmp_path, name="d.safetensors", content=content)
    with refuses_silently(""):
        open_dataset(path, classes=2).read()


# Files of idx, by themselves and as MNIST's.

CLASSES = ("0", "1", "2")
PIXELS = np.random.default_rng(0).integers(0, 256, size=(5, 4, 3), dtype=np.uint8)
DIGITS = np.array([0, 1, 2, 1, 0], dtype=np.uint8)


@pytest.mark.parametrize("dtype", sorted(IDX_CODES))
@pytest.mark.parametrize("zipped", [False, True])
def test_every_type_is_read_back(tmp_path: Path, dtype: str, zipped: bool) -> None:
    x = np.arange(-6, 18).astype(dtype).reshape(4, 3, 2)
    pack = gzip.compress if zipped else bytes
    source = IdxSource(
        put(tmp_path, name="x", content=pack(idx_bytes(x))),
        put(tmp_path, name="y", content=pack(idx_bytes(np.array([0, 1, 2, 0], dtype=np.int32)))),
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
        put(tmp_path, name="x", content=gzip.compress(idx_bytes(PIXELS))[:-20]),
        put(tmp_path, name="y", content=gzip.compress(idx_bytes(DIGITS))),
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
    "short": (idx_bytes(PIXELS)[:-1], "truncated"),
    "header-only": (idx_bytes(PIXELS)[:16], "truncated"),
    "long": (idx_bytes(PIXELS) + b"\0", "the file is longer"),
    "zipped-short": (gzip.compress(idx_bytes(PIXELS)[:-1]), "truncated"),
    "zipped-long": (gzip.compress(idx_bytes(PIXELS) + b"\0"), "the file is longer"),
    "zip-cut": (gzip.compress(idx_bytes(PIXELS))[:30], "undamaged"),
    "no-zip": (b"\x1f\x8bnothing that was ever zipped", "undamaged"),
    "shape-of-all": (b"\0\0\x08\3" + b"\xff" * 12, "shape of y"),
    "shape-of-one": (b"\0\0\x08\3\0\0\0\5" + b"\xff" * 8, "values in one record"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_are_refused(tmp_path: Path, case: str) -> None:
    content, message = DAMAGED[case]
    y = put(tmp_path, name="y", content=idx_bytes(DIGITS))
    with pytest.raises(InvalidInput, match=message) as caught:
        IdxSource(put(tmp_path, name="x", content=content), y, CLASSES).read()
    assert not re.search(f"\n|Mrs|{b'Mrs '.hex()}", str(caught.value))


def test_the_mnist_layout_has_ten_classes_and_two_splits(tmp_path: Path) -> None:
    write_mnist(tmp_path, "train", PIXELS, DIGITS)
    write_mnist(tmp_path, "t10k", PIXELS[:2], DIGITS[:2], zipped=False)
    train, test = open_dataset(tmp_path), open_dataset(tmp_path, split="test")
    assert train.schema.classes == tuple("0123456789")
    assert (train.schema.records, test.schema.records) == (5, 2)
    assert np.array_equal(test.read().x, PIXELS[:2])
    assert open_dataset(tmp_path, classes=3).schema.classes == CLASSES
    assert open_dataset(tmp_path / "train-images-idx3-ubyte.gz").schema.records == 5
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(StorageError, match="the labels of train-images"):
        open_dataset(tmp_path)
