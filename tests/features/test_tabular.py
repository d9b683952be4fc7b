"""Tables as vectors: declared, clipped, one-hot, of norm at most 1, silent."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privmix.data import Schema
from privmix.errors import InvalidInput, StorageError
from privmix.features.base import parse_features
from privmix.features.spec import from_spec
from privmix.features.table_cells import number_in
from privmix.features.tabular import Tabular
from tests.refusals import refuses

SPEC: dict[str, Any] = {
    "zip": {"ignore": True},
    "size": {"range": [10, 20], "missing": 15},
    "money": {"range": [0, 999], "log": True},
    "colour": {"categories": ["red", "blue"]},
    "floor": {"categories": [1, 2], "missing_token": "?"},
}


def test_bins_are_intervals_one_hot() -> None:
    ages = Tabular({"age": {"bins": [20, 30.5], "missing": 99}, "sex": {"categories": ["f", "m"]}})
    table = np.array([[19, "f"], [20, "f"], ["30.5", "m"], [1e9, "m"], [None, "m"], ["-5", "x"]], dtype=object)
    expected = [[1, 0, 0, 1, 0], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1], [0, 0, 1, 0, 1], [0, 0, 1, 0, 1], [1, 0, 0, 0, 0]]
    np.testing.assert_allclose(ages.transform(table) * 2**0.5, expected, atol=1e-6)
    assert ages.output_dim((2,)) == 5
    assert np.linalg.norm(ages.transform(table), axis=1).max() <= 1 + 1e-6
    again = from_spec(ages.spec())
    np.testing.assert_array_equal(again.transform(table), ages.transform(table))
    for cell in ("old", "nan", None):
        with refuses("column age"):
            Tabular({"age": {"bins": [20]}}).transform(np.array([[cell]], dtype=object))


def test_schema() -> None:
    names = tuple(SPEC)[1:]
    Tabular(SPEC).check_schema(Schema(3, (4,), ("a", "b"), names))
    for columns in (None, names[::-1], ("zip", *names[:3]), (*names[:3], "other")):
        with refuses("columns for tabular"):
            Tabular(SPEC).check_schema(Schema(3, (4,), ("a", "b"), columns))
    with refuses("input shape for tabular"):
        Tabular(SPEC).output_dim((5,))


def test_spec_survives_json_with_sorted_keys() -> None:
    extractor = Tabular(SPEC)
    rebuilt = from_spec(json.loads(json.dumps(extractor.spec(), sort_keys=True)))
    assert isinstance(rebuilt, Tabular)
    assert rebuilt.columns == extractor.columns == tuple(SPEC)[1:]
    assert rebuilt.ignored == extractor.ignored == tuple(SPEC)[:1]
    assert rebuilt.fingerprint() == extractor.fingerprint()


@pytest.mark.parametrize(
    "columns",
    [
        {},
        [],
        "age",
        {"a": 3},
        {"a": {}},
        {"a": {"ignore": True}},
        {"a": {"range": [2, 1]}},
        {"a": {"range": [1, 1]}},
        {"a": {"range": [0, 1], "log": 1}},
        {"a": {"bins": []}},
        {"a": {"bins": [1, 1]}},
        {"a": {"bins": [2, 1]}},
        {"a": {"bins": [float("nan")]}},
        {"a": {"bins": 3}},
        {"a": {"bins": [1], "log": True}},
        {"a": {"range": [0, "x"]}},
        {"a": {"range": [0, 1], "scale": 2}},
        {"a": {"range": [0, 1], "thousands": True}},
        {"a": {"bins": [1], "thousands": ";"}},
        {"a": {"categories": ["b"], "other": ["c"]}},
        {"a": {"categories": ["b"], "other": " b "}},
        {"a": {"categories": ["b"], "other": ""}},
        {"a": {"categories": ["b"], "missing_tokens": [9], "other": 9}},
        {"a": {"categories": []}},
        {"a": {"categories": "red"}},
        {"a": {"categories": ["red", "red"]}},
        {"a": {"categories": ["?"], "missing_token": "?"}},
        {"a": {"categories": ["x"], "range": [0, 1]}},
        [{"range": [0, 1]}],
        [{"name": "a", "range": [0, 1]}, {"name": "a", "range": [0, 1]}],
    ],
)
def test_specifications_that_make_no_sense(columns: Any) -> None:
    with pytest.raises(InvalidInput):
        Tabular(columns)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC))
    assert parse_features(f"tabular:{path}").spec() == Tabular(SPEC).spec()
    path.write_text("{")
    with pytest.raises(InvalidInput, match="not JSON"):
        parse_features(f"tabular:{path}")
    with pytest.raises(StorageError, match="No such file"):
        Tabular.from_file(tmp_path / "none.json")


def test_a_cell_is_encoded_alone_as_among_others() -> None:
    """Texts that repeat are encoded once; a record's features stay its own, to the bit."""
    tabular = Tabular(
        {
            "age": {"range": [0, 110]},
            "old": {"bins": [30, 60]},
            "ward": {"categories": ["a", "b"], "missing_token": "?", "other": True},
        }
    )
    cells = np.array(
        [["3", "40", "a"], ["-0", "0", "?"], ["0", "0.0", "c"], ["3", "40", "a"], [-0.0, 0, 1], [0.0, 1, "b"]],
        dtype=object,
    )
    for rows in (cells, cells[:4], cells[::-1]):
        alone = np.concatenate([tabular.transform(row[None]) for row in rows])
        assert tabular.transform(rows).tobytes() == alone.tobytes()


@pytest.mark.parametrize("tokens", [{}, {"missing_tokens": ["-9", "none"]}])
@given(numbers=st.lists(st.floats() | st.integers(-(10**400), 10**400) | st.integers(-10, 10), min_size=1))
def test_numbers_are_read_alike_beside_texts(tokens: dict[str, Any], numbers: list[float]) -> None:
    """Numbers alone are read all at once; a text among them has each read on its own."""
    missing = {"missing": "indicator", **tokens}
    tabular = Tabular({"age": {"range": [-20, 20], **missing}, "old": {"bins": [0, 5], **missing}})

    def features(cells: list[Any]) -> np.ndarray:
        return tabular.transform(np.array([[cell, cell] for cell in cells], dtype=object))

    sound = [number for number in numbers if math.isfinite(number_in(number))]
    if sound:
        assert features(sound).tobytes() == features([*sound, "5"])[:-1].tobytes()
    if len(sound) < len(numbers):
        for cells in (numbers, [*numbers, "5"]):
            with refuses("column age"):
                features(cells)
