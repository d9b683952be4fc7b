"""One record decides nothing that others see: every reader, and data in memory, on neighbouring datasets.

Neighbours differ by a record at the first, a middle or the last place, or by the content of one. The record may be
whatever its format lets it be: of another mode, size or length, with other keys or types, of another class, or damaged.
Shape, schema, messages and number of hashes are those of the neighbour; equal content has an equal hash in every form.
"""

import csv
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import datasets
import fsspec
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from privmix.data import content_hashes, open_dataset
from privmix.data.fingerprint import records_hash
from privmix.errors import InvalidInput
from tests.data.helpers import forms, idx_bytes, write

SECRET = "Zq7Secret"
CLASSES = ["cat", "dog"]
FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
PLACES = (0, 1, 3)
Record = Any


@dataclass(frozen=True)
class Reader:
    """A format: how records are written, what a caller declares, three plain records, and any record at all."""

    write: Callable[[Path, list[Record]], Any]
    plain: list[Record]
    any_record: st.SearchStrategy[Record]
    options: dict[str, Any] = field(default_factory=dict)


def picture(mode: str = "L", side: int = 4, value: int = 9) -> bytes:
    stream = io.BytesIO()
    if mode == "I;16":
        Image.fromarray(np.full((side, side), 40_000, np.uint16)).save(stream, "PNG")
    else:
        Image.new("RGB", (side, side), (value, 200, 30)).convert(mode).save(stream, "PNG")
    return stream.getvalue()


PICTURES = st.one_of(
    st.builds(picture, st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]), st.sampled_from([1, 4, 7])),
    st.sampled_from([b"", SECRET.encode(), picture()[:50]]),
)
LABELS = st.sampled_from(["cat", "dog", "0", SECRET])
FLOATS = st.one_of(st.floats(width=32), st.sampled_from([0.0, 255.0, -1.0]))
CELLS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))


def images_by_class(folder: Path, records: list[Record]) -> Path:
    for name in CLASSES:
        (folder / name).mkdir()
    for number, (content, label) in enumerate(records):
        (folder / label).mkdir(exist_ok=True)
        (folder / label / f"{number}.png").write_bytes(content)
    return folder


def tables(kind: str, types: dict[str, Any]) -> Callable[[Path, list[Record]], Path]:
    def write(folder: Path, records: list[Record]) -> Path:
        named = [dict(zip(types, record, strict=True)) for record in records]
        content, path = pa.Table.from_pylist(named, schema=pa.schema(types)), folder / f"d.{kind}"
        if kind == "shards":
            for number in range(len(records)):
                pq.write_table(content.slice(number, 1), folder / f"train-{number}.parquet")
            return folder
        pq.write_table(content, path)
        return path

    return write


def lines(folder: Path, records: list[Record]) -> Path:
    (folder / "d.jsonl").write_text("".join(record + "\n" for record in records))
    return folder / "d.jsonl"


def shards(write: Callable[[Path, list[Record]], Path]) -> Callable[[Path, list[Record]], Path]:
    """A record a file, each with the header if there is one."""

    def written(folder: Path, records: list[Record]) -> Path:
        for number, record in enumerate(records):
            path = write(folder, [record])
            path.rename(folder / f"train-{number}{path.suffix}")
        return folder

    return written


def rows(folder: Path, records: list[Record]) -> Path:
    with (folder / "d.csv").open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([["a", "b", "label"], *records])
    return folder / "d.csv"


def at_an_address(write: Callable[[Path, list[Record]], Path]) -> Callable[[Path, list[Record]], str]:
    """Read in place from a server of files: what a file system lists and gives by ranges."""

    def written(folder: Path, records: list[Record]) -> str:
        path = write(folder, records)
        fsspec.filesystem("memory").pipe(f"/neighbours/{path.name}", path.read_bytes())
        return f"memory://neighbours/{path.name}"

    return written


