"""One rule for labels in every reader: a value whose text is a declared name is that class."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from privmix.data import open_dataset
from privmix.errors import InvalidInput
from privmix.jobs.columns import Columns
from tests.data.helpers import columns, png, write
from tests.refusals import refuses

datasets = pytest.importorskip("datasets")
Reader = Callable[[Path, list[Any], Any], list[int]]


def _file(name: str) -> Reader:
    return lambda folder, labels, classes: _read(write(folder / name, _x(labels), labels), classes)


def _category(labels: list[Any]) -> Any:
    return pandas.DataFrame(_table(labels)).astype({"label": "category"})


def _read(data: Any, classes: Any) -> list[int]:
    options: dict[str, Any] = {"number_columns": ["a"]} if str(data).endswith(".jsonl") else {}
    return open_dataset(data, classes=classes, **options).read().y.tolist()


def _table(labels: list[Any]) -> dict[str, list[Any]]:
    return {"a": list(range(len(labels))), "label": labels}


def _x(labels: list[Any]) -> Any:
    return np.arange(len(labels), dtype=np.float32).reshape(-1, 1)


ANY: dict[str, Reader] = {
    **{name: _file(f"a.{name}") for name in ("csv", "jsonl", "parquet", "npz")},
    "dictionary": lambda folder, labels, classes: (
        _category(labels).to_parquet(folder / "b.parquet") or _read(folder / "b.parquet", classes)
    ),
    "pandas": lambda _, labels, classes: _read(pandas.DataFrame(_table(labels)), classes),
    "category": lambda _, labels, classes: _read(_category(labels), classes),
    "objects": lambda _, labels, classes: _read(pandas.DataFrame(_table(labels)).astype({"label": object}), classes),
    "polars": lambda _, labels, classes: _read(polars.DataFrame(_table(labels)), classes),
    "table": lambda _, labels, classes: _read(pa.table(_table(labels)), classes),
    "datasets": lambda _, labels, classes: _read(datasets.Dataset.from_dict(_table(labels)), classes),
    "lists": lambda _, labels, classes: _read((_x(labels), labels), classes),
    "array": lambda _, labels, classes: _read((_x(labels), np.array(labels)), classes),
    "items": lambda _, labels, classes: _read((_x(labels), [np.array(label)[()] for label in labels]), classes),
}
NUMBERS: dict[str, Reader] = ANY | {"safetensors": _file("a.safetensors")}
WHOLE: dict[str, Reader] = NUMBERS | {"idx": _file("train-images-idx2-ubyte")}
# Files of texts have no truth values, and arrays of one type make numbers of all where one is among them.
TRUTHS = {name: read for name, read in ANY.items() if name != "csv"}
TYPED = {name: read for name, read in TRUTHS.items() if name not in ("npz", "array", "items")}
MIXED = {name: ANY[name] for name in ("jsonl", "objects", "lists", "array", "npz", "items")}
REFUSED = None
CASES: dict[str, tuple[dict[str, Reader], list[Any], Any, list[int] | None]] = {
    "truth values by name": (ANY, [True, False, False], ["True", "False"], [0, 1, 1]),
    "truth values by name, in lower case": (ANY, [True, False, False], ["true", "false"], [0, 1, 1]),
    "truth values declared as such": (ANY, [True, False, False], [False, True], [1, 0, 0]),
    "truth values by number": (ANY, [True, False, False], ["1", "0"], REFUSED),
    "integers by name": (WHOLE, [1, 2, 2], ["1", "2"], [0, 1, 1]),
    "integers by name, in another order": (WHOLE, [1, 0, 0], ["1", "0"], [0, 1, 1]),
    "integers declared as such": (WHOLE, [2, 1, 1], range(1, 3), [1, 0, 0]),
    "NumPy's integers declared": (WHOLE, [2, 1, 1], np.array([2, 1]), [0, 1, 1]),
    "negative integers declared": (NUMBERS, [1, -1, 1], [-1, 1], [1, 0, 1]),
    "integers as truth values": (WHOLE, [0, 1, 1], ["False", "True"], REFUSED),
    "a number among names": (WHOLE, [0, 1, 1], ["none", "1"], REFUSED),
    "integers by place": (WHOLE, [0, 1, 1], ["no", "yes"], [0, 1, 1]),
    "integers of a number of classes": (WHOLE, [0, 1, 1], 2, [0, 1, 1]),
    "integers of a range": (WHOLE, [0, 1, 1], range(10), [0, 1, 1]),
    "integers as words in another order": (WHOLE, [0, 1, 1], ["yes", "no"], REFUSED),
    "integers as a word at another place": (WHOLE, [0, 1, 1], ["maybe", "no"], REFUSED),
    "integers as letters in another order": (WHOLE, [0, 1, 1], ["Y", "N"], REFUSED),
    "integers as words in order after a name": (WHOLE, [0, 1, 2], ["maybe", "no", "yes"], REFUSED),
    "integers by place of grades": (WHOLE, [0, 1, 2], ["no", "mild", "severe"], [0, 1, 2]),
    "integers by place of letters": (WHOLE, [0, 1, 1], ["F", "M"], [0, 1, 1]),
    "texts of places of words in another order": (ANY, ["1", "0", "0"], ["yes", "no"], REFUSED),
    "truth values by words in another order": (TRUTHS, [True, False, False], ["yes", "no"], [0, 1, 1]),
    "truth values by letters in another order": (TRUTHS, [True, False, False], ["Y", "N"], [0, 1, 1]),
    "truth values of grades": (TRUTHS, [True, False, False], ["no", "mild", "severe"], [1, 0, 0]),
    "truth values as a word at another place": (TRUTHS, [True, False, False], ["yes", "maybe"], REFUSED),
    "truth values by place of names": (TYPED, [True, False, False], ["well", "ill"], [1, 0, 0]),
    "truth values of a number of classes": (TYPED, [True, False, False], 2, [1, 0, 0]),
    "a truth value among integers, by words": (MIXED, [True, 0, 1], ["no", "yes"], [1, 0, 1]),
    "a truth value among integers, by words in another order": (MIXED, [True, False, 1], ["yes", "no"], REFUSED),
    "a truth value among integers, by a word at another place": (MIXED, [True, False, 1], ["maybe", "no"], REFUSED),
    "a truth value among integers, by name": (MIXED, [True, False, 1], ["True", "False"], REFUSED),
    "a truth value among integers, by place": (MIXED, [True, False, 1], ["well", "ill"], [1, 0, 1]),
    "a truth value among whole floats, by words": (MIXED, [True, False, 1.0], ["no", "maybe", "yes"], REFUSED),
    "whole floats by name": (NUMBERS, [1.0, 2.0, 2.0], ["1", "2"], [0, 1, 1]),
    "whole floats by name of a float": (NUMBERS, [1.0, 2.0, 2.0], ["2.0", "1.0"], [1, 0, 0]),
    "whole floats by place": (NUMBERS, [0.0, 1.0, 1.0], ["no", "yes"], [0, 1, 1]),
    "a real-valued target": (NUMBERS, [0.5, 1.0, 1.25], ["no", "yes"], REFUSED),
    "texts by name": (ANY, ["yes", "no", "no"], ["no", "yes"], [1, 0, 0]),
    "texts of numbers": (ANY, ["1.0", "2", "2"], ["1", "2"], [0, 1, 1]),
    "texts of places": (ANY, ["1", "0", "0"], ["no", "yes"], [1, 0, 0]),
    "texts of truth values": (ANY, ["true", "False", "False"], ["True", "False"], [0, 1, 1]),
    "texts that names alone tell apart": (ANY, ["1.0", "1", "1"], ["1", "1.0"], [1, 0, 0]),
    "numbers that names do not tell apart": (NUMBERS, [1.0, 1.0, 1.0], ["1", "1.0"], REFUSED),
}


@pytest.mark.parametrize(
    ("case", "reader"), [(case, reader) for case, (readers, *_) in CASES.items() for reader in readers]
)
def test_a_label_is_the_same_class_in_every_reader(tmp_path: Path, case: str, reader: str) -> None:
    readers, labels, classes, places = CASES[case]
    if reader == "csv" and case == "numbers that names do not tell apart":
        places = [1, 1, 1]
    if places is not REFUSED:
        assert readers[reader](tmp_path, labels, classes) == places
        return
    with refuses("label") as refused:
        readers[reader](tmp_path, labels, classes)
    assert "single-label classification" in refused.value.allowed


def test_each_label_is_read_by_itself() -> None:
    for mixed in (["1", 1, 1.0, np.int64(2), "2.0"], ["1", 1, 1, 2, None], [True, 1, "1", 2, 2]):
        try:
            found = _read((_x(mixed), mixed), ["2", "1"])
        except InvalidInput:
            continue
        assert found == [1, 1, 1, 0, 0]


def test_numbers_of_a_class_label_are_its_names() -> None:
    for names, classes, places in (
        (["cat", "dog"], ["dog", "cat"], [1, 0, 0]),
        (["2", "1"], ["2", "1"], [0, 1, 1]),
        (["2", "1"], "ClassLabel", [0, 1, 1]),
        (["cat", "dog"], ["chat", "chien"], [0, 1, 1]),
        (["cat", "dog"], 2, [0, 1, 1]),
    ):
        features = datasets.Features(a=datasets.Value("int64"), label=datasets.ClassLabel(names=names))
        made = datasets.Dataset.from_dict(_table([0, 1, 1]), features=features)
        assert _read(made, classes) == places
        with refuses("label"):
            _read(datasets.Dataset.from_dict(_table([0, -1, 1]), features=features), classes)
    with pytest.raises(InvalidInput, match="has no ClassLabel"):
        _read(datasets.Dataset.from_dict(_table([0, 1, 1])), "ClassLabel")


def test_several_labels_a_record_are_refused_with_the_way_out() -> None:
    y = np.eye(3)
    for data in ((_x([0, 1, 2]), y), (_x([0, 1, 2]), y.tolist()), pa.table(_table(y.tolist()))):
        with pytest.raises(InvalidInput) as refused:
            _read(data, 3)
        assert "single-label classification" in refused.value.allowed


def test_a_list_of_labels_is_no_label() -> None:
    with refuses("label") as refused:
        Columns(label=["y", "ok"])  # type: ignore[arg-type]
    assert "single-label classification" in refused.value.allowed


ANIMALS = ["cat", "dog"]
INPUTS = np.arange(12, dtype=np.float32).reshape(4, 3)
PLACES = np.array([0, 1, 1, 0])
ANIMAL_LABELS = [ANIMALS[label] for label in PLACES]


FRAME = pandas.DataFrame(columns(INPUTS))
FILES = ["d.csv", "d.parquet", "d.jsonl", "d.npz", "x.npy", "d.safetensors", "train-images-idx2-ubyte"]
FORMATS: dict[str, Callable[[Path, Any], Any]] = {
    **{name: lambda folder, y, name=name: write(folder / name, INPUTS, y) for name in FILES},
    "folder of npy": lambda folder, y: write(folder / "x.npy", INPUTS, y).parent,
    "folder of idx": lambda folder, y: write(folder / "train-images-idx2-ubyte", INPUTS, y).parent,
    "pandas": lambda _, y: pandas.DataFrame(columns(INPUTS, y)),
    "polars": lambda _, y: polars.DataFrame(columns(INPUTS, y)),
    "arrays": lambda _, y: INPUTS if y is None else (INPUTS, y),
    "frame and labels": lambda _, y: FRAME if y is None else (FRAME, y),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_labels_may_be_there_or_not(kind: str, tmp_path: Path) -> None:
    more: dict[str, Any] = {"number_columns": list("abc")} if kind == "d.jsonl" else {}
    for y in (PLACES, None):
        (tmp_path / str(y is None)).mkdir()
        data = FORMATS[kind](tmp_path / str(y is None), y)
        source = open_dataset(data, classes=ANIMALS, labelled=False, **more)
        assert source.schema.records == len(INPUTS)
        assert np.array_equal(np.concatenate(list(source.inputs(3))), INPUTS)
        with pytest.raises(InvalidInput):
            source.read()


def test_hugging_face_and_tables(tmp_path: Path) -> None:
    found = open_dataset(datasets.Dataset.from_dict(columns(INPUTS)), classes=ANIMALS, labelled=False)
    assert np.array_equal(np.concatenate(list(found.inputs(8))), INPUTS)
    path = write(tmp_path / "d.parquet", INPUTS, ANIMAL_LABELS)
    table = open_dataset(path, columns=["label", "a"], classes=ANIMALS, labelled=False)
    assert next(table.inputs(1)).tolist() == [["cat", 0.0]]


@pytest.mark.parametrize("flat", [True, False])
def test_images_without_classes(flat: bool, tmp_path: Path) -> None:
    for number, name in enumerate(ANIMAL_LABELS):
        folder = tmp_path if flat else tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.png").write_bytes(png(np.full((2, 2), number, np.uint8)))
    source = open_dataset(tmp_path, classes=ANIMALS, labelled=False, image_size=2, colour="grey")
    read = [int(x) for batch in source.inputs(3) for x in batch[:, 0, 0]]
    assert source.names == tuple(
        f"{number}.png" if flat else f"{ANIMAL_LABELS[number]}/{number}.png" for number in read
    )
    assert sorted(read) == [0, 1, 2, 3]
    if flat:
        with pytest.raises(InvalidInput, match="no dataset"):
            open_dataset(tmp_path, classes=ANIMALS, image_size=2, colour="grey")


def test_labels_that_are_there_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,label\n1,\n2,what\n")
    source = open_dataset(tmp_path / "d.csv", classes=ANIMALS, labelled=False)
    assert np.concatenate(list(source.inputs(8))).tolist() == [[1.0], [2.0]]
