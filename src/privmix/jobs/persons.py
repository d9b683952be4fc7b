"""Whose records a dataset's are, as a job declares it, and the records with it once they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.accounting.events import Adjacency
from privmix.errors import WITHHELD, InvalidInput, check_choice, check_integer
from privmix.options import described, option, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from privmix.jobs.columns import Columns
    from privmix.jobs.dataset import Dataset
    from privmix.mechanisms.plan import Plan

PERSONS_PANEL: Final = "Persons"
_MISSING: Final = ("error", "own")
# That name a person together.
_MOST_COLUMNS: Final = 8


@described
@dataclass(frozen=True, kw_only=True, eq=False)
class PersonFiles:
    """Whose the records are, where no column says it."""

    person_pattern: str | None = option(
        None,
        "Folders of images: a regular expression with one group, which finds the person in a file's name.",
        PERSONS_PANEL,
    )
    person_file: Path | None = option(
        None, "Folders of images: a CSV file with the columns file_name and person.", PERSONS_PANEL
    )
    person_missing: str = option(
        "error", "What a record without an identifier is: error, or own, a person of its own.", PERSONS_PANEL
    )


@described
@dataclass(frozen=True, kw_only=True, eq=False)
class Persons(PersonFiles):
    """Whose the records are, where a person with all records is what privacy is for; see `person` of the columns."""

    array: Any = field(
        default=None, repr=False, metadata=said("Identifiers, one a record, for data in memory.", python=True)
    )
    per_person: int | None = option(
        None,
        "K: a person with up to K records weighs in proportion to them (above 1 with `private_count`); trainings: "
        "records of a person in a step. Default: 1.",
        PERSONS_PANEL,
    )

    @classmethod
    def taken_from(cls, given: dict[str, Any], data: Any = None) -> tuple[Persons, str | Sequence[str] | None]:
        """What Python's users say of persons, taken out of what they say, and the names of columns if these say it.

        A short list of texts names columns of files, and of data in memory that have these columns.
        """
        person = given.pop("person", None)
        others = {name: given.pop(name) for name in cls.__dataclass_fields__ if name in given}
        if person is None or isinstance(person, str) or _names_columns(person, data):
            return cls(**others), person
        return cls(**{**others, "array": person}), None

    def declared(self, column: str | Sequence[str] | None) -> bool:
        """Whether persons are the unit.

        Raises:
            InvalidInput: they are declared in several ways, or something is said of them and they are not.
        """
        ways = {
            "person": column if self.array is None else "an array",
            "person_pattern": self.person_pattern,
            "person_file": self.person_file,
        }
        given = {name: value for name, value in ways.items() if value is not None}
        if len(given) > 1 or (column is not None and self.array is not None):
            raise InvalidInput(", ".join(given), "several", "one of them: persons are named in one way")
        check_choice("person_missing", self.person_missing, _MISSING)
        if self.per_person is not None:
            from privmix.mechanisms.plan import MOST_OF_ONE

            check_integer("per_person", self.per_person, low=1, high=MOST_OF_ONE)
        if not given and (self.per_person is not None or self.person_missing != _MISSING[0]):
            name = "per_person" if self.per_person is not None else "person_missing"
            raise InvalidInput(name, getattr(self, name), "nothing without `person`, `person_pattern` or `person_file`")
        return bool(given)

    def check(self, dataset: Dataset) -> None:
        """Raise where whose the records are can't be read; looks at headers and at what was said alone.

        Raises:
            InvalidInput: there is no such column or list, or it is no such pattern; or there is not one identifier a
                record.
            StorageError: a list can't be read.
        """
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
            if self.person_pattern is not None:
                persons.compiled_pattern(self.person_pattern)
            else:
                assert self.person_file is not None
                persons.check_list(self.person_file)

    def read(self, dataset: Dataset, missing: str | None = None) -> NDArray[np.int64]:
        """(n,) whose each record of the dataset is. Reads private data: charge the ledger first.

        Args:
            missing: in place of ``person_missing``.

        Raises:
            InvalidInput: there is no such column, or somebody has no identifier; none is shown.
            StorageError: the data can't be read.
        """
        from privmix.data import persons

        columns, missing = dataset.columns.person_names, missing or self.person_missing
        if columns:
            dialect = dataset.columns.dialect()
            with _place(dataset) as data:
                found = persons.persons_in_column(data, columns, split=dataset.split, dialect=dialect, missing=missing)
        elif self.array is not None:
            found = persons.persons_in(self.array, missing)
        elif self.person_pattern is not None:
            found = persons.persons_in_names(self._names(dataset), self.person_pattern, missing)
        else:
            assert self.person_file is not None
            found = persons.persons_in_list(self._names(dataset), self.person_file, missing)
        if len(found) != dataset.schema.records:
            raise _another_number()
        return found

    def _names(self, dataset: Dataset) -> Sequence[str]:
        if (names := dataset.source.names) is None:
            field = "person_pattern" if self.person_pattern is not None else "person_file"
            allowed = "none: it is for folders of images, whose files have names"
            raise InvalidInput(field, str(getattr(self, field)), allowed)
        return names


def _names_columns(person: Any, data: Any) -> bool:
    if not isinstance(person, list | tuple) or not 1 < len(person) <= _MOST_COLUMNS:
        return False
    known = data.column_names if hasattr(data, "column_names") else getattr(data, "columns", ())
    return all(isinstance(name, str) and (isinstance(data, str | Path) or name in known) for name in person)


@contextmanager
def _place(dataset: Dataset) -> Iterator[Any]:
    """Where the records are that the dataset has: of an address, the very versions that they are read from."""
    from privmix.data.remote import RemoteSource

    if isinstance(dataset.source, RemoteSource):
        with dataset.source.place() as path:
            yield path
    else:
        yield dataset.data


def _another_number() -> InvalidInput:
    return InvalidInput("person", WITHHELD, "one identifier a record")


def records_of_each(whose: NDArray[np.int64]) -> NDArray[np.int64]:
    """(persons,) how many records each person has. Secret.

    Args:
        whose: (n,) numbers of persons from 0, such as :meth:`Persons.read` gives; those that nobody has do not count.

    Example:
        >>> import numpy as np
        >>> records_of_each(np.array([0, 3, 0])).tolist()
        [2, 1]
    """
    import numpy as np

    counts = np.bincount(whose)
    return counts[counts > 0]


def check_persons(found: int, plan: Plan) -> None:
    """Raise unless so many persons can be what was planned with; how many there are is not shown.

    Where one person more or less makes a neighbour, any number is as good: one of them must not decide whether there is
    a result. Rows of a fixed size hide what persons are, not that they are there, and neighbours have as many.

    Args:
        found: how many there are. Secret.
        plan: public.

    Raises:
        InvalidInput: they are not as many as the plan says, and its law depends on that.
    """
    if plan.adjacency is Adjacency.REPLACE_ONE and found != plan.records:
        raise InvalidInput(
            "records", WITHHELD, "the number of persons, of which a design of rows of a fixed size knows"
        )


def said_of(asked: Columns, data: Any) -> tuple[Persons, Columns]:
    """What a command's options say of persons and of columns."""
    known = ("person", *Persons.__dataclass_fields__)
    persons, column = Persons.taken_from({name: vars(asked)[name] for name in known if name in vars(asked)}, data)
    columns = asked.settled()
    # Identifiers in memory name no column.
    return persons, columns if persons.array is None else replace(columns, person=column)
