"""Data in other forms, made into forms that have sources: lazy frames, torch's datasets."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.columns import Selection
from privmix.data.files import folder_split
from privmix.data.images import is_picture
from privmix.data.memory import array_of, declared_shape, objects, records_of, rows_of
from privmix.data.source import NO_LABELS, Schema, Source, resolve_classes
from privmix.errors import WITHHELD, InvalidInput


def settled(data: Any) -> Any:
    """Return the same records in a form that can be read several times; return anything else as it is.

    ============================ ============================================================================
    given                        taken
    ============================ ============================================================================
    polars' ``LazyFrame``        a frame of what its query gives; also in ``(x, labels)``
    torch's ``DataLoader``       its dataset, if it can be indexed, in the dataset's own order
    ``TensorDataset``            ``(x, y)`` of its tensors; of a ``Subset`` those of its indices
    ============================ ============================================================================

    Formal guarantees:
        * Once: a query runs a single time for each call, so that hashes, persons and records agree.
        * Silent: what a query raises is not shown; it may quote a record.
    """
    if isinstance(data, tuple) and len(data) == 2 and _of(data[0], "polars", "LazyFrame"):
        return settled(data[0]), data[1]
    if _of(data, "polars", "LazyFrame"):
        return _collected(data)
    if _of(data, "datasets", "IterableDataset") or _of(data, "datasets", "IterableDatasetDict"):
        allowed = (
            "data that can be read twice: `load_dataset` without `streaming=True`, or a Parquet file that is written "
            'once (`stream.to_parquet("train.parquet")`)'
        )
        raise InvalidInput("data", f"{type(data).__name__}, which streams", allowed)
    if _of(data, "torch", "DataLoader"):
        data = _loaded(data)
    if _of(data, "torch", "IterableDataset"):
        allowed = "a dataset that can be indexed (`__len__` and `__getitem__`); or (x, y) of what this one gives"
        raise InvalidInput("data", "an IterableDataset of torch, which cannot be indexed", allowed)
    if _of(data, "torch", "Dataset"):
        tensors = _tensors(data)
        if tensors is not None:
            return tensors if len(tensors) == 2 else tensors[0] if len(tensors) == 1 else data
    if _of(data, "pyarrow", "RecordBatchReader"):
        allowed = "data that can be read twice: its table (`reader.read_all()`), its Arrow dataset, or its files"
        raise InvalidInput("data", "a RecordBatchReader, which can be read once", allowed)
    if isinstance(data, Iterator):
        allowed = "data that can be read twice: a list, (x, y), or a file"
        raise InvalidInput("data", f"{type(data).__name__}, which can be read once", allowed)
    return data


def split_named(data: dict[str, Any], split: str) -> Any:
    """Return one of Hugging Face's splits by its name, or by another word for it."""
    found = [name for name in data if name == split or folder_split(name) == split]
    if not found:
        raise InvalidInput("split", split, "a split of the data: " + ", ".join(sorted(data)))
    return data[found[0]]


def may_have_splits(data: Any) -> bool:
    """Whether it is one of Hugging Face's datasets, which may have several splits."""
    return any(one.__module__.partition(".")[0] == "datasets" for one in type(data).__mro__)


def is_indexed(data: Any) -> bool:
    """Whether it is one of torch's datasets whose records have places."""
    return _of(data, "torch", "Dataset") and hasattr(data, "__len__")


def _of(data: Any, library: str, name: str) -> bool:
    return any(one.__name__ == name and one.__module__.partition(".")[0] == library for one in type(data).__mro__)


def _collected(frame: Any) -> Any:
    """Return the frame that a query gives, run once; its error may quote a record."""
    try:
        return frame.collect()
    except MemoryError:
        raise
    except Exception:
        raise InvalidInput(
            "data", WITHHELD, "a LazyFrame with a query that runs; `.collect()` shows its error"
        ) from None


def _loaded(loader: Any) -> Any:
    """Return a loader's dataset, where all that the loader adds is batches of neighbours."""
    utils = sys.modules["torch.utils.data"]
    mechanism = (
        "no sampler: the mechanism draws batches and rows, and the guarantee depends on that. Pass `loader.dataset`, "
        "or DataLoader(dataset) without shuffle and samplers"
    )
    if type(loader.sampler) is not utils.SequentialSampler and not _of(loader.dataset, "torch", "IterableDataset"):
        raise InvalidInput("data", f"a DataLoader with a {type(loader.sampler).__name__}", mechanism)
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not utils.BatchSampler:
        raise InvalidInput("data", f"a DataLoader with a {type(loader.batch_sampler).__name__}", mechanism)
    if loader.collate_fn not in (utils.default_collate, utils.default_convert):
        allowed = "no collate_fn: apply transforms of single records in the dataset"
        raise InvalidInput("data", "a DataLoader with a collate_fn of its own", allowed)
    return loader.dataset


def _tensors(data: Any) -> tuple[Any, ...] | None:
    """Tensors of a ``TensorDataset``, or of what is left of one."""
    utils = sys.modules["torch.utils.data"]
    if type(data) is utils.TensorDataset:
        return tuple(data.tensors)
    if type(data) is utils.Subset:
        inner = _tensors(data.dataset)
        return None if inner is None else tuple(one[list(data.indices)] for one in inner)
    return None


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
