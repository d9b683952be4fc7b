"""open_dataset: which files it takes, one or several a split, and what it says when it cannot."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from privmix.data import ArraySource, embedded_digits, open_dataset
from privmix.data.array_files import ShardedSource
from privmix.data.header import columns_of
from privmix.errors import InvalidInput, StorageError
from tests.data.helpers import write, write_mnist
from tests.refusals import refuses

CSV = "a,label\n1,0\n2,1\n"


@pytest.mark.parametrize(
    ("place", "split", "error", "words"),
    [
        ("nothing", "train", StorageError, "no such file or folder"),
        ("", "train", InvalidInput, "no dataset"),
        ("d.xlsx", "train", InvalidInput, "data: got"),
        ("", "training", InvalidInput, "one of train, test, val"),
    ],
)
def test_places_without_a_dataset(tmp_path: Path, place: str, split: str, error: type[Exception], words: str) -> None:
    (tmp_path / "d.xlsx").write_text("")
    with pytest.raises(error, match=words):
        open_dataset(tmp_path / place, split=split)


@pytest.mark.parametrize("place", ["a.feather", "a.arrow", "one", "several", "several/train", "*.arrow"])
def test_arrow_files_are_refused_with_what_to_do(tmp_path: Path, place: str) -> None:
    for folder in ("one", "several/train"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "state.json").write_text('{"_data_files": []}')
    for name in ("a.feather", "a.arrow", "one/data-00000-of-00001.arrow", "several/train/d.arrow"):
        (tmp_path / name).write_text("")
    (tmp_path / "several" / "dataset_dict.json").write_text('{"splits": ["ill"]}')
    for read in (partial(open_dataset, classes=2), columns_of):
        with pytest.raises(InvalidInput, match=r"load_from_disk.*to_parquet.*In Python, pass the Dataset"):
            read(tmp_path / place)


@pytest.mark.parametrize(
    ("split", "name"),
    [
        *(("test", name) for name in ("test", "t10k", "d_test", "test-00000-of-00001", "my.test")),
        *(("train", name) for name in ("d", "contest", "trained", "latest")),
    ],
)
def test_names_that_mark_the_test_split(tmp_path: Path, split: str, name: str) -> None:
    (tmp_path / f"{name}.csv").write_text(CSV)
    assert open_dataset(tmp_path, classes=2, split=split).schema.records == 2
    with refuses("split"):
        open_dataset(tmp_path, classes=2, split="train" if split == "test" else "test")
    # A file is its own split.
    assert open_dataset(tmp_path / f"{name}.csv", classes=2, split="val").schema.records == 2


@pytest.mark.parametrize("names", [("train/d.csv", "validation/d.csv"), ("train.csv", "valid.csv")])
def test_a_missing_split_lists_those_present(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(CSV)
    assert open_dataset(tmp_path, classes=2, split="val").schema.records == 2
    with refuses("split"):
        open_dataset(tmp_path, split="test", classes=2)


def test_idx_files_stay_one_pair_a_split_and_mnists_alone_have_ten_classes(tmp_path: Path) -> None:
    x, y = np.zeros((1, 2, 2), dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    write_mnist(tmp_path, "emnist-train", x, y)
    with refuses("classes"):
        open_dataset(tmp_path)
    write_mnist(tmp_path, "b-train", x, y)
    with refuses("data"):
        open_dataset(tmp_path / "*", classes=2)


def test_embedded_digits() -> None:
    train, test = embedded_digits("train").read(), embedded_digits("test").read()
    assert (train.x.shape, test.x.shape) == ((1437, 8, 8), (360, 8, 8))
    assert train.x.dtype == np.uint8
    assert (train.x.min(), train.x.max()) == (0, 255)
    assert min(np.bincount(test.y, minlength=10)) >= 20
    assert np.array_equal(embedded_digits("train").read().x, train.x)


X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 1, 1, 0, 1, 0])
SUFFIXES = ["csv", "csv.gz", "jsonl", "parquet", "npz", "safetensors"]


def options(suffix: str) -> dict[str, Any]:
    return {"number_columns": ["a", "b"]} if suffix == "jsonl" else {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_folder_and_a_pattern_give_the_records_in_sorted_order(tmp_path: Path, suffix: str) -> None:
    for part in (2, 0, 1):
        write(tmp_path / f"train-{part}.{suffix}", X[2 * part :][:2], Y[2 * part :][:2])
    write(tmp_path / f"test-0.{suffix}", X[:1], Y[:1])
    (tmp_path / "README.md").write_text("no data")
    for place in (tmp_path, tmp_path / f"train-*.{suffix}", str(tmp_path / f"train-?.{suffix}"), str(tmp_path / "*")):
        source = open_dataset(place, classes=2, **options(suffix))
        assert source.schema.records == 6
        data = source.read()
        assert np.array_equal(data.x, X)
        assert np.array_equal(data.y, Y)
        assert all(len(batch) <= 3 for batch in source.batches(3))
    assert open_dataset(tmp_path / "*", classes=2, split="test", **options(suffix)).schema.records == 1
    assert open_dataset(tmp_path / "[a-z]*-0.*", classes=2, split="test", **options(suffix)).schema.records == 1
    with refuses("split"):
        open_dataset(tmp_path / "*", classes=2, split="val")


def test_patterns_across_folders_and_a_name_that_looks_like_one(tmp_path: Path) -> None:
    for part in range(3):
        write(tmp_path / f"day={part}" / "part.parquet", X[2 * part :][:2], Y[2 * part :][:2])
    assert np.array_equal(open_dataset(tmp_path / "**" / "*.parquet", classes=2).read().x, X)
    write(tmp_path / "d[1].csv", X, Y)
    assert open_dataset(tmp_path / "d[1].csv", classes=2).schema.records == 6


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_shards_of_another_shape_are_refused(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"a.{suffix}", X, Y)
    other = tmp_path / f"b.{suffix}"
    if suffix in ("npz", "safetensors"):
        wide = {"x": np.zeros((1, 3)), "y": np.zeros(1, dtype=int)}
        np.savez(other, **wide) if suffix == "npz" else save_file(wide, other)
    elif suffix == "jsonl":
        other.write_text('{"b": 1, "c": 2, "label": 0}\n')
    elif suffix.startswith("csv"):
        other.write_text("b,a,label\n1,2,0\n")
    else:
        pq.write_table(pa.table({"a": [1.0], "label": [0]}), other)
    with pytest.raises(InvalidInput):
        open_dataset(tmp_path, classes=2, **options(suffix)).read()


def test_tables_in_shards(tmp_path: Path) -> None:
    for part in range(2):
        (tmp_path / f"{part}.csv").write_text(f'text,label\n"a\n{part}",{part}\n')
    data = open_dataset(tmp_path, classes=2, columns=["text"]).read()
    assert data.x.tolist() == [["a\n0"], ["a\n1"]]
    assert data.schema.columns == ("text",)


def test_files_of_several_formats_are_ambiguous(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no file of a known format matches"):
        open_dataset(tmp_path / "*.csv", classes=2)
    write(tmp_path / "a.csv", X, Y)
    write(tmp_path / "a.npz", X, Y)
    for place in (tmp_path, tmp_path / "a.*"):
        with pytest.raises(InvalidInput, match="one format; or give the path of the file"):
            open_dataset(place, classes=2)
    assert open_dataset(tmp_path / "a.csv", classes=2).schema.records == 6


def test_sources_of_one_schema() -> None:
    def part(classes: tuple[str, ...], width: int = 2) -> Any:
        return ArraySource(np.zeros((2, width)), np.array([0, 1]), classes)

    source = ShardedSource([part(("a", "b")), part(("a", "b"))])
    assert source.schema.records == 4
    for other in (part(("b", "a")), part(("a", "b"), 3)):
        with refuses("shards"):
            ShardedSource([part(("a", "b")), other])
    with refuses("shards"):
        ShardedSource([])
