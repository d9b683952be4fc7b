"""JSON lines: one object a line, in UTF-8; plain or packed."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray

from privmix.data.columns import Selection
from privmix.data.files import Entries, Limited, decoding, filled_lines, is_zipped, open_binary
from privmix.data.manifest import Manifest
from privmix.data.memory import objects
from privmix.data.reader import READERS, Reader, Request
from privmix.data.source import CELLS, NO_LABELS, Schema, Source, resolve_classes
from privmix.errors import WITHHELD, InvalidInput
from privmix.untrusted import parse_json

_KIND: Final = (
    "JSON lines in UTF-8, one object per line (convert a JSON array with pandas: "
    'read_json("a.json").to_json("a.jsonl", orient="records", lines=True))'
)
# A longer line is no record, but a file without line breaks: refuse it before it fills the memory.
LINE_BYTES: Final = 2**26
_PIECE: Final = 4096


class JsonlSource(Source):
    """One file of JSON lines, or several read in the given order.

    Inputs are declared, since there is no header. They are the columns of a table (a missing key or null is no value),
    a key with lists of numbers, or keys with numbers. Other keys are left out. Records are counted by lines.

    Formal guarantees:
        - Declared: no line decides what is read of another.
        - Bounded: a line of 64 MiB, more than 40 levels or a number of more than 400 digits is refused.
    """

    def __init__(self, paths: Sequence[Path], selection: Selection, classes: tuple[str, ...]) -> None:
        self._paths, self._label = list(paths), selection.label if selection.labelled else None
        # Images have no form in JSON.
        selection.check_kind("lists")
        self._inputs, self._form = _declared(selection)
        selection.check_kind(self._form)
        self.number_names: tuple[str, ...] | None = tuple(self._inputs) if self._form == "numbers" else None
        shape = (selection.list_length,) if self._form == "lists" else (len(self._inputs),)
        stretches = [self._count(path) for path in paths]
        self._manifest = Manifest.joined(
            Manifest.of(own, file=path) for path, own in zip(self._paths, stretches, strict=True)
        )
        self._schema = Schema(self._manifest.records, shape, classes, selection.table)

    travels = True

    def manifest(self) -> Manifest:
        """Return some of the places where lines begin, as counting came by them."""
        return self._manifest

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        rows: list[dict[str, Any]] = []
        held = 0
        for row, bytes_ in self._rows(first, stop):
            rows.append(row)
            held += bytes_
            if len(rows) == min(size, _PIECE) or held >= LINE_BYTES:
                yield self._arrays(rows)
                rows, held = [], 0
        if rows:
            yield self._arrays(rows)

    def _arrays(self, rows: list[dict[str, Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        y = NO_LABELS
        if self._label is not None:
            y = objects([row.get(self._label) for row in rows])
            if any(label is None for label in y):
                raise InvalidInput(f"column {self._label}", WITHHELD, "no missing value")
        if self._form == "table":
            return _table(rows, self._inputs), y
        if self._form == "numbers":
            return np.stack([_numbers([row.get(name) for row in rows], name) for name in self._inputs], axis=1), y
        name, length = self._inputs[0], self._schema.input_shape[0]
        lists = [row.get(name) for row in rows]
        if not all(isinstance(value, list) and len(value) == length for value in lists):
            raise InvalidInput(f"column {name}", WITHHELD, f"lists of {length} numbers")
        return _numbers([number for value in lists for number in value or ()], name).reshape(-1, length), y

    def _count(self, path: Path) -> NDArray[np.int64]:
        """(k, 2) bytes at which lines begin, and how many there are up to the next one."""
        entries = Entries()
        with decoding(path, _KIND), open_binary(path) as stream:
            records = sum(1 for _ in _lines(stream, entries))
        return entries.stretches(0, records, usable=not is_zipped(path))

    def _rows(self, first: int = 0, stop: int | None = None) -> Iterator[tuple[dict[str, Any], int]]:
        """Objects, from the record ``first`` on, each with the bytes of its line; of those from ``stop`` on, some."""
        # Naming the one file among several that holds a wrong record would reveal the record's place.
        place = self._paths[0] if len(self._paths) == 1 else self._paths[0].parent
        passed, spans = self._manifest.spans(first, self._schema.records if stop is None else stop)
        for path, at, until in spans:
            with decoding(place, _KIND), open_binary(path) as stream:
                if at:
                    stream.seek(at)
                for line in _lines(stream, size=None if until is None else until - at):
                    if passed:
                        passed -= 1
                        continue
                    if len(line) >= LINE_BYTES:
                        raise InvalidInput(str(place), WITHHELD, f"lines of less than {LINE_BYTES} bytes")
                    row = _object(line)
                    if row is None:
                        raise InvalidInput(str(place), WITHHELD, _KIND)
                    yield row, len(line)


def _declared(selection: Selection) -> tuple[list[str], str]:
    """Keys of the inputs, and whether they are a ``table``, ``lists`` or ``numbers``."""
    if selection.table is not None:
        return list(selection.table), "table"
    if selection.numbers is not None:
        # One key that stands for several numbers: a list of them.
        several = selection.length is not None or (selection.shape or (1,)) != (1,)
        return list(selection.numbers), "lists" if several and len(selection.numbers) == 1 else "numbers"
    allowed = (
        "declared columns, since JSON lines have no header: `columns` NAMES for numbers or texts, one NAME with "
        "`feature_length` N for lists, or the columns of a tabular: file"
    )
    raise InvalidInput("columns", None, allowed)


def _lines(stream: IO[bytes], entries: Entries | None = None, size: int | None = None) -> Iterator[bytes]:
    """Lines that are not blank, without a byte order mark; a line too long to be a record comes in pieces."""
    # `entries` notes where lines begin; `size` is the number of bytes to read, None for all.
    at_start = stream.tell() == 0
    stream = stream if size is None else cast(IO[bytes], Limited(stream, size))
    lines = filled_lines(stream, LINE_BYTES, entries=entries)
    if not at_start:
        yield from lines
        return
    first = next(lines, b"").removeprefix(b"\xef\xbb\xbf").strip()
    if first:
        yield first
    elif entries is not None:
        entries.less = 1
    yield from lines


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = parse_json(line, "line")
    except InvalidInput:
        return None
    return row if isinstance(row, dict) else None


def _numbers(values: list[Any], name: str) -> NDArray[np.float64]:
    if not all(isinstance(value, int | float) for value in values):
        raise InvalidInput(f"column {name}", WITHHELD, "numbers, and no missing value")
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:
        raise InvalidInput(f"column {name}", WITHHELD, "numbers that fit float32") from None


def _table(rows: list[dict[str, Any]], names: list[str]) -> NDArray[np.object_]:
    table = np.empty((len(rows), len(names)), dtype=object)
    for place, name in enumerate(names):
        values = [row.get(name) for row in rows]
        if any(isinstance(value, list | dict) for value in values):
            raise InvalidInput(f"column {name}", WITHHELD, CELLS)
        table[:, place] = values
    return table


@READERS.register
class Jsonl(Reader):
    name: ClassVar[str] = "jsonl"
    words: ClassVar[str] = "JSON lines"
    endings: ClassVar[str] = ".jsonl, .ndjson, .json (JSON lines)"
    suffixes: ClassVar[tuple[str, ...]] = ("jsonl", "ndjson", "json")
    in_place: ClassVar[bool] = True
    zipped: ClassVar[bool] = True

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        return JsonlSource(files, request.selection, resolve_classes(request.classes))