def arrays(kind: str) -> Callable[[Path, list[Record]], Path]:
    def written(folder: Path, records: list[Record]) -> Path:
        x = np.array([record[0] for record in records], np.float32).reshape(len(records), 3)
        y = np.array([record[1] for record in records], np.int64)
        if kind != "idx":
            return write(folder / f"x.{kind}", x, y)
        (folder / "train-labels.idx2").write_bytes(idx_bytes(y.astype(np.int32)))
        (folder / "train-images.idx2").write_bytes(idx_bytes(x))
        return folder / "train-images.idx2"

    return written


def json_line() -> st.SearchStrategy[str]:
    values = st.one_of(CELLS, st.lists(CELLS, max_size=4), st.just({"deep": SECRET}))
    keys = st.sampled_from(["a", "b", "v", "label", SECRET])
    objects = st.dictionaries(keys, values).map(lambda row: json.dumps({"label": 1, **row}))
    odd = [SECRET, "[" * 60, "{}", '{"a": 1' + "0" * 6000 + ', "label": 0}', '{"a": NaN, "b": 1, "label": 0}', "[1]"]
    return st.one_of(objects, st.sampled_from([*odd, "null"]))


def pandas_frame(_: Path, records: list[Record]) -> Any:
    """As pandas infers it: one value decides the type of its column."""
    return pandas.DataFrame([dict(zip(("a", "b", "label"), record, strict=True)) for record in records])


def pandas_categories(_: Path, records: list[Record]) -> Any:
    return pandas_frame(_, records).astype("category")


def polars_frame(_: Path, records: list[Record]) -> Any:
    return polars.DataFrame(records, schema=["a", "b", "label"], orient="row", strict=False, infer_schema_length=None)


def hugging_face(_: Path, records: list[Record]) -> Any:
    return datasets.Dataset.from_list([dict(zip(("a", "b", "label"), record, strict=True)) for record in records])


def arrow_table(_: Path, records: list[Record]) -> Any:
    """By a schema that its owner wrote, a chunk a record."""
    schema = pa.schema({"a": pa.float64(), "b": pa.int64(), "label": pa.int64()})
    named = [dict(zip(schema.names, record, strict=True)) for record in records]
    return pa.concat_tables([pa.Table.from_pylist([record], schema=schema) for record in named])


def two_lists(_: Path, records: list[Record]) -> Any:
    return [record[:-1] for record in records], [record[-1] for record in records]


def one_array(_: Path, records: list[Record]) -> Any:
    """As NumPy infers it: one value decides the type of all."""
    x, y = two_lists(_, records)
    return np.array(x), np.array(y)


def one_frame_and_labels(_: Path, records: list[Record]) -> Any:
    frame = pandas_frame(_, records)
    return frame[["a", "b"]], frame["label"]


