"""Parquet files: images, texts, lists of numbers or numeric columns, and a column of labels."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow.parquet as pq

from privmix.data.arrow_source import ArrowFormat, ArrowSource, Described, array_shapes, name_list
from privmix.data.files import check_unpacked, decoding, is_here
from privmix.data.reader import READERS, Reader, Request
from privmix.data.source import Source, resolve_classes
from privmix.untrusted import parse_json

_FOOTERS: Final = 16


def _describe(path: Path) -> Described:
    with _opened(path) as file:
        groups = [file.metadata.row_group(place) for place in range(file.metadata.num_row_groups)]
        unpacked = sum(group.total_byte_size for group in groups)
        # A column of one repeated value takes almost no bytes, so the rows count as well.
        check_unpacked(path, max(unpacked, file.metadata.num_rows), path.stat().st_size)
        parts = [(place, group.num_rows) for place, group in enumerate(groups)]
        schema = file.schema_arrow
        shapes = array_shapes(_features(path, schema.metadata or {}))
        return Described(schema, file.metadata.num_rows, parts, shapes)


def _opened(path: Path, texts: list[str] | None = None) -> Any:
    if is_here(path):
        return pq.ParquetFile(path, read_dictionary=texts)
    # Without a buffer, a read at an address fetches only the bytes that Arrow needs.
    return pq.ParquetFile(path.open("rb", 0), read_dictionary=texts, metadata=_metadata(path))


@lru_cache(_FOOTERS)
def _metadata(path: Any) -> Any:
    with pq.ParquetFile(path.open("rb", 0)) as file:
        return file.metadata


def _blocks(path: Path, columns: list[str], size: int, place: int, end: int | None) -> Iterator[Any]:
    with _opened(path) as file:
        leaves = [file.metadata.schema.column(place) for place in range(len(file.metadata.schema))]
    # A value that stands in a file once and in many records is kept once: the source takes them apart in small parts.
    texts = [
        leaf.path
        for leaf in leaves
        if leaf.physical_type == "BYTE_ARRAY" and any(f"{leaf.path}.".startswith(f"{name}.") for name in columns)
    ]
    with _opened(path, texts) as file:
        for group in range(place, file.num_row_groups if end is None else end):
            # Batches across groups would have two dictionaries, which pyarrow does not make of structs.
            yield from file.iter_batches(batch_size=size, row_groups=[group], columns=columns, use_threads=False)


PARQUET: Final = ArrowFormat("a Parquet file", _describe, _blocks)


def _public_classes(path: Path, label: str) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Class names under the key ``classes`` of the schema's metadata, and those of a ClassLabel of ``datasets``."""
    with decoding(path, PARQUET.kind), _opened(path) as file:
        metadata = file.schema_arrow.metadata or {}
    with decoding(path, "class names as JSON in the metadata"):
        public = name_list(parse_json(metadata[b"classes"], str(path))) if b"classes" in metadata else None
        return public, _class_names(_features(path, metadata), label)


def _class_names(features: Any, label: str) -> tuple[str, ...] | None:
    """Class names of a label column, from the feature description of the library ``datasets``."""
    feature = features.get(label, {}) if isinstance(features, dict) else {}
    names = feature.get("names") if isinstance(feature, dict) else None
    return None if names is None else name_list(names)


def _features(path: Path, metadata: dict[bytes, bytes]) -> dict[str, Any]:
    described = parse_json(metadata.get(b"huggingface", b"{}"), str(path))
    found: dict[str, Any] = described.get("info", {}).get("features", {})
    return found


@READERS.register
class Parquet(Reader):
    name: ClassVar[str] = "parquet"
    words: ClassVar[str] = "Parquet"
    endings: ClassVar[str] = ".parquet"
    suffixes: ClassVar[tuple[str, ...]] = ("parquet",)
    in_place: ClassVar[bool] = True

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        public, coded = _public_classes(files[0], request.selection.label)
        classes = resolve_classes(request.classes, public, coded)
        return ArrowSource(files, PARQUET, request.selection, classes, coded)
