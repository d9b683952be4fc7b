"""What columns may hold: declared, per cell, of norm at most 1, silent; what strangers declare is typed and small."""

import hashlib
import json
import math
import tracemalloc
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privmix.data import Schema
from privmix.errors import InvalidInput, StorageError
from privmix.features.base import parse_features
from privmix.features.spec import check_spec, from_spec, stated_names, statements_of
from privmix.features.table_cells import REFUSED, number_in
from privmix.features.table_dates import Dates
from privmix.features.table_kinds import KINDS
from privmix.features.tabular import DRAFTED, Tabular
from tests.refusals import refuses

SPEC: dict[str, Any] = {
    "zip": {"ignore": True},
    "size": {"range": [10, 20], "missing": 15},
    "money": {"range": [0, 999], "log": True},
    "colour": {"categories": ["red", "blue"]},
    "floor": {"categories": [1, 2], "missing_token": "?"},
}
SECRET = "Zq7Secret"
YEAR, BOUNDS = ["2000-01-01", "2001-01-01"], ["2015-01-01", "2025-12-31"]
ENTRIES: list[dict[str, Any]] = [
    {"range": [0, 10]},
    {"range": [-1, 3], "log": True, "missing": 0.5, "missing_tokens": ["NA", -999]},
    {"range": [0, 10], "missing": "indicator"},
    {"range": [0, 10], "missing": "indicator", "missing_tokens": ["NA", -999]},
    {"bins": [1, 2.5, 7], "missing": "indicator", "missing_tokens": [-999]},
    {"bins": [0], "missing": 3},
    {"categories": ["a", "b", 3]},
    {"categories": ["a", "b"], "missing_token": "?", "other": True},
    {"categories": ["a"], "missing_tokens": ["NA", "?"]},
    {"categories": ["a", ""], "missing_tokens": [], "other": True},
    {"ordinal": ["low", "mid", 3]},
    {"ordinal": ["low", "mid", "high"], "missing": "mid", "missing_tokens": ["NA"]},
    {"ordinal": [1, 2], "missing": "indicator"},
    {"boolean": True},
    {"boolean": {"true": ["J", "ja"], "false": ["N"]}, "missing": 0.5},
    {"boolean": True, "missing": "indicator", "missing_tokens": ["NA", -999]},
    {"date": BOUNDS},
    {"date": BOUNDS, "parts": ["days", "year", "month", "weekday"], "missing": "indicator"},
    {"date": BOUNDS, "parts": ["weekday"], "missing": "2020-02-29", "missing_tokens": ["NA"]},
    {"date": YEAR, "format": "%d.%m.%Y %H:%M"},
    {"date": YEAR, "format": "%d.%m.%Y %H:%M", "parts": ["days", "hour"], "missing": "2000-02-02"},
    {"date": YEAR, "parts": ["hour"], "missing": "indicator"},
    {"date": YEAR, "format": "%d-%b-%Y"},
    {"date": YEAR, "format": "%Y%m%d"},
]
CELLS = st.one_of(
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", " ", "NA", "-999", -999.0, "-999.0", "?", "a", "b ", "A", "3", 3.0, "low", "J", "ja ", "YES", "0", 1.0]
    ),
    st.sampled_from(
        ["2020-02-30", "2020-02-29", "1999-12-31T10:00:00", "31.12.2000 23:59", "31-dec-2000", "20000704", 20000704.0]
    ),
    st.sampled_from([SECRET, "nan", "inf", "1e999", "\x00", "２０２０-01-01"]),
    st.text(max_size=6),
    st.dates().map(str),
)


def column(entry: dict[str, Any], middle: bool = False) -> Tabular:
    return Tabular({"c": entry}, middle=middle)


def one(entry: dict[str, Any], cell: Any) -> list[float]:
    found: list[float] = column(entry).transform(np.array([[cell]], dtype=object))[0].astype(float).round(4).tolist()
    return found