IMAGE = {"image_size": 4, "colour": "grey"}
COLOUR = {"image_size": 4, "colour": "rgb"}
PHOTOS = [(picture("RGB", 4, 1), "cat"), (picture("RGB", 4, 2), "dog"), (picture("RGB", 4, 3), "cat")]
NUMBERS = [([0.5, 1.0, 2.0], 0), ([1.5, 1.0, 2.0], 1), ([2.5, 1.0, 2.0], 0)]
LINES = [json.dumps({"a": number, "b": 2, "v": [1, 2, 3], "label": number % 2}) for number in range(3)]
LISTS = [([1.0, 2.0, 3.0], "cat"), ([4.0, 5.0, 6.0], "dog"), ([7.0, 8.0, 9.0], "cat")]
ANY_PHOTO = st.tuples(PICTURES, LABELS)
ANY_CELL = st.tuples(st.one_of(st.none(), PICTURES), st.one_of(st.none(), LABELS))
ANY_LIST = st.tuples(st.one_of(st.none(), st.lists(st.one_of(st.none(), FLOATS), max_size=4)), LABELS)
ANY_NUMBERS = st.tuples(st.lists(FLOATS, min_size=3, max_size=3), st.integers(-1, 3))
# What pandas and NumPy make other types of; and a number that float64 rounds.
INTEGERS = [(1, 2, 0), (3, 2**53 + 1, 1), (5, 6, 0)]
PAIRS = [(1, 2, 0), (3, 4, 1), (5, 6, 0)]
ROWS = [["1", "2", "cat"], ["3", "4", "dog"], ["5", "6", "0"]]
TEXTS = [("x", "", "cat"), ("y", "7", "dog"), ("", "z", "cat")]
ANY_VALUE = st.one_of(CELLS, st.sampled_from([SECRET, "", "3", 2.5, True, None, 10**400, np.datetime64("2020-01-01")]))
ANY_LABEL = st.sampled_from([0, 1, 2, 0.5, 1.0, -1, "cat", "0", SECRET, "", None, True, float("nan")])
ANY_THREE = st.tuples(ANY_VALUE, ANY_VALUE, ANY_LABEL)
ANY_AS_TYPED = st.tuples(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats()),
    st.one_of(st.none(), st.integers(-9, 9)),
    st.one_of(st.none(), st.integers(-1, 3), st.sampled_from([0.5, 1.0])),
)
ANY_NUMBER = st.tuples(
    *[st.one_of(st.none(), st.integers(-9, 9), st.floats())] * 2, st.sampled_from([None, 0, 1, 2, 0.5])
)
ANY_TYPED = st.tuples(
    st.one_of(st.none(), st.floats()),
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.none(), st.integers(-1, 3)),
)
ANY_LENGTH = st.lists(st.one_of(ANY_VALUE, st.lists(st.integers(), max_size=2)), min_size=1, max_size=4).map(tuple)
ANY_ROW = st.lists(
    st.sampled_from(["1", "", "nan", "1e999", SECRET, "a\nb", 'say "a"', "dog", "0"]), min_size=1, max_size=4
)
NUMERIC, CHOSEN, TABLE = {"number_columns": ["a", "b"]}, {"number_columns": ["b"]}, {"columns": ["a", "b"]}
LENGTH = {"feature_length": 3}
SEVENS = [(1, 2, 7), (3, 4, 9), (5, 6, 7)]
PICTURE_TABLE = tables("parquet", {"image": pa.binary(), "label": pa.string()})
LIST_TABLE, LIST_SHARDS = (
    tables(kind, {"v": pa.list_(pa.float32()), "label": pa.string()}) for kind in ("parquet", "shards")
)
READERS = {
    "folder, grey": Reader(images_by_class, PHOTOS, ANY_PHOTO, IMAGE),
    "folder, rgb": Reader(images_by_class, PHOTOS, ANY_PHOTO, COLOUR),
    "folder, undeclared": Reader(images_by_class, PHOTOS, ANY_PHOTO, {"colour": "rgb"}),
    "folder, classes undeclared": Reader(images_by_class, PHOTOS, ANY_PHOTO, {**COLOUR, "classes": None}),
    "parquet, images": Reader(PICTURE_TABLE, PHOTOS, ANY_CELL, COLOUR),
    "parquet, undeclared images": Reader(PICTURE_TABLE, PHOTOS, ANY_CELL, {"image_size": 4}),
    "parquet, lists": Reader(LIST_TABLE, LISTS, ANY_LIST, LENGTH),
    "parquet, undeclared lists": Reader(LIST_TABLE, LISTS, ANY_LIST),
    "parquet, at an address": Reader(at_an_address(LIST_TABLE), LISTS, ANY_LIST, LENGTH),
    "parquet, shards": Reader(LIST_SHARDS, LISTS, ANY_LIST, LENGTH),
    "json, numbers": Reader(lines, LINES, json_line(), NUMERIC),
    "json, lists": Reader(lines, LINES, json_line(), {"number_columns": ["v"], **LENGTH}),
    "json, table": Reader(lines, LINES, json_line(), TABLE),
    "json, undeclared": Reader(lines, LINES, json_line()),
    "json, at an address": Reader(at_an_address(lines), LINES, json_line(), NUMERIC),
    "json, shards": Reader(shards(lines), LINES, json_line(), NUMERIC),
    "csv, numbers": Reader(rows, ROWS, ANY_ROW),
    "csv, shards": Reader(shards(rows), ROWS, ANY_ROW),
    "csv, at an address": Reader(at_an_address(rows), ROWS, ANY_ROW),
    "csv, chosen": Reader(rows, [["1", "2", "cat"], ["x", "4", "dog"], ["", "6", "0"]], ANY_ROW, CHOSEN),
    "csv, texts": Reader(rows, [["1", "2", "cat"], ["x\ny", "4", "dog"], ["", "6", "0"]], ANY_ROW, TABLE),
    "pandas, numbers": Reader(pandas_frame, INTEGERS, ANY_THREE),
    "pandas, chosen": Reader(pandas_frame, [("u", 2, 1), (None, 4, 0), (1, 6, 0)], ANY_THREE, CHOSEN),
    "pandas, texts": Reader(pandas_frame, TEXTS, ANY_THREE, TABLE),
    "pandas, numbers in a table": Reader(pandas_frame, INTEGERS, ANY_THREE, TABLE),
    "pandas, a text column": Reader(pandas_frame, TEXTS, ANY_THREE, {"columns": ["b"]}),
    "pandas, integers are classes": Reader(pandas_frame, SEVENS, ANY_THREE, {"classes": [7, 9, 2]}),
    "pandas, names are numbers": Reader(
        pandas_frame, [(a, b, str(label)) for a, b, label in SEVENS], ANY_THREE, {"classes": ["7", "9"]}
    ),
    "pandas, classes undeclared": Reader(pandas_frame, INTEGERS, ANY_THREE, {"classes": None}),
    "pandas, categories": Reader(pandas_categories, INTEGERS, ANY_THREE),
    "pandas, categories in a table": Reader(pandas_categories, TEXTS, ANY_THREE, TABLE),
    "pandas, labels apart": Reader(one_frame_and_labels, INTEGERS, ANY_THREE),
    "polars, numbers": Reader(polars_frame, INTEGERS, ANY_AS_TYPED),
    "polars, table": Reader(polars_frame, INTEGERS, ANY_AS_TYPED, {"columns": ["b", "a"]}),
    "polars, lazy": Reader(lambda _, records: polars_frame(_, records).lazy(), INTEGERS, ANY_AS_TYPED),
    "arrow table, numbers": Reader(arrow_table, INTEGERS, ANY_TYPED),
    "arrow table, cells": Reader(arrow_table, INTEGERS, ANY_TYPED, {"columns": ["b", "a"]}),
    "arrow dataset": Reader(lambda _, records: pyarrow.dataset.dataset(arrow_table(_, records)), INTEGERS, ANY_TYPED),
    "hugging face, numbers": Reader(hugging_face, PAIRS, ANY_NUMBER),
    "hugging face, classes undeclared": Reader(hugging_face, PAIRS, ANY_NUMBER, {"classes": "ClassLabel"}),
    "lists, numbers": Reader(two_lists, INTEGERS, ANY_LENGTH, {"feature_length": 2}),
    "lists, undeclared": Reader(two_lists, INTEGERS, ANY_LENGTH),
    "lists, texts": Reader(two_lists, [("x", "cat"), ("y", "dog"), ("", "cat")], ANY_LENGTH, {"columns": ["t"]}),
    "lists, rows": Reader(two_lists, TEXTS, ANY_LENGTH, TABLE),
    "array, inferred": Reader(one_array, INTEGERS, ANY_THREE),
    **{kind: Reader(arrays(kind), NUMBERS, ANY_NUMBERS) for kind in ("npz", "npy", "safetensors", "idx")},
}


