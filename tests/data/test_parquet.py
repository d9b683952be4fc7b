import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privmix.data import open_dataset
from tests.data.helpers import png
from tests.refusals import refuses

IMAGES = np.random.default_rng(0).integers(0, 256, size=(4, 5, 6, 3), dtype=np.uint8)
X = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
LABELS = pa.array([0, 1, 1, 0], type=pa.uint8())
ANIMALS = ["dog", "cat", "cat", "dog"]
SECRET = "Smith"


def write(path: Path, columns: dict[str, Any], metadata: dict[str, str] | None = None) -> Path:
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path, row_group_size=3)
    return path


def test_images_as_bytes_and_as_structs(tmp_path: Path) -> None:
    encoded = [png(image) for image in IMAGES]
    for name, column in (("a", encoded), ("b", [{"bytes": content, "path": None} for content in encoded])):
        path = write(tmp_path / f"{name}.parquet", {"image": column, "label": LABELS, "path": list("wxyz")})
        source = open_dataset(path, classes=2, image_size=(5, 6), colour="rgb")
        assert (source.schema.records, source.schema.input_shape) == (4, (5, 6, 3))
        data = source.read()
        assert np.array_equal(data.x, IMAGES)
        assert data.y.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32(), 3), pa.list_(pa.float64()), pa.large_list(pa.float32())], ids=str
)
def test_lists(tmp_path: Path, kind: Any) -> None:
    path = write(tmp_path / "a.parquet", {"x": pa.array(X.tolist(), type=kind), "label": LABELS, "id": list("abcd")})
    source = open_dataset(path, classes=2, feature_length=3)
    assert source.schema.input_shape == (3,)
    if pa.types.is_fixed_size_list(kind):
        assert open_dataset(path, classes=2).schema == source.schema
        with refuses("feature_length"):
            open_dataset(path, classes=2, feature_length=4)
    else:
        with refuses("lists"):
            open_dataset(path, classes=2)
    assert np.array_equal(source.read().x, X)
    assert [len(batch) for batch in source.batches(2)] == [2, 1, 1]


def test_numeric_columns_and_a_chosen_one_beside_dictionary_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"b": X[:, 0], "a": [1, 2, 3, 4], "label": ANIMALS})
    data = open_dataset(path, classes=["cat", "dog"]).read()
    assert np.array_equal(data.x, np.stack([X[:, 0], [1, 2, 3, 4]], axis=1))
    assert data.y.tolist() == [1, 0, 0, 1]
    with refuses("columns"):
        open_dataset(path, classes=["cat", "dog"], number_columns=["z"])
    columns = {"u": X.tolist(), "v": (2 * X).tolist(), "target": pa.array(ANIMALS).dictionary_encode()}
    declared: Any = {"number_columns": ["v"], "label_column": "target", "feature_length": 3}
    data = open_dataset(write(tmp_path / "b.parquet", columns), classes=["cat", "dog"], **declared).read()
    assert np.array_equal(data.x, 2 * X)
    assert data.y.tolist() == [1, 0, 0, 1]


def test_classes_from_metadata(tmp_path: Path) -> None:
    columns = {"x": X.tolist(), "label": LABELS}
    feature = {"names": ["cat", "dog"], "_type": "ClassLabel"}
    path = write(tmp_path / "a.parquet", columns, {"classes": json.dumps(["cat", "dog"])})
    assert open_dataset(path, feature_length=3).schema.classes == ("cat", "dog")
    # A library may have made these from the records: they are taken where they are declared public.
    path = write(
        tmp_path / "b.parquet", columns, {"huggingface": json.dumps({"info": {"features": {"label": feature}}})}
    )
    assert open_dataset(path, feature_length=3, classes="ClassLabel").schema.classes == ("cat", "dog")
    for file in (path, write(tmp_path / "c.parquet", columns)):
        with refuses("classes"):
            open_dataset(file)
    for label in ({"names": 3}, {"names": "ab"}, {"names": [3]}):
        said = {"huggingface": json.dumps({"info": {"features": {"label": label}}})}
        with refuses(str(write(tmp_path / "d.parquet", columns, said))):
            open_dataset(tmp_path / "d.parquet", feature_length=3, classes="ClassLabel")


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"x": X.tolist()}, "label column"),
        ({"x": [1.0, None], "label": [0, 1]}, "column x"),
        ({"x": [[1.0], [1.0, 2.0]], "label": [0, 1]}, "column x"),
        ({"x": [None, [1.0]], "label": [0, 1]}, "column x"),
        ({"x": [[1.0], [None]], "label": [0, 1]}, "column x"),
        ({"x": [[1.0], [2.0]], "label": [0, None]}, "column label"),
        ({"x": [[1.0], [2.0]], "label": ["0", SECRET]}, "label"),
        ({"x": [[1.0]], "y": [[2.0]], "label": [0]}, "columns"),
        ({"x": [SECRET], "label": [0]}, "columns"),
        ({"label": [0]}, "columns"),
        ({"x": pa.array([], type=pa.float64()), "label": pa.array([], type=pa.int64())}, "number of records"),
        ({"image": [SECRET.encode()], "label": [0]}, "images"),
        ({"image": [png(IMAGES[0]), None], "label": [0, 1]}, "column image"),
        ({"image": [{"bytes": png(IMAGES[0])}, {"bytes": None}], "label": [0, 1]}, "images"),
        ({"image": [1, 2], "label": [0, 1]}, "columns"),
    ],
)
def test_tables_that_are_no_dataset_are_refused_silently(tmp_path: Path, columns: dict[str, Any], field: str) -> None:
    path = write(tmp_path / "a.parquet", columns)
    with refuses(field, SECRET):
        open_dataset(path, classes=2, input_shape=(5, 6, 3) if "image" in columns else (1,)).read()


def test_cifar10(data_root: Path) -> None:
    source = open_dataset(data_root / "cifar10", split="test", classes=10, image_size=32, colour="rgb")
    assert (source.schema.records, source.schema.input_shape) == (10_000, (32, 32, 3))
    batch = next(source.batches(100))
    assert batch.y.tolist() == list(range(10)) * 10
    assert batch.x.dtype == np.uint8
