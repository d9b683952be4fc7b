"""A reader that begins anywhere gives what one from the beginning gives there; to know where costs no reading."""

import gzip
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privmix.data import ArraySource, Source, open_dataset
from privmix.data.csv import _Starts
from privmix.errors import InvalidInput
from tests.data.helpers import png, write

N = 57
Maker = Callable[[Path], Source]
RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (N, 2)).astype(np.float32)
Y = RNG.integers(0, 2, N)


def table() -> Any:
    return pa.table({"a": X[:, 0], "b": X[:, 1], "label": Y})


def parquet(folder: Path) -> Source:
    for number, part in enumerate((table()[:30], table()[30:])):
        pq.write_table(part, folder / f"train-{number}.parquet", row_group_size=7)
    return open_dataset(folder, classes=2)


def csv_lines(end: str = "\n") -> str:
    rows = (f'"{a:g}",{b:g},"{y}"{end}' for (a, b), y in zip(X.tolist(), Y.tolist(), strict=True))
    return f"a,b,label{end}" + end.join(rows)


def csv(folder: Path, end: str = "\n") -> Source:
    (folder / "d.csv").write_bytes(csv_lines(end).encode())
    return open_dataset(folder / "d.csv", classes=2)


def texts(folder: Path) -> Source:
    rows = (f'"line\n ""{a:g}"", x\r\n",{y}\n' for (a, _), y in zip(X.tolist(), Y.tolist(), strict=True))
    (folder / "d.csv").write_bytes(("text,label\n" + "".join(rows)).encode())
    return open_dataset(folder / "d.csv", classes=2, columns=["text"])


def packed(folder: Path) -> Source:
    (folder / "d.csv.gz").write_bytes(gzip.compress(csv_lines().encode()))
    return open_dataset(folder / "d.csv.gz", classes=2)


def jsonl(folder: Path) -> Source:
    rows = (json.dumps({"a": a, "b": b, "label": y}) for (a, b), y in zip(X.tolist(), Y.tolist(), strict=True))
    (folder / "d.jsonl").write_bytes(b"\xef\xbb\xbf\n\n" + "\n\n".join(rows).encode())
    return open_dataset(folder / "d.jsonl", classes=2, number_columns=["a", "b"])


def written(name: str) -> Maker:
    return lambda folder: open_dataset(write(folder / name, X, Y), classes=2)


npy, npz, safetensors, idx = map(written, ("x.npy", "d.npz", "d.safetensors", "train-images-idx2-ubyte"))


def images(folder: Path) -> Source:
    for number in range(N):
        place = folder / "ab"[number % 2]
        place.mkdir(exist_ok=True)
        (place / f"{number:02}.png").write_bytes(png(np.full((2, 2), number, np.uint8)))
    return open_dataset(folder, classes=["a", "b"], image_size=2, colour="grey")


LONG: list[Maker] = [parquet, csv, lambda folder: csv(folder, "\r\n"), texts, jsonl]
ANYWHERE: list[Maker] = [idx, npy, safetensors, images]
PACKED: list[Maker] = [packed, npz]
IN_MEMORY: list[Maker] = [lambda _: open_dataset((X, Y), classes=2), lambda _: open_dataset(table(), classes=2)]
FILES = [*LONG, *ANYWHERE, *PACKED]
MAKERS = [*FILES, *IN_MEMORY]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are as long as a few pieces."""
    monkeypatch.setattr("privmix.data.files.PIECE", 64)
    monkeypatch.setattr("privmix.data.csv.BLOCK_BYTES", 200)


def rows(batches: Iterator[Any]) -> list[Any]:
    return [(x.tolist(), y) for batch in batches for x, y in zip(batch.x, batch.y.tolist(), strict=True)]


@pytest.mark.parametrize("make", MAKERS)
def test_a_range_is_that_part_of_the_whole_and_a_manifest_has_no_gaps(tmp_path: Path, make: Maker) -> None:
    source = make(tmp_path)
    assert source.travels == (make in FILES)
    whole, manifest = rows(source.batches(1000)), source.manifest()
    assert len(whole) == manifest.records == N
    for first in (0, 1, 6, 7, 8, 29, 30, 31, 55, N - 1, N):
        for stop in {None, first, min(first + 1, N), min(first + 9, N), N}:
            assert rows(source.batches(4, first, stop)) == whole[first:stop]
    ends = manifest.parts["first"] + manifest.parts["count"]
    assert manifest.parts["first"].tolist() == [0, *ends[:-1].tolist()]


@pytest.mark.parametrize("make", LONG)
def test_long_files_are_entered_in_the_midst(tmp_path: Path, make: Maker) -> None:
    manifest = make(tmp_path).manifest()
    assert max(record - manifest.entry(record) for record in range(N)) < 25
    assert len(manifest.parts) > 3


@pytest.mark.parametrize("make", [*ANYWHERE, IN_MEMORY[0]])
def test_these_are_entered_anywhere(tmp_path: Path, make: Maker) -> None:
    manifest = make(tmp_path).manifest()
    assert all(manifest.entry(record) == record for record in range(N))
    assert [list(run) for run in manifest.runs([0, 1, 5], 10)] == [[0], [1], [5]]


@pytest.mark.parametrize("make", PACKED)
def test_packed_files_are_one_stretch(tmp_path: Path, make: Maker) -> None:
    manifest = make(tmp_path).manifest()
    assert manifest.entry(N - 1) == 0
    assert [list(run) for run in manifest.runs([0, 1, 3, 4, 5], 10)] == [[0, 1], [3, 4, 5]]


@pytest.mark.parametrize("make", FILES)
def test_what_travels_holds_no_record(tmp_path: Path, make: Maker) -> None:
    cloudpickle = pytest.importorskip("cloudpickle", reason="it comes with the extra hf or ray")
    source = make(tmp_path)
    content = cloudpickle.dumps(source)
    assert len(content) < 20_000
    assert b"00.png" not in content
    again = pickle.loads(content)
    assert rows(again.batches(5, 20, 40)) == rows(source.batches(5, 20, 40))


def test_parquet_reads_the_row_groups_of_a_range_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, read = parquet(tmp_path), list[int]()
    original = pq.ParquetFile.iter_batches

    def noted(self: Any, *given: Any, row_groups: list[int], **options: Any) -> Any:
        read.extend(row_groups)
        return original(self, *given, row_groups=row_groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    assert len(rows(source.batches(4, 15, 20))) == 5
    assert read == [2]


def test_a_range_beyond_the_records_is_refused() -> None:
    source = ArraySource(X, Y, ("a", "b"))
    for first, stop in ((-1, None), (N + 1, None), (0, N + 1), (5, 4)):
        with pytest.raises(InvalidInput):
            list(source.batches(4, first, stop))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_records_begin_behind_line_ends_outside_of_quotes(size: int) -> None:
    text = b'1,"a\n""b\r\n"\r\n\r\n\n2,c\r3,"x"\n \n4,""\n5'
    starts = _Starts(0)
    for start in range(0, len(text), size):
        starts.add(text[start : start + size])
    assert starts.records == 6
