"""What is drawn of a state is read back as that state, for every kind of column."""

from datetime import date
from typing import Any

import numpy as np
import pytest

from privmix.errors import InvalidInput
from privmix.features.table_dates import Dates
from privmix.features.table_kinds import KINDS, Numeric
from privmix.features.table_states import table_states
from privmix.features.tabular import Tabular

COLUMNS: dict[str, Any] = {
    "number": {"range": [-3, 8]},
    "money": {"range": [0, 99_999], "log": True, "integer": True, "missing": "indicator"},
    "open": {"bins": [0.5, 2, 3], "missing": "indicator"},
    "closed": {"bins": [20, 25, 30], "range": [17, 90], "integer": True},
    "from_edge": {"bins": [0, 5], "range": [0, 9], "integer": True},
    "ward": {"categories": ["a", "b"], "missing_token": "?"},
    "plain": {"categories": [3, 7]},
    "code": {"categories": [3, 7], "other": True},
    "coded": {"categories": [3, 7], "other": 9, "missing_tokens": []},
    "named": {"categories": ["a", "other"], "other": True, "missing_tokens": []},
    "stage": {"ordinal": ["I", "II", "III"], "missing": "indicator"},
    "level": {"ordinal": [1, 2, 5]},
    "smoker": {"boolean": True, "missing": "indicator"},
    "told": {"boolean": {"true": ["J"], "false": ["N"]}},
    "digit": {"boolean": {"true": [1], "false": [0]}},
    "day": {"date": ["2015-01-01", "2025-12-31"], "missing": "indicator"},
    "written": {"date": ["2015-01-01", "2016-12-31"], "format": "%d.%m.%Y", "parts": ["days", "month", "weekday"]},
    "at": {"date": ["2015-01-01", "2015-12-31"], "parts": ["hour"], "missing": "indicator"},
    "clock": {"date": ["2015-01-01", "2015-12-31"], "format": "%d.%m.%Y %I:%M %p", "parts": ["hour", "month"]},
    "year": {"date": ["2015-01-01", "2025-12-31"], "parts": ["year"]},
}


def test_every_kind_is_tried() -> None:
    assert {key for entry in COLUMNS.values() for key in KINDS if key in entry} == set(KINDS)


@pytest.mark.parametrize("name", COLUMNS)
def test_cells_of_a_state_have_its_features(name: str) -> None:
    tabular = Tabular({name: COLUMNS[name]})
    kind, (states,) = tabular.kinds[name], table_states(tabular)
    places = np.repeat(np.arange(len(states.shares)), 20)
    cells = states.cells(places, np.random.default_rng(0))
    found = tabular.transform(np.array(cells.to_pylist(), dtype=object).reshape(-1, 1))
    wanted = states.features[places]
    # Whole numbers lie apart on the scale of logarithms.
    apart = 0.14 if name == "money" else 0.08 if isinstance(kind, Numeric | Dates) else 1e-6
    np.testing.assert_allclose(found, wanted, atol=apart)
    if apart < 0.01:
        assert (states.nearest(found.astype(np.float64)) == states.nearest(wanted)).all()
    assert states.shares.sum() == pytest.approx(1)


def test_rows_have_values_as_they_are_declared_and_a_text_for_what_is_not_listed() -> None:
    states = {one.name: one for one in table_states(Tabular(COLUMNS))}
    cells = {
        name: one.cells(np.arange(len(one.shares)), np.random.default_rng(0)).to_pylist()
        for name, one in states.items()
    }
    assert cells["code"] == ["3", "7", "other"]
    assert cells["coded"] == [3, 7, None, 9]
    assert cells["named"] == ["a", "other", None, "other value"]
    assert cells["ward"] == ["a", "b", None, "other"]
    # Where neither has a place, a value that is not listed and a missing one are the same.
    assert cells["plain"] == [3, 7, None]
    assert (cells["smoker"][:2], cells["told"], cells["digit"]) == ([False, True], ["N", "J"], [0, 1])