def test_old_specifications_make_the_very_bits_that_they_made() -> None:
    """Frozen before there were other kinds."""
    cells: list[list[Any]] = [
        ["x", 12.0, 0.0, "red", 2.0, None],
        [None, "14", 999.0, "blue", "1", 20],
        [1.0, None, 30.6227766, "green", None, "30.5"],
        [1.0, 1e9, -5.0, None, "?", ""],
        ["", "17.5", "12", " ", "", "4"],
    ]
    extractor = Tabular({**SPEC, "age": {"bins": [20, 30.5], "missing": 99}}, middle=False)
    assert extractor.fingerprint() == "29b0905f8c707f5c065b48573740e1935e99e3c40344184bd3a8effddfdec4bb"
    features = hashlib.sha256(extractor.transform(np.array(cells, dtype=object)[:, 1:]).tobytes()).hexdigest()
    assert features == "bc901bdddae2bf4115d097daaaa0e470659400c8c12894821da96599bf3577e1"
    for name, fingerprint in (
        ("adult", "0e7009457cf53d7aff4e7d6add9df655305ba0ca9ba5457393cbb309f394346d"),
        ("adult-bins", "421270a0e29b036bf82fd630c61c9bce2bb87f4d9735f007ce1de6b022585041"),
    ):
        said = json.loads(Path(f"docs/{name}.json").read_text())
        # What came later: bounds and whole numbers beside bins.
        for one in said.values():
            if "bins" in one:
                one.pop("range", None)
                one.pop("integer", None)
        assert Tabular(said, middle=False).fingerprint() == fingerprint


@pytest.mark.parametrize("entry", ENTRIES, ids=json.dumps)
@settings(max_examples=30)
@given(cells=st.lists(CELLS, max_size=6))
def test_every_kind_keeps_its_promises(entry: dict[str, Any], cells: list[Any]) -> None:
    extractor, old = column(entry, middle=True), column(entry)
    check_spec(json.loads(json.dumps(extractor.spec())))
    names = stated_names(extractor.spec(), extractor.output_dim((1,)))
    assert len(names) == len(set(names)) == extractor.output_dim((1,))
    table = np.array([[cell] for cell in cells], dtype=object).reshape(-1, 1)
    unusual = list(extractor.unusual(table))
    assert SECRET not in repr(unusual)
    refused = {row for row, _, why in unusual if why in REFUSED}
    kept = table[[row for row in range(len(cells)) if row not in refused]]
    features = extractor.transform(kept)
    assert features.shape == (len(kept), len(names))
    assert np.isfinite(features).all()
    # Numbers are counted from the middle of [0, 1]; without a value they are 0.
    before = old.transform(kept)
    assert (before >= 0).all()
    if extractor.kinds["c"].is_number:
        before[:, 0] = np.where(before[:, 1:].any(axis=1), 0, 2 * before[:, 0] - 1)
    np.testing.assert_allclose(features, before, atol=1e-6)
    # Norm, and one row a record whatever stands beside it.
    assert all(np.linalg.norm(features.astype(float), axis=1) <= 1 + 1e-6)
    assert all(np.array_equal(extractor.transform(kept[[row]])[0], features[row]) for row in range(len(kept)))
    assert np.array_equal(from_spec(extractor.spec()).transform(kept), features)
    assert np.array_equal(from_spec(old.spec()).transform(kept), old.transform(kept))
    for row in refused:
        with refuses("column c"):
            extractor.transform(table[[row]])


def test_missing_values() -> None:
    for cell in (None, "", " ", "NA", -999.0, "-999", " -999.00 "):
        assert one({"range": [0, 10], "missing": "indicator", "missing_tokens": ["NA", -999]}, cell) == [0, 1]
        assert one({"range": [0, 10], "missing": 5, "missing_tokens": ["NA", "-999"]}, cell) == [0.5]
        assert one({"bins": [1], "missing": "indicator", "missing_tokens": ["NA", -999]}, cell) == [0, 0, 1]
    assert one({"range": [0, 10], "missing": "indicator"}, "7") == [0.7, 0]
    # What no declaration says is no missing value.
    assert one({"range": [0, 10], "missing": 5}, "-999") == [0]
    with refuses("column c"):
        one({"range": [0, 10], "missing": 5}, "NA")
    for cell in (None, "", "NA", "?"):
        assert one({"categories": ["a"], "missing_tokens": ["NA", "?"]}, cell) == [0, 1]
    assert one({"categories": ["a"], "missing_tokens": []}, "NA") == [0, 0]


