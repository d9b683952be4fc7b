"""Data in other forms, made into forms that have sources: streams, lazy frames, torch's datasets."""
# A stream runs once, into a private file without a name: hashes, persons and records are of the same records.

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.data.columns import Selection
from privmix.data.files import folder_split
from privmix.data.images import is_picture
from privmix.data.memory import array_of, declared_shape, objects, records_of, rows_of
from privmix.data.source import NO_LABELS, Schema, Source, resolve_classes
from privmix.errors import WITHHELD, InvalidInput, PrivmixError, StorageError
from privmix.scratch import ScratchFolder

_BATCH: Final = 1024


def settled(data: Any, split: str = "train") -> Any:
    """Return the same records in a form that can be read several times; return anything else as it is.

    ============================ ============================================================================
    given                        taken
    ============================ ============================================================================
    ``datasets.IterableDataset`` a ``Dataset`` of what it gives, from a private file
    polars' ``LazyFrame``        a frame of what its query gives, from a private file; also in ``(x, labels)``
    torch's ``DataLoader``       its dataset, if it can be indexed, in the dataset's own order
    ``TensorDataset``            ``(x, y)`` of its tensors; of a ``Subset`` those of its indices
    ============================ ============================================================================

    Formal guarantees:
        * Once: a stream or query runs a single time for each call, so that all that is read of it agrees.
        * Private: the file lies in an owner-only folder and has no name any more when this returns: no other user opens
          it, and nothing is left after a kill.
        * Silent: what a stream or query raises is not shown; it may quote a record.
    """
    if isinstance(data, tuple) and len(data) == 2 and _of(data[0], "polars", "LazyFrame"):
        return settled(data[0]), data[1]
    if _of(data, "polars", "LazyFrame"):
        return _collected(data)
    if (stream := stream_of(data, split)) is not None:
        return _spooled(stream)
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


def stream_of(data: Any, split: str) -> Any | None:
    """Return a Hugging Face stream, or one split of several; None for anything else."""
    if _of(data, "datasets", "IterableDatasetDict"):
        data = split_named(data, split)
    return data if _of(data, "datasets", "IterableDataset") else None


def split_named(data: dict[str, Any], split: str) -> Any:
    """Return one of Hugging Face's splits by its name, or by another word for it."""
    found = [name for name in data if name == split or folder_split(name) == split]
    if not found:
        raise InvalidInput("split", split, "a split of the data: " + ", ".join(sorted(data)))
    return data[found[0]]


def schema_of(stream: Any) -> Any:
    """Return the Arrow schema that a Hugging Face stream declares."""
    if stream.features is None:
        allowed = (
            "a stream with declared columns: `stream.cast(datasets.Features(...))`, or `features=` where it is "
            "created or mapped. Columns are never inferred from records"
        )
        raise InvalidInput("data", "an IterableDataset without features", allowed)
    return stream.features.arrow_schema


def may_have_splits(data: Any) -> bool:
    """Whether it is one of Hugging Face's datasets, which may have several splits."""
    return any(one.__module__.partition(".")[0] == "datasets" for one in type(data).__mro__)


def is_indexed(data: Any) -> bool:
    """Whether it is one of torch's datasets whose records have places."""
    return _of(data, "torch", "Dataset") and hasattr(data, "__len__")


def _of(data: Any, library: str, name: str) -> bool:
    return any(one.__name__ == name and one.__module__.partition(".")[0] == library for one in type(data).__mro__)


@contextmanager
def silenced(allowed: str, failure: str) -> Iterator[None]:
    """Drop the messages of a stream or query that runs inside: they may quote a record."""
    try:
        yield
    except (PrivmixError, MemoryError):
        raise
    except OSError as error:
        if error.errno is None:
            raise InvalidInput("data", WITHHELD, allowed) from None
        raise StorageError(f"data: {failure}") from None
    except Exception:
        raise InvalidInput("data", WITHHELD, allowed) from None


@contextmanager
def _running(what: str, allowed: str) -> Iterator[Path]:
    """Yield a private file for what runs inside, which has no name any more at the end."""
    copied = f"{what} cannot be copied to the folder for temporary files"
    with ScratchFolder() as folder, silenced(f"{what} {allowed}", copied):
        yield folder / "records.arrow"


def _collected(frame: Any) -> Any:
    """Return a frame that is read from a file as it is needed."""
    polars = sys.modules["polars"]
    with _running("a LazyFrame", "with a query that runs; `.collect()` shows its error") as path:
        frame.sink_ipc(path, compression="uncompressed", maintain_order=True)
        with pa.memory_map(str(path)) as file:
            return polars.from_arrow(pa.ipc.open_file(file).read_all(), rechunk=False)


def _spooled(stream: Any) -> Any:
    """Return a ``Dataset`` that is read from a file as it is needed."""
    schema = schema_of(stream)
    with _running("an IterableDataset", "that gives records of its features; `next(iter(stream))` shows one") as path:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            for table in stream.with_format("arrow").iter(_BATCH):
                writer.write_table(table.select(schema.names).cast(schema))
        return sys.modules["datasets"].Dataset.from_file(str(path))


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
