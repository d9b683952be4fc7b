"""Datasets of torch: each record has a place, at which it is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.columns import Selection
from privmix.data.images import is_picture
from privmix.data.memory import array_of, declared_shape, objects, records_of, rows_of
from privmix.data.source import NO_LABELS, Schema, Source, resolve_classes
from privmix.errors import WITHHELD, InvalidInput

_PIECE_VALUES: Final = 2**24


class IndexedSource(Source):
    """A torch dataset that can be indexed, in its own order.

    A record is a pair (inputs, label), or its inputs alone where no labels are read. Inputs are Pillow images; tensors,
    arrays or lists of the declared shape, channels first allowed; texts, or rows of a table.

    Formal guarantees:
        - Declared: ``len`` states their number; shape and classes are the caller's. Making one asks for no record.
        - Per record: what becomes of a record depends on that record and on what is declared. Whether all are images
          or all are numbers is asked of every record.
        - Silent: what the dataset raises is not shown.
    """

    anywhere = True

    def __init__(self, data: Any, classes: Any, selection: Selection) -> None:
        names = resolve_classes(classes)
        self._data, self._selection = data, selection
        shape = (len(selection.table),) if selection.table is not None else declared_shape(selection)
        self._schema = Schema(len(data), shape, names, selection.table)

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        selection, schema = self._selection, self._schema
        step = min(size, max(1, _PIECE_VALUES // math.prod(schema.input_shape)))
        pictures = selection.table is None and is_picture(self._record(0)[0])
        for start in range(first, schema.records, step):
            records = [self._record(place) for place in range(start, min(start + step, schema.records))]
            inputs = [record[0] for record in records]
            if selection.table is not None:
                x: NDArray[Any] = rows_of(inputs, len(selection.table))
            else:
                x = records_of([_last(one, schema.input_shape) for one in inputs], selection, pictures)
            yield x, objects([_label(record[1]) for record in records]) if selection.labelled else NO_LABELS

    def _record(self, place: int) -> Any:
        record = self._data[place]
        # A list of two may be inputs without a label.
        pairs = (list, tuple) if self._selection.labelled else (tuple,)
        if isinstance(record, pairs) and len(record) == 2:
            return record
        if self._selection.labelled or isinstance(record, dict):
            allowed = "pairs (inputs, label). For dicts write a Dataset whose `__getitem__` returns (d['x'], d['y'])"
            raise InvalidInput("records", WITHHELD, allowed)
        return record, None


def _label(label: Any) -> Any:
    # Tensors and arrays of one number.
    return label.item() if hasattr(label, "item") and getattr(label, "shape", None) == () else label


def _last(record: Any, shape: tuple[int, ...]) -> Any:
    """Return inputs with their channels last, where they are a tensor or array that has them first."""
    if not hasattr(record, "shape") or not hasattr(record, "__array__") or is_picture(record):
        return record
    values = array_of(record) if hasattr(record, "detach") else np.asarray(record)
    if values.shape == shape:
        return values
    if len(shape) == 2 and values.shape == (1, *shape):
        return values[0]
    if len(shape) == 3 and values.shape == (shape[2], *shape[:2]):
        return np.moveaxis(values, 0, -1)
    return values
