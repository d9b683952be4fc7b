"""One source for every format that comes as Arrow record batches: Parquet, CSV, tables in memory."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.data.columns import (
    Selection,
    check_header,
    choose_inputs,
    image_bytes,
    labels_of,
    lists_of,
    numbers_of,
    parts_of,
    storage,
    storage_type,
    table_of,
    usable_names,
)
from privmix.data.files import decoding
from privmix.data.images import decode_images
from privmix.data.manifest import Manifest
from privmix.data.source import NO_LABELS, Schema, Source, outside_classes, reads_places
from privmix.errors import WITHHELD, InvalidInput


class Described(NamedTuple):
    """A file's schema, record count and (k, 2) pairs of a place where ``blocks`` can begin and its record count."""

    # `parts` is None where reading can begin at the file's start only; `shapes`: of declared nested lists.

    schema: Any
    records: int
    parts: Any = None
    shapes: Mapping[str, tuple[int, ...]] = {}

    @property
    def stretches(self) -> NDArray[np.int64]:
        return np.array([(0, self.records)] if self.parts is None else self.parts, np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class ArrowFormat:
    """How files of one format become record batches."""

    # `kind` is the format's name in messages; `cure` is the fix where column names look like cells of a record.
    # `blocks` takes path, wanted columns, records per batch, the place to begin at and the place to end before.

    kind: str
    describe: Callable[[Path], Described]
    blocks: Callable[[Path, list[str], int, int, int | None], Iterator[Any]]
    cure: str = "rename this column"

    def check_names(self, path: Path, names: Sequence[str], values: Sequence[str]) -> None:
        if self.cure:
            check_header(f"header of {path}", names, values, self.cure)


class ArrowSource(Source):
    """One file, or several of one schema, read in the given order.

    The inputs are the first of these that applies: the columns of a table; the columns ``numbers``, if named (a single
    one may hold lists or images); the column ``image`` of encoded images (bytes, or a struct with a field ``bytes``);
    the only column of lists; all numeric columns except the label. Names, types and fixed lengths come from the schema.
    Other list lengths, image size and colour are declared. Opening reads no record.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        format_: ArrowFormat,
        selection: Selection,
        classes: tuple[str, ...],
        coded: Sequence[str] | None = None,
    ) -> None:
        self._coded = _code(coded, classes)
        self._paths, self._format, self._selection = list(paths), format_, selection
        described = self._describe(self._paths[0])
        names, records = usable_names(described.schema.names), described.records
        stretches = [described.stretches]
        format_.check_names(self._paths[0], names, selection.undeclared(classes))
        for path in self._paths[1:]:
            other = self._describe(path)
            records += other.records
            stretches.append(other.stretches)
            if not other.schema.equals(described.schema):
                raise InvalidInput(str(path), "another schema", f"the columns of {paths[0]}")
        self._shapes = described.shapes
        arrow = pa.schema([field.with_name(name) for field, name in zip(described.schema, names, strict=True)])
        self._inputs, self._kind = choose_inputs(arrow, selection, self._shapes)
        self.number_names: tuple[str, ...] | None = tuple(self._inputs) if self._kind == "numbers" else None
        selection.check_kind(self._kind)
        self._schema = Schema(records, self._shape(arrow), classes, selection.table)
        self._values = math.prod(self._schema.input_shape)
        self._manifest = Manifest.joined(
            Manifest.of(own, file=path) for path, own in zip(self._paths, stretches, strict=True)
        )

    travels = True

    @property
    def input_columns(self) -> tuple[str, ...]:
        return tuple(self._inputs)

    def manifest(self) -> Manifest:
        return self._manifest

    def _describe(self, path: Path) -> Described:
        with decoding(path, self._format.kind):
            found = self._format.describe(path)
            return found._replace(schema=pa.schema([(one.name, storage_type(one.type)) for one in found.schema]))

    def _shape(self, arrow: Any) -> tuple[int, ...]:
        if self._kind in ("numbers", "table"):
            return (len(self._inputs),)
        if self._kind == "images":
            return self._selection.image_shape
        if self._inputs[0] in self._shapes:
            return self._shapes[self._inputs[0]]
        kind = arrow.field(self._inputs[0]).type
        if pa.types.is_fixed_size_list(kind):
            if self._selection.length not in (None, int(kind.list_size)):
                raise InvalidInput("feature_length", self._selection.length, f"{kind.list_size}, as in the schema")
            return (int(kind.list_size),)
        return (self._selection.list_length,)

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        label = [self._selection.label] if self._selection.labelled else []
        complete = label if self._kind == "table" else [*label, *self._inputs]
        for block in self._blocks(size, first, stop):
            for name in complete:
                if block.column(name).null_count:
                    raise InvalidInput(f"column {name}", WITHHELD, "no missing value")
            for part in parts_of(block, self._values):
                yield self._decode(part), self._named(labels_of(part.column(label[0]))) if label else NO_LABELS

    def _named(self, labels: NDArray[Any]) -> NDArray[Any]:
        if self._coded is None or labels.dtype.kind not in "iu":
            return labels
        if not np.logical_and(labels >= 0, labels < len(self._coded)).all():
            raise outside_classes(self._schema.classes)
        return np.asarray(self._coded[labels])

    def _blocks(self, size: int, first: int, stop: int) -> Iterator[Any]:
        passed, spans = self._manifest.spans(first, stop)
        # Naming the one file among several that holds a wrong record would reveal the record's place.
        place = self._paths[0] if len(self._paths) == 1 else self._paths[0].parent
        wanted = [*self._inputs, self._selection.label] if self._selection.labelled else self._inputs
        for path, at, until in spans:
            with decoding(place, self._format.kind):
                for block in self._format.blocks(path, wanted, size, at, until):
                    if passed >= block.num_rows:
                        passed -= block.num_rows
                        continue
                    found = [storage(block.column(name)) for name in dict.fromkeys(wanted)]
                    block = pa.record_batch(found, names=list(dict.fromkeys(wanted)))
                    yield block.slice(passed) if passed else block
                    passed = 0

    def _decode(self, block: Any) -> NDArray[Any]:
        columns = [block.column(name) for name in self._inputs]
        if self._kind == "table":
            return table_of(columns)
        if self._kind == "numbers":
            return numbers_of(columns)
        if self._kind == "images":
            return decode_images(iter(image_bytes(columns[0])), self._schema.input_shape, self._selection.decoder)
        return lists_of(columns[0], self._schema.input_shape, self._inputs[0])


def array_shapes(features: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of array columns, from the feature description of the library ``datasets``."""
    said = {name: one.get("shape") for name, one in features.items() if isinstance(one, dict)}
    return {name: tuple(shape) for name, shape in said.items() if shape and all(type(size) is int for size in shape)}


def _code(coded: Sequence[str] | None, classes: tuple[str, ...]) -> NDArray[Any] | None:
    """Names of a ClassLabel by number, where its numbers would not be read as the classes of these names."""
    if coded is None or not set(coded) & set(classes):
        return None
    same = reads_places(classes) and tuple(coded) == classes
    return None if same else np.array(coded, dtype=object)


def name_list(names: Any) -> tuple[str, ...]:
    """Class names from JSON, where they must be a list; ValueError for anything else."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("one text, not a list of texts")
    return tuple(names)
