"""Datasets that people hold in their hands: ``(x, y)`` of arrays, tensors and lists."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.columns import Selection
from privmix.data.images import is_picture, pictures_of
from privmix.data.source import NO_LABELS, NUMERIC, ONE_LABEL, ArraySource, Schema, Source, resolve_classes
from privmix.errors import WITHHELD, InvalidInput, check_choice

# (start, stop) -> those records' inputs or labels.
Part = Callable[[int, int], NDArray[Any]]
_X: Final = "an array (n, ...) or sparse matrix (n, d) of numbers, n texts, n images, n rows of a table, or a frame"


class MemorySource(Source):
    """Records in memory; each part is read only on request.

    Formal guarantees:
        - Declared: shape, columns and classes come from the caller, from an array's own shape and from a frame's column
          names. Types of cells and arrays decide nothing, since one record may have decided them. Only uint8 arrays
          mean pixels: nothing infers that type. A frame's column of lists, structs or durations by its type is refused,
          as one of Arrow's schema is.
        - Unread: making one looks into no record.
        - Per record: what becomes of a record depends on that record and on what is declared.
    """

    # `whole` is the object handed over, of which these records are a part; `number_names` names columns of numbers.

    anywhere = True

    def __init__(
        self,
        schema: Schema,
        inputs: Part,
        labels: Part,
        whole: Source | None = None,
        number_names: tuple[str, ...] | None = None,
    ) -> None:
        self.whole: Final = whole
        self.number_names: tuple[str, ...] | None = number_names
        self._schema, self._inputs, self._labels = schema, inputs, labels

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        records = self._schema.records
        for start in range(first, records, size):
            stop = min(start + size, records)
            yield self._inputs(start, stop), self._labels(start, stop)


def open_arrays(x: Any, y: Any, classes: Any, selection: Selection) -> Source:
    """``(x, y)`` as a source; :func:`privmix.data.source.encode_labels` reads labels; classes are declared."""
    # x: numbers (n, ...), where uint8 means pixels; a list of n records with declared length or shape; n texts or
    # rows of a table. Also a sparse SciPy matrix (n, d), or images, Pillow's or encoded, of declared size and colour.
    names = resolve_classes(classes)
    sparse = is_sparse(x)
    x = x if sparse else plain(x, "x")
    labels: Part = column_part(y := plain(y, "y"), "y") if selection.labelled else no_labels
    if sparse:
        shape, inputs = _sparse(x, selection)
    else:
        shape, inputs = _table(x, selection.table, selection) if selection.table is not None else _numbers(x, selection)
    records = int(x.shape[0]) if sparse else len(x)
    if selection.labelled and records != len(y):
        # How many would differ between neighbours.
        raise InvalidInput("y", "another number of labels", "one label for each record of x")
    return MemorySource(Schema(records, shape, names, selection.table), inputs, labels)


def plain(values: Any, field: str) -> Any:
    """Return a NumPy array or a list: tensors and other objects that NumPy takes as an array become an array."""
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidInput(field, "a masked array", "an array without a mask: fill missing values first")
    if type(values).__module__.partition(".")[0] == "torch" and hasattr(values, "detach"):
        if values.is_sparse:
            raise InvalidInput(field, "a sparse tensor", "a dense one")
        return array_of(values)
    if isinstance(values, list | tuple | range):
        return list(values)
    if not isinstance(values, str | bytes | dict | set) and hasattr(values, "__array__"):
        found = np.asarray(values)
        if found.ndim:
            # JAX has NumPy arrays of bfloat16, too.
            return found.astype(np.float32) if found.dtype.name == "bfloat16" else found
    raise InvalidInput(field, type(values).__name__, _X if field == "x" else "n labels: an array or a list")


def array_of(tensor: Any) -> NDArray[Any]:
    """Return a tensor's numbers. NumPy has no bfloat16, which is widened."""
    dense = tensor.detach().cpu()
    return np.asarray(dense.float() if dense.is_floating_point() and dense.element_size() == 2 else dense)


