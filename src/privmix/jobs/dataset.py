"""The private dataset of a job, opened, and what tells it from others; opening datasets for an extractor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from privmix import data as readers
from privmix.data import Schema, Source, content_hashes
from privmix.data.fingerprint import files_of, fingerprint, listing_hash
from privmix.data.remote import is_remote, local_path, public_name
from privmix.errors import InvalidInput, StorageError
from privmix.features import Extractor, Tabular, TextEncoder


@dataclass(frozen=True)
class Columns:
    """Which columns and images of a dataset are meant, and what is declared of them.

    Attributes:
        label: the labels' column.
        image: the column of encoded images.
        feature: the column of lists of numbers, where there are several.
        text: the texts' column; for text extractors ``"text"`` where None.
        image_size: side, in pixels, that each image is scaled and cropped to.
        colour: ``"grey"`` or ``"rgb"``, which each image is converted to.
        numbers: columns of numbers, as a list or with commas between them.
        feature_length: how many numbers each list has.
    """

    label: str = "label"
    image: str = "image"
    feature: str | None = None
    text: str | None = None
    image_size: int | None = None
    colour: str | None = None
    numbers: str | Sequence[str] | None = None
    feature_length: int | None = None

    @property
    def number_names(self) -> list[str] | None:
        """Names of the columns of numbers, where they are declared."""
        if self.numbers is None or not isinstance(self.numbers, str):
            return None if self.numbers is None else list(self.numbers)
        return [name.strip() for name in self.numbers.split(",")]

    def elsewhere(self) -> Columns:
        """For another dataset of the same inputs, whose format may differ: its shape is declared by the first's."""
        return replace(self, image_size=None, colour=None, feature_length=None)


def class_list(text: str | None) -> int | list[str] | None:
    """``"10"`` means ten classes "0".."9"; ``"cat,dog"`` names them; ``"@FILE"`` names a file with one a line.

    Raises:
        InvalidInput: no number, and not at least two names.
        StorageError: the file can't be read.

    Example:
        >>> class_list("10"), class_list("cat, dog")
        (10, ['cat', 'dog'])
    """
    if text is None:
        return None
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


def open_for(
    extractor: Extractor,
    data: str,
    split: str,
    classes: int | Sequence[str] | None,
    columns: Columns,
    input_shape: tuple[int, ...] | None = None,
) -> Source:
    """Open a dataset as the extractor takes it: tables with its columns, texts, or arrays.

    Args:
        extractor: decides between texts, tables and arrays.
        data: file, folder, pattern or address.
        split: which part of it.
        classes: number or names of the classes, where they are declared.
        columns: what is declared of columns and images.
        input_shape: a model's or another dataset's, where shapes are not declared.

    Raises:
        InvalidInput: the dataset, its columns and the extractor do not fit.
        StorageError: it cannot be read.
    """
    text = columns.text
    if isinstance(extractor, TextEncoder):
        text = text or "text"
    elif text is not None:
        raise InvalidInput("text_column", text, "an extractor of texts: minilm or text:MODEL")
    table = extractor.columns if isinstance(extractor, Tabular) else None
    if columns.numbers is not None and (text is not None or table is not None):
        raise InvalidInput("number_columns", columns.numbers, "none with an extractor of texts or tables")
    source = readers.open_dataset(
        data,
        split=split,
        classes=classes,
        label_column=columns.label,
        image_column=columns.image,
        feature_column=columns.feature,
        text_column=text,
        columns=table,
        number_columns=columns.number_names,
        feature_length=columns.feature_length,
        image_size=columns.image_size,
        colour=columns.colour,
        input_shape=input_shape,
    )
    extractor.check_schema(source.schema)
    return source


@dataclass(frozen=True, eq=False)
class Dataset:
    """The private dataset of a job; make it with :func:`open_dataset`.

    What tells it from others (hashes, places) is private: it goes to the owner's ledger, run folder and feature store.

    Attributes:
        source: its records, read when asked for.
        place: file, folder, pattern or address.
        split: which part of it.
        columns: what is declared of its columns and images.
    """

    source: Source
    place: str
    split: str
    columns: Columns

    @property
    def schema(self) -> Schema:
        """Public facts."""
        return self.source.schema

    def identity(self) -> dict[str, Any]:
        """What an interrupted run is bound to, as JSON values."""
        columns = {**asdict(self.columns), "numbers": self.columns.number_names}
        return {"fingerprint": fingerprint(self.place), "split": self.split, "columns": columns}

    def contents(self) -> tuple[str, ...]:
        """What a ledger knows the records by; see :func:`privmix.data.content_hashes`."""
        return content_hashes(self.source)

    def listings(self) -> tuple[str, ...]:
        """What earlier versions' ledgers may know the same records by."""
        return (fingerprint(self.place), *(listing_hash([one]) for one in self.contents()))

    def origin(self) -> Mapping[str, Any]:
        """What features of the records belong to in a store: the split, and every file's path, size and time."""
        if is_remote(self.place):
            # Nothing cheap tells changed remote content: hash it.
            return {"split": self.split, "files": [[public_name(self.place), fingerprint(self.place)]]}
        files = [(str(path.resolve()), path.stat()) for path in files_of(local_path(self.place))]
        return {"split": self.split, "files": [[path, stat.st_size, stat.st_mtime_ns] for path, stat in files]}


def open_dataset(
    data: str | Path,
    extractor: Extractor,
    *,
    split: str = "train",
    classes: int | Sequence[str] | None = None,
    columns: Columns | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> Dataset:
    """Open the private dataset of a job. Arguments and errors as :func:`open_for`; no record is looked into."""
    columns = Columns() if columns is None else columns
    place = str(data)
    return Dataset(open_for(extractor, place, split, classes, columns, input_shape), place, split, columns)