def test_a_place_for_other_categories() -> None:
    entry = {"categories": ["a", "b"], "missing_token": "?", "other": True}
    assert [one(entry, cell) for cell in ("a", "b", "?", None, "A", "c")] == [
        [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]
    ]  # fmt: skip
    assert column(entry).feature_names == ("c=a", "c=b", "c missing", "c other")
    # Missing is not another category.
    assert one({"categories": ["a"], "other": True}, None) == [0, 0]
    why = [said for _, _, said in column(entry).unusual(np.array([["A "], ["c"]], dtype=object))]
    assert why == ["unknown category, a known one except for case: read as other", "unknown category: read as other"]


def test_ordered_categories_and_truth() -> None:
    stage = {"ordinal": ["I", "II", "III"], "missing": "II"}
    assert [one(stage, cell) for cell in ("I", " II ", "III", None)] == [[0], [0.5], [1], [0.5]]
    assert one({"ordinal": [1, 2, 3]}, 3.0) == [1]
    assert [one({"boolean": True}, cell) for cell in ("Yes", "no ", "TRUE", "false", 1.0, "0")] == [
        [1], [0], [1], [0], [1], [0]
    ]  # fmt: skip
    assert one({"boolean": {"true": ["J"], "false": ["N"]}, "missing": 0.5}, "") == [0.5]
    for entry, cell in ((stage, "IV"), ({"boolean": True}, "J"), ({"boolean": True}, None)):
        with pytest.raises(InvalidInput, match="column c"):
            one(entry, cell)


@given(st.dates(min_value=date(1990, 1, 1), max_value=date(2030, 12, 31)))
def test_days(day: date) -> None:
    low, high = date(2000, 1, 1), date(2020, 12, 31)
    bounds = [str(low), str(high)]
    inside = min(max(day, low), high)
    place = round((inside - low).days / (high - low).days, 4)
    written = {
        None: [str(day), f"{day}T12:30:00", f"{day} 23:59:59.5+01:00"],
        "%d.%m.%Y": [f"{day:%d.%m.%Y}", f"{day.day}.{day.month}.{day.year}"],
        "%Y%m%d": [f"{day:%Y%m%d}", float(f"{day:%Y%m%d}")],
        "%d%m%Y": [f"{day:%d%m%Y}"],
        "%m/%d/%Y %H:%M": [f"{day:%m/%d/%Y} 7:05"],
    }
    for format_, cells in written.items():
        entry = {"date": bounds, **({"format": format_} if format_ else {})}
        assert [one(entry, cell) for cell in cells] == [[place]] * len(cells)
    parts = column({"date": bounds, "parts": ["year", "month", "weekday"]})
    found = parts.transform(np.array([[str(day)]], dtype=object))[0]
    names = [name for name, value in zip(parts.feature_names, found, strict=True) if value]
    week = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[inside.weekday()]
    assert names == [f"c year={inside.year}", f"c month={inside.month}", f"c weekday={week}"]
    assert math.isclose(float(np.linalg.norm(found)), 1, rel_tol=1e-6)
    said = [why for _, _, why in column({"date": bounds}).unusual(np.array([[str(day)]], dtype=object))]
    assert said == (
        [f"before the first day: read as {low}"] if day < low
        else [f"after the last day: read as {high}"] if day > high
        else []
    )  # fmt: skip


def test_hours() -> None:
    for format_, cell, hour in (
        (None, "2016-02-03T22:10:01.5+01:00", 22),
        (None, "2016-02-03 07:59", 7),
        (None, "2016-02-03", 0),
        ("%d.%m.%Y %H:%M", "3.2.2016 7:05", 7),
        ("%m/%d/%Y %I:%M %p", "2/3/2016 12:05 am", 0),
        ("%m/%d/%Y %I:%M %p", "2/3/2016 12:05 PM", 12),
        ("%m/%d/%Y %I:%M %p", "2/3/2016 1:05 p.m.", 13),
    ):
        entry = {"date": BOUNDS, "parts": ["hour"], **({"format": format_} if format_ else {})}
        assert one(entry, cell).index(1) == hour
    assert column({"date": BOUNDS, "parts": ["hour"]}).feature_names[7] == "c hour=7"
    with pytest.raises(InvalidInput):
        one({"date": BOUNDS, "parts": ["hour"]}, "2016-02-03 24:00")


