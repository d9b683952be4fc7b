"""Texts and tables from CSV and Parquet, and the arguments that ask for them."""

from __future__ import annotations

import gzip
import json
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privmix.data import open_dataset
from privmix.data.source import CELLS
from privmix.errors import InvalidInput
from tests.data.helpers import png
from tests.refusals import refuses

CLASSES = ["<=50K", ">50K"]
TEXT = 'job,age,income\n"clerk, a\n""good"" one",38,<=50K\n,NaN,>50K\nJürgen,x,0\n'
ROWS = [['clerk, a\n"good" one', "38"], ["", "NaN"], ["Jürgen", "x"]]
SECRET = "Smith"


def write(folder: Path, content: str | bytes, name: str = "d.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("zipped", [False, True])
def test_csv_tables_hold_texts_that_may_span_lines(tmp_path: Path, line_end: str, zipped: bool) -> None:
    content = ("\ufeff" + TEXT.replace("\n", line_end)).encode()
    path = write(tmp_path, gzip.compress(content) if zipped else content, "d.csv.gz" if zipped else "d.csv")
    source = open_dataset(path, columns=["job", "age"], label_column="income", classes=CLASSES)
    assert source.schema.columns == ("job", "age")
    assert (source.schema.records, source.schema.input_shape) == (3, (2,))
    data = source.read()
    assert data.x.tolist() == [[cell.replace("\n", line_end) for cell in row] for row in ROWS]
    assert data.x.dtype == object
    assert data.y.tolist() == [0, 1, 0]
    assert [len(batch) for batch in source.batches(2)] == [2, 1]


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)
    by_age = open_dataset(path, columns=["age", "job"], label_column="income", classes=CLASSES)
    assert by_age.read().x.tolist() == [row[::-1] for row in ROWS]
    only_job = open_dataset(path, columns=["job"], label_column="income", classes=CLASSES)
    assert only_job.schema.columns == ("job",)
    assert only_job.read().x.tolist() == [row[:1] for row in ROWS]


def test_a_header_may_span_lines(tmp_path: Path) -> None:
    path = write(tmp_path, '"a\nb",label\nhello,1\n')
    assert open_dataset(path, columns=["a\nb"], classes=2).read().x.tolist() == [["hello"]]


def test_parquet_tables(tmp_path: Path) -> None:
    columns = {
        "text": ["a", None, "ü"],
        "large": pa.array(["a", "b", None], type=pa.large_string()),
        "whole": pa.array([1, None, 3], type=pa.int32()),
        "real": [0.5, 1.5, None],
        "truth": [True, False, None],
        "exact": pa.array([Decimal("1.25"), None, Decimal("3")], type=pa.decimal128(6, 2)),
        "day": pa.array([date(2026, 1, 2), None, date(1, 1, 1)], type=pa.date32()),
        "kind": pa.array(["u", None, "v"]).dictionary_encode(),
        "empty": pa.nulls(3),
        "label": ["0", "1", "1"],
    }
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table(columns), path)
    names = list(columns)[:-1]
    data = open_dataset(path, columns=names, classes=2).read()
    assert data.x.T.tolist() == [
        ["a", None, "ü"],
        ["a", "b", None],
        [1.0, None, 3.0],
        [0.5, 1.5, None],
        [1.0, 0.0, None],
        [1.25, None, 3.0],
        ["2026-01-02", None, "0001-01-01"],
        ["u", None, "v"],
        [None, None, None],
    ]
    assert {type(cell) for cell in data.x.ravel()} == {str, float, type(None)}
    assert data.schema.columns == tuple(names)


@pytest.mark.parametrize(
    ("content", "options", "field"),
    [
        (TEXT, {"columns": []}, "columns"),
        (TEXT, {"columns": "job"}, "columns"),
        (TEXT, {"columns": ["job", "job"]}, "columns"),
        (TEXT, {"columns": [3]}, "columns"),
        (TEXT, {"columns": 3}, "columns"),
        (TEXT, {"columns": [""]}, "columns"),
        (TEXT, {"columns": ["income"]}, "columns"),
        (TEXT, {"columns": ["job", "income"]}, "columns"),
        (TEXT, {"columns": ["job"], "number_columns": ["age"]}, "columns"),
        (TEXT, {"columns": ["job", "town"]}, "columns"),
        (TEXT, {"columns": ["job"], "image_size": 8}, "image_size"),
        ("", {"columns": ["job"]}, "header"),
        ("job,age\nx,1\n", {"columns": ["job"]}, "label column"),
        ("job,income\n", {"columns": ["job"]}, "number of records"),
        ("job,income\n\n\r\n", {"columns": ["job"]}, "number of records"),
        ("job,income\nSmith,>50K,3\n", {"columns": ["job"]}, "d.csv"),
        ("job,income\nSmith\n", {"columns": ["job"]}, "d.csv"),
        ('job,income\n"Smith,>50K\n', {"columns": ["job"]}, "d.csv"),
        ("job,income\nSmith,\n", {"columns": ["job"]}, "label"),
        ("job,income\nx,Smith\n", {"columns": ["job"]}, "label"),
        (b"job,income\nSmith\xff,>50K\n", {"columns": ["job"]}, "d.csv"),
        (gzip.compress(TEXT.encode())[:-12], {"columns": ["job"]}, "d.csv"),
    ],
)
def test_bad_tables_are_refused_silently(
    tmp_path: Path, content: str | bytes, options: dict[str, Any], field: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InvalidInput) as caught:
        open_dataset(path, **{"label_column": "income", "classes": CLASSES} | options).read()
    assert field in caught.value.field
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"x": [[1.0]], "label": [0]}, "column x"),
        ({"x": [SECRET.encode()], "label": [0]}, "column x"),
        ({"y": [SECRET], "label": [0]}, "columns"),
        ({"x": [SECRET], "label": pa.array([None], type=pa.int64())}, "column label"),
        ({"x": [float("nan")], "label": [0]}, "column x"),
        ({"x": [float("inf")], "label": [0]}, "column x"),
        ({"x": pa.array([], type=pa.string()), "label": pa.array([], type=pa.int64())}, "number of records"),
    ],
)
def test_bad_parquet_tables_are_refused_silently(tmp_path: Path, columns: dict[str, Any], field: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "d.parquet")
    with pytest.raises(InvalidInput) as caught:
        open_dataset(tmp_path, columns=["x"], classes=2).read()
    assert caught.value.field == field
    assert SECRET not in str(caught.value)


