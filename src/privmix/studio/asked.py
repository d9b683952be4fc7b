"""Form of a new release: its fields as typed, and the problems in them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from privmix.data.source import resolve_classes
from privmix.errors import InvalidInput, PrivmixError, check_integer, check_number
from privmix.jobs.columns import class_list

TABLE, IMAGES, TEXTS = "table", "images", "texts"
KINDS: Final = {
    TABLE: "A table with one case per row (CSV, Parquet)",
    IMAGES: "Images: a folder with one sub-folder per class, or a table with a column of images",
    TEXTS: "Texts: a table with a column of texts",
}
RECORD, PERSON = "record", "person"
MOMENTS, AUTO = "moments", "auto"
UNUSED: Final = "ignore"
# Kind of column -> its name on the page, and its description to type.
HOLDS: Final = {
    "number": ("a number", "least and most, as 0:120"),
    "bins": ("a number, by intervals", "interval boundaries, as 18,40,65"),
    "category": ("one of some values", "all values, as A,B,C"),
    "ordinal": ("one of some values, in order", "all values in order, as I,II,III"),
    "boolean": ("yes or no", "the two texts, as yes:no; or empty"),
    "date": ("a day", "first and last, as 2015-01-01:2025-12-31"),
    UNUSED: ("unused", "leave this empty"),
}
_LONGEST: Final = 4000
_MOST_COLUMNS: Final = 500
# Shares of classes may miss 1 by this much.
_ROUNDED: Final = 0.015


@dataclass(frozen=True)
class Column:
    """A declared column of a table; ``holds``: one of :data:`HOLDS`."""

    name: str
    holds: str = ""
    values: str = ""
    empty: bool = False

    @property
    def said(self) -> str:
        return f"{self.name}={self.values}" if self.values else self.name


@dataclass(frozen=True)
class FormData:
    """The page's fields, as typed; the unit of privacy starts empty, since only the owner can choose it."""

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
    shares: str = ""
    ledger: str = ""
    dataset: str = ""
    out: str = ""

    @classmethod
    def of_form(cls, pairs: Sequence[tuple[str, str]]) -> Self:
        """Return the form's fields: unknown fields are left out, and texts of absurd length are cut."""
        plain = {item.name for item in fields(cls)} - {"columns"}
        said = {name: value.strip()[:_LONGEST] for name, value in pairs if name in plain}
        lists = {
            name: [value.strip()[:_LONGEST] for found, value in pairs if found == f"column_{name}"]
            for name in ("name", "holds", "values", "empty")
        }
        # A made-up form may have lists of unequal lengths.
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
        return tuple(column for column in self.columns if column.name)


@dataclass(frozen=True)
class Problem:
    """A sentence on a field, by its element's id, that is not right yet."""

    field: str
    words: str


