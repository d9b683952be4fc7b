import hashlib
import itertools
import os
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.dataset
import pytest
from PIL import Image

from privmix.data import ArraySource, content_hashes, open_dataset, source
from privmix.data import fingerprint as fingerprints
from privmix.data.fingerprint import fingerprint, records_hash
from privmix.errors import StorageError
from tests.data.helpers import held


def test_content_counts_and_names_do_not(tmp_path: Path) -> None:
    files = {"one/a": "x", "one/b/c": "y", "copy/q": "y", "copy/r": "x", "more/a": "x", "more/b": "z"}
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "copy") != fingerprint(tmp_path / "more")
    assert fingerprint(tmp_path / "one" / "a") != fingerprint(tmp_path / "one")


def test_links_are_followed_and_hidden_files_are_not_data(tmp_path: Path) -> None:
    for name, text in (("real", "x"), ("other", "y")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(text)
        (tmp_path / f"view-{name}").mkdir()
        (tmp_path / f"view-{name}" / "class").symlink_to(tmp_path / name)
    before = fingerprint(tmp_path / "real")
    (tmp_path / "real" / ".hidden").write_text("z")
    assert fingerprint(tmp_path / "view-real") == fingerprint(tmp_path / "real") == before
    assert fingerprint(tmp_path / "view-other") != before
    (tmp_path / "empty").mkdir()
    with pytest.raises(StorageError, match="nothing in it"):
        fingerprint(tmp_path / "empty")


def save(path: Path, offset: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=np.eye(4, dtype=np.float32) + offset, y=np.arange(4) % 2)
    return path


def test_contents_are_those_of_the_files_that_are_read(tmp_path: Path) -> None:
    file = save(tmp_path / "alone" / "train.npz")
    alone = content_hashes(open_dataset(file, classes=2))
    assert len(alone) == 1
    # In a folder, beside notes and another split, under another name, at an address: the same.
    folder = tmp_path / "folder"
    save(folder / "train.npz")
    save(folder / "test.npz", 1)
    (folder / "notes.txt").write_text("n")
    assert content_hashes(open_dataset(folder, classes=2)) == alone
    assert content_hashes(open_dataset(f"file://{folder}", classes=2)) == alone
    assert content_hashes(open_dataset(str(folder / "tr*.npz"), classes=2)) == alone
    assert not set(content_hashes(open_dataset(folder, split="test", classes=2))) & set(alone)
    # Shards in another order, and one of them alone, are known by what they share.
    for name, order in (("ab", (0, 1)), ("ba", (1, 0))):
        for place, offset in enumerate(order):
            save(tmp_path / name / f"part-{place}.npz", offset)
    both = content_hashes(open_dataset(tmp_path / "ab", classes=2))
    assert both == content_hashes(open_dataset(tmp_path / "ba", classes=2))
    assert set(alone) < set(both)


def test_labels_and_pictures_are_contents_and_empty_files_are_not(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(4, dtype=np.float32))
    np.save(tmp_path / "y.npy", np.arange(4) % 2)
    assert len(content_hashes(open_dataset(tmp_path / "x.npy", classes=2))) == 2
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        Image.new("L", (4, 4), number).save(tmp_path / "pictures" / name / "1.png")
    pictures = open_dataset(tmp_path / "pictures", classes=["cat", "dog"], image_size=4, colour="grey")
    assert len(content_hashes(pictures)) == 2
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.jsonl").write_text('{"age": 3, "label": 1}\n')
    (tmp_path / "tables" / "b.jsonl").touch()
    assert len(content_hashes(open_dataset(tmp_path / "tables", classes=2, columns=["age"]))) == 1
    assert len(content_hashes(ArraySource(np.eye(2), np.array([0, 1]), ("a", "b")))) == 1


def test_a_file_is_hashed_once_until_something_touches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where size and times that can be set are as before, and where a change follows at once."""
    read: list[int] = []
    original = hashlib.file_digest

    def counted(*given: Any) -> Any:
        read.append(1)
        return original(*given)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    file = tmp_path / "a.bin"
    file.write_bytes(b"one")
    before = file.stat()
    first = fingerprint(file)
    # Just written: a second change might have the same times.
    assert fingerprint(file) == first
    assert len(read) == 2
    monkeypatch.setattr(fingerprints, "SETTLED", -1)
    assert fingerprint(file) == fingerprint(file) == first
    assert len(read) == 3
    file.write_bytes(b"two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert fingerprint(file) != first
    assert len(read) == 4


def test_cells_are_told_apart_as_the_reader_does() -> None:
    """Days, too: a table with other days is another table, whatever library holds them."""
    days = [date(2016, 1, 1), date(2016, 1, 2), datetime(2016, 1, 1, 3)]
    days += [np.datetime64("2016-01-01"), np.datetime64("NaT")]
    stamps = [pandas.Timestamp("2016-01-01"), pandas.Timestamp("2016-01-02"), pandas.NaT]
    cells: list[Any] = [None, "", "2016-01-01", "1", 1, 1.5, True, np.float32(1.5), *days, *stamps]
    for one, other in itertools.combinations(cells, 2):
        read, again = source._cell(one, "a"), source._cell(other, "a")
        alike = read == again and type(read) is type(again)
        assert (fingerprints._cell(one) == fingerprints._cell(other)) == alike, (one, other)


@pytest.mark.parametrize("library", ["pandas", "objects", "polars", "arrays"])
def test_a_table_with_other_days_has_another_hash(library: str) -> None:
    def hash_of(year: int) -> str:
        days = np.array([f"{year}-01-0{day}" for day in range(1, 5)], "M8[D]")
        data: Any = days[:, None], [0, 1, 0, 1]
        if library != "arrays":
            column = days.tolist() if library == "objects" else days.astype("M8[ns]")
            data = pandas.DataFrame({"when": column, "label": [0, 1, 0, 1]})
        if library == "polars":
            data = pytest.importorskip("polars").from_pandas(data)
        return records_hash(open_dataset(data, classes=2, columns=["when"]))

    assert hash_of(2015) == hash_of(2015) != hash_of(2024)


def test_cells_that_repeat_are_written_as_each_is() -> None:
    """The fast way with cells that repeat gives the bytes of one cell after another; equal numbers hash alike."""
    nan = float("nan")
    plain = ["x", "x", None, 1, 1.0, True, 0.0, -0.0, 2**70, float(2**70), nan, nan, "", "1"]
    for cells in (plain, [*plain, np.float32(1), b"x"]):
        values = np.empty(len(cells), dtype=object)
        values[:] = cells
        assert fingerprints._canonical(values) == b"".join(map(fingerprints._cell, cells))


@pytest.mark.parametrize("form", ["pandas", "polars", "table", "datasets", "dataset"])
def test_other_columns_and_labels_of_one_table_are_the_same_data(form: str) -> None:
    columns = {name: np.arange(9.0) * place for place, name in enumerate("abcd", start=1)}
    table = pa.table({**columns, "one": [0, 1, 1] * 3, "two": [1, 0, 1] * 3})
    data = pyarrow.dataset.dataset(table) if form == "dataset" else held(form, table, Path())

    def hashes(numbers: str, label: str) -> set[str]:
        return set(content_hashes(open_dataset(data, classes=2, label_column=label, number_columns=list(numbers))))

    assert hashes("ab", "one") & hashes("cd", "two")
    assert hashes("ab", "one") != hashes("cd", "two")


@pytest.mark.parametrize("library", ["table", "datasets"])
def test_tables_of_lists_with_the_same_labels_are_different_data(library: str) -> None:
    def hashes(value: float) -> set[str]:
        table = pa.table({"x": [[value, 1.0]] * 4, "label": [0, 1, 0, 1]})
        data = held(library, table, Path())
        return set(content_hashes(open_dataset(data, classes=2, feature_length=2)))

    assert hashes(1.0) == hashes(1.0)
    assert not hashes(1.0) & hashes(2.0)
