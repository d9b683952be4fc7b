"""From files to a source: those of a split, a folder of images, a saved dataset."""

from __future__ import annotations

from pathlib import Path

from privmix.data.arrow_source import ArrowSource
from privmix.data.files import CopyFirst, is_here
from privmix.data.images import ImageFolderSource
from privmix.data.ipc import ARROW, arrow_classes, saved_classes, saved_files
from privmix.data.reader import Reader, Request, formats, reader_of, refuse_columns, refuse_dialect
from privmix.data.source import Source, resolve_classes
from privmix.errors import InvalidInput


def open_files(files: list[Path], request: Request) -> Source:
    """Open the files of one split, all of one format, in their order."""
    reader = reader_of(files[0])
    if reader is None:
        raise InvalidInput("data", str(files[0]), formats())
    if not reader.in_place and not is_here(files[0]):
        raise CopyFirst()
    if not reader.dialects:
        refuse_dialect(request)
    source = reader.open(files, request)
    labels = [place for file in files for place in reader.companions(file) if place.is_file()]
    source.files = tuple(dict.fromkeys([*files, *labels]))
    return source


def open_images(folder: Path, request: Request) -> Source:
    """Open a folder with one sub-folder of images a class, or of images where no labels are asked for."""
    if not is_here(folder):
        raise CopyFirst()
    refuse_columns(request, "a folder of images")
    refuse_dialect(request)
    # Folders are there for the records in them, so a record more could add one: the list is declared.
    classes = resolve_classes(request.classes)
    said = request.selection
    return ImageFolderSource(folder, classes, said.image_shape, said.labelled, said.decoder)


def open_saved(folder: Path, request: Request) -> Source:
    """Open one split that Hugging Face's ``save_to_disk`` wrote."""
    refuse_dialect(request)
    files, label = saved_files(folder), request.selection.label
    public, coded = arrow_classes(files[0], label)
    coded = saved_classes(folder, label) or coded
    classes = resolve_classes(request.classes, public, coded)
    source = ArrowSource(files, ARROW, request.selection, classes, coded)
    source.files = tuple(files)
    return source


def holds_split(file: Path, split: str) -> bool:
    """Whether a file without a split's name holds that split's arrays."""
    reader = reader_of(file)
    return reader is not None and reader.holds_split(file, split)


def may_hold_splits(name: str) -> bool:
    """Whether files of that name may hold several splits, each as arrays of its own."""
    reader = reader_of(Path(name))
    return reader is not None and reader.holds_split.__func__ is not Reader.holds_split.__func__  # type: ignore[attr-defined]


def companions(file: Path) -> list[Path]:
    """Possible places of the labels of a file of inputs: idx and .npy keep labels in a separate file."""
    reader = reader_of(file)
    return [] if reader is None else reader.companions(file)
