"""From files to a source: one function a format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from privmix.data.arrow_source import ArrowFormat, ArrowSource
from privmix.data.columns import Selection
from privmix.data.csv import csv_format
from privmix.data.idx import IdxSource
from privmix.data.images import ImageFolderSource
from privmix.data.ipc import ARROW, arrow_classes, saved_classes, saved_files
from privmix.data.jsonl import JsonlSource
from privmix.data.numpy_files import NpzSource, npy_source, npz_classes, npz_has_split
from privmix.data.parquet import PARQUET, parquet_classes
from privmix.data.safetensors_files import SafetensorsSource, has_split, safetensors_classes
from privmix.data.shards import ShardedSource
from privmix.data.source import Source, resolve_classes
from privmix.errors import InvalidInput, StorageError

FORMATS: Final = (
    "idx, .npz, .npy, .safetensors, .parquet, .arrow, .feather, .csv, .jsonl, .json (JSON lines), a folder or pattern "
    "of such files, a folder saved by Hugging Face datasets, or sub-folders of images"
)
_SUFFIXES: Final = {
    "npz": "npz",
    "npy": "npy",
    "safetensors": "safetensors",
    "parquet": "parquet",
    "arrow": "arrow",
    "feather": "arrow",
    "csv": "csv",
    "jsonl": "jsonl",
    "json": "jsonl",
}
_ZIPPED: Final = frozenset({"csv", "jsonl", "json"})
_MNIST_CLASSES: Final = tuple(map(str, range(10)))


@dataclass(frozen=True)
class Request:
    """What the caller wants of the data; see :func:`privmix.data.open_dataset`."""

    split: str
    classes: Any
    selection: Selection


def format_of(file: Path) -> str | None:
    """The format that a file's name announces, if it is one of ours."""
    name = file.name.lower().removesuffix(".gz")
    if any(mark in name for mark in ("-idx", ".idx")):
        return "idx"
    suffix = name.rpartition(".")[2] if "." in name else ""
    return _SUFFIXES.get(suffix) if suffix in _ZIPPED or name == file.name.lower() else None


def open_files(files: list[Path], request: Request) -> Source:
    """Open the files of one split, all of one format, in their order."""
    format_ = format_of(files[0])
    if format_ is None:
        raise InvalidInput("data", str(files[0]), FORMATS)
    source = _OPENERS[format_](files, request)
    labels = [place for file in files for place in companions(file) if place.is_file()]
    source.files = tuple(dict.fromkeys([*files, *labels]))
    return source


def open_images(folder: Path, request: Request) -> Source:
    """Open a folder with one sub-folder of images a class."""
    _refuse_columns(request, "a folder of images")
    # Folders are there for the records in them, so a record more could add one: the list is declared.
    classes = resolve_classes(request.classes)
    return ImageFolderSource(folder, classes, request.selection.image_shape)


def open_saved(folder: Path, request: Request) -> Source:
    """Open one split that Hugging Face's ``save_to_disk`` wrote."""
    files, label = saved_files(folder), request.selection.label
    public = None
    if request.classes is None:
        public = saved_classes(folder, label) or arrow_classes(files[0], label)
    source = ArrowSource(files, ARROW, request.selection, resolve_classes(request.classes, public))
    source.files = tuple(files)
    return source


def holds_split(file: Path, split: str) -> bool:
    """Whether a file without a split's name holds that split's arrays."""
    finders = {"npz": npz_has_split, "safetensors": has_split}
    return (find := finders.get(format_of(file) or "")) is not None and find(file, split)


def companions(file: Path) -> list[Path]:
    """Where the labels that belong to a file of inputs may lie: idx and .npy keep them in a file of their own."""
    if format_of(file) == "npy":
        return [file.with_name("y" + file.name[1:])]
    if format_of(file) != "idx":
        return []
    labels = file.with_name(file.name.replace("images", "labels").replace("idx3", "idx1"))
    return [labels, labels.with_suffix("") if labels.suffix == ".gz" else labels.with_name(labels.name + ".gz")]


