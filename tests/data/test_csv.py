"""The CSV reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from privmix.data import open_dataset
from privmix.errors import InvalidInput

TEXT = "a,label,b\n1,cat,2.5\n-3e2,dog,4\n"
CLASSES = ["cat", "dog"]


def write(folder: Path, text: str | bytes, name: str = "d.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace("\n", "\r\n"),
        TEXT.rstrip("\n"),
        "\ufeff" + TEXT,
        TEXT.replace("1,cat", "\n1,cat"),
        TEXT.replace("cat", '"cat"'),
        TEXT.replace("cat", "0").replace("dog", "1"),
    ],
)
def test_numeric_columns_and_a_label(tmp_path: Path, text: str) -> None:
    source = open_dataset(write(tmp_path, text), classes=CLASSES)
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
def test_bad_tables_are_refused_silently(tmp_path: Path, text: str | bytes, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_dataset(write(tmp_path, text), classes=CLASSES).read()
    assert field in caught.value.field
    assert "Smith" not in str(caught.value)
    assert "\n" not in str(caught.value)
