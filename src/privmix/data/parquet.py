"""Parquet files: images, texts, lists of numbers or numeric columns, and a column of labels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from privmix.data.arrow_source import ArrowFormat, class_names, name_list
from privmix.data.files import decoding


def _describe(path: Path) -> tuple[Any, int]:
    with pq.ParquetFile(path) as file:
        return file.schema_arrow, file.metadata.num_rows


def _blocks(path: Path, columns: list[str], size: int) -> Iterator[Any]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=size, columns=columns, use_threads=False)


PARQUET: Final = ArrowFormat("a Parquet file", _describe, _blocks)


def parquet_classes(path: Path, label_column: str) -> tuple[str, ...] | None:
    """Class names that the schema's metadata publish, as ``datasets`` writes them or under the key ``classes``.

    Raises:
        InvalidInput: not a Parquet file, or other metadata under these keys.
        StorageError: it cannot be read.
    """
    with decoding(path, PARQUET.kind):
        metadata = pq.read_schema(path).metadata
    return metadata_classes(path, metadata, label_column)


def metadata_classes(path: Path, metadata: dict[bytes, bytes] | None, label: str) -> tuple[str, ...] | None:
    """Class names from the metadata of the Arrow schema of ``path``."""
    metadata = metadata or {}
    with decoding(path, "class names as JSON in the metadata"):
        if b"classes" in metadata:
            return name_list(json.loads(metadata[b"classes"]))
        described = json.loads(metadata.get(b"huggingface", b"{}"))
        return class_names(described.get("info", {}).get("features", {}), label)