def _open_idx(files: list[Path], request: Request) -> Source:
    _refuse_columns(request, "idx")
    refuse_images(request)
    inputs = [file for file in files if "images" in file.name] or files
    if len(inputs) > 1:
        raise InvalidInput("data", str(inputs[0].parent), "one idx file of images a split, with images in its name")
    candidates = companions(inputs[0])
    existing = [file for file in candidates if file.is_file() and file != inputs[0]]
    if not existing:
        raise StorageError(f"{candidates[0]}: no such file; the labels of {inputs[0].name} belong there")
    public = _MNIST_CLASSES if inputs[0].name.startswith(("train-images-idx3", "t10k-images-idx3")) else None
    return IdxSource(inputs[0], existing[0], resolve_classes(request.classes, public))


def _open_npy(files: list[Path], request: Request) -> Source:
    _refuse_columns(request, ".npy")
    refuse_images(request)
    if len(files) == 1:
        files = [files[0], *companions(files[0])]
    inputs, labels = ([file for file in files if file.name.startswith(letter)] for letter in "xy")
    if len(inputs) != 1 or len(labels) != 1:
        raise InvalidInput("data", str(files[0].parent), "one file x.npy and one y.npy a split")
    return npy_source(inputs[0], labels[0], resolve_classes(request.classes))


def _open_npz(files: list[Path], request: Request) -> Source:
    _refuse_columns(request, ".npz")
    refuse_images(request)
    classes = resolve_classes(request.classes, npz_classes(files[0]) if request.classes is None else None)
    return _joined([NpzSource(file, request.split, classes) for file in files])


def _open_safetensors(files: list[Path], request: Request) -> Source:
    _refuse_columns(request, ".safetensors")
    refuse_images(request)
    classes = resolve_classes(request.classes, safetensors_classes(files[0]) if request.classes is None else None)
    return _joined([SafetensorsSource(file, request.split, classes) for file in files])


def _open_parquet(files: list[Path], request: Request) -> Source:
    return _open_arrow_like(files, request, PARQUET, parquet_classes)


def _open_arrow(files: list[Path], request: Request) -> Source:
    return _open_arrow_like(files, request, ARROW, arrow_classes)


def _open_arrow_like(
    files: list[Path],
    request: Request,
    format_: ArrowFormat,
    public_classes: Callable[[Path, str], tuple[str, ...] | None],
) -> Source:
    public = public_classes(files[0], request.selection.label) if request.classes is None else None
    return ArrowSource(files, format_, request.selection, resolve_classes(request.classes, public))


def _open_csv(files: list[Path], request: Request) -> Source:
    refuse_images(request)
    asked = request.selection
    if asked.length is not None:
        raise InvalidInput("feature length", asked.length, "none: CSV holds no lists")
    selection = Selection(asked.label, image=None, table=asked.table, numbers=asked.numbers)
    format_ = csv_format(selection.label, numeric=selection.table is None)
    return ArrowSource(files, format_, selection, resolve_classes(request.classes))


def _open_jsonl(files: list[Path], request: Request) -> Source:
    refuse_images(request)
    asked = request.selection
    selection = replace(asked, image=None)
    return JsonlSource(files, selection, resolve_classes(request.classes))


_OPENERS: Final[dict[str, Callable[[list[Path], Request], Source]]] = {
    "idx": _open_idx,
    "npz": _open_npz,
    "npy": _open_npy,
    "safetensors": _open_safetensors,
    "parquet": _open_parquet,
    "arrow": _open_arrow,
    "csv": _open_csv,
    "jsonl": _open_jsonl,
}


def _joined(shards: list[Source]) -> Source:
    return shards[0] if len(shards) == 1 else ShardedSource(shards)


def _refuse_columns(request: Request, format_: str) -> None:
    for names in (request.selection.table, request.selection.numbers):
        if names is not None:
            raise InvalidInput("columns", list(names), f"none: {format_} has no columns with names")
    if request.selection.length is not None:
        raise InvalidInput("feature length", request.selection.length, f"none: {format_} has no columns of lists")


def refuse_images(request: Request) -> None:
    """Raise :class:`InvalidInput` where something is declared of encoded images that the data do not hold."""
    for field, value in (("image size", request.selection.image_size), ("colour", request.selection.colour)):
        if value is not None:
            raise InvalidInput(field, value, "none: the inputs are not encoded images")
