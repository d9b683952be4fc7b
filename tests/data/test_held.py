"""Data in other forms that people hold: the same records as in a file, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import polars
import pyarrow as pa
import pyarrow.dataset
import pytest
import scipy.sparse
import torch
from PIL import EpsImagePlugin, Image
from safetensors.torch import save_file
from torch.utils.data import DataLoader, Subset, TensorDataset

from privmix.data import content_hashes, open_dataset
from privmix.data.held import settled
from privmix.data.persons import persons_in_column
from privmix.errors import InvalidInput
from tests.refusals import refuses

CLASSES = ["cat", "dog"]
FRAME = {"who": ["p", "q", "p"], "a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "label": ["cat", "dog", "cat"]}
FEATURES = datasets.Features(
    who=datasets.Value("string"),
    a=datasets.Value("int64"),
    b=datasets.Value("float64"),
    label=datasets.ClassLabel(names=CLASSES),
)
HELD = datasets.Dataset.from_dict(FRAME, features=FEATURES)
WANTED = ([[1.0, 0.5], [2.0, 1.5], [3.0, 2.5]], [0, 1, 0])
X = np.arange(12, dtype=np.float64).reshape(4, 3) / 4
Y = [1, 0, 1, 0]
SECRET = "patient-4711"


def records() -> Iterator[dict[str, Any]]:
    for place in range(3):
        yield {name: cells[place] for name, cells in FRAME.items()}


def read(data: Any, **options: Any) -> tuple[Any, list[int]]:
    source = open_dataset(data, **options)
    found, again = source.read(), source.read()
    assert np.array_equal(found.x, again.x)
    return found.x.tolist(), found.y.tolist()


def tables() -> dict[str, Any]:
    table = pa.table(FRAME)
    return {
        "lazy": polars.LazyFrame(FRAME),
        "table": table,
        "chunks": pa.concat_tables([table.slice(0, 1), table.slice(1)]),
        "batch": table.to_batches()[0],
        "dataset": pyarrow.dataset.dataset(table),
        "hugging face": HELD,
    }


@pytest.mark.parametrize("name", list(tables()))
def test_tables_of_any_kind_are_the_same_records(name: str) -> None:
    data = tables()[name]
    numbers = {"number_columns": ["a", "b"], "person_columns": ["who"]}
    assert read(data, classes=CLASSES, **numbers) == WANTED
    assert read(data, classes=CLASSES, columns=["who", "b"])[0] == [["p", 0.5], ["q", 1.5], ["p", 2.5]]
    assert persons_in_column(settled(data), "who").tolist() == [0, 1, 0]
    assert len(content_hashes(open_dataset(data, classes=CLASSES, **numbers))) > 0
    with refuses("classes"):
        open_dataset(data, **numbers)
    with refuses("columns"):
        open_dataset(data, classes=CLASSES, number_columns=["c"])


def test_splits_are_found_by_name() -> None:
    made = datasets.DatasetDict(validation=HELD)
    assert read(made, split="val", classes="ClassLabel", number_columns=["a", "b"]) == WANTED
    with refuses("split"):
        open_dataset(made, split="test", classes="ClassLabel")


def test_a_query_runs_once() -> None:
    """However often its records are read."""
    runs = []

    def query(frame: polars.DataFrame) -> polars.DataFrame:
        runs.append(1)
        return frame

    held = settled(polars.LazyFrame(FRAME).map_batches(query))
    source = open_dataset(held, classes=CLASSES, number_columns=["a", "b"])
    content_hashes(source)
    assert (source.read().x.tolist(), source.read().y.tolist()) == WANTED
    assert persons_in_column(held, "who").tolist() == [0, 1, 0]
    assert runs == [1]
    assert settled(held) is held


def test_labels_beside_a_lazy_frame() -> None:
    assert read((polars.LazyFrame(FRAME).select("a", "b"), FRAME["label"]), classes=CLASSES) == WANTED
    with refuses("x"):
        open_dataset((pa.table(FRAME), FRAME["label"]), classes=CLASSES)


@pytest.mark.parametrize(
    "kind", [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array, scipy.sparse.lil_matrix]
)
def test_sparse_matrices_are_the_arrays_that_they_stand_for(kind: Any) -> None:
    source = open_dataset((kind(X), Y), classes=2)
    assert (source.read().x.tolist(), source.read().y.tolist()) == (X.tolist(), Y)
    assert content_hashes(source) == content_hashes(open_dataset((X, Y), classes=2))
    assert next(source.inputs(3)).shape == (3, 3)
    assert open_dataset(kind(X), classes=2, labelled=False).schema.input_shape == (3,)
    with refuses("y"):
        open_dataset((kind(X), Y[1:]), classes=2)


IMAGES = [Image.fromarray(np.full((8, 10, 3), 40 * level, np.uint8)) for level in range(4)]


def opened(image: Image.Image, path: Path, **options: Any) -> Image.Image:
    image.save(path, **options)
    return Image.open(path)


def test_lists_of_images_are_a_folder_of_them(tmp_path: Path) -> None:
    for place, image in enumerate(IMAGES):
        folder = tmp_path / "data" / CLASSES[Y[place]]
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{place}.png")
    declared = {"image_size": 4, "colour": "grey"}
    wanted = open_dataset(tmp_path / "data", classes=CLASSES, **declared).read()
    order = [1, 3, 0, 2]
    encoded = [(tmp_path / "data" / CLASSES[Y[place]] / f"{place}.png").read_bytes() for place in range(4)]
    lazily = [Image.open(tmp_path / "data" / CLASSES[Y[place]] / f"{place}.png") for place in range(4)]
    for images in (IMAGES, encoded, lazily, [IMAGES[0], encoded[1], lazily[2], IMAGES[3].convert("RGBA")]):
        found = open_dataset((images, Y), classes=CLASSES, **declared).read()
        assert found.x.dtype == np.uint8
        assert np.array_equal(found.x[order], wanted.x)
    # A model's shape says what is not declared.
    assert open_dataset(IMAGES, classes=CLASSES, labelled=False, input_shape=(6, 6, 3)).schema.input_shape == (6, 6, 3)
    with refuses("x"):
        open_dataset((IMAGES, Y), classes=CLASSES)
    with refuses("image_size"):
        open_dataset((X, Y), classes=CLASSES, image_size=4)


def test_an_image_that_would_start_a_program_is_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", started)
    shut = opened(IMAGES[1], tmp_path / "x.eps"), opened(IMAGES[1], tmp_path / "x.tiff")
    for image in shut:
        for images in ([image, *IMAGES[1:]], [*IMAGES[1:], image]):
            with refuses("x"):
                open_dataset((images, Y), classes=CLASSES, image_size=4, colour="rgb").read()


@pytest.mark.parametrize("size", [1, 4])
def test_images_and_numbers_do_not_stand_side_by_side(size: int) -> None:
    """Whatever the chunks are that they are read in."""
    grey = [np.zeros((4, 4)), *IMAGES[1:]]
    for mixed in (grey, grey[::-1]):
        source = open_dataset((mixed, Y), classes=CLASSES, image_size=4, colour="grey")
        with refuses("x"):
            list(source.batches(size))


TENSORS = TensorDataset(torch.tensor(X), torch.tensor(Y))
REFUSED = {
    "tensors": (lambda: TENSORS, r"TensorDataset of torch.*dataset\.tensors"),
    "part": (lambda: Subset(TENSORS, [0, 1]), r"map\(list, zip"),
    "loader": (lambda: DataLoader(TENSORS, shuffle=True), "DataLoader of torch.*channels last"),
    "reader": (lambda: pa.table(FRAME).to_reader(), "read_all"),
    "generator": (records, "generator, which can be read once.*a list"),
    "stream": (lambda: HELD.to_iterable_dataset(), r"IterableDataset of.*streaming=True.*to_parquet"),
    "streams": (lambda: datasets.IterableDatasetDict(train=HELD.to_iterable_dataset()), "streaming=True.*to_parquet"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_is_refused_says_what_to_do(case: str) -> None:
    make, said = REFUSED[case]
    with pytest.raises(InvalidInput, match=said) as refused:
        open_dataset(make(), classes=2)
    assert refused.value.field == "data"


SECRETS = {
    "query": lambda: polars.LazyFrame({"label": ["cat", SECRET]}).select(polars.col("label").cast(polars.Int64)),
    "label": lambda: pa.table({"a": [1, 2], "label": ["cat", SECRET]}),
}


@pytest.mark.parametrize("case", list(SECRETS))
def test_no_error_quotes_a_record(case: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        open_dataset(SECRETS[case](), classes=CLASSES).read()
    shown = f"{refused.value}{refused.value.__cause__}{refused.value.__suppress_context__ or refused.value.__context__}"
    assert SECRET not in shown


def test_a_transform_of_hugging_faces_is_not_read_past() -> None:
    """A transform that hides something would be left out without a word."""
    held = datasets.Dataset.from_dict(FRAME, features=FEATURES)
    for data in (held.with_transform(dict), datasets.DatasetDict(train=held.with_transform(dict))):
        with refuses("data"):
            open_dataset(data, classes="ClassLabel", number_columns=["a", "b"])
    assert read(held.with_transform(dict).with_format(None), classes="ClassLabel", number_columns=["a", "b"]) == WANTED


@pytest.mark.parametrize("column", ["image", "spectrum"])
def test_arrays_of_hugging_faces_have_their_shape(tmp_path: Path, column: str) -> None:
    features = datasets.Features({column: datasets.Array2D((2, 3), "float32"), "label": FEATURES["label"]})
    x = np.arange(12, dtype=np.float64).reshape(2, 2, 3)
    held = datasets.Dataset.from_dict({column: x.tolist(), "label": [1, 0]}, features=features)
    held.to_parquet(str(tmp_path / "a.parquet"))
    for data in (held, datasets.DatasetDict(train=held), tmp_path / "a.parquet"):
        assert open_dataset(data, classes="ClassLabel").schema.input_shape == (2, 3)
        assert read(data, classes="ClassLabel") == (x.tolist(), [1, 0])


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    x = torch.tensor(X).bfloat16()
    save_file({"x": x, "y": torch.tensor(Y)}, tmp_path / "a.safetensors")
    for data in (tmp_path / "a.safetensors", (x, Y), (list(x), Y)):
        options = {"feature_length": 3} if isinstance(data, tuple) else {}
        assert read(data, classes=2, **options) == (X.tolist(), Y)
