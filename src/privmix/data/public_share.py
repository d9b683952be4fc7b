"""Splitting a share of a private dataset off as public: one dataset to keep and one to give away."""

from __future__ import annotations

import json
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import LabelledArray, Schema, Source, reads_places
from privmix.errors import WITHHELD, InvalidInput, StorageError, Unquoted
from privmix.fields import Count, Share, Size, check_fields
from privmix.held_folders import hold

_BATCH: Final = 1024

# The column name of persons, and the person of each record that is written.
Whose = tuple[str, NDArray[np.int64]] | None


@dataclass(frozen=True)
class PublicShare:
    """How many records become public: a ``share`` of all, or a ``count``, of each class if ``per_class``."""

    # All fields are public. Per class, a share of n records is n * share / K of each. `seed` None takes the system's
    # entropy.

    share: Share | None = None
    count: Count | None = None
    per_class: bool = True
    seed: Size | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.share is None) == (self.count is None):
            raise InvalidInput("share, count", Unquoted("both or neither"), "exactly one of the two")

    def wanted(self, records: int, classes: int) -> int:
        """Return records (or persons) to draw, of each class if ``per_class``; from public numbers alone."""
        groups = classes if self.per_class else 1
        wanted = self.count if self.count is not None else round((self.share or 0.0) * records / groups)
        if not 0 < wanted * groups < records:
            field, value = ("share", self.share) if self.count is None else ("count", self.count)
            raise InvalidInput(field, value, f"a share that leaves at least one of the {records} records on each side")
        return wanted

    def draw(self, labels: NDArray[np.int64], classes: int) -> NDArray[np.bool_]:
        """Draw the records that become public: (n,) booleans.

        Formal guarantees:
            * the draw depends on ``labels`` if ``per_class``, else on their number alone, and on nothing else of any
              record;
            * every record of a class is as likely to be drawn as any other of it.
        """
        generator = np.random.default_rng(self.seed)
        wanted = self.wanted(len(labels), classes)
        groups = [np.flatnonzero(labels == one) for one in range(classes)] if self.per_class else [len(labels)]
        if self.per_class and min(map(np.size, groups)) < wanted:
            raise InvalidInput("records in the smallest class", WITHHELD, f"at least {wanted}: draw fewer per class")
        public = np.zeros(len(labels), dtype=bool)
        for group in groups:
            public[generator.choice(group, wanted, replace=False)] = True
        return public


def draw_persons(
    share: PublicShare, persons: NDArray[np.int64], labels: NDArray[np.int64], classes: int
) -> NDArray[np.bool_]:
    """Draw the persons whose records become public: (n,) booleans.

    Shares and counts are then of persons. Per class, a person is of the class of their first record in the data.

    Formal guarantees:
        * Whole: records of one person are all drawn or none is.
        * Every person (of a class) is as likely to be drawn as any other, however many records they have.
    """
    _, first = np.unique(persons, return_index=True)
    try:
        drawn = share.draw(labels[first], classes)
    except InvalidInput as error:
        if error.field not in ("share", "count"):
            raise InvalidInput("persons in the smallest class", WITHHELD, error.allowed) from None
        raise InvalidInput(
            error.field, getattr(share, error.field), "a share that leaves at least one person on each side"
        ) from None
    return np.asarray(drawn[persons])


def ending(schema: Schema) -> str:
    """Return the suffix of such a dataset's files: .npz for arrays, .jsonl for tables and texts."""
    return ".npz" if schema.columns is None else ".jsonl"


def split_off(
    source: Source,
    share: PublicShare,
    public: Path,
    private: Path,
    *,
    label_column: str = "label",
    persons: tuple[str, NDArray[np.int64]] | None = None,
) -> tuple[int, int]:
    """Write a random share of a dataset to ``public`` and the rest to ``private``, both in the source's order.

    Records in ``public`` are public from then on: no later guarantee covers them. Arrays are written as an .npz with
    ``x``, ``y`` and ``classes``, tables and texts as JSON lines. Returns the numbers of public and of private records.

    Formal guarantees:
        * Disjoint and complete: every record is in exactly one of the two files.
        * Silent about the rest: with the same seed, ``public`` has the same bytes for all inputs of the records in
          ``private``. The same holds for all their labels unless the draw is per class. A draw per class fails where a
          class has too few records, and reveals that much of labels.
        * Whole: a person, where persons are given, is in one of the two files with all records.
        * Closed: ``private`` can be opened by its owner only.
        * Whole or absent: a file has its name once it is complete; ``public`` comes last.
    """
    # `persons` is the name of the person column in `private`, and the (n,) numbers from 0 in the order of first
    # records.
    schema = source.schema
    _check_places(public, private, ending(schema))
    if persons is None:
        share.wanted(schema.records, schema.num_classes)
    elif persons[0] in {label_column, *(schema.columns or ("x", "y", "classes"))}:
        raise InvalidInput("person", persons[0], "a name that no label or input column has")
    labels = np.concatenate([batch.y for batch in source.batches(_BATCH)])
    if persons is None:
        chosen = share.draw(labels, schema.num_classes)
    else:
        chosen = draw_persons(share, persons[1], labels, schema.num_classes)
    kept, given = int((~chosen).sum()), int(chosen.sum())
    with ExitStack() as stack:
        # Left in the opposite order: the private file gets its name before the public one.
        outside = stack.enter_context(_writing(public, False, schema, given, label_column, None))
        whose = None if persons is None else (persons[0], persons[1][~chosen])
        inside = stack.enter_context(_writing(private, True, schema, kept, label_column, whose))
        start = 0
        for batch in source.batches(_BATCH):
            mask = chosen[start : start + len(batch)]
            outside.write(batch, mask)
            inside.write(batch, ~mask)
            start += len(batch)
    return given, kept


