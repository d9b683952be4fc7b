"""Small datasets on disk, one function a format."""

import gzip
import io
import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import save_file

from privmix.errors import InvalidInput

IDX_CODES = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}


def refuses_silently(field: str, hidden: str = "Smith") -> Any:
    """Expect one line about a field that matches, in which ``hidden`` does not stand."""
    return pytest.raises(
        InvalidInput,
        check=lambda error: bool(re.search(field, error.field)) and not re.search(f"{hidden}|\n", str(error)),
    )


def put(folder: Path, content: str | bytes, name: str = "d.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(content.encode(encoding) if isinstance(content, str) else content)
    return path


def idx_bytes(array: NDArray[Any]) -> bytes:
    header = struct.pack(">BBBB", 0, 0, IDX_CODES[array.dtype.name], array.ndim)
    lengths = struct.pack(f">{array.ndim}I", *array.shape)
    return header + lengths + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_mnist(folder: Path, prefix: str, x: NDArray[Any], y: NDArray[Any], zipped: bool = True) -> None:
    for name, array in ((f"{prefix}-images-idx3-ubyte", x), (f"{prefix}-labels-idx1-ubyte", y)):
        content = idx_bytes(array)
        (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(content) if zipped else content)


def png(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="PNG")
    return buffer.getvalue()


def columns(x: NDArray[Any], y: Any = None) -> dict[str, Any]:
    """Columns a, b, ... of (n, d) inputs, and the labels, if there are any."""
    return {**dict(zip("abcdef", x.T, strict=False)), **({} if y is None else {"label": y})}


def write(path: Path, x: NDArray[Any], y: Any = None) -> Path:
    """A file in the format of its name: the columns, or arrays x and y (idx and .npy: labels in a file beside it)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {"x": x.copy()} if y is None else {"x": x.copy(), "y": np.array(y)}
    frame, kind = pandas.DataFrame(columns(x, y)), path.name.partition(".")[2]
    if kind in ("csv", "csv.gz"):
        frame.to_csv(path, index=False)
    elif kind == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif kind == "parquet":
        frame.to_parquet(path, index=False)
    elif kind == "npz":
        np.savez(path, **arrays)
    elif kind == "safetensors":
        save_file(arrays, path)
    elif kind == "npy":
        for name, array in arrays.items():
            np.save(path.with_name(f"{name}.npy"), array)
    else:
        for name, array in zip(("train-images-idx2-ubyte", "train-labels-idx2-ubyte"), arrays.values(), strict=False):
            path.with_name(name).write_bytes(idx_bytes(array.astype(np.uint8)))
    return path


def held(kind: str, table: pa.Table, folder: Path) -> Any:
    """A table as a library holds it, or as a file of this suffix."""
    if kind == "table":
        return table
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        return pytest.importorskip("polars").from_arrow(table)
    if kind == "datasets":
        return pytest.importorskip("datasets").Dataset(table)
    path = folder / f"d.{kind}"
    if kind == "csv":
        table.to_pandas().to_csv(path, index=False)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        pq.write_table(table, path)
    return path


def forms(table: pa.Table) -> dict[str, Any]:
    """The same records in every form that is held in memory."""
    frame = table.to_pandas()
    names = [name for name in table.column_names if name != "label"]
    return {
        **{kind: held(kind, table, Path()) for kind in ("table", "pandas", "polars", "datasets")},
        "nullable": frame.convert_dtypes(),
        "objects": frame.astype(object),
        "arrow types": table.to_pandas(types_mapper=pandas.ArrowDtype),
        "lazy": held("polars", table, Path()).lazy(),
        "arrow dataset": pyarrow.dataset.dataset(table),
        "chunks": pa.concat_tables([table.slice(0, 1), table.slice(1)]),
        "batch": table.combine_chunks().to_batches()[0],
        "apart": (frame[names], frame["label"]),
        "rows": (frame[names].astype(object).to_numpy(), frame["label"].tolist()),
    }
