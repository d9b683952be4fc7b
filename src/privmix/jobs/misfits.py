"""Find misfits in a private dataset, for its owner's eyes: the pass that a release makes, before any charge."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.csv import rows_of
from privmix.data.dialect import Dialect
from privmix.data.files import open_binary
from privmix.data.images import ImageFolderSource
from privmix.data.jsonl import JsonlSource
from privmix.data.reader import reader_of
from privmix.data.source import Source, as_inputs, as_table, encode_labels
from privmix.errors import InvalidInput, PrivmixError, check_number
from privmix.features.base import NO_TEXT, Extractor, parse_features
from privmix.features.table_cells import REFUSED, Missing, like_thousands
from privmix.features.table_kinds import Numeric
from privmix.features.tabular import Tabular
from privmix.jobs.columns import Columns
from privmix.jobs.data_check import DataCheck, Misfit, PersonsCheck
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.options import CheckOptions
from privmix.jobs.persons import Persons, said_of
from privmix.progress import Progress

# Most places that are listed of each kind; all are counted.
_MOST_PLACES: Final = 100
_STEP: Final = 4096
_BROKEN_QUOTES: Final = "quotes that do not enclose whole cells, or are not closed: the text after them was not checked"
_NUMBER: Final = Numeric(0, 1, False, Missing())
_HEADER: Final = "column names: a header line among the records"


def checked(data: Any, asked: CheckOptions, progress: Progress) -> DataCheck:
    """Look for values that do not fit in a private dataset."""
    extractor = parse_features(asked.features)
    clip_norm = asked.clip_norm
    check_number("clip_norm", clip_norm, low=0, low_open=True)
    persons, declared = said_of(asked, data)

    def opened(what: Any) -> Dataset:
        return open_dataset(what, extractor, split=asked.split, classes=asked.classes, columns=declared)

    dataset = opened(data)
    source = dataset.source
    persons.check(dataset)
    schema = source.schema
    found = DataCheck(
        0,
        {} if declared.label is None else dict.fromkeys(schema.classes, 0),
        clip_norm,
        extractor.name == "identity",
        unread=source.unread,
    )
    found.published_names = dataset.published_names
    found.listed, norms = asked.show, []
    for part, name in _parts(source, lambda what: opened(what).source):
        look = _Look(found, part, extractor, name, declared.label, asked.show_values)
        try:
            for lengths in look.chunks():
                norms.append(lengths)
                progress("check", found.records, schema.records)
        except (PrivmixError, OSError, MemoryError) as error:
            # The reader itself stopped: records are read singly if their format separates them.
            norms.append(look.singly(declared, error))
    found.norms = np.concatenate(norms) if norms else np.empty(0)
    if persons.declared(declared.person):
        _count_persons(found, persons, dataset)
    # Refusals first, and the first of each kind before the second of any.
    times: Counter[tuple[str | None, str]] = Counter()
    ranked: list[tuple[bool, int, int]] = []
    for one in found.misfits:
        ranked.append((not one.refused, times[one.column, one.why], len(ranked)))
        times[one.column, one.why] += 1
    return replace(found, misfits=[found.misfits[place] for *_, place in sorted(ranked)])


def _count_persons(found: DataCheck, persons: Persons, dataset: Dataset) -> None:
    """Count the persons, and list records that lack an identifier where each is to have one."""
    column = ", ".join(dataset.columns.person_names) or None
    try:
        # Marked and not refused: all records without an identifier are listed.
        whose = persons.read(dataset, "mark")
    except InvalidInput as refusal:
        found.counts[column, f"not {refusal.allowed}", True] += 1
        return
    found.persons = PersonsCheck.of(whose)
    if persons.missing == "own" or not found.persons.without:
        return
    kind = (column, "no identifier, where each record has one", True)
    found.counts[kind] = found.persons.without
    names = dataset.source.names
    for place in np.flatnonzero(whose < 0)[:_MOST_PLACES].tolist():
        found.misfits.append(Misfit(None if names is None else names[place], place + 1, *kind))


def _parts(source: Source, opened: Callable[[Any], Source]) -> Iterator[tuple[Source, Path | None]]:
    """Yield the files of a dataset one by one, where each can be opened by itself; else the whole."""
    tables = [file for file in source.files if _format(file) in ("csv", "jsonl", "parquet")]
    if len(tables) < 2 or len(tables) != len(source.files):
        yield source, source.files[0] if source.files else None
        return
    # File by file, so that each misfit is named by its file.
    for file in tables:
        yield opened(file), file


def _format(file: Path) -> str:
    return getattr(reader_of(file), "name", "")


@dataclass
class _Look:
    found: DataCheck
    source: Source
    extractor: Extractor
    file: Path | None
    label: str | None
    show: bool
    done: int = 0

    def chunks(self) -> Iterator[NDArray[np.float64]]:
        """Look at every record; yields the lengths of the features of those that fit, chunk by chunk."""
        for raw_x, raw_y in self.source._silent_chunks(_STEP):
            bad = self._labels(raw_y) | self._inputs(raw_x)
            kept = np.array([row for row in range(len(raw_x)) if row not in bad], dtype=np.int64)
            self.done += len(raw_x)
            self.found.records += len(raw_x)
            yield self._lengths(raw_x[kept])
        if self.done != self.source.schema.records:
            why = f"{self.source.schema.records:,} lines, but {self.done:,} records: cells may hold line breaks"
            self._tell(0, None, why, True, None)

    def _labels(self, raw: NDArray[Any]) -> set[int]:
        classes, bad = self.source.schema.classes, set()
        try:
            places = encode_labels(raw, classes).tolist()
        except InvalidInput:
            # Singly only where the chunk holds a misfit: single calls are slow.
            places = []
            for row in range(len(raw)):
                try:
                    places.append(int(encode_labels(raw[row : row + 1], classes)[0]))
                except InvalidInput:
                    bad.add(row)
                    self._tell(row, self.label, "not a declared class", True, raw[row])
        for place in places:
            self.found.classes[classes[place]] += 1
        return bad

    def _inputs(self, raw: NDArray[Any]) -> set[int]:
        """Rows that a release would refuse."""
        schema, bad = self.source.schema, set()
        if schema.columns is None:
            return self._numbers(raw)
        for row, one in enumerate(raw):
            # Files that were joined may repeat their header line.
            if len(one) > 1 and set(map(type, one)) == {str} and tuple(one) == schema.columns:
                bad.add(row)
                self._tell(row, None, _HEADER, True, None)
            for name, cell in zip(schema.columns, one, strict=True):
                try:
                    as_table(np.array([[cell]], dtype=object), (name,))
                except InvalidInput:
                    bad.add(row)
                    self._tell(row, name, "neither text nor a finite number", True, cell)
        places = {name: place for place, name in enumerate(schema.columns)}
        for row, name, why in self.extractor.reads.unusual(raw):
            refused = why in REFUSED or why == NO_TEXT
            bad |= {row} if refused else set()
            # A table of texts has one column, whose name no extractor knows.
            name = name or schema.columns[0]
            self._tell(row, name, why, refused, raw[row, places[name]])
        for name in getattr(self.extractor.reads, "number_columns", ()):
            self._marks(name, raw[:, places[name]].tolist())
        return bad

    def _marks(self, name: str, cells: list[Any]) -> None:
        """Whether every decimal mark of a column may part thousands."""
        thousands = self.found.like_thousands
        if thousands.get(name, True):
            found = {like_thousands(cell) for cell in set(cells) if isinstance(cell, str)} - {None}
            if found:
                thousands[name] = found == {True}

    def _numbers(self, raw: NDArray[Any]) -> set[int]:
        shape = self.source.schema.input_shape
        try:
            as_inputs(raw, shape)
        except InvalidInput as error:
            if raw.shape[1:] != shape or raw.dtype.kind not in "biuf":
                # The whole array is of another form: no single number can be named.
                self._tell(0, None, error.allowed, True, None)
                return set(range(len(raw)))
            # Numbers beyond float32 become infinite here, and are listed below.
            with np.errstate(over="ignore", invalid="ignore"):
                wrong = ~np.isfinite(raw.astype(np.float32)).reshape(len(raw), -1)
            for row, place in np.argwhere(wrong).tolist():
                value, column = raw[row].reshape(-1)[place], f"number {place + 1} of the record"
                self._tell(row, column, "not a finite number in the range of float32", True, value)
            return set(np.flatnonzero(wrong.any(axis=1)).tolist())
        return set()

    def _lengths(self, raw: NDArray[Any]) -> NDArray[np.float64]:
        if not len(raw):
            return np.empty(0)
        schema = self.source.schema
        x = as_inputs(raw, schema.input_shape) if schema.columns is None else as_table(raw, schema.columns)
        step = self.extractor.step
        parts = [self.extractor.transform(x[start : start + step]) for start in range(0, len(x), step)]
        return np.asarray(np.linalg.norm(np.concatenate(parts).astype(np.float64), axis=1))

    def singly(self, columns: Columns, error: BaseException) -> NDArray[np.float64]:
        """After a reader stopped: look at the other records one by one; return feature lengths of those that fit."""
        before, good = self._refusals(), []
        for number, read in enumerate(self._readers(columns)):
            # Chunks before the error were looked at.
            if number < self.done:
                continue
            self.done = number
            self.found.records += 1
            try:
                raw_x, raw_y = read()
            except _WrongCells as wrong:
                for column, why, value in wrong.cells:
                    self._tell(0, column, why, True, value)
                continue
            except InvalidInput as refusal:
                self._tell(0, refusal.field, f"not {refusal.allowed}", True, None)
                continue
            if not self._labels(raw_y) | self._inputs(raw_x):
                good.append(raw_x)
        # No single record explains why the reader stopped: state at least where it did.
        if self._refusals() == before:
            allowed = error.allowed if isinstance(error, InvalidInput) else str(error)
            self._tell(0, None, f"cannot be read from about here on; allowed: {allowed}", True, None)
        return self._lengths(np.concatenate(good)) if good else np.empty(0)

    def _refusals(self) -> int:
        return sum(count for (_, _, refused), count in self.found.counts.items() if refused)

    def _readers(self, columns: Columns) -> Iterator[Callable[[], tuple[NDArray[Any], NDArray[Any]]]]:
        """Yield a reader of each record of the source; a record that fails does not stop those after it."""
        source = self.source
        if isinstance(source, ImageFolderSource):
            yield from (partial(source.some, place, place + 1) for place in range(source.schema.records))
        elif isinstance(source, JsonlSource):
            for row, _ in source._rows():
                yield partial(source._arrays, [row])
        elif self.file is not None and _format(self.file) == "csv":
            dialect = (columns.dialect() or Dialect()).of(self.file)
            with open_binary(self.file) as stream:
                lines = rows_of(self.file, stream, dialect)
                names, label = next(lines) or [], columns.label
                wanted = source.schema.columns or columns.number_names
                inputs = list(wanted or [name for name in names if name != label])
                numeric = source.schema.columns is None
                if not numeric and isinstance(self.extractor.reads, Tabular):
                    dialect = replace(dialect, numbers=self.extractor.reads.number_columns)
                for line in lines:
                    yield partial(_line, line, names, inputs, label, numeric, dialect)

    def _tell(self, row: int, column: str | None, why: str, refused: bool, value: Any) -> None:
        kind = (column, why, refused)
        self.found.counts[kind] += 1
        if self.found.counts[kind] > _MOST_PLACES:
            return
        place = self.done + row
        whole, names = None if self.file is None else str(self.file), self.source.names
        file = whole if names is None or place >= len(names) else names[place]
        shown = str(value) if self.show and value is not None else None
        self.found.misfits.append(Misfit(file, place + 1, column, why, refused, shown))


class _WrongCells(Exception):
    """Cells, or a line, that are no record's: (column, why, value) each."""

    def __init__(self, cells: list[tuple[str | None, str, str]]) -> None:
        super().__init__(len(cells))
        self.cells = cells


