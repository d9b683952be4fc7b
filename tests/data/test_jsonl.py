import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.data import open_dataset
from privmix.errors import InvalidInput
from tests.data.helpers import put, refuses_silently

CLASSES = ["cat", "dog"]
SECRET = "Smith"
LIST = {"number_columns": ["x"], "feature_length": 1}


def write(folder: Path, rows: list[Any] | str | bytes, name: str = "d.jsonl") -> Path:
    if isinstance(rows, list):
        rows = "".join(json.dumps(row) + "\n" for row in rows)
    return put(folder, rows, name)


@pytest.mark.parametrize("name", ["d.jsonl", "d.json", "d.jsonl.gz", "d.json.gz"])
def test_tables(tmp_path: Path, name: str) -> None:
    rows = [
        {"text": "a\nb", "age": 3, "label": "cat", "more": [1]},
        {"text": None, "age": "?", "label": "dog"},
        {"age": True, "text": 2.5, "label": "1"},
        {"label": "0"},
    ]
    content = ("\ufeff" + "\r\n\n".join(map(json.dumps, rows))).encode()
    path = write(tmp_path, gzip.compress(content) if name.endswith("gz") else content, name)
    source = open_dataset(path, columns=["age", "text"], classes=CLASSES)
    assert (source.schema.records, source.schema.columns) == (4, ("age", "text"))
    data = source.read()
    assert data.x.tolist() == [[3.0, "a\nb"], ["?", None], [1.0, 2.5], [None, None]]
    assert data.y.tolist() == [0, 1, 1, 0]
    assert [len(batch) for batch in source.batches(3)] == [3, 1]


def test_numeric_keys_and_lists(tmp_path: Path) -> None:
    path = write(tmp_path, [{"a": 1, "b": 2.5, "label": 0}, {"b": -1, "label": 1, "a": True}])
    assert open_dataset(path, classes=2, number_columns=["a", "b"]).read().x.tolist() == [[1.0, 2.5], [1.0, -1.0]]
    assert open_dataset(path, classes=2, number_columns=["b"]).read().x.tolist() == [[2.5], [-1.0]]
    path = write(tmp_path, [{"id": "u", "x": [1, 2.5], "label": 0}, {"x": [0, 1e3], "label": 1}])
    data = open_dataset(path, classes=2, number_columns=["x"], feature_length=2).read()
    assert data.x.tolist() == [[1.0, 2.5], [0.0, 1000.0]]
    assert data.x.dtype == np.float32
    path = write(tmp_path, [{"u": [1, 2], "v": [3, 4], "label": 0}])
    assert open_dataset(path, classes=2, number_columns=["v"], feature_length=2).read().x.tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "`columns` NAMES for numbers"),
        ({"number_columns": ["label"], "feature_length": 2}, "columns: got"),
        ({"number_columns": ["a", "a"]}, "columns: got"),
        ({"number_columns": ["label"]}, "columns: got"),
        ({"number_columns": ["a", "b"], "feature_length": 2}, "feature_length: got 2"),
        ({"number_columns": ["a"], "columns": ["b"]}, "columns: got"),
        ({"number_columns": ["x"], "feature_length": 0}, "feature_length: got 0"),
    ],
)
def test_what_is_read_is_declared_whatever_the_lines_hold(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    messages = set()
    for content in ('{"x": [1, 2], "a": 1, "label": 0}\n', "no JSON\n", "\n"):
        with pytest.raises(InvalidInput, match=words) as caught:
            open_dataset(write(tmp_path, content), classes=2, **options)
        messages.add(str(caught.value))
    assert len(messages) == 1


@pytest.mark.parametrize(
    ("rows", "options", "field"),
    [
        ("", {}, "number of records"),
        ("[1, 2]\n", {}, "d.jsonl"),
        ('"Smith"\n', {}, "d.jsonl"),
        ('{"x": 1, "label": 0}\n["Smith"]\n', {}, "d.jsonl"),
        ('{"x": 1, "label": 0}\n{"x": "Smith\n', {}, "d.jsonl"),
        ('[\n{"x": 1, "label": 0}\n]\n', {}, "d.jsonl"),
        ('{"x": NaN, "label": 0}\n', {}, "d.jsonl"),
        ('{"x": 1e39, "label": 0}\n', {}, "inputs"),
        ('{"x": 1' + "0" * 350 + ', "label": 0}\n', {}, "column x"),
        (b'{"x": "Smith\xff", "label": 0}\n', {"columns": ["x"]}, "d.jsonl"),
        ('{"x": "Smith\\ud800", "label": 0}\n', {"columns": ["x"]}, "d.jsonl|records"),
        ([{"x": 1}], {}, "column label"),
        ([{"label": 0}], {}, "column x"),
        ([{"x": SECRET, "label": 0}], {}, "column x"),
        ([{"x": 1, "label": 0}, {"label": 0}], {}, "column x"),
        ([{"x": 1, "label": None}], {}, "column label"),
        ([{"x": 1, "label": 0}, {"x": 1}], {}, "column label"),
        ([{"x": 1, "label": [SECRET]}], {}, "label"),
        ([{"x": 1, "label": SECRET}], {}, "label"),
        ([{"x": [1], "label": 0}, {"x": [1, 2], "label": 0}], LIST, "column x"),
        ([{"x": [1], "label": 0}, {"x": None, "label": 0}], LIST, "column x"),
        ([{"x": 1, "label": 0}], {"number_columns": ["z"], "feature_length": 1}, "column z"),
        ([{"x": 1, "label": 0}], LIST, "column x"),
        ([{"x": {"a": SECRET}, "label": 0}], {"columns": ["x"]}, "column x"),
        ([{"x": 10**350, "label": 0}], {"columns": ["x"]}, "column x"),
        ([{"x": 1, "label": 0}], {"image_size": 3}, "image_size"),
    ],
)
def test_bad_files_are_refused_silently(tmp_path: Path, rows: Any, options: dict[str, Any], field: str) -> None:
    path = write(tmp_path, rows)
    with refuses_silently(field):
        open_dataset(path, classes=CLASSES, **(options or {"number_columns": ["x"]})).read()


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privmix.data.jsonl.LINE_BYTES", 100)
    path = write(tmp_path, '{"x": "' + "y" * 100 + '", "label": 0}\n')
    with pytest.raises(InvalidInput, match="lines of less than 100 bytes"):
        open_dataset(path, classes=2, columns=["x"]).read()


def test_json_beside_data_describes_it(tmp_path: Path) -> None:
    write(tmp_path, '["a list", "of classes"]', "categories.json")
    (tmp_path / "train.csv").write_text("a,label\n1,0\n")
    assert open_dataset(tmp_path, classes=2).schema.records == 1
