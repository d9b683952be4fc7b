"""open_dataset: which files it takes, and what it says when it cannot."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from privmix.data import embedded_digits, open_dataset
from privmix.data.header import columns_of
from privmix.errors import InvalidInput, StorageError
from tests.data.helpers import write_mnist
from tests.refusals import refuses

CSV = "a,label\n1,0\n2,1\n"


def test_two_formats_are_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(CSV)
    np.savez(tmp_path / "d.npz", x=np.zeros((1, 1)), y=[0])
    with pytest.raises(InvalidInput, match="one format; or give the path of the file"):
        open_dataset(tmp_path, classes=2)
    assert open_dataset(tmp_path / "d.csv", classes=2).schema.records == 2


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


@pytest.mark.parametrize("name", ["test", "t10k", "d_test", "test-00000-of-00001", "my.test"])
def test_names_that_mark_the_test_split(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.csv").write_text(CSV)
    assert open_dataset(tmp_path, classes=2, split="test").schema.records == 2
    with refuses("split"):
        open_dataset(tmp_path, classes=2)


@pytest.mark.parametrize("name", ["d", "contest", "trained", "latest"])
def test_files_without_a_split_are_the_training_split(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.csv").write_text(CSV)
    assert open_dataset(tmp_path, classes=2).schema.records == 2
    with refuses("split"):
        open_dataset(tmp_path, classes=2, split="test")


def test_a_file_is_its_own_split(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(CSV)
    assert open_dataset(tmp_path / "d.csv", classes=2, split="test").schema.records == 2


@pytest.mark.parametrize("names", [("train/d.csv", "validation/d.csv"), ("train.csv", "valid.csv")])
def test_a_missing_split_lists_those_present(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(CSV)
    assert open_dataset(tmp_path, classes=2, split="val").schema.records == 2
    with refuses("split"):
        open_dataset(tmp_path, split="test", classes=2)


def test_ten_classes_are_taken_from_mnist_names_only(tmp_path: Path) -> None:
    x, y = np.zeros((1, 2, 2), dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    write_mnist(tmp_path, "emnist-train", x, y)
    with refuses("classes"):
        open_dataset(tmp_path)


def test_embedded_digits() -> None:
    train, test = embedded_digits("train").read(), embedded_digits("test").read()
    assert (train.x.shape, test.x.shape) == ((1437, 8, 8), (360, 8, 8))
    assert train.x.dtype == np.uint8
    assert (train.x.min(), train.x.max()) == (0, 255)
    assert min(np.bincount(test.y, minlength=10)) >= 20
    assert np.array_equal(embedded_digits("train").read().x, train.x)