def test_formats_without_columns_refuse_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((1, 1)), y=[0])
    with refuses("columns"):
        open_dataset(tmp_path / "d.npz", classes=2, columns=["text"])
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "cat" / "a.png").write_bytes(png(np.zeros((2, 2), dtype=np.uint8)))
    with refuses("columns"):
        open_dataset(tmp_path / "images", columns=["a", "b"])


def test_an_undeclared_class_says_how_to_declare_it(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)
    with refuses("classes") as missing:
        open_dataset(path, columns=["job"], label_column="income")
    with refuses("label") as unknown:
        open_dataset(path, columns=["job"], label_column="income", classes=["<=50K"]).read()
    for caught in (missing, unknown):
        assert "classes" in str(caught.value)
        assert ">50K" not in str(caught.value)


def test_banking77(data_root: Path) -> None:
    source = open_dataset(data_root / "banking77", columns=["text"], classes=77)
    assert (source.schema.records, source.schema.columns) == (10_003, ("text",))
    data = source.read()
    assert data.x[0, 0] == "I am still waiting on my card?"
    assert np.bincount(data.y).min() == 35
    assert open_dataset(data_root / "banking77", columns=["text"], classes=77, split="test").schema.records == 3080


def test_adult(data_root: Path) -> None:
    names = ["age", "workclass", "hours-per-week"]
    source = open_dataset(data_root / "adult", columns=names, label_column="income", classes=CLASSES)
    data = source.read()
    assert data.x[0].tolist() == ["39", "State-gov", "40"]
    assert np.bincount(data.y).tolist() == [24_720, 7_841]


ODD = {
    "list": pa.array([[SECRET], []]),
    "nested": pa.array([[[SECRET]], [[]]]),
    "struct": pa.array([{SECRET: 1}, {SECRET: 2}]),
    "bytes": pa.array([SECRET.encode(), b""]),
    "duration": pa.array([timedelta(days=1), None]),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("form", ["parquet", "arrow", "table", "datasets", "polars", "pandas", "jsonl", "rows"])
def test_columns_of_lists_structs_and_durations_are_refused_by_name(tmp_path: Path, form: str, kind: str) -> None:
    """Where a type says it, opening refuses: no record is read, and nothing was charged. No text of a cell is shown."""
    table = pa.table({"age": [20, 30], "odd": ODD[kind], "label": ["no", "yes"]})
    arguments: dict[str, Any] = {"columns": ["age", "odd"], "classes": ["no", "yes"]}
    data: Any = tmp_path / f"d.{form}"
    if form == "parquet":
        pq.write_table(table, data)
    elif form == "arrow":
        with pa.ipc.new_file(data, table.schema) as out:
            out.write_table(table)
    elif form == "jsonl":
        if kind in ("bytes", "duration"):
            pytest.skip("JSON has none")
        write(tmp_path, "".join(json.dumps(row) + "\n" for row in table.to_pylist()), data.name)
    elif form == "rows":
        data = (list(zip([20, 30], ODD[kind].to_pylist(), strict=True)), ["no", "yes"])
    elif form == "datasets":
        data = datasets.Dataset(table)
    elif form == "pandas":
        data = table.to_pandas(types_mapper=pandas.ArrowDtype)
        objects = table.to_pandas()
        with pytest.raises(InvalidInput) as caught:
            open_dataset(objects, **arguments).read()
        assert caught.value.field == "column odd"
    else:
        data = polars.from_arrow(table) if form == "polars" else table
    read = (
        open_dataset(data, **arguments).read if form in ("jsonl", "rows") else partial(open_dataset, data, **arguments)
    )
    with pytest.raises(InvalidInput) as caught:
        read()
    assert (caught.value.field, caught.value.allowed) == ("column odd", CELLS)
    assert SECRET not in str(caught.value)