def as_array(values: Any) -> NDArray[Any]:
    """As :func:`numpy.asarray`, which knows no tensor of two bytes."""
    tensor = type(values).__module__.partition(".")[0] == "torch" and hasattr(values, "detach")
    return array_of(values) if tensor else np.asarray(values)


def no_labels(start: int, stop: int) -> NDArray[Any]:
    del start, stop
    return NO_LABELS


def column_part(values: Any, field: str) -> Part:
    """Parts of n values of any type, shape (n,) or (n, 1)."""
    if isinstance(values, np.ndarray):
        if values.shape not in ((len(values),), (len(values), 1)):
            allowed = f"(n,), one for each record{f'. {ONE_LABEL}' if field == 'y' else ''}"
            raise InvalidInput(f"shape of {field}", ("n", *values.shape[1:]), allowed)
        flat = values.reshape(-1)
        return lambda start, stop: flat[start:stop]
    return lambda start, stop: objects(values[start:stop])


def objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """(n,) of values of any type: NumPy must not look for arrays in them."""
    made = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        made[place] = value
    return made


def as_numbers(cells: NDArray[Any]) -> NDArray[Any]:
    """Numbers as float64; anything else, texts included, as NaN, which no reader takes."""
    if cells.dtype.kind in NUMERIC:
        return cells.astype(np.float64)
    made = np.full(cells.shape, np.nan)
    if cells.dtype.kind == "O":
        made.reshape(-1)[:] = [_number(cell) for cell in cells.reshape(-1).tolist()]
    return made


def _number(cell: Any) -> float:
    if isinstance(cell, bool | int | float | np.integer | np.floating | np.bool_):
        try:
            return float(cell)
        except OverflowError:
            return math.inf
    return math.nan


def declared_shape(selection: Selection) -> tuple[int, ...]:
    """Return the declared shape of a record that has none of its own: an image or a list."""
    selection.check_unnamed("an array")
    if selection.image_size is not None or selection.colour is not None:
        return selection.image_shape
    if selection.length is not None:
        return (selection.length,)
    if selection.shape is None:
        allowed = (
            "an array of numbers (n, ...); lists with `feature_length`; images with `image_size` and `colour`; or "
            "texts and rows with an extractor of texts or tables"
        )
        raise InvalidInput("x", "records without a declared shape", allowed)
    return selection.shape


def records_of(records: Sequence[Any], selection: Selection, pictures: bool) -> NDArray[Any]:
    """``(n, *shape)`` of single records: images as uint8 if ``pictures``, else numbers; a mixture is refused."""
    shape = declared_shape(selection)
    if not pictures:
        return np.stack([_record(record, shape) for record in records])
    if len(shape) != 2 and shape[2:] != (3,):
        raise InvalidInput("x", WITHHELD, f"numbers of shape {shape}, as declared, not images")
    return pictures_of(records, shape, selection.decoder)


def _numbers(x: Any, selection: Selection) -> tuple[tuple[int, ...], Part]:
    if isinstance(x, np.ndarray) and x.ndim > 1:
        selection.check_unnamed("an array")
        _check_declared(selection, x.shape[1:])
        if x.dtype.kind in NUMERIC:
            return x.shape[1:], lambda start, stop: x[start:stop]
        return x.shape[1:], lambda start, stop: as_numbers(x[start:stop])
    shape = declared_shape(selection)
    return shape, lambda start, stop: records_of(x[start:stop], selection, is_picture(x[0]))


