"""Data in memory: what people hold in their hands gives the records that files of it would, or is refused."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
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
from privmix.data.frames import frame_inputs, settled
from privmix.data.persons import persons_in_column
from privmix.errors import InvalidInput
from tests.data.helpers import forms
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


def read(data: Any, **options: Any) -> tuple[Any, list[int]]:
    """Records and labels, which are the same the second time."""
    source = open_dataset(data, **options)
    found, again = source.read(), source.read()
    assert np.array_equal(found.x, again.x)
    return found.x.tolist(), found.y.tolist()


TABLES = {**forms(pa.table(FRAME)), "classes": HELD, "query": polars.LazyFrame(FRAME)}


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("apart", "rows")])
def test_tables_of_any_kind_are_the_same_records(name: str) -> None:
    data = TABLES[name]
    numbers = {"number_columns": ["a", "b"], "person_columns": ["who"]}
    assert read(data, classes=CLASSES, **numbers) == read(data, classes=CLASSES, person_columns=["who"]) == WANTED
    assert read(data, classes=CLASSES, number_columns=["b"]) == ([row[1:] for row in WANTED[0]], WANTED[1])
    assert read(data, classes=CLASSES, columns=["who", "b"])[0] == [["p", 0.5], ["q", 1.5], ["p", 2.5]]
    assert persons_in_column(settled(data), "who").tolist() == [0, 1, 0]
    assert len(content_hashes(open_dataset(data, classes=CLASSES, **numbers))) > 0
    with refuses("classes"):
        open_dataset(data, **numbers)
    with refuses("columns"):
        open_dataset(data, classes=CLASSES, number_columns=["c"])


def test_splits_are_found_by_name() -> None:
    assert read(HELD.select([2, 0]), classes=CLASSES, number_columns=["a"])[0] == [[3.0], [1.0]]
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
    """With any size of the chunks that they are read in."""
    grey = [np.zeros((4, 4)), *IMAGES[1:]]
    for mixed in (grey, grey[::-1]):
        source = open_dataset((mixed, Y), classes=CLASSES, image_size=4, colour="grey")
        with refuses("x"):
            list(source.batches(size))


TENSORS = TensorDataset(torch.tensor(X), torch.tensor(Y))
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a scalar": (lambda: 3, "a path or address"),
    "a dictionary": (lambda: {"a": [1]}, "a path or address"),
    "three": (lambda: (X, Y, Y), "a path or address"),
    "no labels": (lambda: (X, None), "y: got 'NoneType'"),
    "masked": (lambda: (np.ma.masked_array(X), Y), "masked"),
    "one number": (lambda: (np.float64(3), Y), "x: got"),
    "one axis": (lambda: (X[:, 0], Y), "declared shape"),
    "one-hot": (lambda: (X, np.eye(4)), "shape of y"),
    "no record": (lambda: (X[:0], []), "number of records"),
    "no column": (lambda: pandas.DataFrame({"a": [1]}), "label column"),
    "twice": (lambda: pandas.DataFrame([[1, 2, 3]], columns=["a", "a", "label"]), "a unique name for each"),
    "sparse": (lambda: (torch.eye(4).to_sparse(), Y), "sparse"),
    "tensors": (lambda: TENSORS, r"TensorDataset of torch.*dataset\.tensors"),
    "part": (lambda: Subset(TENSORS, [0, 1]), r"map\(list, zip"),
    "loader": (lambda: DataLoader(TENSORS, shuffle=True), "DataLoader of torch.*channels last"),
    "reader": (lambda: pa.table(FRAME).to_reader(), "read_all"),
    "generator": (lambda: (row for row in FRAME), "generator, which can be read once.*a list"),
    "stream": (lambda: HELD.to_iterable_dataset(), r"IterableDataset of.*streaming=True.*to_parquet"),
    "streams": (lambda: datasets.IterableDatasetDict(train=HELD.to_iterable_dataset()), "streaming=True.*to_parquet"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_is_refused_says_what_to_do(case: str) -> None:
    make, said = REFUSED[case]
    with pytest.raises(InvalidInput, match=said):
        open_dataset(make(), classes=2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: polars.LazyFrame({"label": ["cat", SECRET]}).select(polars.col("label").cast(polars.Int64)),
        lambda: pa.table({"a": [1, 2], "label": ["cat", SECRET]}),
    ],
    ids=["query", "label"],
)
def test_no_error_quotes_a_record(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        open_dataset(make(), classes=CLASSES).read()
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


@pytest.mark.parametrize(
    "x",
    [X, X.astype(np.float32), torch.tensor(X), torch.tensor(X, dtype=torch.bfloat16), X.astype(object)],
    ids=["float64", "float32", "tensor", "bfloat16", "objects"],
)
@pytest.mark.parametrize(
    "y",
    [Y, np.array(Y), torch.tensor(Y), np.array(Y, float), [["cat", "dog"][k] for k in Y], pandas.Series(Y), [[1]] * 0],
    ids=["list", "array", "tensor", "floats", "names", "series", "none"],
)
def test_arrays_of_any_kind_are_the_same_records(x: Any, y: Any) -> None:
    if len(y) == 0:
        with refuses("y"):
            open_dataset((x, y), classes=CLASSES)
        return
    assert read((x, y), classes=CLASSES) == (X.tolist(), Y)


def test_lists_need_a_declared_length() -> None:
    with refuses("x"):
        open_dataset((X.tolist(), Y), classes=2)
    assert read((X.tolist(), Y), classes=2, feature_length=3) == (X.tolist(), Y)
    images = X.reshape(4, 3, 1)
    assert open_dataset((list(images), Y), classes=2, input_shape=(3, 1)).read().x.shape == (4, 3, 1)
    pixels = images.astype(np.uint8)
    assert open_dataset((pixels, Y), classes=2).read().x.dtype == np.uint8
    with refuses("x"):
        open_dataset((list(pixels), Y), classes=2, input_shape=(3, 1)).read()


def test_missing_cells_of_frames_are_missing_values() -> None:
    cells = {"a": ["x", None, ""], "b": [1, None, 3], "label": [0, 1, 0]}
    wanted = [["x", 1.0], [None, None], ["", 3.0]]
    for frame in (pandas.DataFrame(cells), pandas.DataFrame(cells).convert_dtypes(), polars.DataFrame(cells)):
        assert read(frame, classes=2, columns=["a", "b"])[0] == wanted
        with refuses("inputs"):
            read(frame, classes=2, number_columns=["b"])


def test_inputs_of_a_frame_are_found_by_name() -> None:
    """Whatever the order of its columns; with the cells that a source of it has."""
    for frame in (pandas.DataFrame(FRAME), polars.DataFrame(FRAME)):
        source = open_dataset(frame, classes=CLASSES, columns=["b", "a"])
        assert frame_inputs(frame, ("b", "a")).tolist() == source.read().x.tolist()
        with refuses("columns"):
            frame_inputs(frame, ("c",))
    assert frame_inputs(polars.DataFrame(FRAME).drop("label", "who"), None).tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]


def test_texts_and_rows() -> None:
    for texts in (["x", "y"], np.array(["x", "y"]), pandas.Series(["x", "y"]), polars.Series(["x", "y"])):
        assert read((texts, [0, 1]), classes=2, columns=["t"])[0] == [["x"], ["y"]]
    for rows in ([["x", 1], ("y", None)], np.array([["x", 1], ["y", None]], object)):
        assert read((rows, [0, 1]), classes=2, columns=["a", "b"])[0] == [["x", 1.0], ["y", None]]


def test_the_split_and_what_is_declared_in_vain() -> None:
    for options in ({"split": "test"}, {"image_size": 4}, {"number_columns": ["a"]}, {"classes": None}):
        with pytest.raises(InvalidInput):
            open_dataset((X, Y), **{"classes": 2, **options})
    with refuses("classes"):
        open_dataset(open_dataset((X, Y), classes=2), classes=2)


def test_equal_records_have_one_hash_and_others_have_others() -> None:
    """Whatever type one record may have given an array or a column."""
    arrays = [(X, Y), (X.astype(object), np.array(Y, float)), (torch.tensor(X), torch.tensor(Y))]
    cells = {name: FRAME[name] for name in ("a", "b", "label")}
    frames = [pandas.DataFrame(cells), polars.DataFrame(cells), pandas.DataFrame(cells).astype({"a": float})]
    for same in (arrays, frames):
        assert len({content_hashes(open_dataset(one, classes=CLASSES)) for one in same}) == 1
    changed = [(X, Y), (X + 1, Y), (X, [1, 1, 1, 0]), (X[:3], Y[:3]), (X[:, :2], Y), (X[::-1], Y[::-1])]
    assert len({content_hashes(open_dataset(one, classes=2)) for one in changed}) == len(changed)
    assert len({content_hashes(open_dataset((X, Y), classes=classes)) for classes in (2, [1, 0], [0, 1])}) == 1
    table = {"classes": CLASSES, "columns": ["a", "b"]}
    rows = [(["1", "x"], 0), ([1, "x"], 0), ([None, "x"], 0), (["", "x"], 0), (["", "x"], 1), (["x", ""], 0)]
    assert len({content_hashes(open_dataset(([row], [label]), **table)) for row, label in rows}) == len(rows)


def test_a_hash_is_made_of_records_that_no_reader_takes() -> None:
    for x in ([[1, 2], [3]], [[1, object()], [1, 2]], [[10**400, 1], [1, 2]]):
        assert len(content_hashes(open_dataset((x, [0, "cow"]), classes=CLASSES, feature_length=2))) == 1


def test_optional_libraries_are_not_imported_for_arrays() -> None:
    code = (
        "import sys, numpy; from privmix.data import open_dataset; "
        "open_dataset((numpy.eye(2), [0, 1]), classes=2).read(); "
        "sys.exit(bool([one for one in ('pandas', 'polars', 'datasets', 'torch') if one in sys.modules]))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
