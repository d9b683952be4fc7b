"""What a user declares of a dataset: its columns, its images and its classes."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.errors import InvalidInput, StorageError, check_integer
from privmix.options import described, option

if TYPE_CHECKING:
    from privmix.data.dialect import Dialect

_IMAGES: Final = "Columns and images"


@described
@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """What is declared of a table: its label column, its persons, and how CSV files are written."""

    label: str = option("label", "The labels' column.", flag="label-column")
    person: str | Sequence[str] | None = option(
        None,
        "The column, or columns with commas, that name the person of each record; no input. A release's or a "
        "training's privacy is then for persons, with all their records.",
        "Persons",
    )
    separator: str | None = option(
        None, "Field separator: , ; | or tab. Default: a comma; of .tsv files a tab.", "CSV files"
    )
    decimal: str | None = option(
        None, "The decimal mark of numbers, a point or a comma. Default: a point.", "CSV files"
    )
    encoding: str | None = option(
        None, "utf-8, latin-1, cp1252 (Windows), cp1250 or iso-8859-15. Default: utf-8.", "CSV files"
    )
    header: str | Sequence[str] | None = option(
        None, "Names of the columns, with commas, of files without a header line.", "CSV files"
    )
    no_header: int | None = option(
        None, "Files without a header line: how many columns there are, called column_1, ...", "CSV files"
    )

    def __post_init__(self) -> None:
        if not isinstance(self.label, str):
            from privmix.data.source import ONE_LABEL  # type: ignore[unreachable]

            raise InvalidInput("label", self.label, f"the name of one column. {ONE_LABEL}")

    def settled(self) -> Columns:
        """What is declared, apart from what else a command holds.

        A :class:`Columns` that was given as ``columns`` holds, but for what is declared beside it.

        Example:
            >>> Columns(columns=Columns(label="ill", person="who"), label="dead").settled()
            Columns(label='dead', person='who')
        """
        said = {item.name: getattr(self, item.name) for item in fields(Columns) if hasattr(self, item.name)}
        whole = said.get("columns")
        if not isinstance(whole, Columns):
            return Columns(**said)
        usual = {item.name: item.default for item in fields(Columns)}
        given = {name: one for name, one in said.items() if one is not usual[name]}
        return replace(whole, **{name: one for name, one in given.items() if name != "columns"})

    def dialect(self, numbers: Sequence[str] = (), needed: bool = True) -> Dialect | None:
        """How CSV files are written, where anything is declared of it; see :class:`privmix.data.dialect.Dialect`."""
        said = {"separator": self.separator, "decimal": self.decimal, "encoding": self.encoding}
        given: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        if self.header is not None and self.no_header is not None:
            raise InvalidInput("header, no_header", "both", "one of them")
        if self.header is not None:
            given["header"] = tuple(listed(self.header))
        elif self.no_header is not None:
            count = check_integer("no_header", self.no_header, low=1, high=2**16)
            given["header"] = tuple(f"column_{place}" for place in range(1, count + 1))
        if not given:
            return None
        # Imported here: options are listed without it.
        from privmix.data.dialect import Dialect

        return Dialect(**given, numbers=tuple(numbers), needed=needed)


@described
@dataclass(frozen=True, kw_only=True)
class Columns(TableColumns):
    """Which columns and images of a dataset are meant, and what is declared of them.

    Example:
        >>> Columns(columns="age, dose").number_names
        ['age', 'dose']
    """

    columns: str | Sequence[str] | Columns | None = option(
        None, "Columns of numbers, with commas. Default: all but the label's; needed for JSON lines."
    )
    text_column: str | None = option(None, "The texts' column. Default for text extractors: text.")
    feature_column: str | None = option(None, "The column of number lists, where there are several.", _IMAGES)
    feature_length: int | None = option(
        None, "How many numbers each list has; needed where the file's schema does not fix it.", _IMAGES
    )
    image_column: str = option("image", "The column of encoded images.", _IMAGES)
    image_size: int | None = option(
        None, "Encoded images: the side, in pixels, that each is scaled and cropped to; needed.", _IMAGES
    )
    colour: str | None = option(None, "Encoded images: grey or rgb, which each is converted to; needed.", _IMAGES)

    def __repr__(self) -> str:
        said = {item.name: (getattr(self, item.name), item.default) for item in fields(Columns)}
        return f"Columns({', '.join(f'{name}={one!r}' for name, (one, usual) in said.items() if one != usual)})"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        said = {item.name: getattr(self, item.name) for item in fields(Columns)}
        lists = {name: list(value) for name, value in said.items() if isinstance(value, list | tuple)}
        # As files and charges of earlier versions name them.
        renamed = {"label_column": self.label, "number_columns": self.number_names}
        return {
            **renamed,
            **{name: lists.get(name, value) for name, value in said.items() if name not in ("label", "columns")},
        }

    @property
    def number_names(self) -> list[str] | None:
        """Names of the columns of numbers, where they are declared."""
        assert not isinstance(self.columns, Columns)
        return None if self.columns is None else listed(self.columns)

    @property
    def person_names(self) -> list[str]:
        """Names of the columns that say whose a record is."""
        return [] if self.person is None else listed(self.person)

    @classmethod
    def taken_from(cls, given: dict[str, Any], person: str | Sequence[str] | None = None) -> Columns:
        """What Python's users say of columns, taken out of what they say; ``person`` where identifiers name columns."""
        names = [item.name for item in fields(cls) if given.get(item.name) is not None]
        said = {name: given.pop(name) for name in names}
        for item in fields(cls):
            given.pop(item.name, None)
        return cls(**{**said, **({} if person is None else {"person": person})}).settled()

    @classmethod
    def declared(
        cls,
        columns: Columns | str | Sequence[str] | None,
        label: str | None = None,
        person: str | Sequence[str] | None = None,
    ) -> Columns:
        """What Python's users say: all of it, or the names of the columns of numbers; and those of labels and persons.

        Example:
            >>> Columns.declared(["age", "dose"], "ill") == Columns(label="ill", columns=["age", "dose"])
            True
        """
        found = columns if isinstance(columns, Columns) else cls(columns=columns)
        given: dict[str, Any] = {"label": label, "person": person}
        return replace(found, **{name: one for name, one in given.items() if one is not None})

    def elsewhere(self) -> Columns:
        """For another dataset of the same inputs, whose format may differ: its shape is declared by the first's."""
        said = {item.name: getattr(self, item.name) for item in fields(Columns)}
        return _Elsewhere(**{**said, "image_size": None, "colour": None, "feature_length": None})


