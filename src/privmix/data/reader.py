"""What a reader is: one format of files, from the names that announce it to a source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from privmix._registry import Registry
from privmix.data.columns import Selection
from privmix.data.files import PACKED, plain_name
from privmix.data.source import Source
from privmix.errors import InvalidInput


@dataclass(frozen=True)
class Request:
    """What the caller wants of the data; see :func:`privmix.data.open_dataset`."""

    split: str
    classes: Any
    selection: Selection


class Reader(ABC):
    """A format of files, which ``READERS.register`` makes known.

    Formal guarantees (of every reader):
        - Declared, unread, per record: as :func:`privmix.data.open_dataset` says of its sources.

    Attributes:
        name: of the format.
        words: what help calls it.
        endings: what messages say of the names of its files.
        suffixes: what the names of its files end in, without the dot.
        zipped: whether files may be packed, which a further suffix says; see :func:`privmix.data.files.open_binary`.
        dialects: whether files may be written in a dialect; see :class:`privmix.data.dialect.Dialect`.
        in_place: whether files at an address are read where they are: it asks no more of a path than
            :class:`privmix.data.remote_files.RemotePath` has. Files of other formats are copied first.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    endings: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    zipped: ClassVar[bool] = False
    dialects: ClassVar[bool] = False
    in_place: ClassVar[bool] = False

    @classmethod
    def claims(cls, name: str) -> bool:
        """Whether a file of that name, in lower case, is of this format."""
        plain = plain_name(name) if cls.zipped else name
        return "." in plain and plain.rpartition(".")[2] in cls.suffixes

    @classmethod
    @abstractmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        """Open the files of one split, in their order; no record is looked into."""

    @classmethod
    def holds_split(cls, file: Path, split: str) -> bool:
        """Whether a file without a split's name holds that split's arrays."""
        return False

    @classmethod
    def companions(cls, file: Path) -> list[Path]:
        """Where the labels that belong to a file of inputs may lie, if not in it."""
        return []


READERS: Final[Registry[type[Reader]]] = Registry("data format", "privmix.data", "privmix.readers")


def reader_of(file: Path) -> type[Reader] | None:
    """The reader of the format that a file's name announces, if there is one."""
    return next((reader for reader in READERS.all() if reader.claims(file.name.lower())), None)


def suffixes() -> str:
    """The suffixes of files that are read, for messages."""
    return ", ".join(reader.endings for reader in READERS.all())


def formats() -> str:
    """What can be opened, for messages."""
    return (
        f"files known by their suffix ({suffixes()}; texts also with {', '.join(PACKED)} behind it), a folder or "
        "pattern of such files, a folder saved by Hugging Face datasets, or sub-folders of images. Rename a file whose "
        "suffix differs; convert Excel, SQLite and other tables to Parquet or CSV, by pandas or DuckDB"
    )


def refuse_columns(request: Request, format_: str) -> None:
    """Raise :class:`InvalidInput` where columns are declared of a format that has none."""
    for names in (request.selection.table, request.selection.numbers):
        if names is not None:
            raise InvalidInput("columns", list(names), f"none: {format_} has no columns with names")
    if request.selection.length is not None:
        raise InvalidInput("feature_length", request.selection.length, f"none: {format_} has no columns of lists")


def refuse_images(request: Request) -> None:
    """Raise :class:`InvalidInput` where something is declared of encoded images that the data do not hold."""
    for field, value in (("image_size", request.selection.image_size), ("colour", request.selection.colour)):
        if value is not None:
            raise InvalidInput(field, value, "none: the inputs are not encoded images")


def no_csv() -> InvalidInput:
    """The error where it is declared how CSV files are written, and the data are none."""
    fields = "separator, decimal, encoding, header"
    return InvalidInput(fields, "some for other data", "none: they are for CSV files alone")


def refuse_dialect(request: Request) -> None:
    """Raise :class:`InvalidInput` where it is declared how CSV files are written, and the data are none."""
    dialect = request.selection.dialect
    if dialect is not None and dialect.needed:
        raise no_csv()
