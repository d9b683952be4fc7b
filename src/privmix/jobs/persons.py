"""Persons that a dataset's records belong to, as a job declares them, and the records with them once they are read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.accounting.events import Adjacency
from privmix.errors import WITHHELD, InvalidInput, check_choice, check_integer
from privmix.jobs.columns import Columns
from privmix.options import described, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from privmix.data.persons import Identities
    from privmix.jobs.dataset import Dataset
    from privmix.mechanisms.plan import Plan

PERSONS_PANEL: Final = "Persons"
_MISSING: Final = ("error", "own")
_WITH_MISSING: Final = re.compile(r"(.*):missing=(\w*)", re.DOTALL)
# Columns that name a person together.
_MOST_COLUMNS: Final = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Persons:
    """Persons as units: whose the records are; see `person` of the columns."""

    # `pattern`: a regular expression with one group, which finds the person in an image's file name. `file`: CSV
    # with the columns file_name and person. `missing`: error, or own (a person of its own). `array`: one a record.
    # `per_person`: K.
    pattern: str | None = None
    file: Path | None = None
    missing: str = "error"
    array: Any = field(default=None, repr=False)
    per_person: int | None = None

    @classmethod
    def of(
        cls, person: Any, data: Any = None, per_person: int | None = None
    ) -> tuple[Persons, str | Sequence[str] | None]:
        """Return a declaration of persons, and the names of columns if it has some."""
        # A short list of texts names columns of files, and of data in memory that have these columns.
        if person is None or _names_columns(person, data):
            return cls(per_person=per_person), person
        if not isinstance(person, str):
            return cls(array=person, per_person=per_person), None
        found = _WITH_MISSING.fullmatch(person)
        text, missing = found.groups() if found else (person, _MISSING[0])
        kind, _, place = text.partition("=")
        said: dict[str, Any] = {"missing": missing, "per_person": per_person}
        if kind == "pattern":
            return cls(pattern=place, **said), None
        return (cls(file=Path(place), **said), None) if kind == "file" else (cls(**said), text)

    def declared(self, column: str | Sequence[str] | None) -> bool:
        """Whether persons are the unit; raises if they are declared in two ways, or only in part."""
        given = [one for one in (column, self.array, self.pattern, self.file) if one is not None]
        if len(given) > 1:
            raise InvalidInput("person", "two ways", "one of column, pattern and file")
        check_choice("person", self.missing, _MISSING)
        if self.per_person is not None:
            from privmix.mechanisms.plan import MOST_OF_ONE

            check_integer("per_person", self.per_person, low=1, high=MOST_OF_ONE)
        if not given and self.per_person is not None:
            raise InvalidInput("per_person", self.per_person, "only with `person`")
        return bool(given)

    def named(self, column: str | Sequence[str] | None) -> str | None:
        """Return the SHA-256 of what names the person of a record; None where records are the units."""
        if not self.declared(column):
            return None
        columns = [column] if isinstance(column, str) else list(column or ())
        told = [self.pattern, columns, self.file is not None]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def check(self, dataset: Dataset) -> None:
        """Raise where persons cannot be read; looks at headers and declarations alone."""
        from privmix.data import persons
        from privmix.data.memory import plain

        columns = dataset.columns.person_names
        if not self.declared(dataset.columns.person):
            return
        if columns:
            with _place(dataset) as data:
                persons.check_column(data, columns, split=dataset.split, dialect=dataset.columns.dialect())
        elif self.array is not None:
            if len(plain(self.array, "person")) != dataset.schema.records:
                raise _another_number()
        else:
            self._names(dataset)
            if self.pattern is not None:
                persons.compiled_pattern(self.pattern)
            else:
                assert self.file is not None
                persons.check_list(self.file)

    def read(self, dataset: Dataset, missing: str | None = None, known: Identities | None = None) -> NDArray[np.int64]:
        """(n,) numbers of each record's person. Reads private data: charge the ledger first. Errors show none."""
        from privmix.data import persons

        columns, missing = dataset.columns.person_names, missing or self.missing
        if columns:
            dialect = dataset.columns.dialect()
            with _place(dataset) as data:
                given: Any = {"split": dataset.split, "dialect": dialect, "missing": missing, "known": known}
                found = persons.persons_in_column(data, columns, **given)
        elif self.array is not None:
            found = persons.persons_in(self.array, missing, known)
        elif self.pattern is not None:
            found = persons.persons_in_names(self._names(dataset), self.pattern, missing, known)
        else:
            assert self.file is not None
            found = persons.persons_in_list(self._names(dataset), self.file, missing, known)
        if len(found) != dataset.schema.records:
            raise _another_number()
        return found

    def _names(self, dataset: Dataset) -> Sequence[str]:
        if (names := dataset.source.names) is None:
            given = f"pattern={self.pattern}" if self.pattern is not None else f"file={self.file}"
            raise InvalidInput("person", given, "a column: pattern and file are for folders of images")
        return names


def _names_columns(person: Any, data: Any) -> bool:
    if not isinstance(person, list | tuple) or not 1 < len(person) <= _MOST_COLUMNS:
        return False
    known = data.column_names if hasattr(data, "column_names") else getattr(data, "columns", ())
    return all(isinstance(name, str) and (isinstance(data, str | Path) or name in known) for name in person)


@contextmanager
def _place(dataset: Dataset) -> Iterator[Any]:
    """Yield the place of the dataset's records: of an address, the very versions that they are read from."""
    from privmix.data.remote import RemoteSource

    if isinstance(dataset.source, RemoteSource):
        with dataset.source.place() as path:
            yield path
    else:
        yield dataset.data


def _another_number() -> InvalidInput:
    return InvalidInput("person", WITHHELD, "one identifier for each record")


def records_of_each(whose: NDArray[np.int64]) -> NDArray[np.int64]:
    """(persons,) how many records each person has, of (n,) numbers from 0; unused numbers do not count. Secret."""
    import numpy as np

    counts = np.bincount(whose[whose >= 0])
    return counts[counts > 0]


def check_persons(found: int, plan: Plan) -> None:
    """Raise unless `found` persons (secret) fit the plan; the message does not show how many there are."""
    # If one person more or less makes a neighbour, any number is as good: no person decides whether there is a result.
    # Rows of a fixed size hide who the persons are, not that they are there, and neighbours have as many.
    if plan.adjacency is Adjacency.REPLACE_ONE and found != plan.records:
        raise InvalidInput("records", WITHHELD, "the number of persons, as declared for rows of a fixed size")


def said_of(asked: Columns, data: Any) -> tuple[Persons, Columns]:
    columns = asked.as_columns()
    persons, column = Persons.of(columns.person, data, getattr(asked, "per_person", None))
    # Identifiers in memory name no column, and those of files are in no column.
    whole = asked.columns.person if isinstance(asked.columns, Columns) else None
    return persons, replace(columns, person=column if persons.array is None else whole)


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrivateColumns(Columns):
    """Columns and persons of a private dataset, by their names, in addition to its ``data``."""

    per_person: int | None = option(
        None, "Full-weight records per person, K (trainings: records per step). Default: 1.", PERSONS_PANEL
    )

    @cached_property
    def _said(self) -> tuple[Persons, Columns]:
        data: Any = getattr(self, "data", None)
        return said_of(self, data)

    @property
    def persons(self) -> Persons:
        return self._said[0]

    @property
    def declared(self) -> Columns:
        return self._said[1]

    @property
    def of_persons(self) -> bool:
        """Whether a person with all records is the unit of privacy."""
        return self.persons.declared(self.declared.person)
