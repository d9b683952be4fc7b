"""What the page of a new release asks, as it was typed, and what of it is not right yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from privmix.errors import InvalidInput, check_integer, check_number

TABLE, IMAGES, TEXTS = "table", "images", "texts"
KINDS: Final = {
    TABLE: "A table: a row is one case (CSV, Parquet, Arrow)",
    IMAGES: "Images: a folder with a folder for each class, or a table with a column of images",
    TEXTS: "Texts: a table with a column of texts",
}
RECORD, PERSON = "record", "person"
MOMENTS, AUTO = "moments", "auto"
UNUSED: Final = "ignore"
# What a column holds -> how that is called, and what is to be said of it.
HOLDS: Final = {
    "number": ("a number", "least and most, as 0:120"),
    "bins": ("a number, by intervals", "where intervals begin, as 18,40,65"),
    "category": ("one of some values", "all values, as A,B,C"),
    "ordinal": ("one of some values, in order", "all values in order, as I,II,III"),
    "boolean": ("yes or no", "the two texts, as yes:no; or empty"),
    "date": ("a day", "first and last, as 2015-01-01:2025-12-31"),
    UNUSED: ("nothing that is used", "leave this empty"),
}
_LONGEST: Final = 4000
_MOST_COLUMNS: Final = 500


@dataclass(frozen=True)
class Column:
    """A column of a table as it is declared.

    Attributes:
        name: in the header.
        holds: one of :data:`HOLDS`.
        values: what is said of it.
        empty: whether cells may be empty.
    """

    name: str
    holds: str = ""
    values: str = ""
    empty: bool = False

    @property
    def said(self) -> str:
        """As `spec` takes it: COLUMN=WHAT."""
        return f"{self.name}={self.values}" if self.values else self.name


@dataclass(frozen=True)
class Asked:
    """The page's fields. Texts are as they were typed; the unit of privacy starts empty, since nobody can choose it for
    the owner of the data.
    """

    what: str = TABLE
    data: str = ""
    label: str = ""
    classes: str = ""
    columns: tuple[Column, ...] = ()
    text_column: str = ""
    image_size: str = ""
    colour: str = ""
    unit: str = ""
    person: str = ""
    records: str = ""
    epsilon: str = "1"
    delta: str = "1e-5"
    design: str = MOMENTS
    attainable: str = "90"
    ledger: str = ""
    dataset: str = ""
    out: str = ""

    @classmethod
    def of_form(cls, pairs: Sequence[tuple[str, str]]) -> Self:
        """What a form says; fields that the page does not have are left out, and texts of absurd length are cut."""
        plain = {item.name for item in fields(cls)} - {"columns"}
        said = {name: value.strip()[:_LONGEST] for name, value in pairs if name in plain}
        lists = {
            name: [value.strip()[:_LONGEST] for found, value in pairs if found == f"column_{name}"]
            for name in ("name", "holds", "values", "empty")
        }
        rows = zip(lists["name"], lists["holds"], lists["values"], lists["empty"], strict=False)
        columns = tuple(Column(name, holds, values, empty == "allowed") for name, holds, values, empty in rows)
        return cls(**said, columns=columns[:_MOST_COLUMNS])

    def with_columns(self, names: Sequence[str]) -> Self:
        """With a row for each name that has none yet; rows without a name go."""
        kept = tuple(column for column in self.columns if column.name)
        known = {column.name for column in kept}
        new = dict.fromkeys(name for name in names if name and name not in known)
        return replace(self, columns=(*kept, *(Column(name) for name in new))[:_MOST_COLUMNS])

    @property
    def declared(self) -> tuple[Column, ...]:
        """The columns that have a name."""
        return tuple(column for column in self.columns if column.name)


@dataclass(frozen=True)
class Problem:
    """What is not right yet.

    Attributes:
        field: the id of the page's element that it is about.
        words: a sentence.
    """

    field: str
    words: str


class Unready(Exception):
    """Something of what was asked is not right yet."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(problem.words for problem in problems))
        self.problems = tuple(problems)


def number(asked: Asked, field: str, **limits: Any) -> float:
    """A field as a number.

    Raises:
        InvalidInput: it is none, or out of range.
    """
    text = getattr(asked, field).replace(",", ".") if field != "records" else getattr(asked, field)
    try:
        return check_number(field, float(text), **limits)
    except ValueError:
        return check_number(field, text, **limits)


def whole(asked: Asked, field: str, low: int, high: int | None = None) -> int:
    """A field as a whole number; thousands may be parted by spaces or apostrophes."""
    text = "".join(mark for mark in getattr(asked, field) if mark not in " '_\u00a0\u2009")
    return check_integer(field, int(text) if text.isascii() and text.isdigit() else text, low=low, high=high)


