"""The private dataset of a job, opened, and what tells it from others; opening datasets for an extractor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from privmix import data as readers
from privmix.data import Schema, Source, content_hashes
from privmix.data.columns import first_of
from privmix.data.fingerprint import fingerprint, hashed_files, listing_hash, records_hash
from privmix.data.held import may_have_splits, settled
from privmix.data.remote import is_remote, public_name
from privmix.data.source import reads_places
from privmix.data.spool import Spool
from privmix.errors import InvalidInput
from privmix.features import Extractor, Identity, Pixels, Tabular, TextEncoder
from privmix.jobs.columns import Columns, class_list

_LATER: Final = ("separator", "decimal", "encoding", "person", "header", "no_header")
PUBLISHED_NAMES: Final = "published names"
# What decides which values of a file are inputs and labels, and is in no schema.
_READ_BY: Final = (
    "label_column",
    "image_column",
    "feature_column",
    "number_columns",
    "separator",
    "decimal",
    "encoding",
    "header",
    "no_header",
)


def open_for(
    extractor: Extractor,
    data: Any,
    split: str,
    classes: Any,
    columns: Columns,
    input_shape: tuple[int, ...] | None = None,
    labelled: bool = True,
) -> Source:
    """Open a dataset as the extractor takes it: tables with its columns, texts, or arrays.

    Args:
        extractor: decides between texts, tables and arrays.
        data: file, folder, pattern or address, or data in memory; see :func:`privmix.data.open_dataset`.
        split: which part of it.
        classes: number or names of the classes, where they are declared.
        columns: what is declared of columns and images.
        input_shape: a model's or another dataset's, where shapes are not declared; otherwise the extractor's, if it
            has one.
        labelled: whether labels are read; see :func:`privmix.data.open_dataset`.

    Raises:
        InvalidInput: the dataset, its columns and the extractor do not fit.
        StorageError: it cannot be read.
    """
    text, reads = columns.text_column, extractor.reads
    if isinstance(reads, TextEncoder):
        text = text or "text"
    elif text is not None:
        raise InvalidInput("text_column", text, "an extractor of texts: minilm or text:MODEL")
    table = reads.columns if isinstance(reads, Tabular) else None
    if columns.columns is not None and (text is not None or table is not None):
        raise InvalidInput("columns", columns.columns, "none with an extractor of texts or tables")
    options: dict[str, Any] = {
        "split": split,
        "classes": classes,
        "label_column": columns.label,
        "image_column": columns.image_column,
        "feature_column": columns.feature_column,
        "text_column": text,
        "columns": table,
        "number_columns": columns.number_names,
        "feature_length": columns.feature_length,
        "image_size": columns.image_size,
        "colour": columns.colour,
        "input_shape": reads.image_shape if input_shape is None else input_shape,
        "labelled": labelled,
        "decoder": reads.decoder,
        "person_columns": columns.person_names,
        "values": reads.values if isinstance(reads, Tabular) else (),
        "dialect": columns.dialect(reads.number_columns if isinstance(reads, Tabular) else ()),
    }
    source = readers.open_dataset(data, **options)
    if isinstance(reads, Pixels) and source.number_names is not None and input_shape is None:
        allowed = (
            "identity for columns of numbers, tabular:SPEC.json for tables with categories, dates or missing values; "
            "pixels, which is assumed where nothing is named, is for images"
        )
        raise InvalidInput("features", reads.name, allowed)
    named = reads.feature_names if isinstance(reads, Identity) else ()
    if named and source.number_names not in (None, named):
        # The columns that were released, in their order, wherever the data have them.
        source = readers.open_dataset(data, **{**options, "number_columns": list(named)})
    extractor.check_schema(source.schema)
    return source


@dataclass(frozen=True, eq=False)
class Dataset:
    """The private dataset of a job; make it with :func:`open_dataset`.

    What tells it from others (hashes, places) is private: it goes to the owner's ledger, run folder and feature store.

    Attributes:
        source: its records, read when asked for.
        place: file, folder, pattern or address; None where the records are in memory.
        split: which part of it.
        columns: what is declared of its columns and images.
        data: as it was named or handed over.
        spool: where its records are kept, if they came by a stream.
    """

    source: Source
    place: str | None
    split: str
    columns: Columns
    data: Any = field(default=None, repr=False)
    spool: Spool | None = None

    @property
    def schema(self) -> Schema:
        """Public facts."""
        return self.source.schema

    @property
    def published_names(self) -> dict[str, list[str]]:
        """What a release or model names of the data, apart from what its extractor calls features."""
        columns = self.schema.columns or self.source.number_names or ()
        return {"columns": list(columns), "classes": list(self.schema.classes)}

    def identity(self) -> dict[str, Any]:
        """What an interrupted run is bound to, as JSON values."""
        # What a run began before there were these is bound to has none of them.
        said = self.columns.to_dict().items()
        columns = {name: value for name, value in said if name not in _LATER or value is not None}
        found = records_hash(self.source) if self.place is None else fingerprint(self.place)
        return {"fingerprint": found, "split": self.split, "columns": columns}

    def contents(self) -> tuple[str, ...]:
        """What a ledger knows the records by; see :func:`privmix.data.content_hashes`."""
        return content_hashes(self.source)

    def listings(self) -> tuple[str, ...]:
        """What earlier versions' ledgers may know the same records by."""
        if self.place is None:
            return ()
        return listings_of(self.place, self.contents())

    def origin(self) -> Mapping[str, Any]:
        """What features of the records belong to in a store: the split, and every file's path and SHA-256.

        Not its size and time: a record that was changed or taken out may leave both as they were. And the columns that
        inputs and labels are read from, where another than the usual one is declared.
        """
        if self.spool is None:
            return self._origin()
        schema = self.schema
        key = repr((self.split, self.columns, schema.input_shape, schema.classes, schema.columns))
        return self.spool.known(key, self._origin)

    def _origin(self) -> Mapping[str, Any]:
        columns, usual = self.columns.to_dict(), Columns().to_dict()
        read = {name: columns[name] for name in _READ_BY if columns[name] != usual[name]}
        # Earlier versions took numbers for places there.
        labels = {} if reads_places(self.schema.classes) else {"labels": "by name"}
        return {**self._made_of(), **({"columns": read} if read else {}), **labels}

    def _made_of(self) -> dict[str, Any]:
        if self.place is None:
            inputs, _ = next(iter(self.source._silent_chunks(1)))
            # Of equal numbers, those of type uint8 are pixels.
            files = [["memory", str(inputs.dtype == np.uint8), records_hash(self.source)]]
            return {"split": self.split, "files": files}
        if is_remote(self.place):
            # Nothing cheap tells changed remote content: hash it.
            return {"split": self.split, "files": [[public_name(self.place), fingerprint(self.place)]]}
        found = hashed_files(self.source)
        return {"split": self.split, "files": [[str(path.resolve()), digest] for path, digest in found]}


