"""Content that unpacks to absurd sizes is refused, or taken apart in small pieces."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privmix.data import open_dataset
from privmix.data.header import columns_of
from privmix.errors import InvalidInput
from tests.data.helpers import idx_bytes

ZEROS = 2**21


def npz(path: Path) -> None:
    np.savez_compressed(path, x=np.zeros((2, ZEROS), np.uint8), y=np.zeros(2, np.uint8))


def zipped(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(gzip.compress(content)) and None


def test_packed_tables_are_read(tmp_path: Path) -> None:
    lines = b'{"a": 2, "label": "no"}\n{"a": 3, "label": "yes"}\n'
    texts = {"d.csv": b"a,label\n2,no\n3,yes\n", "d.tsv": b"a\tlabel\n2\tno\n3\tyes\n", "d.ndjson": lines}
    for name, content in texts.items():
        path = tmp_path / f"{name}.gz"
        zipped(content)(path)
        found = open_dataset(path, classes=["no", "yes"], number_columns=["a"]).read()
        assert (found.x.tolist(), found.y.tolist()) == ([[2.0], [3.0]], [0, 1])
        assert columns_of(path) == (None if "json" in name else {"a": "", "label": ""})
        path.write_bytes(path.read_bytes()[:-6])
        with pytest.raises(InvalidInput, match="complete, undamaged"):
            open_dataset(path, classes=["no", "yes"], number_columns=["a"]).read()


@pytest.mark.parametrize("suffix", ["bz2", "zst", "zip"])
def test_other_archives_are_refused(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"d.csv.{suffix}").write_text("")
    with pytest.raises(InvalidInput, match=r"\.gz after it.*unpack other archives"):
        open_dataset(tmp_path / f"d.csv.{suffix}", classes=2)


@pytest.mark.parametrize(
    ("name", "write"),
    [("d.npz", npz), ("d.jsonl.gz", zipped(b"\n" * ZEROS)), ("d.csv.gz", zipped(b"a,label\n" + b"0" * ZEROS))],
)
def test_traps_are_refused_when_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[[Path], None]
) -> None:
    monkeypatch.setattr("privmix.data.files.FREE_BYTES", 2**16)
    write(tmp_path / name)
    assert (tmp_path / name).stat().st_size < ZEROS / 256
    with pytest.raises(InvalidInput, match="at most 256 times its size"):
        open_dataset(tmp_path / name, classes=2, number_columns=["a"] if "jsonl" in name else None)


def test_an_idx_file_that_announces_terabytes_costs_no_memory(tmp_path: Path) -> None:
    header = bytearray(idx_bytes(np.zeros((1, 1024, 1024), np.uint8)))
    header[4:8] = b"\xff\xff\xff\xff"
    (tmp_path / "train-images-idx3-ubyte").write_bytes(bytes(header[:100]))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\1\xff\xff\xff\xff")
    with pytest.raises(InvalidInput, match="at most 256 times its size"):
        open_dataset(tmp_path)


def test_a_text_that_stands_once_and_is_meant_often_is_decoded_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privmix.data.columns.PART_BYTES", 2**16)
    text = "x" * 2**15
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100, np.int32)), pa.array([text]))
    pq.write_table(pa.table({"text": column, "label": np.zeros(100, np.int64)}), tmp_path / "d.parquet")
    source = open_dataset(tmp_path / "d.parquet", classes=2, columns=["text"])
    batches = list(source.batches(4096))
    assert [len(batch) for batch in batches] == [2] * 50
    assert all(batch.x[0, 0] == text for batch in batches)
