"""One function that opens every supported kind of data: what a path holds, and what is in memory."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from privmix.data.columns import Selection, check_columns, check_names
from privmix.data.dialect import Dialect
from privmix.data.files import SPLITS, folder_split, is_hidden, reading, split_of, unread_words
from privmix.data.frames import library_of, open_arrow, open_frame, open_hugging_face
from privmix.data.held import is_indexed, may_have_splits, settled
from privmix.data.images import DECODER, check_colour, check_image_size, class_folders, is_image
from privmix.data.indexed import IndexedSource
from privmix.data.ipc import DESCRIPTIONS, is_saved_dataset, saved_splits
from privmix.data.memory import open_arrays
from privmix.data.openers import holds_split, open_files, open_images, open_saved
from privmix.data.reader import Request, formats, reader_of, refuse_dialect, refuse_images, suffixes
from privmix.data.remote import RemoteSource, is_remote, local_path
from privmix.data.remote_files import RemotePath, as_remote
from privmix.data.source import MAX_RECORD_VALUES, ArraySource, LabelledArray, Schema, Source
from privmix.errors import InvalidInput, StorageError, check_choice, check_integer

__all__ = ["ArraySource", "LabelledArray", "Schema", "Source", "open_dataset"]

MEMORY: Final = (
    "a path or address; (x, y) of arrays, tensors, sparse matrices, images or lists; a pandas or polars frame; an "
    "Arrow table; a Hugging Face dataset; a dataset of torch's that can be indexed"
)


def open_dataset(
    data: Any,
    *,
    split: str = "train",
    classes: Any = None,
    label_column: str = "label",
    image_column: str = "image",
    feature_column: str | None = None,
    text_column: str | None = None,
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
          the records (array shapes, a table's schema, a CSV's header line). A record more, whatever it holds, changes
          the number of records alone, or the opening fails with and without it.
        - Unread: opening looks into no record. It counts them: by headers, by files in folders of images, by lines in
          JSON lines, and by quotes and line breaks in CSV.
        - Per record: what becomes of a record depends on that record and on what is declared.

    Formats: idx, .npz, .npy, .safetensors (tensors x and y), .parquet, .arrow, .feather, .csv and .jsonl (these two
    plain or gzipped), folders that Hugging Face's ``save_to_disk`` wrote, folders with a sub-folder of images a class.

    In memory: ``(x, y)`` of arrays, tensors, sparse matrices, images or lists
    (:func:`privmix.data.memory.open_arrays`), pandas and polars frames (:func:`privmix.data.frames.open_frame`), Arrow
    tables and datasets (:func:`privmix.data.frames.open_arrow`), Hugging Face's ``Dataset`` and ``DatasetDict``
    (:func:`privmix.data.frames.open_hugging_face`), datasets of torch's that can be indexed
    (:class:`privmix.data.indexed.IndexedSource`), what streams or waits (:func:`privmix.data.held.settled`), and
    sources that are open already.

    Args:
        data: data in memory; or a file, which is its own split (but for an .npz or .safetensors with ``x_train``,
            ``x_test``); a folder with files or sub-folders named for their splits (``train``; ``test`` or ``t10k``;
            ``val``), where files that carry no split's name are the training split; a pattern with ``*``, ``?`` or
            ``[``; or an address that fsspec opens (``s3://``, ``gs://``, ``https://``, ...), whose files are read by
            ranges of bytes, or copied to a private folder of this machine where that can't be; see
            :class:`privmix.data.remote.RemoteSource`. Several files of a split are its shards: they are read one after
            the other, sorted by name (not idx and .npy: one pair a split).
        split: ``"train"``, ``"test"`` or ``"val"``.
        classes: number or names of the classes (texts, integers, truth values). Not needed for the MNIST layout (ten),
            an .npz with an array ``classes``, and metadata ``classes`` of Parquet, Arrow and safetensors files. Never
            inferred from labels, nor from folders of images, which are there for them. ``"ClassLabel"`` takes the names
            of a ClassLabel of Hugging Face's library; see :func:`privmix.data.source.resolve_classes`.
        label_column: formats with columns: the labels' column.
        image_column: Parquet, Arrow: the column of encoded images.
        feature_column: Parquet, Arrow, JSON lines: the column of lists of numbers; needed for JSON lines, and where
            there are several.
        text_column: formats with columns: the column of texts. The source is then a table with this one column.
        columns: formats with columns: the columns of a table, in this order; each value is a text, a number (CSV
            holds texts only) or missing. Not together with ``text_column``.
        number_columns: formats with columns: the columns of numbers that make the inputs, in this order; needed for
            JSON lines. Default elsewhere: all but the label's, which must be numbers then.
        feature_length: how many numbers each list has; needed where no fixed-size list type of a schema says it.
        image_size: encoded images: each is scaled and cropped to this side of a square, or height and width; needed.
        colour: encoded images: ``"grey"`` or ``"rgb"``, which each is converted to; needed.
        input_shape: shape of a model's inputs or of another dataset's, taken where one of the last three is needed
            and not given.
        labelled: False opens records whose labels are not read and need not be there: a column less, ``x`` without
            ``y``, images without sub-folders; :meth:`Source.inputs` reads them. The column ``label_column``, where
            there is one, is still none of the inputs.
        dialect: CSV: how the files are written; see :class:`privmix.data.dialect.Dialect`.
        person_columns: formats with columns: which ones say whose a record is; they are none of the inputs. Who they
            are is read by :mod:`privmix.data.persons`.
        values: declared categories, which no column may be called after unless the header is declared: one that is
            would be a record's.
        decoder: the rule that encoded images are read by; see :func:`privmix.data.images.decode_images`.

    Raises:
        InvalidInput: unknown format, split or column, classes not declared, damaged header.
        StorageError: nothing there, or it cannot be read.
        MissingExtra: an address is given and fsspec is not installed.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "jobs.csv"
        >>> _ = file.write_text("age,job,income\\n38,clerk,<=50K\\n52,judge,>50K\\n")
        >>> source = open_dataset(file, columns=["job", "age"], label_column="income", classes=["<=50K", ">50K"])
        >>> source.schema.columns, source.read().x.tolist()
        (('job', 'age'), [['clerk', '38'], ['judge', '52']])
    """
    table = check_columns(text_column, columns, label_column if labelled else None)
    numbers = check_names("columns", number_columns, label_column if labelled else None)
    for name in person_columns:
        if name in (label_column, *(table or ()), *(numbers or ())):
            raise InvalidInput("person", name, "a column of its own: neither the label's nor one of the inputs")
    if (table is not None or numbers is not None) and feature_column is not None:
        raise InvalidInput("feature column", feature_column, "none beside other columns")
    if table is not None and numbers is not None:
        raise InvalidInput("columns", list(numbers), "columns of numbers, or of texts, not both")
    if feature_length is not None:
        check_integer("feature_length", feature_length, low=1, high=MAX_RECORD_VALUES)
    selection = Selection(
        label_column,
        image_column,
        feature_column,
        table,
        numbers,
        feature_length,
        check_image_size(image_size),
        check_colour(colour),
        None if input_shape is None else tuple(input_shape),
        labelled,
        dialect,
        tuple(person_columns),
        tuple(values),
        check_integer("decoder", decoder, low=1, high=DECODER),
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
        raise InvalidInput("split", split, "train: data in memory are one split")
    data = settled(data, split)
    library = library_of(data)
    if library == "datasets":
        return open_hugging_face(data, split, request.classes, selection)
    if library == "pyarrow":
        return open_arrow(data, request.classes, selection)
    if isinstance(data, Source):
        if request.classes is not None and selection.labelled:
            raise InvalidInput("classes", request.classes, "none: an open source has its own")
        return data
    if is_indexed(data):
        return IndexedSource(data, request.classes, selection)
    if not selection.labelled and isinstance(data, tuple) and len(data) == 2:
        data = data[0]
        library = library_of(data)
    if library == "pyarrow":
        return open_arrow(data, request.classes, selection)
    if library:
        refuse_images(request)
        return open_frame(data, request.classes, selection)
    if not selection.labelled:
        return open_arrays(data, None, request.classes, selection)
    if not isinstance(data, tuple) or len(data) != 2:
        raise InvalidInput("data", type(data).__name__, MEMORY)
    if library_of(data[0]) == "pyarrow":
        raise InvalidInput(
            "x", "an Arrow table beside labels", 'labels within: `table.append_column("label", [labels])`'
        )
    if library_of(data[0]) in ("pandas", "polars"):
        refuse_images(request)
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
    source = open_files(files, request)
    source.unread = unread
    return source


def _matches(pattern: Path) -> list[Path]:
    if (remote := as_remote(pattern)) is not None:
        # Its tree has what matched, and nothing else.
        return [cast(Path, RemotePath(remote.tree, name)) for name in sorted(remote.tree.entries)]
    return [Path(name) for name in sorted(glob.glob(str(pattern), recursive=True))]


def _open_folder(folder: Path, request: Request) -> Source:
    splits = saved_splits(folder)
    if splits is not None:
        named = [name for name in splits if folder_split(name) == request.split]
        if not named:
            raise _no_split(folder, request)
        return open_saved(folder / named[0], request)
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
    if is_saved_dataset(folder):
        if not own_split:
            raise _no_split(folder, request)
        return open_saved(folder, request)
    entries = sorted(folder.iterdir())
    files = _of_one_format([one for one in entries if one.is_file() and not _is_plain_text(one)], folder)
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
    source = open_files(files, request)
    source.unread = unread
    return source


def _of_one_format(files: list[Path], place: Path) -> list[Path]:
    """Those files that hold data.

    Raises:
        InvalidInput: they are of several formats.
    """
    files = [file for file in files if not is_hidden(file) and file.name not in DESCRIPTIONS]
    files = [file for file in files if reader_of(file) is not None]
    # Beside files of another format, .json and .txt describe them.
    files = [file for file in files if not file.name.lower().endswith((".json", ".txt"))] or files
    found = sorted({reader.name for file in files if (reader := reader_of(file)) is not None})
    if len(found) > 1:
        raise InvalidInput(f"files in {place}", found, "one format; or give the path of the file")
    return files


def _others(found: list[Path], files: list[Path]) -> list[Path]:
    read = set(map(str, files))
    return [file for file in found if str(file) not in read and file.name not in DESCRIPTIONS]


def _is_plain_text(file: Path) -> bool:
    # In a folder it describes the others.
    return file.name.lower().endswith(".txt")


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
    return InvalidInput("split", request.split, f"a split that {place} holds{known}")