def problems_of(asked: Asked) -> list[Problem]:
    """What is missing or no number; what the library asks beyond that is found where it is planned."""
    found = [Problem(field, words) for field, words in _needed(asked) if not getattr(asked, field)]
    found += _choices(asked)
    numbers: dict[str, Any] = {
        "records": lambda: whole(asked, "records", 2, 10**12),
        "epsilon": lambda: number(asked, "epsilon", low=0, low_open=True, high=100),
        "delta": lambda: number(asked, "delta", low=0, low_open=True, high=0.01),
        "attainable": lambda: number(asked, "attainable", low=0, low_open=True, high=100, high_open=True),
    }
    if asked.what == IMAGES:
        numbers["image_size"] = lambda: whole(asked, "image_size", 4, 512)
    for field, read in numbers.items():
        if not getattr(asked, field):
            continue
        try:
            read()
        except InvalidInput as error:
            found.append(Problem(field, f"{NAMES[field]}: {error.shown} is not {error.allowed}."))
    return found


NAMES: Final = {
    "data": "Where the data are",
    "label": "The column of the answer",
    "classes": "The classes",
    "text_column": "The column of texts",
    "image_size": "The size of images",
    "colour": "The colours of images",
    "unit": "Who is protected",
    "person": "The column that says whose a row is",
    "records": "How many there are",
    "epsilon": "Epsilon",
    "delta": "Delta",
    "attainable": "Accuracy without privacy",
    "ledger": "The ledger's file",
    "dataset": "The dataset's name in the ledger",
    "out": "The folder to create",
    "columns": "The columns",
}
"""What the page calls its fields."""


def _needed(asked: Asked) -> list[tuple[str, str]]:
    """Fields that must not be empty, and what to say where they are."""
    found = [
        ("data", "Say where the data are: a file or folder on this machine."),
        ("classes", "Say what the classes are, by public knowledge: they are not looked up in the data."),
        ("unit", "Choose who is protected: one row, or one person with all of their rows."),
        ("records", "Say how many there are, by public knowledge: nobody counts them before the release."),
        ("epsilon", "Choose epsilon, the privacy that is spent."),
        ("delta", "Choose delta."),
        ("attainable", "Say what accuracy is expected without privacy; 90 if nothing is known."),
        ("out", "Say which folder the release goes to: it is created."),
    ]
    if asked.what != IMAGES:
        found.append(("label", "Say which column holds the answer that others are to predict."))
    if asked.what == TEXTS:
        found.append(("text_column", "Say which column holds the texts."))
    if asked.what == IMAGES:
        found.append(("image_size", "Say to which size images are scaled, in pixels."))
    if asked.unit == PERSON:
        found.append(("person", "Say which column tells whose a row is."))
    return found


def _choices(asked: Asked) -> list[Problem]:
    found = []
    if asked.what not in KINDS:
        found.append(Problem("what", "Choose what the data are."))
    if asked.unit not in ("", RECORD, PERSON):
        found.append(Problem("unit", "Choose who is protected."))
    if asked.design not in (MOMENTS, AUTO):
        found.append(Problem("design", "Choose what is released."))
    if asked.what == IMAGES and asked.colour not in ("grey", "rgb"):
        found.append(Problem("colour", "Choose whether images are grey or coloured."))
    if asked.what == IMAGES and asked.unit == PERSON:
        found.append(
            Problem("unit", "Persons of images are declared on the command line: privmix release --person-file.")
        )
    if bool(asked.ledger) != bool(asked.dataset):
        field = "dataset" if asked.ledger else "ledger"
        found.append(
            Problem(field, "A ledger needs both: its file, and the dataset's name in it. Or leave both empty.")
        )
    return found + (_columns(asked) if asked.what == TABLE else [])


def _columns(asked: Asked) -> list[Problem]:
    declared = asked.declared
    if not declared:
        return [Problem("columns", "Declare the columns of the table, by public knowledge.")]
    names = [column.name for column in declared]
    twice = {name for name in names if names.count(name) > 1}
    found = [Problem("columns", f"Column {name} stands there twice.") for name in sorted(twice)]
    found += [
        Problem("columns", f"Column {column.name}: say what it holds, or that it is not used.")
        for column in declared
        if column.holds not in HOLDS
    ]
    if all(column.holds == UNUSED for column in declared):
        found.append(Problem("columns", "At least one column is to be used."))
    found += [
        Problem("columns", f"Column {name} is the {what}: leave it out of this list.")
        for name, what in ((asked.label, "answer"), (asked.person, "column that says whose a row is"))
        if name and name in names
    ]
    return found


def words_of(error: InvalidInput) -> Problem:
    """What the library refuses, in the page's words."""
    field = error.field.split(", ")[0]
    where = {**{name: name for name in NAMES}, **dict.fromkeys(HOLDS, "columns"), "missing": "columns"}
    named = where.get(field, "columns" if field.startswith("specification of column") else "")
    called = NAMES.get(field) or (HOLDS[field][0].capitalize() if field in HOLDS else field)
    return Problem(named, f"{called}: got {error.shown}; allowed: {_plain(error.allowed)}.")


def _plain(text: str) -> str:
    return text.replace("`", "")


def as_form(asked: Asked) -> Mapping[str, str]:
    """Its plain fields by name."""
    return {item.name: getattr(asked, item.name) for item in fields(asked) if item.name != "columns"}