@dataclass(frozen=True)
class Seen:
    public: Any
    records: Any
    error: str | None = None
    hashes: frozenset[str] = frozenset()


def look(reader: Reader, records: list[Record]) -> Seen:
    with tempfile.TemporaryDirectory() as name:
        options = {"classes": CLASSES, **reader.options}
        public: Any = None
        hashes: frozenset[str] = frozenset()
        try:
            source = open_dataset(reader.write(Path(name), records), **options)
            assert source.schema.records == len(records)
            public = replace(source.schema, records=1), source.number_names, source.travels
            hashes = frozenset(content_hashes(source))
            found = source.read()
        except InvalidInput as error:
            message = f"{error.field}: {error}".replace(name, "")
            return Seen(message if public is None else public, None, message, hashes)
        read = [(repr(x.tolist()), int(y)) for x, y in zip(found.x, found.y, strict=True)]
        return Seen(public, read, None, hashes)


@pytest.mark.parametrize("name", READERS)
@FEW
@given(data=st.data())
def test_a_record_more_changes_nothing_but_itself(name: str, data: st.DataObject) -> None:
    """Formal guarantees of open_dataset: declared, unread, per record."""
    reader = READERS[name]
    without = look(reader, reader.plain)
    assert (without.records is None) == ("undeclared" in name)
    record = data.draw(reader.any_record)
    neighbours = [look(reader, [*reader.plain[:place], record, *reader.plain[place:]]) for place in PLACES]
    for place, found in zip(PLACES, neighbours, strict=True):
        assert found.public == without.public
        assert found.error == neighbours[0].error
        assert SECRET not in str(found.error)
        if not name.startswith("folder") and "shards" not in name and "address" not in name:
            # Files of records have a hash each.
            assert len(found.hashes) <= len(without.hashes)
            assert bool(found.hashes) == bool(without.hashes)
            assert not found.hashes & without.hashes or name in ("npy", "idx")
        if found.records is not None and name.startswith("folder"):
            # Folders sort by class.
            assert len(found.records) == 4
            assert not [one for one in without.records if found.records.count(one) < without.records.count(one)]
        elif found.records is not None:
            assert found.records[:place] + found.records[place + 1 :] == without.records


