"""What is proposed for a column by looking at its records."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privmix.features.table_cells import REFUSED, token_of
from privmix.features.table_look import RAREST, Look, rounded
from privmix.features.tabular import Tabular


def drafted(cells: list[Any], *tokens: str) -> dict[str, Any]:
    return looked(cells, tokens=tokens)[0]


def looked(cells: list[Any], name: str = "", **more: Any) -> tuple[dict[str, Any], str]:
    look = Look(name, **more)
    # In parts, as records come.
    for start in range(0, len(cells), 7):
        look.add(cells[start : start + 7])
    return look.draft()


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["17", "88", "20.5"], {"range": [10, 90]}),
        ([0.0, 4356.0, 17.0, 17.0], {"range": [0, 5000], "integer": True}),
        ([-0.31, 0.37], {"range": [-0.4, 0.4]}),
        ([5.0, 5.0], {"range": [4, 6], "integer": True}),
        (["1", "7.5", "", "NA"], {"range": [1, 8], "missing": "indicator", "missing_tokens": ["NA"]}),
        ([1.5, 7.0, None], {"range": [1, 7], "missing": "indicator"}),
        (["1", "7", "-999", "-9"],
         {"range": [1, 7], "integer": True, "missing": "indicator", "missing_tokens": [-999, -9]}),
        # Where others are below 0, too, it may be a value.
        (["-5", "7", "-9"], {"range": [-10, 10], "integer": True}),
        (["1.5", "7", "None", "-", ".", "#N/A"],
         {"range": [1, 7], "missing": "indicator", "missing_tokens": ["None", "-", ".", "#N/A"]}),
        # Some whole numbers have a bin each, unless some are between them.
        (["1", "2", "3", "4"] * 10, {"bins": [2, 3, 4], "range": [1, 4], "integer": True}),
        (["0", "1", "2"] * 10 + ["7"], {"bins": [1, 2], "range": [0, 2], "integer": True}),
        ([10.0, 20.0, 40.0] * 10, {"range": [10, 40], "integer": True}),
        (["12,345", "48,900.5", "950"], {"range": [0, 50000], "thousands": ","}),
        (["12 345", "7\xa0250", "950"], {"range": [0, 20000], "integer": True, "thousands": " "}),
        (["yes", "No", "No "], {"boolean": {"true": ["yes"], "false": ["No"]}}),
        (["True", "False", "true", "True"], {"boolean": {"true": ["True"], "false": ["False"]}}),
        (["1", "0", None], {"boolean": {"true": [1], "false": [0]}, "missing": "indicator"}),
        ([1.0, 0.0], {"boolean": True}),
        (["2020-03-01", "2021-01-05T10:00:00"], {"date": ["2020-01-01", "2021-12-31"]}),
        (["31.12.1999", "1.2.2003", "?"],
         {"date": ["1999-01-01", "2003-12-31"], "format": "%d.%m.%Y", "missing": "indicator", "missing_tokens": ["?"]}),
        (["31/12/1999", "1/2/2003"], {"date": ["1999-01-01", "2003-12-31"], "format": "%d/%m/%Y"}),
        (["12/31/1999", "1/2/2003"], {"date": ["1999-01-01", "2003-12-31"], "format": "%m/%d/%Y"}),
        (["12/31/99", "1/2/03"], {"date": ["1999-01-01", "2003-12-31"], "format": "%m/%d/%y"}),
        (["12/31/1999 01:30 PM", "1/2/2003 1:00 am"],
         {"date": ["1999-01-01", "2003-12-31"], "format": "%m/%d/%Y %I:%M %p"}),
        (["5. May 2020", "12. September 2021"], {"date": ["2020-01-01", "2021-12-31"], "format": "%d. %B %Y"}),
        (["September 5, 2020"], {"date": ["2020-01-01", "2020-12-31"], "format": "%B %d, %Y"}),
        ([None, "", "NA"], {"ignore": True}),
        ([str(1000 + number) for number in range(300)], {"ignore": True}),
        ([f"{number % 4999}" for number in range(5000)], {"ignore": True}),
        ([f"Smith {number}" for number in range(3000)], {"ignore": True}),
        (["a line\nof prose"] * 20 + ["b"] * 20, {"ignore": True}),
        (["b"] * 12 + ["a"] * 11, {"categories": ["a", "b"]}),
        (["b"] * 12 + ["a"] * 11 + ["rare"], {"categories": ["a", "b"], "other": True}),
        (["b"] * 12 + ["a"] * 11 + ["", "?"], {"categories": ["a", "b"], "missing_tokens": ["?"]}),
        (["b "] * 12 + ["b"] * 11, {"categories": ["b"]}),
        ([" b"] * 12 + [" a"] * 12 + [" ?"], {"categories": ["a", "b"], "missing_tokens": ["?"]}),
    ],
)  # fmt: skip
def test_drafts(cells: list[Any], expected: dict[str, Any]) -> None:
    assert drafted(cells) == expected


def test_days_that_may_be_read_in_two_ways_are_left_to_the_owner() -> None:
    assert list(drafted(["1/2/2003", "3/4/2005"])) == ["declare"]


def test_what_the_owner_calls_missing() -> None:
    expected = {"range": [1, 8], "missing": "indicator", "missing_tokens": ["gone", "99"]}
    assert drafted(["1", "7.5", "gone", "99.0"], "gone", "99") == expected
    assert drafted(["1", "7.5"], "gone", "99") == {"range": [1, 8]}


def test_some_cells_of_another_kind_decide_nothing_and_are_counted() -> None:
    for cells, expected in (
        ([f"{20.5 + number % 70}" for number in range(100)], {"range": [20, 90]}),
        ([f"2020-01-{1 + number % 30:02}" for number in range(100)], {"date": ["2020-01-01", "2020-12-31"]}),
    ):
        for place in (0, 50, 99):
            entry, words = looked([*cells[:place], "n/k", *cells[place:]])
            assert entry == expected
            assert "1 of 101 cells" in words
        assert "cells" not in looked(cells)[1]
        # One in twenty is too many.
        assert looked([*cells, *["n/k"] * 6])[0] != expected


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([f"${number}.25" for number in range(1, 40)], "sign"),
        ([f"{number}%" for number in range(40)], "sign"),
        ([f"{number},5" for number in range(40)], "comma"),
        ([f"{1 + number % 12}.{number}. in 2020, May" for number in range(40)], "date"),
    ],
)
def test_what_can_be_read_after_a_word_of_the_owner_is_not_left_out_in_silence(cells: list[str], kind: str) -> None:
    entry, words = looked(cells)
    assert list(entry) == ["declare"]
    assert kind in words


def test_what_a_column_is_called_bounds_it() -> None:
    hours = [float(number % 20) for number in range(400)]
    assert looked(hours, "arrival_hour")[0] == {"range": [0, 23], "integer": True}
    assert looked(hours, "hourly")[0] == {"range": [0, 20], "integer": True}
    months = [str(1 + number % 9) for number in range(90)]
    assert looked(months, "Month")[0] == {"bins": list(range(2, 13)), "range": [1, 12], "integer": True}


def test_numbers_with_a_decimal_comma() -> None:
    assert looked(["1.234,5", "2.000", "7"], decimal=",")[0] == {"range": [0, 2000], "thousands": "."}
    assert looked(["1 234,5", "0,5"], decimal=",")[0] == {"range": [0, 2000], "thousands": " "}
    assert looked([1.0, 0.0], number=True)[0] == {"boolean": {"true": [1], "false": [0]}}


CELLS = st.one_of(
    st.none(),
    st.floats(-1e6, 1e6),
    st.integers(-1000, 1000).map(str),
    st.sampled_from(["", "NA", "-999", "yes", "no", "a", " a", "2020-01-05", "31.12.1999", "3,5", "3,500", "$3", "-"]),
    st.text(max_size=4),
)


@settings(max_examples=200)
@given(st.lists(CELLS, min_size=1, max_size=60), st.integers(1, 12))
def test_a_draft_takes_the_records_that_it_was_made_of(cells: list[Any], times: int) -> None:
    """All of them, but for those that it says do not fit."""
    cells = cells * times
    entry, words = looked(cells)
    if "declare" in entry or "ignore" in entry:
        return
    table = np.array([[cell, 1.0] for cell in cells], dtype=object)
    columns = Tabular({"c": entry, "d": {"range": [0, 1]}})
    unusual = list(columns.unusual(table))
    bad = {row for row, _, why in unusual if why in REFUSED}
    assert (f"; {len(bad)} of" in words and "do not fit" in words) == bool(bad)
    assert len(bad) <= len(cells) / 20
    kept = table[[row for row in range(len(cells)) if row not in bad]]
    assert columns.transform(kept).shape[0] == len(kept)
    # Nothing is cut, and nobody is alone in what is listed.
    for _, _, why in unusual:
        assert "range" not in why
        assert "day:" not in why
    seen = [token_of(cell).strip() for cell in cells if cell is not None]
    assert all(seen.count(value) >= RAREST for value in entry.get("categories", ()))


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
@example(5e-324, -10.0)
@example(0.0, 5e-324)
def test_bounds_are_rounded_outward(one: float, other: float) -> None:
    low, high = rounded(min(one, other), max(one, other))
    assert low <= min(one, other)
    assert high >= max(one, other)
    assert low < high
