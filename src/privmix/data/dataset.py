"""One function that opens every supported kind of data: what a path holds, and what is in memory."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from privmix.data.columns import Selection, check_names
from privmix.data.dialect import Dialect
from privmix.data.files import SPLITS, CopyFirst, folder_split, is_here, is_hidden, reading, split_of, unread_words
from privmix.data.frames import library_of, may_have_splits, open_frame, open_table, settled
from privmix.data.images import COLOURS, ImageFolderSource, check_image_size, class_folders, is_image
from privmix.data.memory import open_arrays
from privmix.data.reader import Request, formats, holds_split, reader_of, refuse_arrow, refuse_dialect, suffixes
from privmix.data.remote import RemoteSource, is_remote, local_path
from privmix.data.remote_files import RemotePath, as_remote
from privmix.data.source import DECODER, MAX_RECORD_VALUES, ArraySource, LabelledArray, Schema, Source, resolve_classes
from privmix.errors import InvalidInput, StorageError, check_choice, check_integer

__all__ = ["ArraySource", "LabelledArray", "Schema", "Source", "open_dataset"]

MEMORY: Final = (
    "a path or address; (x, y) of arrays, tensors, sparse matrices, images or lists; a pandas or polars frame; an "
    "Arrow table; a Hugging Face dataset"
)


def open_dataset(
    data: Any,
    *,
    split: str = "train",
    classes: Any = None,
    label_column: str = "label",
    columns: Sequence[str] | None = None,
    number_columns: Sequence[str] | None = None,
    feature_length: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    colour: str | None = None,
    input_shape: tuple[int, ...] | None = None,
    labelled: bool = True,
    dialect: Dialect | None = None,
    person_columns: Sequence[str] = (),
    values: Sequence[str] = (),
    decoder: int = DECODER,
) -> Source:
    """Open a dataset; only public facts are read until the source is asked for records.

    Formal guarantees:
        - Declared: shape, columns and classes come from the arguments, and from what a format writes down apart from
          the records (array shapes, a table's schema, a CSV's header line). An extra record with any content changes
          the number of records alone, or the opening fails with and without it.
        - Unread: opening looks into no record. It counts them: by headers, by files in folders of images, by lines in
          JSON lines, and by quotes and line breaks in CSV.
        - Per record: what becomes of a record depends on that record and on what is declared.

    Args:
        data: a file, a folder with files or sub-folders named for their splits, a pattern, an address that fsspec
            opens, or data in memory. Data in memory are ``(x, y)``, a pandas or polars frame, an Arrow table, a dataset
            of Hugging Face, or an open source. Files without a split's name are the training split; several
            files of a split are shards, read in the order of their names.
        split: ``"train"``, ``"test"`` or ``"val"``.
        classes: number or names of the classes, never inferred from labels or folder names; see
            :func:`privmix.data.source.resolve_classes`. Public metadata may declare them.
        columns: the columns of a table, in this order; each value is a text, a number or missing.
        number_columns: the input columns of numbers, in this order, or the one of lists or of encoded images; needed
            for JSON lines. Default: ``image``, the only one of lists, or all but the label.
        feature_length: entries per list, where no schema states them.
        image_size: encoded images: side of a square, or height and width, that each is scaled and cropped to.
        colour: encoded images: ``"grey"`` or ``"rgb"``.
        input_shape: shape of a model's or another dataset's inputs, where one of the last three is needed and absent.
        labelled: False: labels are not read and may be absent; :meth:`Source.inputs` reads such records.
        dialect: CSV: how the files are written.
        person_columns: columns that identify the person of a record; never inputs (:mod:`privmix.data.persons`).
        values: declared categories: no column may bear such a name unless the header is declared.
        decoder: the rule for encoded images; see :func:`privmix.data.images.decode_images`.

    Raises:
        InvalidInput: unknown format, split or column, classes not declared, damaged header.
        StorageError: nothing there, or it cannot be read.
        MissingExtra: an address is given and fsspec is not installed.
    """
    table = check_names("columns", columns, label_column if labelled else None)
    numbers = check_names("columns", number_columns, label_column if labelled else None)
    for name in person_columns:
        if name in (label_column, *(table or ()), *(numbers or ())):
            raise InvalidInput("person", name, "a separate column: neither the label nor an input")
    if table is not None and numbers is not None:
        raise InvalidInput("columns", list(numbers), "columns of numbers, or of texts, not both")
    if feature_length is not None:
        check_integer("feature_length", feature_length, low=1, high=MAX_RECORD_VALUES)
    selection = Selection(
        label_column,
        table=table,
        numbers=numbers,
        length=feature_length,
        image_size=check_image_size(image_size),
        colour=None if colour is None else check_choice("colour", colour, COLOURS),
        shape=None if input_shape is None else tuple(input_shape),
        labelled=labelled,
        dialect=dialect,
        persons=tuple(person_columns),
        values=tuple(values),
        decoder=check_integer("decoder", decoder, low=1, high=DECODER),
    )
    request = Request(check_choice("split", split, SPLITS), classes, selection)
    if isinstance(data, RemotePath):
        return _open_local(cast(Path, data), request)
    if not isinstance(data, str | Path):
        return _open_memory(data, request)
    if is_remote(data):
        return RemoteSource(str(data), split, lambda copy: _open_local(copy, request))
    return _open_local(local_path(data), request)


def _open_memory(data: Any, request: Request) -> Source:
    refuse_dialect(request)
    selection, split = request.selection, request.split
    if split != "train" and not may_have_splits(data):
        raise InvalidInput("split", split, "train: data in memory have one split")
    data = settled(data)
    library = library_of(data)
    if library in ("datasets", "pyarrow"):
        return open_table(data, split, request.classes, selection)
    if isinstance(data, Source):
        if request.classes is not None and selection.labelled:
            raise InvalidInput("classes", request.classes, "no value here: an open source has its own")
        return data
    if not selection.labelled and isinstance(data, tuple) and len(data) == 2:
        data = data[0]
        library = library_of(data)
    if library == "pyarrow":
        return open_table(data, split, request.classes, selection)
    if library:
        return open_frame(data, request.classes, selection)
    if not selection.labelled:
        return open_arrays(data, None, request.classes, selection)
    if not isinstance(data, tuple) or len(data) != 2:
        raise InvalidInput("data", type(data).__name__, MEMORY)
    if library_of(data[0]) == "pyarrow":
        allowed = 'a table that holds the labels: `table.append_column("label", [labels])`'
        raise InvalidInput("x", "an Arrow table and separate labels", allowed)
    if library_of(data[0]) in ("pandas", "polars"):
        return open_frame(data[0], request.classes, selection, data[1])
    return open_arrays(*data, request.classes, selection)


def _open_local(path: Path, request: Request) -> Source:
    with reading(path, "a dataset"):
        if path.is_dir():
            return _open_folder(path, request)
        if path.exists():
            return open_files([path], request)
        if not glob.has_magic(str(path)):
            raise StorageError(f"{path}: no such file or folder")
        return _open_pattern(path, request)


def _open_pattern(pattern: Path, request: Request) -> Source:
    found = _matches(pattern)
    files = _of_one_format([file for file in found if file.is_file()], pattern)
    unread = unread_words(_others(found, files), suffixes())
    if not files:
        raise StorageError(f"{pattern}: no file of a known format matches")
    marks = {split_of(file.name) for file in files}
    if len(marks) > 1:
        # The pattern crosses splits: choose, as within a folder.
        files = _of_split(files, request.split)
    if not files:
        raise _no_split(pattern, request)
    return open_files(files, request, unread)


def _matches(pattern: Path) -> list[Path]:
    if (remote := as_remote(pattern)) is not None:
        # Its tree has what matched, and nothing else.
        return [cast(Path, RemotePath(remote.tree, name)) for name in sorted(remote.tree.entries)]
    return [Path(name) for name in sorted(glob.glob(str(pattern), recursive=True))]


def _open_folder(folder: Path, request: Request) -> Source:
    folders = class_folders(folder)
    for entry in folders:
        if folder_split(entry.name) == request.split:
            source = _open_flat(entry, request, own_split=True)
            beside = [one for one in folder.iterdir() if folder_split(one.name) is None]
            source.unread = "; ".join(filter(None, [source.unread, unread_words(beside, "folders of splits")]))
            return source
    if any(folder_split(entry.name) for entry in folders):
        raise _no_split(folder, request)
    own = request.split == "train" or folder_split(folder.name) == request.split
    return _open_flat(folder, request, own_split=own)


def _open_flat(folder: Path, request: Request, own_split: bool) -> Source:
    """Open a folder of files, or of classes; ``own_split``: those that name no split belong to the wanted one."""
    entries = sorted(folder.iterdir())
    # In a folder, .txt describes the other files.
    named = [one for one in entries if one.is_file() and not one.name.lower().endswith(".txt")]
    files = _of_one_format(named, folder)
    unread = unread_words(_others(entries, files), suffixes())
    if not files:
        images = not request.selection.labelled and any(map(is_image, entries))
        if not images and not class_folders(folder):
            raise InvalidInput(str(folder), "no dataset", formats())
        if not own_split:
            raise _no_split(folder, request)
        return open_images(folder, request)
    if any(split_of(file.name) for file in files):
        files = _of_split(files, request.split)
    elif not own_split and not holds_split(files[0], request.split):
        files = []
    if not files:
        raise _no_split(folder, request)
    return open_files(files, request, unread)


def _of_one_format(files: list[Path], place: Path) -> list[Path]:
    files = [file for file in files if not is_hidden(file)]
    refuse_arrow(files, place)
    files = [file for file in files if reader_of(file) is not None]
    # Next to files of another format, .json and .txt describe them.
    files = [file for file in files if not file.name.lower().endswith((".json", ".txt"))] or files
    found = sorted({reader.name for file in files if (reader := reader_of(file)) is not None})
    if len(found) > 1:
        raise InvalidInput(f"files in {place}", found, "one format; or give the path of the file")
    return files


def _others(found: list[Path], files: list[Path]) -> list[Path]:
    read = set(map(str, files))
    return [file for file in found if str(file) not in read]


def _of_split(files: list[Path], split: str) -> list[Path]:
    return [file for file in files if split_of(file.name) == split]


def _no_split(place: Path, request: Request) -> InvalidInput:
    try:
        names = sorted(entry.name for entry in place.iterdir() if not entry.name.startswith("."))
    except OSError:
        names = []
    # Names of files and folders are the owner's words.
    held = sorted({one for name in names if (one := split_of(name) or folder_split(name)) is not None})
    known = f": {', '.join(held)}" if held else ""
    return InvalidInput("split", request.split, f"a split of {place}{known}")


def open_files(files: list[Path], request: Request, unread: str | None = None) -> Source:
    """Open the files of one split, all of one format, in their order; ``unread``: a note on those next to them."""
    refuse_arrow(files, files[0])
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
    if unread is not None:
        source.unread = unread
    return source


def open_images(folder: Path, request: Request) -> Source:
    """Open a folder with one sub-folder of images a class, or of images where no labels are asked for."""
    if not is_here(folder):
        raise CopyFirst()
    request.selection.check_unnamed("a folder of images")
    request.selection.check_kind("images")
    refuse_dialect(request)
    # Folders are there for the records in them, so a record more could add one: the list is declared.
    classes = resolve_classes(request.classes)
    said = request.selection
    return ImageFolderSource(folder, classes, said.image_shape, said.labelled, said.decoder)
