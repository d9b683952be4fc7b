"""Several files a split, by folder or by pattern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from privmix.data import ArraySource, open_dataset
from privmix.data.array_files import ShardedSource
from privmix.errors import InvalidInput, StorageError
from tests.data.helpers import write, write_mnist
from tests.refusals import refuses

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


def test_a_pattern_across_folders(tmp_path: Path) -> None:
    for part in range(3):
        write(tmp_path / f"day={part}" / "part.parquet", X[2 * part :][:2], Y[2 * part :][:2])
    assert np.array_equal(open_dataset(tmp_path / "**" / "*.parquet", classes=2).read().x, X)


def test_a_name_with_special_characters_is_a_name_first(tmp_path: Path) -> None:
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


def test_patterns_that_match_nothing_or_several_formats(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no file of a known format matches"):
        open_dataset(tmp_path / "*.csv", classes=2)
    write(tmp_path / "a.csv", X, Y)
    write(tmp_path / "a.npz", X, Y)
    with pytest.raises(InvalidInput, match="one format"):
        open_dataset(tmp_path / "a.*", classes=2)


def test_idx_and_npy_stay_one_pair_a_split(tmp_path: Path) -> None:
    x, y = np.zeros((1, 2, 2), dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    write_mnist(tmp_path, "train", x, y)
    write_mnist(tmp_path, "b-train", x, y)
    with refuses("data"):
        open_dataset(tmp_path / "*", classes=2)


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
