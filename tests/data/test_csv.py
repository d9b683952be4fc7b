"""CSV files: numbers, texts and tables; tables of texts in other formats."""

import gzip
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privmix.data import open_dataset
from privmix.data.source import CELLS
from tests.data.helpers import held, png, put, refuses_silently
from tests.refusals import refuses

CLASSES = ["<=50K", ">50K"]
TEXT = 'job,age,income\n"clerk, a\n""good"" one",38,<=50K\n,NaN,>50K\nJürgen,x,0\n'
ROWS = [['clerk, a\n"good" one', "38"], ["", "NaN"], ["Jürgen", "x"]]
SECRET = "Smith"


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("zipped", [False, True])
def test_csv_tables_hold_texts_that_may_span_lines(tmp_path: Path, line_end: str, zipped: bool) -> None:
    content = ("\ufeff" + TEXT.replace("\n", line_end)).encode()
    path = put(tmp_path, gzip.compress(content) if zipped else content, "d.csv.gz" if zipped else "d.csv")
    source = open_dataset(path, columns=["job", "age"], label_column="income", classes=CLASSES)
    assert source.schema.columns == ("job", "age")
    assert (source.schema.records, source.schema.input_shape) == (3, (2,))
    data = source.read()
    assert data.x.tolist() == [[cell.replace("\n", line_end) for cell in row] for row in ROWS]
    assert data.x.dtype == object
    assert data.y.tolist() == [0, 1, 0]
    assert [len(batch) for batch in source.batches(2)] == [2, 1]


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path, TEXT)
    for names in (("age", "job"), ("job",)):
        source = open_dataset(path, columns=names, label_column="income", classes=CLASSES)
        assert source.schema.columns == names
        assert source.read().x.tolist() == [[row[name == "age"] for name in names] for row in ROWS]
    path = put(tmp_path, '"a\nb",label\nhello,1\n')
    assert open_dataset(path, columns=["a\nb"], classes=2).read().x.tolist() == [["hello"]]


def test_parquet_tables(tmp_path: Path) -> None:
    days = pa.array([date(2026, 1, 2), None, date(1, 1, 1)], type=pa.date32())
    decimals = pa.array([Decimal("1.25"), None, Decimal("3")], type=pa.decimal128(6, 2))
    cases: dict[str, tuple[Any, list[Any]]] = {
        "text": (["a", None, "ü"], ["a", None, "ü"]),
        "large": (pa.array(["a", "b", None], type=pa.large_string()), ["a", "b", None]),
        "whole": (pa.array([1, None, 3], type=pa.int32()), [1.0, None, 3.0]),
        "real": ([0.5, 1.5, None], [0.5, 1.5, None]),
        "truth": ([True, False, None], [1.0, 0.0, None]),
        "exact": (decimals, [1.25, None, 3.0]),
        "day": (days, ["2026-01-02", None, "0001-01-01"]),
        "kind": (pa.array(["u", None, "v"]).dictionary_encode(), ["u", None, "v"]),
        "empty": (pa.nulls(3), [None, None, None]),
    }
    columns = {name: column for name, (column, _) in cases.items()}
    pq.write_table(pa.table({**columns, "label": ["0", "1", "1"]}), tmp_path / "d.parquet")
    data = open_dataset(tmp_path / "d.parquet", columns=list(cases), classes=2).read()
    assert data.x.T.tolist() == [expected for _, expected in cases.values()]
    assert {type(cell) for cell in data.x.ravel()} == {str, float, type(None)}
    assert data.schema.columns == tuple(cases)


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
        ("job,income\n\n\r\n", {"columns": ["job"]}, "number of records"),
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
    path = put(tmp_path, content)
    with refuses_silently(field):
        open_dataset(path, **{"label_column": "income", "classes": CLASSES} | options).read()


def test_formats_without_columns_refuse_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((1, 1)), y=[0])
    with refuses("columns"):
        open_dataset(tmp_path / "d.npz", classes=2, columns=["text"])
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "cat" / "a.png").write_bytes(png(np.zeros((2, 2), dtype=np.uint8)))
    with refuses("columns"):
        open_dataset(tmp_path / "images", columns=["a", "b"])


