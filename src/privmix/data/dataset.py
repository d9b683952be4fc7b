"""Finding out what a path holds: one function that opens every supported format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from privmix.data.csv import CsvSource
from privmix.data.files import reading
from privmix.data.idx import IdxSource
from privmix.data.images import ImageFolderSource, class_folders
from privmix.data.numpy_files import NpzSource, npy_source, npz_classes, npz_has_split
from privmix.data.parquet import ParquetSource, parquet_classes
from privmix.data.source import ArraySource, LabelledArray, Schema, Source, resolve_classes
from privmix.errors import InvalidInput, StorageError, check_choice

__all__ = ["ArraySource", "LabelledArray", "Schema", "Source", "open_dataset"]

# Words in a file's or folder's name that mark a split; MNIST calls its test split t10k.
_SPLITS: Final = {"train": ("train",), "test": ("test", "t10k"), "val": ("val", "valid", "validation", "dev")}
_FORMATS: Final = "idx, .npz, .npy, .parquet, .csv, or sub-folders of images"
_MNIST_CLASSES: Final = tuple(map(str, range(10)))


@dataclass(frozen=True)
class _Request:
    split: str
    classes: int | Sequence[str] | None
    label_column: str
    image_column: str
    feature_column: str | None


def open_dataset(
    path: str | Path,
    *,
    split: str = "train",
    classes: int | Sequence[str] | None = None,
    label_column: str = "label",
    image_column: str = "image",
    feature_column: str | None = None,
) -> Source:
    """Open a dataset; only public facts are read until the source is asked for records.

    Args:
        path: a file, which is its own split (but for an .npz with ``x_train``, ``x_test``); or a folder with files or
            sub-folders named for their splits (``train``; ``test`` or ``t10k``; ``val``). Files of a folder that carry
            no split's name are the training split.
        split: ``"train"``, ``"test"`` or ``"val"``.
        classes: number or names of the classes. Not needed for the MNIST layout (ten), image folders (sub-folders),
            an .npz with an array ``classes``, and Parquet metadata with class names.
        label_column: CSV and Parquet: the labels' column.
        image_column: Parquet: the column of encoded images.
        feature_column: Parquet: the column of lists of numbers, where there are several.

    Raises:
        InvalidInput: unknown format, split or column, classes not declared, damaged header.
        StorageError: nothing there, or it cannot be read.

    Example:
        >>> open_dataset("/nowhere")
        Traceback (most recent call last):
            ...
        privmix.errors.StorageError: /nowhere: no such file or folder
    """
    request = _Request(check_choice("split", split, _SPLITS), classes, label_column, image_column, feature_column)
    path = Path(path)
    with reading(path, "a dataset"):
        if not path.exists():
            raise StorageError(f"{path}: no such file or folder")
        return _open_folder(path, request) if path.is_dir() else _open_files([path], request)


def _open_folder(folder: Path, request: _Request) -> Source:
    folders = class_folders(folder)
    for entry in folders:
        if entry.name.lower() in _SPLITS[request.split]:
            return _open_flat(entry, request, own_split=True)
    if any(entry.name.lower() in marks for entry in folders for marks in _SPLITS.values()):
        raise _no_split(folder, request)
    return _open_flat(folder, request, own_split=request.split == "train")


def _open_flat(folder: Path, request: _Request, own_split: bool) -> Source:
    """Open a folder of files, or of classes; ``own_split``: those that name no split belong to the wanted one."""
    files = sorted(entry for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))
    formats = sorted({name for file in files if (name := _format_of(file)) is not None})
    if len(formats) > 1:
        raise InvalidInput(f"files in {folder}", formats, "one format; or give the path of the file")
    if not formats:
        if not class_folders(folder):
            raise InvalidInput(str(folder), "no dataset", _FORMATS)
        if not own_split:
            raise _no_split(folder, request)
        return ImageFolderSource(folder, request.classes)
    files = [file for file in files if _format_of(file) is not None]
    if any(_split_of(file) for file in files):
        files = [file for file in files if _split_of(file) == request.split]
    elif not own_split and not (formats == ["npz"] and npz_has_split(files[0], request.split)):
        files = []
    if not files:
        raise _no_split(folder, request)
    return _open_files(files, request)


def _open_files(files: list[Path], request: _Request) -> Source:
    format_ = _format_of(files[0])
    if format_ is None:
        raise InvalidInput("data", str(files[0]), _FORMATS)
    return _OPENERS[format_](files, request)


def _open_idx(files: list[Path], request: _Request) -> Source:
    inputs = [file for file in files if "images" in file.name] or files
    if len(inputs) > 1:
        raise InvalidInput("data", str(inputs[0].parent), "one idx file of images a split, with images in its name")
    labels = inputs[0].with_name(inputs[0].name.replace("images", "labels").replace("idx3", "idx1"))
    candidates = [labels, labels.with_suffix("") if labels.suffix == ".gz" else labels.with_name(labels.name + ".gz")]
    existing = [file for file in candidates if file.is_file() and file != inputs[0]]
    if not existing:
        raise StorageError(f"{labels}: no such file; the labels of {inputs[0].name} belong there")
    public = _MNIST_CLASSES if inputs[0].name.startswith(("train-images-idx3", "t10k-images-idx3")) else None
    return IdxSource(inputs[0], existing[0], resolve_classes(request.classes, public))


def _open_npz(files: list[Path], request: _Request) -> Source:
    path = _only(files)
    public = npz_classes(path) if request.classes is None else None
    return NpzSource(path, request.split, resolve_classes(request.classes, public))


def _open_npy(files: list[Path], request: _Request) -> Source:
    if len(files) == 1:
        files = [files[0], files[0].with_name("y" + files[0].name[1:])]
    inputs, labels = ([file for file in files if file.name.startswith(letter)] for letter in "xy")
    if len(inputs) != 1 or len(labels) != 1:
        raise InvalidInput("data", str(files[0].parent), "one file x.npy and one y.npy a split")
    return npy_source(inputs[0], labels[0], resolve_classes(request.classes))


def _open_parquet(files: list[Path], request: _Request) -> Source:
    public = parquet_classes(files[0], request.label_column) if request.classes is None else None
    classes = resolve_classes(request.classes, public)
    return ParquetSource(files, request.label_column, request.image_column, request.feature_column, classes)


def _open_csv(files: list[Path], request: _Request) -> Source:
    return CsvSource(_only(files), request.label_column, resolve_classes(request.classes))


_OPENERS: Final[dict[str, Callable[[list[Path], _Request], Source]]] = {
    "idx": _open_idx,
    "npz": _open_npz,
    "npy": _open_npy,
    "parquet": _open_parquet,
    "csv": _open_csv,
}


def _only(files: list[Path]) -> Path:
    if len(files) > 1:
        raise InvalidInput("data", str(files[0].parent), "one file a split")
    return files[0]


def _format_of(file: Path) -> str | None:
    name = file.name.lower().removesuffix(".gz")
    if any(mark in name for mark in ("-idx", ".idx")):
        return "idx"
    suffix = name.rpartition(".")[2]
    return suffix if suffix in _OPENERS and (suffix == "csv" or name == file.name.lower()) else None


def _split_of(file: Path) -> str | None:
    words = file.name.lower().replace("-", "_").replace(".", "_").split("_")
    return next((split for split, marks in _SPLITS.items() if any(word in marks for word in words)), None)


def _no_split(folder: Path, request: _Request) -> InvalidInput:
    return InvalidInput("split", request.split, f"a split that {folder} holds")