def _line(
    row: list[str] | None, names: list[str], inputs: list[str], label: str | None, numeric: bool, dialect: Dialect
) -> tuple[NDArray[Any], NDArray[Any]]:
    if row is None:
        raise _WrongCells([(None, _BROKEN_QUOTES, "")])
    if row == names:
        raise _WrongCells([(None, _HEADER, "")])
    if len(row) != len(names):
        raise _WrongCells([(None, f"{len(row)} cells, where the header has {len(names)}", ",".join(row))])
    cells = dict(zip(names, row, strict=True))
    # Other encodings are read whole.
    labels = [] if label is None else [label]
    read = [*inputs, *labels] if dialect.encoding == "utf-8" else names
    # The reader puts this character where bytes are not in the encoding.
    wrong: list[tuple[str | None, str, str]] = [
        (name, f"not in {dialect.encoding}", cells[name]) for name in read if "\ufffd" in cells[name]
    ]
    y = np.array([cells[name] for name in labels], dtype=object)
    if not numeric and not wrong:
        points = {name: dialect.point(cells[name]) if name in dialect.numbers else cells[name] for name in inputs}
        return np.array([[points[name] for name in inputs]], dtype=object), y
    numbers = []
    for name in inputs if numeric else ():
        try:
            numbers.append(float(dialect.point(cells[name])))
        except ValueError:
            why = _NUMBER.why_refused(cells[name]) if cells[name].strip() else "missing in a column of numbers"
            wrong.append((name, why, cells[name]))
    if wrong:
        raise _WrongCells(wrong)
    return np.array([numbers]), y
