"""Data in other forms: a lazy frame is collected; data of other libraries are refused with the way to go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from privmix.data.files import folder_split
from privmix.errors import WITHHELD, InvalidInput

_TORCH: Final = (
    "`(x, y)` of arrays, tensors, texts or images, in one order: `dataset.tensors` of a TensorDataset, "
    "`x, y = map(list, zip(*dataset))` of others. Images have their channels last"
)
_STREAM: Final = (
    "data that can be read twice: `load_dataset` without `streaming=True`, or a Parquet file that is written once "
    '(`stream.to_parquet("train.parquet")`)'
)
_READER: Final = "data that can be read twice: its table (`reader.read_all()`), its Arrow dataset, or its files"
_REFUSED: Final = {
    ("datasets", "IterableDataset"): _STREAM,
    ("datasets", "IterableDatasetDict"): _STREAM,
    ("torch", "DataLoader"): _TORCH,
    ("torch", "Dataset"): _TORCH,
    ("pyarrow", "RecordBatchReader"): _READER,
}


def settled(data: Any) -> Any:
    """Return the frame that a polars ``LazyFrame`` gives, also in ``(x, labels)``; return anything else as it is.

    Formal guarantees:
        * Once: a query runs a single time for each call, so that hashes, persons and records agree.
        * Silent: what a query raises is not shown; it may quote a record.

    Raises:
        InvalidInput: data that can be read once, or objects of torch's that load records.
    """
    if isinstance(data, tuple) and len(data) == 2 and _is(data[0], "polars", "LazyFrame"):
        return settled(data[0]), data[1]
    if _is(data, "polars", "LazyFrame"):
        return _collected(data)
    for (library, name), allowed in _REFUSED.items():
        if _is(data, library, name):
            raise InvalidInput("data", f"{type(data).__name__} of {library}", allowed)
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


def _is(data: Any, library: str, name: str) -> bool:
    return any(one.__name__ == name and one.__module__.partition(".")[0] == library for one in type(data).__mro__)


def _collected(frame: Any) -> Any:
    try:
        return frame.collect()
    except MemoryError:
        raise
    except Exception:
        allowed = "a LazyFrame with a query that runs; `.collect()` shows its error"
        raise InvalidInput("data", WITHHELD, allowed) from None
