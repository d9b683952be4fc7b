"""Arrow files, and folders that Hugging Face's library saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.ipc as pa_ipc
import pytest
from PIL import Image

from privmix.data import open_dataset
from privmix.errors import InvalidInput, StorageError
from tests.data.helpers import png
from tests.refusals import refuses

IMAGES = np.random.default_rng(0).integers(0, 256, size=(4, 5, 6, 3), dtype=np.uint8)
X = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
SECRET = "Smith"


def write(path: Path, columns: dict[str, Any], metadata: dict[str, str] | None = None, stream: bool = False) -> Path:
    table = pa.table(columns).replace_schema_metadata(metadata)
    writer = pa_ipc.new_stream if stream else pa_ipc.new_file
    with writer(str(path), table.schema) as out:
        for batch in table.to_batches(max_chunksize=3):
            out.write_batch(batch)
    return path


@pytest.mark.parametrize("stream", [False, True])
def test_files_and_streams(tmp_path: Path, stream: bool) -> None:
    columns = {"id": list("uvwx"), "x": X.tolist(), "label": [0, 1, 1, 0]}
    path = write(tmp_path / "a.arrow", columns, {"classes": '["a", "b"]'}, stream)
    source = open_dataset(path, feature_length=3)
    assert (source.schema.records, source.schema.input_shape, source.schema.classes) == (4, (3,), ("a", "b"))
    data = source.read()
    assert np.array_equal(data.x, X)
    assert data.y.tolist() == [0, 1, 1, 0]
    assert [len(batch) for batch in source.batches(2)] == [2, 1, 1]
    table = open_dataset(path, columns=["id"]).read()
    assert table.x.tolist() == [["u"], ["v"], ["w"], ["x"]]


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather(tmp_path: Path, compression: str) -> None:
    images = [{"bytes": png(image), "path": None} for image in IMAGES]
    table = pa.table({"image": images, "label": pa.array(["a", "b", "b", "a"]).dictionary_encode()})
    feather.write_feather(table, str(tmp_path / "d.feather"), compression=compression)
    data = open_dataset(tmp_path, classes=["a", "b"], image_size=(5, 6), colour="rgb").read()
    assert np.array_equal(data.x, IMAGES)
    assert data.y.tolist() == [0, 1, 1, 0]


def hugging_face(features: bool = True) -> Any:
    datasets = pytest.importorskip("datasets", reason="makes the dataset that is read")
    kinds = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["cat", "dog"])}
    columns = {"text": ["a", "b", None, "d"], "label": [0, 1, 1, 0]}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(kinds) if features else None)


def test_saved_dataset(tmp_path: Path) -> None:
    hugging_face().save_to_disk(tmp_path / "d", num_shards=2)
    source = open_dataset(tmp_path / "d", columns=["text"], classes="ClassLabel")
    assert (source.schema.records, source.schema.classes) == (4, ("cat", "dog"))
    data = source.read()
    assert data.x.tolist() == [["a"], ["b"], [None], ["d"]]
    assert data.y.tolist() == [0, 1, 1, 0]
    with refuses("split"):
        open_dataset(tmp_path / "d", columns=["text"], split="test", classes="ClassLabel")
    hugging_face(features=False).save_to_disk(tmp_path / "plain")
    with refuses("classes"):
        open_dataset(tmp_path / "plain", columns=["text"])


def test_a_selection_of_a_saved_dataset(tmp_path: Path) -> None:
    hugging_face().select([3, 1]).save_to_disk(tmp_path / "d")
    assert open_dataset(tmp_path / "d", columns=["text"], classes="ClassLabel").read().x.tolist() == [["d"], ["b"]]


def test_saved_splits(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="makes the dataset that is read")
    whole = hugging_face()
    splits = {"train": whole, "validation": whole.select([1])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "d")
    assert open_dataset(tmp_path / "d", columns=["text"], classes="ClassLabel").schema.records == 4
    assert open_dataset(tmp_path / "d", columns=["text"], split="val", classes="ClassLabel").read().y.tolist() == [1]
    assert (
        open_dataset(tmp_path / "d" / "validation", columns=["text"], split="val", classes="ClassLabel").schema.records
        == 1
    )
    with refuses("split"):
        open_dataset(tmp_path / "d", columns=["text"], split="test", classes="ClassLabel")


def test_saved_images(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="makes the dataset that is read")
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    images = [Image.fromarray(image) for image in IMAGES]
    datasets.Dataset.from_dict({"image": images, "label": [0, 1, 1, 0]}, features=kinds).save_to_disk(tmp_path / "i")
    found = open_dataset(tmp_path / "i", image_size=(5, 6), colour="rgb", classes="ClassLabel").read()
    assert np.array_equal(found.x, IMAGES)


def saved_by_hand(folder: Path) -> Path:
    folder.mkdir()
    write(folder / "data-00000-of-00001.arrow", {"x": X.tolist(), "label": [0, 1, 1, 0]}, stream=True)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    features = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    return folder


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [
        ("state.json", "", "state.json"),
        ("state.json", "[]", "state.json"),
        ("state.json", "{}", "state.json"),
        ("state.json", "[" * 100_000, "state.json"),
        ("state.json", '{"_data_files": 3}', "state.json"),
        ("state.json", '{"_data_files": [{"filename": "../x.arrow"}]}', "state.json"),
        ("state.json", '{"_data_files": [{"filename": 3}]}', "state.json"),
        ("dataset_info.json", "[]", "dataset_info.json"),
        ("dataset_info.json", '{"features": {"label": {"names": 3}}}', "dataset_info.json"),
        ("dataset_info.json", '{"features": {"label": {"names": "ab"}}}', "dataset_info.json"),
        ("dataset_info.json", '{"features": {"label": {"names": [3]}}}', "dataset_info.json"),
        ("dataset_info.json", '{"features": [3]}', "classes"),
        ("dataset_dict.json", "{}", "dataset_dict.json"),
        ("dataset_dict.json", '{"splits": ["../train"]}', "dataset_dict.json"),
        ("dataset_dict.json", '{"splits": 3}', "dataset_dict.json"),
        ("data-00000-of-00001.arrow", "", "data-00000-of-00001.arrow"),
        ("data-00000-of-00001.arrow", SECRET, "data-00000-of-00001.arrow"),
    ],
)
def test_damaged_descriptions(tmp_path: Path, name: str, content: str, field: str) -> None:
    folder = saved_by_hand(tmp_path / "d")
    assert np.array_equal(open_dataset(folder, feature_length=3, classes="ClassLabel").read().x, X)
    (folder / name).write_text(content)
    with pytest.raises(InvalidInput) as caught:
        open_dataset(folder, feature_length=3, classes="ClassLabel").read()
    assert caught.value.field.endswith(field)
    assert SECRET not in str(caught.value)


def test_a_missing_part_of_a_saved_dataset(tmp_path: Path) -> None:
    folder = saved_by_hand(tmp_path / "d")
    (folder / "data-00000-of-00001.arrow").unlink()
    with pytest.raises(StorageError, match="no such file"):
        open_dataset(folder, classes="ClassLabel")
    (folder / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(StorageError):
        open_dataset(folder, classes="ClassLabel")


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"compat_level": polars.CompatLevel.oldest()}])
def test_files_of_polars(tmp_path: Path, options: dict[str, Any]) -> None:
    """They are padded further: blocks are found by the footer."""
    frame = polars.DataFrame({"a": [20.0, 30.0, 40.0], "word": ["x", "y", "x"], "label": ["no", "yes", "no"]})
    frame = frame.with_columns(polars.col("word").cast(polars.Categorical))
    frame.write_ipc(tmp_path / "a.arrow", **options)
    frame.write_ipc_stream(tmp_path / "a.arrows")
    for name in ("a.arrow", "a.arrows"):
        source = open_dataset(tmp_path / name, classes=["no", "yes"], columns=["a", "word"])
        assert source.read().x.tolist() == [[20.0, "x"], [30.0, "y"], [40.0, "x"]]
        assert source.read().y.tolist() == [0, 1, 0]


def test_a_footer_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", {"x": X[:, 0].tolist(), "label": [0, 1, 1, 0]})
    content = path.read_bytes()
    for place in range(len(content) - 10, len(content) - 6):
        for value in (b"\x00", b"\xff", b"\x7f"):
            changed = content[:place] + value + content[place + 1 :]
            if changed != content:
                path.write_bytes(changed)
                with pytest.raises(InvalidInput, match="complete, undamaged"):
                    open_dataset(path, classes=2)
