"""What is proposed for a column by looking at its records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privmix.features import Tabular
from privmix.features.table_kinds import token_of
from privmix.features.table_look import RAREST, Look, rounded


def drafted(cells: list[Any], *tokens: str) -> dict[str, Any]:
    look = Look(tokens)
    # In parts, as records come.
    for start in range(0, len(cells), 7):
        look.add(cells[start : start + 7])
    return look.draft()


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["17", "88", "20.5"], {"range": [10, 90]}),
        ([0.0, 4356.0, 17.0, 17.0], {"range": [0, 5000]}),
        ([-0.31, 0.37], {"range": [-0.4, 0.4]}),
        ([5.0, 5.0], {"range": [4, 6]}),
        (["1", "7", "", "NA"], {"range": [1, 7], "missing": "indicator", "missing_tokens": ["NA"]}),
        ([1.0, 7.0, None], {"range": [1, 7], "missing": "indicator"}),
        (["1", "7", "-999", "-9"], {"range": [1, 7], "missing": "indicator", "missing_tokens": [-999, -9]}),
        # Where others are below 0, too, it may be a value.
        (["-5", "7", "-9"], {"range": [-10, 10]}),
        (["yes", "No", "YES "], {"boolean": True}),
        (["1", "0", None], {"boolean": True, "missing": "indicator"}),
        ([1.0, 0.0], {"boolean": True}),
        (["2020-03-01", "2021-01-05T10:00:00"], {"date": ["2020-01-01", "2021-12-31"]}),
        (["31.12.1999", "1.2.2003", "?"],
         {"date": ["1999-01-01", "2003-12-31"], "format": "%d.%m.%Y", "missing": "indicator", "missing_tokens": ["?"]}),
        (["31/12/1999", "1/2/2003"], {"date": ["1999-01-01", "2003-12-31"], "format": "%d/%m/%Y"}),
        (["12/31/1999", "1/2/2003"], {"date": ["1999-01-01", "2003-12-31"], "format": "%m/%d/%Y"}),
        ([None, "", "NA"], {"ignore": True}),
        ([str(1000 + number) for number in range(300)], {"ignore": True}),
        ([f"{number % 4999}" for number in range(5000)], {"ignore": True}),
        ([f"Smith {number}" for number in range(3000)], {"ignore": True}),
        (["a line\nof prose"] * 20 + ["b"] * 20, {"ignore": True}),
        (["b"] * 12 + ["a"] * 11, {"categories": ["a", "b"]}),
        (["b"] * 12 + ["a"] * 11 + ["rare"], {"categories": ["a", "b"], "other": True}),
        (["b"] * 12 + ["a"] * 11 + ["", "?"], {"categories": ["a", "b"], "missing_tokens": ["?"]}),
        (["b "] * 12 + ["b"] * 11, {"categories": ["b", "b "]}),
    ],
)  # fmt: skip
def test_drafts(cells: list[Any], expected: dict[str, Any]) -> None:
    assert drafted(cells) == expected


def test_days_that_may_be_read_in_two_ways_are_left_to_the_owner() -> None:
    assert list(drafted(["1/2/2003", "3/4/2005"])) == ["declare"]


def test_what_the_owner_calls_missing() -> None:
    expected = {"range": [1, 7], "missing": "indicator", "missing_tokens": ["none", "99"]}
    assert drafted(["1", "7", "none", "99.0"], "none", "99") == expected
    assert drafted(["1", "7"], "none", "99") == {"range": [1, 7]}


CELLS = st.one_of(
    st.none(),
    st.floats(-1e6, 1e6),
    st.integers(-1000, 1000).map(str),
    st.sampled_from(["", "NA", "-999", "yes", "no", "a", "b", "2020-01-05", "31.12.1999", "3,5"]),
    st.text(max_size=4),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(CELLS, min_size=1, max_size=60), st.integers(1, 12))
def test_a_draft_takes_every_record_that_it_was_made_of(cells: list[Any], times: int) -> None:
    cells = cells * times
    entry = drafted(cells)
    if "declare" in entry or "ignore" in entry:
        return
    table = np.array([[cell, 1.0] for cell in cells], dtype=object)
    columns = Tabular({"c": entry, "d": {"range": [0, 1]}})
    assert columns.transform(table).shape[0] == len(cells)
    # Nothing is cut, and nobody is alone in what is listed.
    for _, _, why in columns.unusual(table):
        assert "range" not in why
        assert "day:" not in why
    seen = [token_of(cell) for cell in cells if cell is not None]
    assert all(seen.count(value) >= RAREST for value in entry.get("categories", ()))


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
@example(5e-324, -10.0)
@example(0.0, 5e-324)
def test_bounds_are_rounded_outward(one: float, other: float) -> None:
    low, high = rounded(min(one, other), max(one, other))
    assert low <= min(one, other)
    assert high >= max(one, other)
    assert low < high