def shown_names(names: Mapping[str, Sequence[str]]) -> str:
    """For people, see :attr:`Dataset.published_names`.

    Example:
        >>> shown_names({"columns": ["age"], "classes": ["no", "yes"]})
        'columns age; classes no, yes'
    """
    return "; ".join(f"{kind} {first_of(some)}" for kind, some in names.items() if some)


def listings_of(place: str, files: Sequence[str]) -> tuple[str, ...]:
    """What earlier versions' ledgers may know the records at a place by, whose files have these hashes."""
    return (fingerprint(place), *(listing_hash([one]) for one in files))


def open_dataset(
    data: Any,
    extractor: Extractor,
    *,
    split: str = "train",
    classes: Any = None,
    columns: Columns | None = None,
    input_shape: tuple[int, ...] | None = None,
    labelled: bool = True,
) -> Dataset:
    """Open the dataset of a job; no record is looked into. Arguments and errors as :func:`open_for`.

    ``classes`` may also be what :func:`privmix.jobs.columns.class_list` reads.
    """
    columns = Columns() if columns is None else columns
    # What streams does so once: persons and records are of one reading.
    data = data if isinstance(data, str | Path) else settled(data, split)
    if isinstance(classes, str):
        classes = class_list(classes)
    source = open_for(extractor, data, split, classes, columns, input_shape, labelled)
    return Dataset(source, str(data) if isinstance(data, str | Path) else None, split, columns, data)


def open_unlabelled(
    data: Any,
    extractor: Extractor,
    input_shape: Sequence[int],
    classes: Sequence[str],
    *,
    split: str | None,
    columns: Columns,
) -> Dataset:
    """Open records, whose labels need not be there, as inputs of a model or release.

    Args:
        data: as :func:`open_for`.
        extractor: of the model or release.
        input_shape, classes: of it, too.
        split: which part; None: ``test`` where there is one, else all that names no part.
        columns: what is declared of columns and images.

    Raises:
        InvalidInput: their inputs have another shape, or there is no such part.
        StorageError: they can't be read.
    """
    shape = tuple(input_shape)
    if not isinstance(data, str | Path) and not may_have_splits(data):
        data = settled(data)
    # New records mostly have no parts: what is not named for one is taken for the training part elsewhere.
    for part in ("test", "train") if split is None else (split,):
        try:
            found = open_dataset(
                data,
                extractor,
                split=part,
                classes=list(classes),
                columns=columns,
                input_shape=shape,
                labelled=False,
            )
        except InvalidInput as error:
            if error.field != "split" or part != "test" or split is not None:
                raise
        else:
            break
    if tuple(found.schema.input_shape) != shape:
        raise InvalidInput("data", found.schema.input_shape, f"inputs of shape {shape}")
    return found
