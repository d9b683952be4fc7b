"""Parquet files with encoded images, lists of numbers or numeric columns, and a column of labels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix.data.files import decoding
from privmix.data.images import decode_images, image_shape
from privmix.data.source import Schema, Source
from privmix.errors import WITHHELD, InvalidInput


class ParquetSource(Source):
    """One Parquet file, or several of one schema read in the order given.

    Inputs are, in this order of choice: the column ``feature_column`` of lists of numbers; the column
    ``image_column`` of encoded images (bytes, or a struct with a field ``bytes``); the only column of lists; all
    numeric columns but the label's. The length of lists that the schema does not fix, and the size of images, are those
    of the first record and must be those of all: shapes are public.

    Args:
        paths: the files.
        label_column, image_column, feature_column: see above.
        classes: class names.

    Raises:
        InvalidInput: no such column, wrong type, damaged file.
        StorageError: a file cannot be read.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        label_column: str,
        image_column: str,
        feature_column: str | None,
        classes: tuple[str, ...],
    ) -> None:
        self._paths, self._label = paths, label_column
        arrow = read_arrow_schema(paths[0])
        if len(set(arrow.names)) != len(arrow.names):
            raise InvalidInput(f"columns of {paths[0]}", f"{len(arrow.names)} names", "names that differ")
        records = 0
        for path in paths:
            with decoding(path, "a Parquet file"), pq.ParquetFile(path) as file:
                records += file.metadata.num_rows
                if not file.schema_arrow.equals(arrow):
                    raise InvalidInput(str(path), "another schema", f"the columns of {paths[0]}")
        if label_column not in arrow.names:
            raise InvalidInput("label column", label_column, f"a column of {paths[0]}")
        self._inputs, self._kind = _choose_inputs(arrow, label_column, image_column, feature_column)
        # Validates the count before a first record is looked for.
        Schema(records=records, input_shape=(1,), classes=classes)
        self._schema = Schema(records=records, input_shape=self._shape(arrow), classes=classes)

    @property
    def schema(self) -> Schema:
        """From the files' metadata, and the first record where they leave the shape open."""
        return self._schema

    def _shape(self, arrow: Any) -> tuple[int, ...]:
        if self._kind == "numbers":
            return (len(self._inputs),)
        kind = arrow.field(self._inputs[0]).type
        if pa.types.is_fixed_size_list(kind):
            return (int(kind.list_size),)
        block = next(self._blocks(1), None)
        if block is None or not block.num_rows:
            raise InvalidInput(str(self._paths[0]), WITHHELD, "as many records as its footer says")
        first = block.column(self._inputs[0])
        if first.null_count:
            raise InvalidInput(f"column {self._inputs[0]}", WITHHELD, "no missing value")
        if self._kind == "images":
            return image_shape(_image_bytes(first)[0])
        return (len(first[0]),)

    def _chunks(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for block in self._blocks(size):
            for name in [self._label, *self._inputs]:
                if block.column(name).null_count:
                    raise InvalidInput(f"column {name}", WITHHELD, "no missing value")
            yield self._decode(block), _labels(block.column(self._label))

    def _blocks(self, size: int) -> Iterator[Any]:
        for path in self._paths:
            with decoding(path, "a Parquet file"), pq.ParquetFile(path) as file:
                yield from file.iter_batches(batch_size=size, columns=[*self._inputs, self._label], use_threads=False)

    def _decode(self, block: Any) -> NDArray[Any]:
        if self._kind == "numbers":
            return np.stack([block.column(name).to_numpy(zero_copy_only=False) for name in self._inputs], axis=1)
        column = block.column(self._inputs[0])
        if self._kind == "images":
            return decode_images(iter(_image_bytes(column)), self._schema.input_shape)
        length = self._schema.input_shape[0]
        values = column.flatten()
        if values.null_count or not _all_of_length(column, length):
            raise InvalidInput(f"column {self._inputs[0]}", WITHHELD, f"lists of {length} numbers, like the first")
        return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(-1, length)


def read_arrow_schema(path: Path) -> Any:
    """Arrow schema of a Parquet file, from its footer.

    Raises:
        InvalidInput: not a Parquet file.
        StorageError: it cannot be read.
    """
    with decoding(path, "a Parquet file"):
        return pq.read_schema(path)


def parquet_classes(path: Path, label_column: str) -> tuple[str, ...] | None:
    """Class names that the schema's metadata publish, as ``datasets`` writes them or under the key ``classes``."""
    metadata = read_arrow_schema(path).metadata or {}
    with decoding(path, "class names as JSON in the Parquet metadata"):
        if b"classes" in metadata:
            return tuple(json.loads(metadata[b"classes"]))
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
        names = features.get(label_column, {}).get("names")
        return None if names is None else tuple(names)


def _choose_inputs(arrow: Any, label: str, image: str, feature: str | None) -> tuple[list[str], str]:
    """Columns of the inputs, and whether they are ``images``, ``lists`` or ``numbers``."""
    if feature is not None:
        if feature not in arrow.names or not _is_list(arrow.field(feature).type):
            raise InvalidInput("feature column", feature, "a column of lists of numbers")
        return [feature], "lists"
    if image in arrow.names and image != label:
        if not _is_image(arrow.field(image).type):
            raise InvalidInput("image column", image, "a column of encoded images (bytes)")
        return [image], "images"
    others = [field for field in arrow if field.name != label]
    lists = [field.name for field in others if _is_list(field.type)]
    if len(lists) == 1:
        return lists, "lists"
    if len(lists) > 1:
        raise InvalidInput("feature column", None, "a choice: there are several columns of lists")
    numbers = [field.name for field in others if _is_number(field.type)]
    if len(numbers) < len(others) or not numbers:
        raise InvalidInput(
            "columns", [field.name for field in others], f"numbers, one column of lists, or images in column {image}"
        )
    return numbers, "numbers"


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_list(kind: Any) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(listed and _is_number(kind.value_type))


def _is_image(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and _is_image(kind.field("bytes").type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _image_bytes(column: Any) -> list[bytes]:
    content = column.field("bytes") if pa.types.is_struct(column.type) else column
    if content.null_count:
        raise InvalidInput("images", WITHHELD, "no missing value")
    return list(content.to_pylist())


def _all_of_length(column: Any, length: int) -> bool:
    if pa.types.is_fixed_size_list(column.type):
        return True
    return bool((np.diff(column.offsets.to_numpy()) == length).all())


def _labels(column: Any) -> NDArray[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_number(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return np.array(column.to_pylist(), dtype=object)