@dataclass(frozen=True)
class _Elsewhere(Columns):
    """Of a dataset beside another one, which need not be CSV where that is."""

    def dialect(self, numbers: Sequence[str] = (), needed: bool = False) -> Dialect | None:
        return super().dialect(numbers, needed)


@dataclass(frozen=True)
class ImageColumns(Columns):
    """What is declared where only images can be meant."""

    feature_column: str | None = field(default=None, init=False)
    text_column: str | None = field(default=None, init=False)
    columns: str | Sequence[str] | Columns | None = field(default=None, init=False)
    feature_length: int | None = field(default=None, init=False)
    separator: str | None = field(default=None, init=False)
    decimal: str | None = field(default=None, init=False)
    encoding: str | None = field(default=None, init=False)
    header: str | Sequence[str] | None = field(default=None, init=False)
    no_header: int | None = field(default=None, init=False)
    person: str | Sequence[str] | None = field(default=None, init=False)


def listed(names: str | Sequence[str]) -> list[str]:
    """Names of columns, as a list or with commas between them; one with a comma in it stands in double quotes.

    Example:
        >>> listed('age, "dose, mg"'), listed(["age"])
        (['age', 'dose, mg'], ['age'])
    """
    if not isinstance(names, str):
        return list(names)
    return [name.strip() for name in next(csv.reader([names], skipinitialspace=True), [])]


def class_list(text: str | None) -> int | list[str] | str | None:
    """``"10"`` means ten classes "0".."9"; ``"cat,dog"`` names them; ``"@FILE"`` names a file with one a line.

    ``"ClassLabel"`` stays what it is: see :func:`privmix.data.source.resolve_classes`.

    Raises:
        InvalidInput: no number, and not at least two names.
        StorageError: the file can't be read.

    Example:
        >>> class_list("10"), class_list("cat, dog")
        (10, ['cat', 'dog'])
    """
    if text is None or text == "ClassLabel":
        return text
    if text.startswith("@"):
        try:
            names = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise StorageError(f"classes: can't read {text[1:]} as text") from None
        names = [name.strip() for name in names if name.strip()]
    else:
        try:
            return int(text)
        except ValueError:
            names = [name.strip() for name in text.split(",")]
    if len(names) < 2 or not all(names):
        raise InvalidInput("classes", text, "a number of classes, or at least two names separated by commas")
    return names