class _Writer(ABC):
    """Writes chosen records of batches to an open file."""

    @abstractmethod
    def write(self, batch: LabelledArray, mask: NDArray[np.bool_]) -> None:
        """Append the records of ``batch`` that ``mask`` names."""

    @abstractmethod
    def close(self) -> None:
        """Complete the file."""


class _ArrayWriter(_Writer):
    """An .npz whose inputs go to disk batch by batch."""

    def __init__(self, file: IO[bytes], schema: Schema, records: int, whose: Whose) -> None:
        self._whose = whose
        self._archive = zipfile.ZipFile(file, "w")
        self._schema, self._records = schema, records
        self._x: IO[bytes] | None = None
        self._dtype = np.dtype(np.uint8)
        self._y: list[NDArray[np.int64]] = []

    def write(self, batch: LabelledArray, mask: NDArray[np.bool_]) -> None:
        if self._x is None:
            self._dtype = batch.x.dtype
            self._x = self._member("x")
            shape = (self._records, *self._schema.input_shape)
            header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(self._x, header)
        self._x.write(np.ascontiguousarray(batch.x[mask], dtype=self._dtype).tobytes())
        self._y.append(batch.y[mask])

    def close(self) -> None:
        if self._x is not None:
            self._x.close()
        y, names = np.concatenate(self._y), np.array(self._schema.classes)
        # Places, unless a number would be read as a name.
        arrays = [("y", y if reads_places(self._schema.classes) else names[y]), ("classes", names)]
        for name, array in arrays if self._whose is None else [*arrays, self._whose]:
            with self._member(name) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        self._archive.close()

    def _member(self, name: str) -> IO[bytes]:
        # Without the time of day: the same draw gives the same bytes.
        return self._archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)


class _LineWriter(_Writer):
    """JSON lines: columns by name, labels as class names."""

    def __init__(self, file: IO[bytes], schema: Schema, label_column: str, whose: Whose) -> None:
        self._whose, self._written = whose, 0
        self._file, self._schema, self._label = file, schema, label_column

    def write(self, batch: LabelledArray, mask: NDArray[np.bool_]) -> None:
        names = self._schema.columns or ()
        for cells, label in zip(batch.x[mask].tolist(), batch.y[mask].tolist(), strict=True):
            row: dict[str, Any] = dict(zip(names, cells, strict=True))
            row[self._label] = self._schema.classes[label]
            if self._whose is not None:
                row[self._whose[0]] = int(self._whose[1][self._written])
            self._written += 1
            self._file.write(json.dumps(row).encode() + b"\n")

    def close(self) -> None:
        pass


def _check_places(public: Path, private: Path, suffix: str) -> None:
    for name, path in (("public", public), ("private", private)):
        if path.suffix != suffix:
            raise InvalidInput(name, str(path), f"a file that ends in {suffix}, the format for such data")
        if path.exists() or path.is_symlink():
            raise InvalidInput(
                name, str(path), "a file that does not exist yet: a second draw would make more records public"
            )
    if public.resolve() == private.resolve():
        raise InvalidInput("private", str(private), "a file other than the public one")


@contextmanager
def _writing(
    path: Path, private: bool, schema: Schema, records: int, label_column: str, whose: Whose
) -> Iterator[_Writer]:
    """Yield a writer of a file that takes its name once the block succeeds."""
    try:
        with hold(path.parent) as folder, folder.new(path.name, shared=not private) as file:
            writer = (
                _ArrayWriter(file, schema, records, whose)
                if schema.columns is None
                else _LineWriter(file, schema, label_column, whose)
            )
            yield writer
            writer.close()
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or type(error).__name__}") from None