@pytest.mark.parametrize("name", READERS)
@settings(FEW, max_examples=5)
@given(data=st.data())
def test_another_record_changes_nothing_but_itself(name: str, data: st.DataObject) -> None:
    """The same for the other relation of neighbours: one record's content replaced."""
    reader = READERS[name]
    before, record = look(reader, reader.plain), data.draw(reader.any_record)
    for place in range(len(reader.plain)):
        found = look(reader, [*reader.plain[:place], record, *reader.plain[place + 1 :]])
        assert found.public == before.public
        assert SECRET not in str(found.error)
        if found.records is not None and not name.startswith("folder"):
            others = [one for at, one in enumerate(before.records) if at != place]
            assert found.records[:place] + found.records[place + 1 :] == others


# Ledgers know data by these.
KEPT = {
    "numbers": "98ffe9a204c03fef0bc90a7c509ba4e77aaf4afcb8dfe382be6e3e0e3d47bf5f",
    "cells": "95504ef7ffba9062c813516157d0d2a70e9b809a23c994eec49e84af9b818eee",
}


@pytest.mark.parametrize("kind", KEPT)
def test_equal_content_has_one_hash_in_every_form(kind: str) -> None:
    """Frames have a second one, of all their columns, and chunks one of theirs. Other records have another."""
    texts = kind == "cells"
    declared: dict[str, Any] = {"columns" if texts else "number_columns": ["a", "b"]}
    cells = {"a": ["x", "", "1"] if texts else [1.5, -0.0, 3.0], "b": [1, 2, 2**40], "label": [0, 1, 0]}
    longer = {name: [*some, some[0]] for name, some in cells.items()}
    found = []
    for content in (cells, longer, {**cells, "b": [1, 2, 3]}):
        hashes = []
        for name, data in forms(pa.table(content)).items():
            source = open_dataset(data, classes=2, **({} if name == "rows" and not texts else declared))
            assert records_hash(source) in content_hashes(source)
            hashes.append(set(content_hashes(source)))
        found += set.intersection(*hashes)
    assert found[0] == KEPT[kind]
    assert len(found) == len(set(found)) == 3