def _sparse(x: Any, selection: Selection) -> tuple[tuple[int, ...], Part]:
    """Return a sparse matrix of SciPy's, which is dense a part at a time."""
    selection.check_unnamed("a sparse matrix")
    if x.ndim != 2 or x.dtype.kind not in NUMERIC:
        raise InvalidInput("x", f"a sparse array of {x.ndim} axes, {x.dtype.name}", "a sparse matrix (n, d) of numbers")
    _check_declared(selection, x.shape[1:])
    made: list[Any] = []

    def part(start: int, stop: int) -> NDArray[Any]:
        # By rows, on the first read: most other forms cannot be cut.
        rows = made[0] if made else x.tocsr()
        made[:] = [rows]
        return np.asarray(rows[start:stop].toarray())

    return (int(x.shape[1]),), part


def is_sparse(x: Any) -> bool:
    """Whether it is one of SciPy's sparse arrays or matrices, without importing them."""
    return type(x).__module__.startswith("scipy.sparse") and hasattr(x, "tocsr")


def _check_declared(selection: Selection, shape: tuple[int, ...]) -> None:
    """Raise :class:`InvalidInput` where something else is declared of an array's records than their shape."""
    selection.check_kind("lists")
    if selection.length is not None and shape != (selection.length,):
        raise InvalidInput("feature_length", selection.length, f"none, or that of x, whose records are {shape}")


def _record(record: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    if is_picture(record) or any(kind.__module__.partition(".")[0] == "PIL" for kind in type(record).__mro__):
        # Looking into an image of any format decodes it, and some decoders start programs.
        raise InvalidInput("x", WITHHELD, "arrays or lists of numbers, as in every other record, not images")
    try:
        made = array_of(record) if hasattr(record, "detach") else np.asarray(record)
    except ValueError:
        made = np.empty(0)
    if made.shape != shape:
        raise InvalidInput("shape of a record", WITHHELD, f"{shape}, as declared")
    if made.dtype == np.uint8:
        # In an array of all records that type means pixels; here each record would decide for itself.
        raise InvalidInput("x", WITHHELD, "lists of numbers, or one array of all images (np.stack)")
    return as_numbers(made)


def _table(x: Any, columns: tuple[str, ...], selection: Selection) -> tuple[tuple[int, ...], Part]:
    width = len(columns)
    selection.check_kind("lists")
    if isinstance(x, np.ndarray):
        if x.shape[1:] not in ((width,), () if width == 1 else (width,)):
            raise InvalidInput("shape of x", ("n", *x.shape[1:]), f"(n, {width}), one value for each column")
        return (width,), lambda start, stop: _rows(x[start:stop].reshape(-1, width).tolist(), width)
    return (width,), lambda start, stop: rows_of(x[start:stop], width)


def rows_of(records: Sequence[Any], width: int) -> NDArray[np.object_]:
    """(n, width) cells of records that are rows of a table; of one column also without a row around each."""
    if width == 1:
        records = [record if isinstance(record, list | tuple | np.ndarray) else [record] for record in records]
    return _rows(records, width)


def _rows(rows: Sequence[Any], width: int) -> NDArray[np.object_]:
    table = np.empty((len(rows), width), dtype=object)
    for place, row in enumerate(rows):
        if not isinstance(row, list | tuple | np.ndarray) or len(row) != width:
            raise InvalidInput("shape of a record", WITHHELD, f"{width} values, one for each column")
        for column, cell in enumerate(row):
            table[place, column] = cell
    return table


def embedded_digits(split: str = "train") -> Source:
    """1,797 grey images of 8 x 8 pixels in 10 classes (UCI optdigits), as uint8 from 0 to 255.

    Every fifth image, from the first on, is the test split: 360 images; the other 1,437 are the training split. The
    original values 0 to 16 are multiplied by 255 / 16 and rounded.
    """
    from sklearn.datasets import load_digits

    check_choice("split", split, ["train", "test"])
    digits = load_digits()
    held_out = np.arange(len(digits.target)) % 5 == 0
    chosen = held_out if split == "test" else ~held_out
    images = np.round(digits.images[chosen] * (255 / 16)).astype(np.uint8)
    return ArraySource(images, digits.target[chosen].astype(np.int64), tuple(map(str, range(10))))
