"""Parting a share of a private dataset off as public, once, before its first release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix import data as readers
from privmix.data.dataset import Source
from privmix.data.public_share import PublicShare, split_off
from privmix.errors import InvalidInput, check_choice, in_terms_of
from privmix.jobs.columns import Columns, class_list, listed
from privmix.jobs.dataset import Dataset
from privmix.jobs.options import SplitOptions
from privmix.jobs.persons import said_of
from privmix.jobs.places import check_unpublished
from privmix.shown import Shown

_PERSON: Final = "person"
_HOW: Final = ("per-class", "uniform")


_PUBLIC: Final = "without any protection: from now on use the private file instead of the whole dataset"


@dataclass(frozen=True, repr=False)
class Parted(Shown):
    """Two files of one dataset: the records that are public from now on, and those that stay private."""

    public: Path
    public_records: int
    private: Path
    private_records: int

    def shown(self) -> tuple[str, Mapping[str, object]]:
        files = {"public": (self.public, self.public_records), "private": (self.private, self.private_records)}
        told = {name: f"{path}, {count:,} records" for name, (path, count) in files.items()}
        return "Parted", {**told, "the public records": _PUBLIC}

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "public": str(self.public), "private": str(self.private), "warning": _PUBLIC}


def parted(data: Any, asked: SplitOptions) -> Parted:
    """Split a random share of a private dataset off as PUBLIC records; see :mod:`privmix.data.public_share`."""
    check_choice("how", asked.how, _HOW)
    public, private = Path(asked.public), Path(asked.private)
    for field, path in (("public", public), ("private", private)):
        check_unpublished(field, path)
    persons, columns = said_of(asked, data)
    wanted = PublicShare(asked.share, asked.count, asked.how == "per-class", asked.seed)
    with in_terms_of({"columns": "columns" if asked.table_columns is None else "table_columns"}):
        source = _opened(data, columns, asked)
    whose = None
    if persons.declared(columns.person):
        place = str(data) if isinstance(data, str | Path) else None
        dataset = Dataset(source, place, asked.split, columns, data)
        persons.check(dataset)
        whose = "_".join(columns.person_names) or _PERSON, persons.read(dataset)
    given, kept = split_off(source, wanted, public, private, label_column=columns.label, persons=whose)
    return Parted(public, given, private, kept)


def _opened(data: Any, columns: Columns, asked: SplitOptions) -> Source:
    table = asked.table_columns
    wanted = None if table is None else listed(table)
    numbers = columns.number_names
    if wanted is not None and columns.csv_said["decimal"] == ",":
        # Both parts are written with a decimal point, and a text that looks like a number is still a text.
        if numbers is None or not set(numbers) <= set(wanted):
            allowed = "columns of table_columns in which `csv` converts the decimal mark; other cells stay as they are"
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
        columns=wanted,
        number_columns=numbers,
        feature_length=columns.feature_length,
        image_size=columns.image_size,
        colour=columns.colour,
        person_columns=columns.person_names,
        dialect=dialect,
    )
