"""The interface of a reader: one format of files, from the names that announce it to a source."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from privmix._registry import Registry
from privmix.data.columns import Selection
from privmix.data.files import plain_name
from privmix.data.source import Source
from privmix.errors import InvalidInput


@dataclass(frozen=True)
class Request:
    """The caller's options for the data; see :func:`privmix.data.open_dataset`."""

    split: str
    classes: Any
    selection: Selection


class Reader(ABC):
    """A format of files, which ``READERS.register`` makes known.

    Formal guarantees (of every reader):
        - Declared, unread, per record: as :func:`privmix.data.open_dataset` states for its sources.
    """

    # words: in help. endings: names of its files, for messages; suffixes: their ends, without the dot. dialects:
    # whether files may be written in a :class:`privmix.data.dialect.Dialect`. in_place: whether a reader needs no more
    # of a path than :class:`privmix.data.remote_files.RemotePath` has; files of other formats are copied first.

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
        """Possible places of the labels of a file of inputs, if they are not in it."""
        return []


_ARROW: Final = (".arrow", ".arrows", ".ipc", ".feather")
READERS: Final[Registry[type[Reader]]] = Registry("data format", "privmix.data", "privmix.readers")


def reader_of(file: Path) -> type[Reader] | None:
    return next((reader for reader in READERS.all() if reader.claims(file.name.lower())), None)


def suffixes() -> str:
    return ", ".join(reader.endings for reader in READERS.all())


def formats() -> str:
    return (
        f"files known by their suffix ({suffixes()}; texts also with .gz after it), a folder or pattern of such files, "
        "or sub-folders of images. Rename files with other suffixes, and unpack other archives. Convert Excel, SQLite "
        "and other tables to Parquet or CSV with pandas or DuckDB"
    )


def refuse_arrow(files: Sequence[Path], place: Path) -> None:
    """Raise :class:`InvalidInput` for Arrow's own files, and for a folder that ``save_to_disk`` wrote."""
    # A folder of several splits has a list of them and no Arrow file of its own. Another package may read Arrow's.
    arrow = (file for file in files if file.suffix.lower() in _ARROW and reader_of(file) is None)
    if next(arrow, None) or any(file.name == "dataset_dict.json" for file in files):
        allowed = (
            'Parquet: `datasets.load_from_disk(folder)["train"].to_parquet("train.parquet")`, or '
            '`pandas.read_feather(file).to_parquet("train.parquet")`. In Python, pass the Dataset or frame itself'
        )
        raise InvalidInput(str(place), "Arrow files, Feather, or a folder from `save_to_disk`", allowed)


def no_csv() -> InvalidInput:
    """Return the error where it is declared how CSV files are written, and the data are none."""
    return InvalidInput("csv", "some for other data", "no value here: these options are only for CSV files")


def refuse_dialect(request: Request) -> None:
    dialect = request.selection.dialect
    if dialect is not None and dialect.needed:
        raise no_csv()


def holds_split(file: Path, split: str) -> bool:
    reader = reader_of(file)
    return reader is not None and reader.holds_split(file, split)


def may_hold_splits(name: str) -> bool:
    """Whether files of that name may hold several splits, each as arrays of its own."""
    reader = reader_of(Path(name))
    return reader is not None and reader.holds_split.__func__ is not Reader.holds_split.__func__  # type: ignore[attr-defined]


def companions(file: Path) -> list[Path]:
    """Possible places of the labels of a file of inputs: idx and .npy keep labels in a separate file."""
    reader = reader_of(file)
    return [] if reader is None else reader.companions(file)
