"""Columns, images and classes of a dataset, as a user declares them."""

from __future__ import annotations

import csv as csv_lines
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.errors import InvalidInput, StorageError, check_integer, in_terms_of
from privmix.named import parts_of
from privmix.options import described, option

if TYPE_CHECKING:
    from privmix.data.dialect import Dialect

_IMAGES: Final = "Columns and images"
_CSV: Final = ("separator", "decimal", "encoding")
NO_LABEL: Final = "none"


@described
@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Declaration of a table: its label column, its persons, and how CSV files are written."""

    label: str | None = option("label", "Name of the label column; none: records without a label.", flag="label-column")
    person: str | Sequence[str] | None = option(
        None, "Columns of person identifiers; the guarantee then covers whole persons.", "Persons"
    )
    csv: str | Mapping[str, Any] | None = option(
        None,
        "CSV format, such as separator=;,decimal=comma,encoding=latin-1.",
        "CSV files",
        in_python="Also a mapping.",
    )

    def __post_init__(self) -> None:
        if self.label == NO_LABEL:
            object.__setattr__(self, "label", None)
        if not isinstance(self.label, str | None):
            from privmix.data.source import ONE_LABEL  # type: ignore[unreachable]

            raise InvalidInput("label", self.label, f"the name of one column, or none. {ONE_LABEL}")

    def as_columns(self) -> Columns:
        """Return the declared columns as :class:`Columns`; other declarations replace fields of `columns`."""
        said = {item.name: getattr(self, item.name) for item in fields(Columns) if hasattr(self, item.name)}
        whole = said.get("columns")
        if not isinstance(whole, Columns):
            return Columns(**said)
        usual = {item.name: item.default for item in fields(Columns)}
        given = {name: one for name, one in said.items() if one is not usual[name]}
        return replace(whole, **{name: one for name, one in given.items() if name != "columns"})

    @property
    def csv_said(self) -> dict[str, Any]:
        """The declaration of CSV files; `header`: names of columns of files without a header line, or their number."""
        said: Any = self.csv or {}
        if isinstance(said, str):
            parts = [part.partition("=") for part in parts_of(said) if part]
            said = {name if equals else "": value for name, equals, value in parts}
        if not isinstance(said, Mapping) or not set(said) <= {*_CSV, "header"}:
            raise InvalidInput("csv", self.csv, f"KEY=VALUE,... of {', '.join(_CSV)}, header")
        # A comma at the end of a part looks like one between two.
        words = {"comma": ",", "": ",", "point": ".", "semicolon": ";"}
        header = said.get("header")
        if isinstance(header, str) and header.strip().isdigit():
            header = int(header)
        elif not isinstance(header, int | None):
            header = listed(header, "|")
        marks = {name: words.get(said[name], said[name]) if name in said else None for name in _CSV}
        return {**marks, "header": header}

    def dialect(self, numbers: Sequence[str] = (), needed: bool = True) -> Dialect | None:
        """How CSV files are written, where anything is declared of it; see :class:`privmix.data.dialect.Dialect`."""
        given = {name: value for name, value in self.csv_said.items() if value is not None}
        if not given:
            return None
        header = given.pop("header", ())
        if isinstance(header, int):
            count = check_integer("csv header", header, low=1, high=2**16)
            header = [f"column_{place}" for place in range(1, count + 1)]
        # Imported here: options are listed without it.
        from privmix.data.dialect import Dialect

        with in_terms_of({name: f"csv {name}" for name in (*_CSV, "header")}):
            return Dialect(**given, header=tuple(header), numbers=tuple(numbers), needed=needed)


@described
@dataclass(frozen=True, kw_only=True)
class Columns(TableColumns):
    """Columns and images of a dataset, and what is declared of them.

    Example:
        >>> Columns(columns="age, dose").number_names
        ['age', 'dose']
    """

    columns: str | Sequence[str] | Columns | None = option(
        None, "Input columns, with commas: numbers, or one of texts, lists or images."
    )
    feature_length: int | None = option(
        None, "Length of number lists, if the file's schema does not state it.", _IMAGES
    )
    image_size: int | None = option(None, "Side in pixels to which encoded images are scaled and cropped.", _IMAGES)
    colour: str | None = option(None, "Colour mode of encoded images: grey or rgb.", _IMAGES)

    def __repr__(self) -> str:
        said = {item.name: (getattr(self, item.name), item.default) for item in fields(Columns)}
        if not isinstance(self.person, str):
            # It may be identifiers, not names of columns, and a repr ends up in logs.
            del said["person"]
        given = ", ".join(f"{name}={one!r}" for name, (one, usual) in said.items() if one != usual)
        return f"{type(self).__name__}({given})"

    def to_dict(self) -> dict[str, Any]:
        said, person = self.csv_said, self.person
        header = said.pop("header")
        # As files and charges of earlier versions name them.
        return {
            "label_column": self.label,
            "number_columns": self.number_names,
            "person": list(person) if isinstance(person, list | tuple) else person,
            **said,
            "header": None if isinstance(header, int) else header,
            "no_header": header if isinstance(header, int) else None,
            "text_column": None,
            "feature_column": None,
            "image_column": "image",
            "feature_length": self.feature_length,
            "image_size": self.image_size,
            "colour": self.colour,
        }

    @property
    def number_names(self) -> list[str] | None:
        assert not isinstance(self.columns, Columns)
        return None if self.columns is None else listed(self.columns)

    @property
    def person_names(self) -> list[str]:
        return [] if self.person is None else listed(self.person)

    def elsewhere(self) -> Columns:
        """For another dataset of the same inputs, whose format may differ: its shape is declared by the first's."""
        return _Elsewhere(**{**vars(self), "image_size": None, "colour": None, "feature_length": None})


@dataclass(frozen=True)
class _Elsewhere(Columns):
    """Columns of another dataset, which need not be CSV where the first one is."""

    def dialect(self, numbers: Sequence[str] = (), needed: bool = False) -> Dialect | None:
        return super().dialect(numbers, needed)


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ModelColumns(Columns):
    """Declaration of data for a release or a model, which states the shape of its inputs."""

    feature_length: int | None = field(default=None, init=False)
    image_size: int | None = field(default=None, init=False)
    colour: str | None = field(default=None, init=False)
    person: str | Sequence[str] | None = field(default=None, init=False)


def listed(names: str | Sequence[str], mark: str = ",") -> list[str]:
    """Return names of columns, given as a list or with marks between them; quotes enclose a name with a mark."""
    if not isinstance(names, str):
        return list(names)
    return [name.strip() for name in next(csv_lines.reader([names], delimiter=mark, skipinitialspace=True), [])]


def class_list(text: Any) -> Any:
    """``"10"`` means ten classes "0".."9"; ``"cat,dog"`` names them; ``"@FILE"`` names a file with one a line."""
    # Lists stay, and so does "ClassLabel": see `privmix.data.source.resolve_classes`.
    if not isinstance(text, str) or text == "ClassLabel":
        return text
    if text.startswith("@"):
        try:
            names = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise StorageError(f"classes: cannot read {text[1:]} as text") from None
        names = [name.strip() for name in names if name.strip()]
    else:
        try:
            return int(text)
        except ValueError:
            names = [name.strip() for name in text.split(",")]
    if len(names) < 2 or not all(names):
        raise InvalidInput("classes", text, "a number of classes, or at least two names separated by commas")
    return names
