"""Tables, written to a file of the user's: whole or not at all, and of private records readable by its owner only."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.folders import whole_file
from privmix.jobs.places import check_unpublished, check_writable

# Numbers turned into a table at once.
_STEP_NUMBERS: Final = 2**22
# Texts that spreadsheets run as a formula, behind apostrophes if any.
_FORMULA: Final = r"^'*[=+\-@\t\r\n＝＋－＠]"
_NUMBER: Final = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


class Tabled(Protocol):
    """Records that can be written as a table."""

    def __len__(self) -> int:
        """Return records."""

    def table(self, start: int = 0, stop: int | None = None) -> Any:
        """Return records ``start`` to before ``stop`` as an Arrow table."""


Writer = Callable[[Any, IO[bytes]], None]


def check_out(out: str | Path | None, overwrite: bool, endings: Sequence[str] | None = None) -> Path | None:
    """Return the place of a file; raise unless it can be written there; default `endings`: those of tables."""
    if out is None:
        return None
    out = Path(out)
    endings = tuple(WRITERS) if endings is None else endings
    if out.suffix.lower() not in endings:
        raise InvalidInput("out", str(out), "a file name that ends in " + ", ".join(endings))
    check_unpublished("out", out)
    if out.is_dir() or out.is_symlink() or (out.exists() and not overwrite):
        raise InvalidInput("out", str(out), "a file that does not exist yet (or `overwrite`, for a file)")
    check_writable("out", out.parent)
    return out


def write_table(
    found: Any, out: Path | None, more: Mapping[str, Writer] | None = None, *, private: bool = True
) -> None:
    """Write the file if any, by its ending (`more`: of further endings); `private`: for its owner alone."""
    if out is None:
        return
    writer = {**WRITERS, **(more or {})}[out.suffix.lower()]
    with whole_file(out, "out", private=private) as stream:
        writer(found, stream)


def column(values: NDArray[Any] | Sequence[str]) -> Any:
    """Return numbers or texts as an Arrow array; ``pa.array`` would import pandas first."""
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values)
        return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])
    texts = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def _parts(found: Tabled) -> Iterator[Any]:
    step = max(1, _STEP_NUMBERS // max(1, found.table(0, 0).num_columns))
    for start in range(0, len(found), step):
        yield found.table(start, min(start + step, len(found)))


def _csv(found: Tabled, stream: IO[bytes]) -> None:
    schema = found.table(0, 0).schema
    names = _without_formulas(column(schema.names)).to_pylist()
    schema = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    with pa_csv.CSVWriter(stream, schema) as writer:
        for part in _parts(found):
            columns = [_without_formulas(one) if pa.types.is_string(one.type) else one for one in part.columns]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _without_formulas(texts: Any) -> Any:
    """Put an apostrophe before texts that a spreadsheet would run, also behind apostrophes of their own."""
    # To undo it, take one apostrophe off each text that begins as `_FORMULA`.
    # A signed number begins as a formula does, and is none.
    runs = pc.and_(pc.match_substring_regex(texts, _FORMULA), pc.invert(pc.match_substring_regex(texts, _NUMBER)))
    return texts if not pc.any(runs).as_py() else pc.if_else(runs, pc.binary_join_element_wise("'", texts, ""), texts)


def _parquet(found: Tabled, stream: IO[bytes]) -> None:
    with pq.ParquetWriter(stream, found.table(0, 0).schema) as writer:
        for part in _parts(found):
            writer.write_table(part)


def _jsonl(found: Tabled, stream: IO[bytes]) -> None:
    for part in _parts(found):
        lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in part.to_pylist())
        stream.write("".join(lines).encode())


WRITERS: Final[Mapping[str, Writer]] = {".csv": _csv, ".parquet": _parquet, ".jsonl": _jsonl}