class Unready(Exception):
    """Something of what was asked is not right yet."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(problem.words for problem in problems))
        self.problems: Final = tuple(problems)


def number(asked: FormData, field: str, **limits: Any) -> float:
    """Read a field as a number in range, or raise InvalidInput."""
    # Many countries write 0,5.
    return number_in(field, getattr(asked, field).replace(",", "."), **limits)


def number_in(field: str, text: str, **limits: Any) -> float:
    try:
        return check_number(field, float(text), **limits)
    except ValueError:
        # This call raises the error that shows the text as typed.
        return check_number(field, text, **limits)


def whole(asked: FormData, field: str, low: int, high: int | None = None) -> int:
    """Return a field as a whole number; thousands may be parted by spaces or apostrophes."""
    text = "".join(mark for mark in getattr(asked, field) if mark not in " '_\u00a0\u2009")
    # `isdigit` alone accepts signs such as a superscript two.
    return check_integer(field, int(text) if text.isascii() and text.isdigit() else text, low=low, high=high)


def shares_asked(asked: FormData) -> tuple[float, ...]:
    """Return public shares of the classes, given in percent; empty where none are. Raise InvalidInput otherwise."""
    if not asked.shares:
        return ()
    try:
        found = tuple(float(text) / 100 for text in asked.shares.replace("%", " ").replace(",", " ").split())
    except ValueError:
        found = ()
    try:
        count = len(resolve_classes(class_list(asked.classes)))
    except PrivmixError:
        # The classes have a problem of their own, or stand in the data.
        count = len(found)
    if not found or len(found) != count or min(found) <= 0 or abs(sum(found) - 1) > _ROUNDED:
        raise InvalidInput("shares", asked.shares, "a number above 0 for each class that add up to 100, as 88, 12")
    return found


def problems_of(asked: FormData) -> list[Problem]:
    """List missing fields and texts that are not numbers. The planner checks everything else."""
    found = [Problem(field, words) for field, words in _needed(asked) if not getattr(asked, field)]
    found += _choices(asked)
    numbers: dict[str, Any] = {
        "records": lambda: whole(asked, "records", 2, 10**12),
        "epsilon": lambda: number(asked, "epsilon", low=0, low_open=True, high=100),
        "delta": lambda: number(asked, "delta", low=0, low_open=True, high=0.01),
        "attainable": lambda: number(asked, "attainable", low=0, low_open=True, high=100, high_open=True),
        "shares": lambda: shares_asked(asked),
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
    "data": "Data",
    "label": "Label column",
    "classes": "Classes",
    "text_column": "Text column",
    "image_size": "Image size",
    "colour": "Image colours",
    "unit": "Unit of privacy",
    "person": "Column of persons",
    "records": "Number of rows or persons",
    "epsilon": "Epsilon",
    "delta": "Delta",
    "attainable": "Accuracy without privacy",
    "shares": "Shares of the classes",
    "ledger": "Ledger file",
    "dataset": "Dataset name in the ledger",
    "out": "Folder to create",
    "columns": "Columns",
}
"""Names of the fields on the page."""


def _needed(asked: FormData) -> list[tuple[str, str]]:
    """Fields that must not be empty, and the message for each."""
    found = [
        ("data", "Enter the path of the data: a file or folder on this machine."),
        ("classes", "List the classes from public knowledge: they are never read from the data."),
        ("unit", "Choose the unit of privacy: one row, or one person with all their rows."),
        ("records", "Enter the number of rows or persons from public knowledge: the studio does not count them."),
        ("epsilon", "Choose epsilon, the privacy budget of the release."),
        ("delta", "Choose delta."),
        ("attainable", "Enter the accuracy that you expect without privacy; 90 if you have no estimate."),
        ("out", "Enter the folder to create for the release."),
    ]
    if asked.what != IMAGES:
        found.append(("label", "Enter the label column: the answer that others predict."))
    if asked.what == TEXTS:
        found.append(("text_column", "Enter the column of texts."))
    if asked.what == IMAGES:
        found.append(("image_size", "Enter the image size in pixels, to which images are scaled."))
    if asked.unit == PERSON:
        found.append(("person", "Enter the column of persons."))
    return found


def _choices(asked: FormData) -> list[Problem]:
    found = []
    if asked.what not in KINDS:
        found.append(Problem("what", "Choose the kind of data."))
    if asked.unit not in ("", RECORD, PERSON):
        found.append(Problem("unit", "Choose the unit of privacy."))
    if asked.design not in (MOMENTS, AUTO):
        found.append(Problem("design", "Choose the method."))
    if asked.what == IMAGES and asked.colour not in ("grey", "rgb"):
        found.append(Problem("colour", "Choose whether images are grey or coloured."))
    if asked.what == IMAGES and asked.unit == PERSON:
        way = "Use the command line: privmix release --person file=FILE."
        found.append(Problem("unit", f"The studio cannot declare persons of images. {way}"))
    if bool(asked.ledger) != bool(asked.dataset):
        field = "dataset" if asked.ledger else "ledger"
        found.append(Problem(field, "Enter both the ledger file and the dataset name, or leave both empty."))
    return found + (_columns(asked) if asked.what == TABLE else [])


def _columns(asked: FormData) -> list[Problem]:
    declared = asked.declared
    if not declared:
        return [Problem("columns", "Declare the columns of the table from public knowledge.")]
    names = [column.name for column in declared]
    twice = {name for name in names if names.count(name) > 1}
    found = [Problem("columns", f"Column {name} is listed twice.") for name in sorted(twice)]
    found += [
        Problem("columns", f"Column {column.name}: choose its content, or mark it as unused.")
        for column in declared
        if column.holds not in HOLDS
    ]
    if all(column.holds == UNUSED for column in declared):
        found.append(Problem("columns", "Use at least one column."))
    found += [
        Problem("columns", f"Column {name} is the {what}: leave it out of this list.")
        for name, what in ((asked.label, "answer"), (asked.person, "column of persons"))
        if name and name in names
    ]
    return found


def words_of(error: InvalidInput) -> Problem:
    """Return an error of the library in the page's words."""
    field = error.field.split(", ")[0]
    where = {**{name: name for name in NAMES}, **dict.fromkeys(HOLDS, "columns"), "missing": "columns"}
    named = where.get(field, "columns" if field.startswith("specification of column") else "")
    called = NAMES.get(field) or (HOLDS[field][0].capitalize() if field in HOLDS else field)
    return Problem(named, f"{called}: got {error.shown}; allowed: {plain(error.allowed)}.")


def plain(said: object) -> str:
    """Return an error or a text of the library without backticks."""
    return str(said).replace("`", "")
