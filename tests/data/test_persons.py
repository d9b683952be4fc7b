"""Whose records are: the same persons whatever the format, in no error, and never one shared unknown person."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privmix.data import open_dataset
from privmix.data.persons import numbered, persons_in, persons_in_column, persons_in_list, persons_in_names
from privmix.errors import InvalidInput
from privmix.jobs.columns import Columns
from privmix.jobs.persons import Persons
from tests.data.helpers import held
from tests.refusals import refuses

WHO = ["anna-7", "bert", "anna-7 ", "", None, "carl"]
TABLE = pa.table({"who": WHO, "dose": np.arange(6.0), "label": list("ababab")})
NUMBERS = [0, 1, 0, 2, 3, 4]


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "pandas", "polars", "datasets"])
def test_formats_agree(kind: str, tmp_path: Path) -> None:
    data = held(kind, TABLE, tmp_path)
    assert persons_in_column(data, "who", missing="own").tolist() == NUMBERS
    with refuses("person", "anna", "bert", "carl"):
        persons_in_column(data, "who")
    if kind != "jsonl":
        with refuses("person"):
            persons_in_column(data, "nobody")


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "polars", "datasets"])
def test_the_column_is_none_of_the_inputs(kind: str, tmp_path: Path) -> None:
    source = open_dataset(held(kind, TABLE, tmp_path), classes=["a", "b"], person_columns=["who"])
    assert source.number_names == ("dose",)
    with refuses("person"):
        open_dataset(held(kind, TABLE, tmp_path), classes=["a", "b"], person_columns=["dose"], number_columns=["dose"])


def test_numbers_follow_from_the_order_of_records_alone() -> None:
    assert numbered(["z", "a", "z", "m"]).tolist() == numbered(["1", "2", "1", "0"]).tolist() == [0, 1, 0, 2]
    assert persons_in(np.array([70, 50, 70])).tolist() == [0, 1, 0]
    assert persons_in([70, "70", 70.0]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("value", [2.0**53, 0.5, True, float(2**60), float("inf")])
def test_what_may_have_been_rounded_is_no_identifier(value: float, tmp_path: Path) -> None:
    with refuses("person"):
        persons_in([value, 1.0])
    # Nor are long numbers of a file merged.
    pq.write_table(pa.table({"id": [2**53 + 1, 2**53], "x": [1.0, 2.0]}), tmp_path / "b.parquet")
    with refuses("person"):
        persons_in_column(str(tmp_path / "b.parquet"), "id")


def test_files(tmp_path: Path) -> None:
    names = ["ill/p7_1.png", "well/p9_1.png", "ill/p7_2.png", "well/unknown.png"]
    assert persons_in_names(names, r"p(\d+)_", "own").tolist() == [0, 1, 0, 2]
    for pattern, words in ((r"p\d+_", "one group"), ("p(", "regular expression"), (r"p(\d+)_", "every record")):
        with pytest.raises(InvalidInput, match=words):
            persons_in_names(names, pattern)
    file = tmp_path / "persons.csv"
    file.write_text("file_name,person\nill/p7_1.png,anna\np9_1.png,bert\nill/p7_2.png,anna\n")
    assert persons_in_list(names, file, "own").tolist() == [0, 1, 0, 2]
    with refuses("person"):
        persons_in_list(names, file)
    file.write_text("file_name,person\na.png,anna\na.png,bert\n")
    with refuses("person", "anna"):
        persons_in_list(names, file)
    # One name in two folders: whose it is must be said of both.
    file.write_text("file_name,person\n1.png,anna\nwell/2.png,bert\nill/2.png,carl\n")
    assert persons_in_list(["ill/1.png", "well/2.png", "ill/2.png"], file).tolist() == [0, 1, 2]
    with refuses("person", "1.png"):
        persons_in_list(["ill/1.png", "well/1.png"], file)
    file.write_text("name,person\n")
    with refuses("person"):
        persons_in_list(names, file)


@pytest.mark.parametrize(
    "unknown", [None, float("nan"), "", "  ", b"", pandas.NaT, pandas.NA, Decimal("NaN"), np.datetime64("NaT")]
)
def test_whoever_is_unknown_is_nobody_else(unknown: Any) -> None:
    """Were they one person, each of them would be part of one, whose guarantee is for all of them together."""
    who = np.empty(4, object)
    who[:] = [unknown, "anna", unknown, "anna"]
    assert persons_in(who, missing="own").tolist() == [0, 1, 2, 1]
    with refuses("person"):
        persons_in(who)


def test_every_text_is_an_identifier_of_its_own() -> None:
    """Half characters: of these, an encoder refuses the first and shows it, or takes the second for the third."""
    texts = ["\ud800", "\udcc3\udca9", "\u00e9", "\udc80", b"\x80", b"\xff"]
    assert persons_in(texts).tolist() == [0, 1, 2, 3, 3, 4]


def test_days_and_decimal_numbers_are_identifiers() -> None:
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-01"], "datetime64[D]")
    assert persons_in(days).tolist() == [0, 1, 0]
    assert numbered([Decimal(7), Decimal(8), Decimal(7)]).tolist() == [0, 1, 0]
    with refuses("person"):
        numbered([np.zeros(2), np.zeros(2)])


TWO = {"clinic": ["a", "ab", "a", "a ", ""], "number": ["bc", "c", "bc", "bd", "c"], "dose": [1, 2, 3, 4, 5]}


@pytest.mark.parametrize("kind", ["csv", "npz", "pandas", "polars"])
def test_a_person_by_two_columns(kind: str, tmp_path: Path) -> None:
    """Formal guarantee: exact. Texts that are equal side by side only are of two persons."""
    frame = pandas.DataFrame(TWO)
    frame.to_csv(tmp_path / "a.csv", index=False)
    np.savez(tmp_path / "a.npz", x=np.eye(5), **{name: np.array(cells) for name, cells in TWO.items()})
    data = {"pandas": frame, "polars": polars.DataFrame(TWO)}.get(kind, str(tmp_path / f"a.{kind}"))
    names = ["clinic", "number"]
    assert persons_in_column(data, names, missing="own").tolist() == [0, 1, 0, 2, 3]
    assert persons_in_column(data, names, missing="mark").tolist() == [0, 1, 0, 2, -1]
    for wrong, missing in ((names, "error"), (["clinic", "street"], "own")):
        with refuses("person", "bc"):
            persons_in_column(data, wrong, missing=missing)
    if kind != "npz":
        source = open_dataset(data, classes=1, columns=["dose"], labelled=False, person_columns=names)
        assert source.schema.columns == ("dose",)
        with refuses("person"):
            open_dataset(data, classes=1, columns=["number"], labelled=False, person_columns=names)


def test_names_of_columns_and_identifiers_are_told_apart() -> None:
    frame = pandas.DataFrame(TWO)
    for person in ("clinic", ["clinic", "number"], ("clinic", "number")):
        for data in (frame, "visits.csv"):
            persons, column = Persons.of(person, data)
            assert (persons.array, column) == (None, person)
    for person, data in ((["anna", "bert"], frame), (np.array(["clinic", "number"]), frame), (["a", "b"], (1, 2))):
        persons, column = Persons.of(person, data)
        assert (persons.array is person, column) == (True, None)
    assert Columns(person='clinic, "number, old"').person_names == ["clinic", "number, old"]
    assert Columns(person=["clinic", "number"]).person_names == ["clinic", "number"]
