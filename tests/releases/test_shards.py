"""Shards and arrays: one form, readable by others; every byte in them is a value or follows from the shape."""

import base64
import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from privmix.errors import InvalidInput
from privmix.releases.shards import ShardForm, arrays_bytes, read_arrays, read_shard, write_shard
from tests.refusals import refuses

SHAPES = [(1, 1, 2), (2, 3, 1), (700, 7, 3), (300_000, 2, 1), (67, 3969, 10), (3, 300_000, 2)]


def rows_of(rows: int, width: int) -> NDArray[np.float32]:
    return np.random.default_rng(rows * width).normal(size=(rows, width)).astype(np.float32)


def schema_of(dim: int, classes: int) -> pa.Schema:
    return pa.schema([("x", pa.list_(pa.float32(), dim)), ("y", pa.list_(pa.float32(), classes))])


def written(path: Path, rows: int, dim: int, classes: int) -> str:
    with path.open("wb") as stream:
        return write_shard(stream, rows_of(rows, dim), rows_of(rows, classes))


def read(path: Path, form: ShardForm) -> tuple[NDArray[np.float32], NDArray[np.float32], str]:
    x, y = np.empty((form.rows, form.dim), np.float32), np.empty((form.rows, form.classes), np.float32)
    hasher = hashlib.sha256()
    with path.open("rb") as stream:
        for place, values in read_shard(stream, form, "shard", hasher.update):
            (x if place.column == "x" else y)[place.start : place.stop] = values
    return x, y, hasher.hexdigest()


@pytest.mark.parametrize(("rows", "dim", "classes"), SHAPES)
def test_arrow_reads_what_was_written_and_so_do_we(tmp_path: Path, rows: int, dim: int, classes: int) -> None:
    path, form = tmp_path / "a.parquet", ShardForm(rows, dim, classes)
    digest = written(path, rows, dim, classes)
    assert path.stat().st_size == form.size
    table = pq.read_table(path)
    assert table.schema == schema_of(dim, classes)
    for name, width in (("x", dim), ("y", classes)):
        column = table[name].combine_chunks()
        assert column.null_count == 0
        np.testing.assert_array_equal(column.flatten().to_numpy().reshape(rows, width), rows_of(rows, width))
    x, y, seen = read(path, form)
    np.testing.assert_array_equal(x, rows_of(rows, dim))
    np.testing.assert_array_equal(y, rows_of(rows, classes))
    assert seen == digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_schema_is_arrows_own(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", 5, 1234, 77)
    metadata = pq.read_metadata(tmp_path / "a.parquet").metadata
    assert list(metadata) == [b"ARROW:schema"]
    stored = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(metadata[b"ARROW:schema"])))
    assert (stored, stored.metadata) == (schema_of(1234, 77), None)


def test_every_byte_that_is_no_value_is_fixed(tmp_path: Path) -> None:
    """Change, add or take any byte outside the values: refused. A byte of a value: another value, another hash."""
    path, form = tmp_path / "a.parquet", ShardForm(9, 4, 3)
    digest = written(path, 9, 4, 3)
    whole = path.read_bytes()
    values: list[bool] = []
    for piece in form.pieces():
        fixed = isinstance(piece, bytes)
        values += [not fixed] * (len(piece) if fixed else 4 * (piece.stop - piece.start) * piece.width)
    assert len(values) == len(whole)
    for index, is_value in enumerate(values):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0x11]) + whole[index + 1 :])
        if is_value:
            assert read(path, form)[2] != digest
        else:
            with refuses("shard"):
                read(path, form)
    for index in range(0, len(whole) + 1, 29):
        for content in (whole[:index] + b"\0" + whole[index:], whole[: max(0, index - 1)] + whole[index:]):
            path.write_bytes(content)
            if len(content) != len(whole):
                with pytest.raises(InvalidInput, match="a file of"):
                    read(path, form)


@pytest.mark.parametrize("smuggled", ["column", "metadata", "compression", "dictionary", "groups", "nothing"])
def test_other_parquet_files_are_refused(tmp_path: Path, smuggled: str) -> None:
    path = tmp_path / "a.parquet"
    columns = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(rows_of(50, width).reshape(-1)), width)
        for name, width in (("x", 4), ("y", 3))
    }
    table = pa.table(columns)
    if smuggled == "column":
        table = table.append_column("raw_private_record", pa.array([b"secret"] * 50))
    if smuggled == "metadata":
        table = table.replace_schema_metadata({"note": "secret"})
    options = {
        "compression": "ZSTD" if smuggled == "compression" else "NONE",
        "use_dictionary": smuggled == "dictionary",
        "row_group_size": 10 if smuggled == "groups" else 50,
    }
    pq.write_table(table, path, **options)
    with pytest.raises(InvalidInput, match="a file of"):
        read(path, ShardForm(50, 4, 3))


def test_nothing_is_allocated_for_a_form_that_the_file_is_too_small_for(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", 5, 4, 3)
    for form in (ShardForm(10**30, 4, 3), ShardForm(5, 10**18, 3), ShardForm(8192, 10**9, 10**9)):
        with (tmp_path / "a.parquet").open("rb") as stream, pytest.raises(InvalidInput, match="a file of"):
            next(read_shard(stream, form, "shard", lambda _: None))


def test_arrays_are_those_of_the_safetensors_package_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    arrays = {"second": rows_of(1, 15)[0], "cross": rows_of(5, 2), "label_sums": rows_of(1, 2)[0]}
    shapes = {name: array.shape for name, array in arrays.items()}
    path.write_bytes(arrays_bytes(arrays))
    whole = path.read_bytes()
    assert whole == save(arrays)
    found, digest = read_arrays(path, "moments", shapes)
    assert digest == hashlib.sha256(whole).hexdigest()
    for name, array in load_file(path).items():
        np.testing.assert_array_equal(found[name], array)
    head = 8 + int.from_bytes(whole[:8], "little")
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0x11]) + whole[index + 1 :])
        if index < head:
            with refuses("moments"):
                read_arrays(path, "moments", shapes)
        else:
            assert read_arrays(path, "moments", shapes)[1] != digest
    told = json.loads(whole[8:head]) | {"__metadata__": {"note": "secret"}}
    text = json.dumps(told).encode()
    for content in (whole + b"\0", whole[:-1], len(text).to_bytes(8, "little") + text + whole[head:]):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match="a file of"):
            read_arrays(path, "moments", shapes)
    with pytest.raises(InvalidInput, match="a file of"):
        read_arrays(path, "moments", {"second": (10**15,)})