def test_months_by_name_are_those_of_one_language() -> None:
    entry = {"date": ["2000-01-01", "2000-12-31"], "format": "%d-%b-%Y", "parts": ["month"]}
    for number, name in enumerate(("Jan", "FEB", "mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")):
        assert one(entry, f"3-{name}-2000").index(1) == number
    with pytest.raises(InvalidInput):
        one(entry, "3-Okt-2000")


def test_a_format_takes_little_time_whatever_it_meets() -> None:
    import time

    entry = {"date": YEAR, "format": "%d" + " " * 30 + "%m%Y"}
    start = time.perf_counter()
    with pytest.raises(InvalidInput):
        one(entry, "1" + " " * 100_000)
    assert time.perf_counter() - start < 1


SENSELESS: list[Any] = [
    {"range": [0, 1], "missing_tokens": ["NA"]},
    {"range": [0, 1], "missing": "other"},
    *({"range": [0, 1], "missing": "indicator", "missing_tokens": odd} for odd in ("NA", [["NA"]], [True])),
    {"range": [0, 1], "missing": True},
    {"range": [0, 1], "other": True},
    {"range": [1, 2], "bins": [0]},
    {"categories": ["a"], "other": []},
    {"categories": ["a"], "missing": "indicator"},
    {"categories": ["a"], "missing_tokens": ["a"]},
    {"categories": ["a"], "missing_token": "?", "missing_tokens": ["NA"]},
    *({"ordinal": odd} for odd in (["a"], "abc", ["a", "a"], ["a", " a"], ["a", ""], ["a", "indicator"])),
    {"ordinal": ["a", "b"], "missing": "c"},
    *({"boolean": odd} for odd in ("yes", {"true": ["a"]}, {"true": ["a"], "false": ["A "]})),
    {"boolean": {"true": [], "false": ["A"]}},
    {"boolean": True, "missing": 2},
    *({"date": odd} for odd in (BOUNDS[::-1], BOUNDS[:1], ["2015-1-1", "2025-12-31"], [2015, 2025])),
    {"date": ["2015-02-30", "2025-12-31"]},
    *({"date": BOUNDS, "parts": odd} for odd in ([], ["minute"], ["days", "days"], "days")),
    *({"date": BOUNDS, "parts": ["hour"], "format": odd} for odd in ("%d.%m.%Y", "%d.%m.%Y %I")),
    {"date": ["2000-01-01", "2020-01-01"], "parts": ["month", "hour"]},
    {"date": ["0001-01-01", "9999-12-31"], "parts": ["year"]},
    *({"date": BOUNDS, "format": odd} for odd in ("%d.%m", "%Y %Y", "%Y-%m-%b", "%x", "%Y%", "%Y" + "a" * 50, 3)),
    {"date": BOUNDS, "missing": "1.1.2015"},
    {"declare": "a number"},
]


@pytest.mark.parametrize("entry", SENSELESS, ids=json.dumps)
def test_declarations_that_make_no_sense(entry: Any) -> None:
    with pytest.raises(InvalidInput, match="column c"):
        Tabular({"c": entry, "other": {"range": [0, 1]}})
    stated = {"name": "tabular", "version": 1, "options": {"columns": [{"name": "c", **entry}]}}
    with pytest.raises(InvalidInput):
        check_spec(stated)


@settings(max_examples=300)
@given(
    key=st.sampled_from([*KINDS, "ignore", "declare"]),
    more=st.dictionaries(
        st.sampled_from(["missing", "missing_tokens", "log", "other", "format", "parts", "missing_token", "x"]),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
            lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner)),
            max_leaves=5,
        ),
        max_size=3,
    ),
    value=st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.just("2015-01-01")),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
        max_leaves=5,
    ),
)
def test_what_a_stranger_states_is_a_specification_or_refused(key: str, more: dict[str, Any], value: Any) -> None:
    """Never another error, and what is taken is bounded."""
    options = {"columns": [{"name": "c", key: value, **more}, {"name": "d", "range": [0, 1]}]}
    try:
        check_spec({"name": "tabular", "version": 1, "options": options})
    except InvalidInput:
        return
    assert len(Tabular.names_of(options)) <= 2 + 100 + 12 + 7 + 2


