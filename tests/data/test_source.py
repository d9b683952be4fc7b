"""Validation that every reader shares: shapes, values, labels, class lists."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privmix.data.source import ArraySource, as_table, encode_labels, resolve_classes
from privmix.errors import InvalidInput
from tests.refusals import refuses

CLASSES = ("cat", "dog", "eel")


def test_batches_cover_the_records_in_order_whatever_their_size() -> None:
    x, y = np.arange(14, dtype=np.float64).reshape(7, 2), np.arange(7) % 3
    source = ArraySource(x, y, CLASSES)
    for size in (1, 3, 7, 100):
        batches = list(source.batches(size))
        assert max(len(batch) for batch in batches) <= size
        assert np.array_equal(np.concatenate([batch.x for batch in batches]), x)
        assert np.array_equal(np.concatenate([batch.y for batch in batches]), y)
    assert source.read().x.dtype == np.float32


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_values_that_are_not_finite_float32_are_refused_silently(bad: float) -> None:
    """Formal guarantee: silent."""
    source = ArraySource(np.array([[0.0, 1.0], [bad, 2.0]]), np.array([0, 1]), CLASSES)
    with refuses("inputs"):
        source.read()


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0], [0.5, 0], [np.nan, 0], [1e30, 0], ["cat", "cow"], ["cat", "3"]])
def test_labels_outside_the_declared_classes_are_refused_silently(labels: list[Any]) -> None:
    """Formal guarantee: closed class list; silent."""
    source = ArraySource(np.zeros((2, 1)), np.array(labels), CLASSES)
    with pytest.raises(InvalidInput) as caught:
        source.read()
    assert (caught.value.field, caught.value.shown) == ("label", "a private value (hidden)")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["dog", " cat ", "2"], [1, 0, 2]),
        ([b"eel", b"dog"], [2, 1]),
        ([0.0, 2.0], [0, 2]),
        ([True, False], [1, 0]),
        (np.array([2, 1], dtype=np.uint64), [2, 1]),
        (np.array(["dog", "dog"], dtype=object), [1, 1]),
    ],
)
def test_labels_by_name_or_index(labels: Any, expected: list[int]) -> None:
    encoded = encode_labels(np.asarray(labels), CLASSES)
    assert encoded.dtype == np.int64
    assert encoded.tolist() == expected


@pytest.mark.parametrize("labels", [np.array([None, "cat"], dtype=object), np.array([1 + 2j]), np.array([b"\xff"])])
def test_labels_of_other_types_are_refused(labels: Any) -> None:
    with refuses("label"):
        encode_labels(labels, CLASSES)


def test_declared_classes_come_before_public_ones_and_none_are_inferred() -> None:
    assert resolve_classes(2, ("a", "b", "c")) == ("0", "1")
    assert resolve_classes(["x"], ("a", "b")) == ("x",)
    assert resolve_classes(None, ("a", "b")) == ("a", "b")
    with refuses("classes"):
        resolve_classes(None)


SENSELESS = [0, -1, True, [], ["a", "a"], ["a", ""], "abc", [1, 1], [1.5], [None, 1], 1.5]
QUOTED = [["Zq7", "b", "Zq7"], ["Zq7", None], {"Zq7"}, pandas.Series(["Zq7"]), np.array([["Zq7"]]), ["Zq7", 7, 7.5]]


@pytest.mark.parametrize("classes", [*SENSELESS, *QUOTED], ids=str)
def test_class_lists_that_make_no_sense_are_not_quoted(classes: Any) -> None:
    with refuses("classes", "Zq7"):
        resolve_classes(classes)


@pytest.mark.parametrize(
    ("x", "y", "field"),
    [
        (np.zeros((0, 2)), np.zeros(0), "number of records"),
        (np.zeros(3), np.zeros(3), "shape of x"),
        (np.zeros((3, 2)), np.zeros(2), "shape of y"),
        (np.zeros((3, 2)), np.zeros((3, 2)), "shape of y"),
        (np.zeros((3, 0)), np.zeros(3), "input shape"),
        (np.array([["a", "b"]]), np.zeros(1), "type of x"),
    ],
)
def test_arrays_that_are_no_dataset(x: Any, y: Any, field: str) -> None:
    with refuses(field):
        ArraySource(x, y, CLASSES)


@given(
    st.lists(
        st.tuples(
            *[st.one_of(st.none(), st.text(), st.floats(), st.integers(), st.booleans(), st.just(np.float32(0.5)))] * 2
        ),
        min_size=1,
        max_size=5,
    )
)
def test_tables_hold_texts_floats_and_nothing(rows: list[tuple[Any, Any]]) -> None:
    raw = np.empty((len(rows), 2), dtype=object)
    for place, row in enumerate(rows):
        raw[place] = row

    def judged(value: Any) -> Any:
        if value is None or isinstance(value, str):
            return value
        try:
            number = float(value)
        except OverflowError:
            return "refused"
        return number if np.isfinite(number) else "refused"

    expected = [[judged(value) for value in row] for row in rows]
    if any(judged(value) == "refused" and not isinstance(value, str) for row in rows for value in row):
        with pytest.raises(InvalidInput, match=r"column [ab]: got a private value"):
            as_table(raw, ("a", "b"))
    else:
        table = as_table(raw, ("a", "b"))
        assert table.tolist() == expected
        assert {type(cell) for cell in table.ravel()} <= {str, float, type(None)}


def test_days_in_tables_are_their_texts() -> None:
    days = [date(2026, 1, 2), datetime(2026, 1, 2, 3, 4), np.datetime64("2026-01-02"), np.datetime64("NaT"), pandas.NaT]
    raw = np.array([[day] for day in days], dtype=object)
    expected = ["2026-01-02", "2026-01-02 03:04:00", "2026-01-02", None, None]
    assert as_table(raw, ("a",))[:, 0].tolist() == expected


def test_exact_decimals_in_tables_are_numbers() -> None:
    raw = np.array([[Decimal("1.25")], [Decimal(3)], [None]], dtype=object)
    assert as_table(raw, ("a",))[:, 0].tolist() == [1.25, 3.0, None]
    for value in (Decimal("sNaN"), Decimal("Infinity"), Decimal("1e400")):
        with refuses("column a"):
            as_table(np.array([[value]], dtype=object), ("a",))


@pytest.mark.parametrize("value", [b"Smith", [1], {"Smith": 1}, 1j, np.timedelta64(3, "D"), 10**400])
def test_other_values_in_tables_are_refused_silently(value: Any) -> None:
    raw = np.empty((1, 1), dtype=object)
    raw[0, 0] = value
    with refuses("column a"):
        as_table(raw, ("a",))


def test_records_without_a_label_are_of_the_one_class() -> None:
    """Labels that are there are judged as ever."""
    x = np.ones((3, 2))
    assert ArraySource(x, None, ("all records",)).read().y.tolist() == [0, 0, 0]
    with refuses("records"):
        ArraySource(x, None, ("no", "yes")).read()
    with refuses("label"):
        ArraySource(x, np.array(["other"] * 3), ("all records",)).read()