ODD = {
    "list": pa.array([[SECRET], []]),
    "nested": pa.array([[[SECRET]], [[]]]),
    "struct": pa.array([{SECRET: 1}, {SECRET: 2}]),
    "bytes": pa.array([SECRET.encode(), b""]),
    "duration": pa.array([timedelta(days=1), None]),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("form", ["parquet", "table", "datasets", "polars", "pandas", "jsonl", "rows"])
def test_columns_of_lists_structs_and_durations_are_refused_by_name(tmp_path: Path, form: str, kind: str) -> None:
    """Where a type says it, opening refuses: no record is read, and nothing was charged. No text of a cell is shown."""
    table = pa.table({"age": [20, 30], "odd": ODD[kind], "label": ["no", "yes"]})
    arguments: dict[str, Any] = {"columns": ["age", "odd"], "classes": ["no", "yes"]}
    if form == "jsonl" and kind in ("bytes", "duration"):
        pytest.skip("JSON has none")
    if form == "rows":
        data: Any = (list(zip([20, 30], ODD[kind].to_pylist(), strict=True)), ["no", "yes"])
    else:
        data = held(form, table, tmp_path)
    if form == "pandas":
        with refuses("column odd"):
            open_dataset(data, **arguments).read()
        data = table.to_pandas(types_mapper=pandas.ArrowDtype)
    read = (
        open_dataset(data, **arguments).read if form in ("jsonl", "rows") else partial(open_dataset, data, **arguments)
    )
    with refuses("column odd", SECRET) as caught:
        read()
    assert caught.value.allowed == CELLS


ANIMALS = ["cat", "dog"]
NUMBERS_TEXT = "a,label,b\n1,cat,2.5\n-3e2,dog,4\n"


@pytest.mark.parametrize(
    "text",
    [
        NUMBERS_TEXT,
        NUMBERS_TEXT.replace("\n", "\r\n"),
        NUMBERS_TEXT.rstrip("\n"),
        "\ufeff" + NUMBERS_TEXT,
        NUMBERS_TEXT.replace("1,cat", "\n1,cat"),
        NUMBERS_TEXT.replace("cat", '"cat"'),
        NUMBERS_TEXT.replace("cat", "0").replace("dog", "1"),
    ],
)
def test_numeric_columns_and_a_label(tmp_path: Path, text: str) -> None:
    source = open_dataset(put(tmp_path, text), classes=ANIMALS)
    assert (source.schema.records, source.schema.input_shape) == (2, (2,))
    data = source.read()
    assert data.x.tolist() == [[1.0, 2.5], [-300.0, 4.0]]
    assert data.x.dtype == np.float32
    assert data.y.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "header"),
        ("a,b\n1,2\n", "label column"),
        ("a,a,label\n1,2,0\n", "columns"),
        ("a,,label\n1,2,0\n", "columns"),
        ("label\n0\n", "header"),
        ("a,label\n", "number of records"),
        ("a,label\n1\n", "d.csv"),
        ("a,label\n1,cat,3\n", "d.csv"),
        ("a,label\nSmith,cat\n", "d.csv"),
        ("a,label\n,cat\n", "d.csv"),
        ('a,label\n"1\n2",cat\n', "d.csv"),
        ("a,label\nnan,cat\n", "inputs"),
        ("a,label\n1e999,cat\n", "inputs"),
        ("a,label\n1,Smith\n", "label"),
        ("a,label\n1,\n", "label"),
        ("a,label\n1,2\n", "label"),
        (b"a,label\n1,\xff\n", "d.csv"),
        (b"a\xff,label\n1,cat\n", "d.csv"),
    ],
)
def test_bad_tables_of_numbers_are_refused_silently(tmp_path: Path, text: str | bytes, field: str) -> None:
    with refuses_silently(field):
        open_dataset(put(tmp_path, text), classes=ANIMALS).read()