def test_numbers_keep_to_their_declared_bounds_and_are_whole_where_declared() -> None:
    for states in table_states(Tabular({name: COLUMNS[name] for name in ("money", "closed", "from_edge", "number")})):
        places = np.random.default_rng(1).integers(len(states.shares), size=4000)
        cells = [cell for cell in states.cells(places, np.random.default_rng(2)).to_pylist() if cell is not None]
        low, high = COLUMNS[states.name]["range"]
        assert low <= min(cells), states.name
        assert max(cells) <= high, states.name
        assert all(isinstance(cell, int) for cell in cells) == ("integer" in COLUMNS[states.name])
        if states.name == "closed":
            assert {17, 19, 20, 90} <= set(cells)


@pytest.mark.parametrize("extra", [{}, {"bins": [1e9 + 0.5]}])
def test_numbers_of_a_narrow_range_far_from_zero_differ(extra: dict[str, Any]) -> None:
    (states,) = table_states(Tabular({"x": {"range": [1e9, 1e9 + 1], **extra}}))
    places = np.arange(1000) % len(states.shares)
    cells = states.cells(places, np.random.default_rng(0)).to_pylist()
    assert len(set(cells)) > 900
    assert 1e9 <= min(cells) < 1e9 + 0.1
    assert 1e9 + 0.9 < max(cells) <= 1e9 + 1


@pytest.mark.parametrize("values", [[0, 2**62], [0, 2**64], [0.5, 2**62], [0.5, 3]])
@pytest.mark.parametrize("kind", ["categories", "ordinal"])
def test_declared_numbers_of_any_size_are_drawn(kind: str, values: list[float]) -> None:
    (states,) = table_states(Tabular({"x": {kind: values}}))
    cells = states.cells(np.array([0, 1]), np.random.default_rng(0)).to_pylist()
    assert [float(cell) for cell in cells] == values


def test_interval_without_a_declared_end_gives_its_one_edge() -> None:
    (states,) = table_states(Tabular({"open": COLUMNS["open"]}))
    cells = states.cells(np.array([0, 3, 4]), np.random.default_rng(0)).to_pylist()
    assert states.open_end
    assert cells == [np.nextafter(0.5, 0), 3.0, None]


def test_days_are_between_the_declared_ones() -> None:
    states = {one.name: one for one in table_states(Tabular({name: COLUMNS[name] for name in ("day", "written")}))}
    day = states["day"].cells(np.arange(len(states["day"].shares)), np.random.default_rng(0)).to_pylist()
    assert day[-1] is None
    assert date(2015, 1, 1) <= min(day[:-1])
    assert max(day[:-1]) <= date(2025, 12, 31)
    text = states["written"].cells(np.zeros(3, np.int64), np.random.default_rng(0)).to_pylist()
    assert all(len(one) == len("01.01.2015") and one[2] == "." for one in text)


@pytest.mark.parametrize(
    "entry",
    [
        *({"range": odd, "integer": True} for odd in ([0, 1.5], [0, 1e30])),
        {"range": [0, 1], "integer": 1},
        *({"bins": odd, "integer": True} for odd in ([1, 2.5], [0, 2**62])),
        *({"bins": [1, 2], "range": odd} for odd in ([1.5, 3], [0, 1], 3)),
        {"bins": [-1.7e308, 1.7e308]},
        {"bins": [0], "range": [-1.7e308, 1.7e308]},
    ],
)
def test_what_contradicts_itself_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Tabular({"number": entry})


def test_ends_and_whole_numbers_change_no_feature() -> None:
    cells = np.array([[-5], [17], [24.5], [400]], dtype=object)
    plain = Tabular({"age": {"bins": [18, 65]}}).transform(cells)
    said = Tabular({"age": {"bins": [18, 65], "range": [0, 110], "integer": True}}).transform(cells)
    assert np.array_equal(plain, said)