@pytest.mark.parametrize(
    "entry",
    [
        {"categories": ["x" * 201]},
        {"categories": ["a"], "missing_tokens": ["x" * 201]},
        {"ordinal": ["a", "x" * 201]},
        {"boolean": {"true": ["x" * 201], "false": ["b"]}},
        {"range": [0, 1], "missing": "indicator", "missing_tokens": ["x" * 201]},
    ],
)
def test_texts_of_a_certificate_are_short(entry: dict[str, Any]) -> None:
    with refuses("columns of tabular"):
        check_spec({"name": "tabular", "version": 1, "options": {"columns": [{"name": "c", **entry}]}})


def test_a_draft_that_looked_says_so_wherever_it_goes() -> None:
    plain, looked = Tabular({"a": {"range": [0, 1]}}), Tabular({"drafted": DRAFTED, "a": {"range": [0, 1]}})
    assert looked.columns == plain.columns == ("a",)
    assert looked.fingerprint() != plain.fingerprint()
    assert statements_of(plain.spec()) == ()
    assert "not covered by the guarantee" in statements_of(looked.spec())[0]
    again = from_spec(json.loads(json.dumps(looked.spec(), sort_keys=True)))
    assert again.fingerprint() == looked.fingerprint()
    check_spec(looked.spec())
    # A column may be called so.
    assert Tabular({"drafted": {"range": [0, 1]}}).columns == ("drafted",)
    for word in ("by me", "", DRAFTED + " "):
        with refuses("drafted"):
            Tabular({"drafted": word, "a": {"range": [0, 1]}})
        stated = {"columns": [{"name": "a", "range": [0, 1]}], "drafted": word}
        with pytest.raises(InvalidInput):
            check_spec({"name": "tabular", "version": 1, "options": stated})


def test_marks_between_thousands_currency_and_percent() -> None:
    """Three digits behind a comma are never a fraction, and what stands in the way has its own name."""
    causes = {
        **dict.fromkeys(["12,345", "1,234,567.5", "12 345", "12'345"], "thousands separators"),
        **dict.fromkeys(["$12.34", "43 %", "€1.234,50"], "a currency or percent sign"),
        "12,34": "a decimal comma",
    }
    for entry in ({"range": [0, 100_000]}, {"bins": [9]}):
        cells = np.array([[cell] for cell in causes], dtype=object)
        found = [why for _, _, why in column(entry).unusual(cells)]
        assert found == [f"not a number: it has {why}" for why in causes.values()]
    for mark, cells in (
        (",", ["12,345", "12345", " 12,345.0 "]), (".", ["12.345", "12345", "12.345,0"]),
        (" ", ["12 345", "12\xa0345", "12\u202f345.0"]), ("'", ["12'345", "12345.0"]),
    ):  # fmt: skip
        entry = {"range": [0, 100_000], "thousands": mark, "missing": "indicator", "missing_tokens": [-9, 12]}
        assert all(one(entry, cell) == [0.1235, 0] for cell in cells)
        assert one(entry, 12345.0) == [0.1235, 0]
        assert one(entry, "-9") == [0, 1]
        for cell in ("1,2,3", "1.2.3", "1 2", "12,34.56", "12.34,56", "1'2"):
            with refuses("column c"):
                one(entry, cell)
    # With points between thousands no point is a decimal mark.
    with refuses("column c"):
        one({"range": [0, 9], "thousands": "."}, "1.5")


