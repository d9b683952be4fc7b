"""Parting a share of a private dataset off as public, once, before its first release."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix import data as readers
from privmix.data import Source
from privmix.data.public_share import PublicShare, split_off
from privmix.errors import InvalidInput, check_choice, in_terms_of
from privmix.jobs.columns import Columns, class_list, listed
from privmix.jobs.dataset import Dataset
from privmix.jobs.options import SplitOptions
from privmix.jobs.persons import Persons
from privmix.jobs.places import check_unpublished

_PERSON: Final = "person"
_HOW: Final = ("per-class", "uniform")


@dataclass(frozen=True)
class Parted:
    """Two datasets of one.

    Attributes:
        public: the file of the records that are public from now on.
        public_records: how many.
        private: the file of those that stay private.
        private_records: how many.
    """

    public: Path
    public_records: int
    private: Path
    private_records: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {**vars(self), "public": str(self.public), "private": str(self.private)}


def split(
    data: Any, public: Path, private: Path, columns: Columns, asked: SplitOptions, persons: Persons | None = None
) -> Parted:
    """Part a random share of a private dataset off as PUBLIC records; see :mod:`privmix.data.public_share`.

    Args:
        data: the private dataset: file, folder, pattern, address, or in memory.
        public: a new file for the records that become public (.npz; tables: .jsonl).
        private: a new file for the records that stay private, yours alone.
        columns: what is declared of columns and images.
        asked: how many, and which.
        persons: whose the records are, where ``columns.person`` does not say it: whole persons are drawn, of the class
            of their first record. The private file says whose its records are by numbers, under the name of that
            column or ``person``.

    Raises:
        InvalidInput: an option is out of range, or a file is there already or would lie in what is handed to others.
        StorageError: the data can't be read, or a file can't be written.
    """
    check_choice("how", asked.how, _HOW)
    for field, path in (("public", public), ("private", private)):
        check_unpublished(field, path)
    if asked.text_column is not None and asked.table_columns is not None:
        raise InvalidInput("text_column, table_columns", "both", "one of them or neither")
    wanted = PublicShare(asked.share, asked.count, asked.how == "per-class", asked.seed)
    persons = Persons() if persons is None else persons
    with in_terms_of({"columns": "table_columns" if asked.text_column is None else "text_column"}):
        source = _opened(data, columns, asked)
    whose = None
    if persons.declared(columns.person):
        dataset = Dataset(source, str(data) if isinstance(data, str | Path) else None, asked.split, columns, data)
        persons.check(dataset)
        whose = "_".join(columns.person_names) or _PERSON, persons.read(dataset)
    given, kept = split_off(source, wanted, public, private, label_column=columns.label, persons=whose)
    return Parted(public, given, private, kept)


def _opened(data: Any, columns: Columns, asked: SplitOptions) -> Source:
    table = asked.table_columns
    wanted = None if table is None else listed(table)
    numbers = columns.number_names
    if wanted is not None and columns.decimal == ",":
        # Both parts are written with a decimal point, and a text that looks like a number is still a text.
        if numbers is None or not set(numbers) <= set(wanted):
            allowed = "those of table_columns in which `decimal` counts: all other cells are kept as they are"
            raise InvalidInput("columns", numbers, allowed)
        dialect = columns.dialect(numbers)
        numbers = None
    else:
        dialect = columns.dialect()
    return readers.open_dataset(
        data,
        split=asked.split,
        classes=class_list(asked.classes) if isinstance(asked.classes, str) else asked.classes,
        label_column=columns.label,
        image_column=columns.image_column,
        feature_column=columns.feature_column,
        text_column=asked.text_column,
        columns=wanted,
        number_columns=numbers,
        feature_length=columns.feature_length,
        image_size=columns.image_size,
        colour=columns.colour,
        person_columns=columns.person_names,
        dialect=dialect,
    )