def test_blanks_around_a_category_do_not_count() -> None:
    entry = {"categories": ["metro", " rural"], "missing_tokens": ["?"], "other": True}
    cells = (" metro", "metro ", "rural", "  rural", " ?", " x")
    assert [one(entry, cell).index(1) for cell in cells] == [0, 0, 1, 1, 2, 3]
    # Where two of the list differ by them, each is itself.
    assert [one({"categories": ["a", "a "]}, cell) for cell in ("a", "a ", " a")] == [[1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("format_", "cells"),
    [
        ("%m/%d/%y", ["1/5/21", "01/05/21"]),
        ("%d. %B %Y", ["5. January 2021", "05. JANUARY 2021"]),
        ("%b %d, %Y", ["Jan 5, 2021"]),
        ("%m/%d/%Y %I:%M %p", ["1/5/2021 01:30 PM", "01/05/2021 1:30 a.m."]),
    ],
)
def test_days_as_people_write_them(format_: str, cells: list[str]) -> None:
    entry = {"date": ["2021-01-01", "2021-01-09"], "format": format_}
    assert [one(entry, cell) for cell in cells] == [[0.5]] * len(cells)
    with refuses("column c"):
        one(entry, "2021-01-05")


def test_years_of_two_digits_are_near_the_declared_days() -> None:
    for low, high in ((1912, 2011), (1990, 2010), (2020, 2021)):
        entry = {"date": [f"{low}-01-01", f"{high}-12-31"], "format": "%d.%m.%y"}
        kind = column(entry).kinds["c"]
        assert isinstance(kind, Dates)
        for year in range(low, high + 1):
            assert kind.value(f"03.02.{year % 100:02}") == date(year, 2, 3)
        if high - low < 99:
            assert kind.cut(date(low - 1, 2, 3)) == kind.cut(kind.value(f"03.02.{(low - 1) % 100:02}"))
    for wrong in (
        {"format": "%d.%m.%y", "date": ["1900-01-01", "2001-01-01"]},
        {"format": "%y %Y"},
        {"format": "%b %B %y"},
    ):
        with pytest.raises(InvalidInput):
            column({"date": BOUNDS, **wrong})


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"range": [0, 1]}, "a": {"range": [0, 9]}}',
        '{"a": {"range": [0, 1], "range": [0, 9]}}',
        '{"a": {"categories": ' + "[" * 100_000 + "]" * 100_000 + "}}",
        '{"a": {"categories": [NaN]}}',
    ],
)
def test_files_in_which_a_name_stands_twice_or_that_are_no_json(tmp_path: Path, text: str) -> None:
    """The last of two would count without a word."""
    (tmp_path / "spec.json").write_text(text)
    with pytest.raises(InvalidInput, match="not JSON, or a repeated name"):
        Tabular.from_file(tmp_path / "spec.json")
    (tmp_path / "spec.json").write_bytes(b'\xef\xbb\xbf{"a": {"range": [0, 1]}}')
    assert Tabular.from_file(tmp_path / "spec.json").columns == ("a",)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_values_that_json_can_not_say(wrong: float) -> None:
    for entry in ({"categories": ["x", wrong]}, {"range": [0, 1], "missing": 0, "missing_tokens": [wrong]}):
        with refuses("specification of column a"):
            Tabular({"a": entry})


def test_many_bins_take_memory_for_their_records_alone() -> None:
    """A small specification of a stranger must not ask for the square of its size."""
    bins = Tabular({"a": {"bins": list(range(100_000))}})
    tracemalloc.start()
    try:
        found = bins.transform(np.array([[5.0], [-1.0], [1e9]], dtype=object))
        assert tracemalloc.get_traced_memory()[1] < 64e6
    finally:
        tracemalloc.stop()
    assert found.argmax(axis=1).tolist() == [6, 0, 100_000]
    assert found.sum() == 3


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
        *({"a": odd} for odd in (3, {}, {"ignore": True})),
        *({"a": {"range": odd}} for odd in ([2, 1], [1, 1], [0, "x"])),
        *({"a": {"range": [0, 1], **odd}} for odd in ({"log": 1}, {"scale": 2}, {"thousands": True})),
        *({"a": {"bins": odd}} for odd in ([], [1, 1], [2, 1], [float("nan")], 3)),
        *({"a": {"bins": [1], **odd}} for odd in ({"log": True}, {"thousands": ";"})),
        *({"a": {"categories": odd}} for odd in ([], "red", ["red", "red"])),
        *({"a": {"categories": ["b"], "other": odd}} for odd in (["c"], " b ", "")),
        {"a": {"categories": ["b"], "missing_tokens": [9], "other": 9}},
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
