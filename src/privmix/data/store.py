"""A feature store: the extracted features of a private dataset, on disk and memory-mapped."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.files import decoding, reading
from privmix.data.partial import PartialFolder
from privmix.data.source import Schema, as_inputs, check_places
from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.folders import PrivateFolder

_VERSION: Final = 2
_FEATURES, _LABELS, _BEGINS, _META = "features.npy", "labels.npy", "begins.npy", "meta.json"


@dataclass(frozen=True)
class FeatureStore:
    """Features and labels of a dataset. Private: only its owner can read the folder.

    Attributes:
        schema: public facts of the raw dataset.
        extractor: spec of the extractor that made the features.
        features: (n, d) float32, memory-mapped and read-only.
        fingerprint: SHA-256 of its arrays. It stems from private rows: never publish it.
        begins: (n,) uint8, memory-mapped: 1 where a person's records begin, in a store sorted by person
            (:func:`privmix.engine.grouping.store_by_person`); else None.
    """

    path: Path
    schema: Schema
    extractor: Mapping[str, Any]
    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    fingerprint: str
    begins: NDArray[np.uint8] | None = None

    def __repr__(self) -> str:
        return "<FeatureStore>"

    @staticmethod
    def create(
        path: str | Path,
        records: int,
        dim: int,
        *,
        schema: Schema,
        extractor: Mapping[str, Any],
        resume: bool = False,
        runtime: Mapping[str, Any] | None = None,
        by_person: bool = False,
    ) -> FeatureStoreWriter:
        """Begin a store of ``records`` rows of ``dim`` features at ``path``, which must not exist."""
        # No store appears at ``path`` before the writer's ``finish()``. Until then the rows are in ``.{name}.partial``
        # next to it, an owner-only folder; one process at a time writes. resume: continue an interrupted writer of the
        # same store at its ``rows``. runtime: facts that must be equal to resume, such as the device. by_person: each
        # person's records are adjacent, and ``append`` gets where they begin.
        if records != schema.records:
            raise InvalidInput("records", records, f"{schema.records}, as in the schema")
        dim = check_integer("feature dimension", dim, low=1)
        return FeatureStoreWriter(
            Path(path), schema, dim, extractor, resume=resume, runtime=runtime, by_person=by_person
        )

    @staticmethod
    def open(path: str | Path) -> FeatureStore:
        """Open a finished store; its folder must be this user's alone (mode 0700)."""
        path = Path(path)
        with decoding(path, "a feature store"):
            meta = _opened_meta(path)
            columns = None if meta["columns"] is None else tuple(meta["columns"])
            schema = Schema(meta["records"], tuple(meta["input_shape"]), tuple(meta["classes"]), columns)
            features = np.load(path / _FEATURES, mmap_mode="r", allow_pickle=False)
            labels = np.load(path / _LABELS, allow_pickle=False)
            expected = (schema.records, meta["dim"])
            if features.shape != expected or features.dtype != np.float32:
                raise InvalidInput(f"features of {path}", features.shape, f"float32 of shape {expected}")
            if labels.shape != expected[:1] or labels.dtype != np.int64:
                raise InvalidInput(f"labels of {path}", labels.shape, f"int64 of shape {expected[:1]}")
            begins = None
            if meta.get("by_person", False):
                begins = np.load(path / _BEGINS, mmap_mode="r", allow_pickle=False)
                if begins.shape != expected[:1] or begins.dtype != np.uint8 or not begins[0]:
                    raise InvalidInput(f"persons of {path}", begins.shape, f"uint8 of shape {expected[:1]}")
            return FeatureStore(path, schema, dict(meta["extractor"]), features, labels, str(meta["sha256"]), begins)

    @staticmethod
    def check(path: str | Path) -> None:
        """Raise as :meth:`open` unless this is a finished store; no record is read."""
        with decoding(Path(path), "a feature store"):
            _opened_meta(Path(path))

    @property
    def dim(self) -> int:
        return int(self.features.shape[1])

    def verify(self) -> None:
        """Compare the arrays with the fingerprint; raise :class:`InvalidInput` where they differ."""
        with reading(self.path, "a feature store"):
            if _digest(self.path, _names(self.begins is not None)) != self.fingerprint:
                raise InvalidInput(str(self.path), WITHHELD, "features and labels as they were written")


class FeatureStoreWriter:
    """Appends batches to a store that is not yet in place; see :meth:`FeatureStore.create`.

    A ``with`` block finishes the store at its end. An error removes the rows; with ``resume`` it keeps them for another
    attempt, unless the error is about the data.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema,
        dim: int,
        extractor: Mapping[str, Any],
        *,
        resume: bool = False,
        runtime: Mapping[str, Any] | None = None,
        by_person: bool = False,
    ) -> None:
        self.path: Final = path
        self.dim: Final = dim
        self._schema, self._resume = schema, resume
        self._meta: dict[str, Any] = {
            "version": _VERSION,
            "records": schema.records,
            "input_shape": list(schema.input_shape),
            "classes": list(schema.classes),
            "columns": None if schema.columns is None else list(schema.columns),
            "dim": dim,
            "extractor": dict(extractor),
            **({"by_person": True} if by_person else {}),
        }
        self._finished, self._by_person = False, by_person
        self._check_free()
        headers = {
            _FEATURES: _header(np.dtype("<f4"), (schema.records, dim)),
            _LABELS: _header(np.dtype("<i8"), (schema.records,)),
        }
        row_bytes = {_FEATURES: 4 * dim, _LABELS: 8}
        if by_person:
            headers[_BEGINS], row_bytes[_BEGINS] = _header(np.dtype("u1"), (schema.records,)), 1
        # They must be equal to resume an interrupted store.
        self.facts: Final[Mapping[str, Any]] = {**self._meta, "runtime": dict(runtime or {})}
        self._partial = PartialFolder(path, headers, row_bytes, self.facts, _META, resume=resume)
        try:
            # Another process may have finished it before the lock was ours.
            self._check_free()
        except BaseException:
            self._partial.remove()
            raise

    @property
    def rows(self) -> int:
        """Rows written so far, by this writer and the one whose work it continues."""
        return self._partial.rows

    @property
    def durable_rows(self) -> int:
        """Rows that a kill leaves, at the least."""
        return self._partial.durable_rows

    def append(self, features: NDArray[Any], labels: NDArray[Any], begins: NDArray[np.bool_] | None = None) -> None:
        """Write the next rows: (b, d) finite numbers, (b,) labels and, by person, (b,) whether a person begins."""
        x = as_inputs(np.asarray(features), (self.dim,)).astype("<f4", copy=False)
        y = check_places(np.asarray(labels), self._schema.classes)
        if x.ndim != 2 or len(x) != len(y) or self.rows + len(x) > self._schema.records:
            raise InvalidInput("rows", self.rows + len(x), f"{self._schema.records} rows, one label for each row")
        arrays = [x, y.astype("<i8")]
        if self._by_person:
            if begins is None or begins.shape != y.shape:
                raise InvalidInput("begins", WITHHELD, "one value for each row: whether a person begins")
            arrays.append(begins.astype("u1"))
        named = dict(zip(_names(self._by_person), arrays, strict=True))
        contents = {name: np.ascontiguousarray(array).data for name, array in named.items()}
        with reading(self.path, "a folder"):
            self._partial.write(len(x), contents)

    def checkpoint(self) -> None:
        """Return when all rows so far are on the disk; happens every few seconds, too."""
        with reading(self.path, "a folder"):
            self._partial.checkpoint()

    def finish(self) -> FeatureStore:
        """Write the metadata, rename the folder into place and open it; treat failures as errors in the block."""
        try:
            if self.rows != self._schema.records:
                raise InvalidInput("rows", self.rows, f"{self._schema.records}, the number in the schema")
            self._check_free()
            with reading(self.path, "a folder"):
                self._partial.checkpoint()
                meta = {**self._meta, "sha256": _digest(self._partial.folder, _names(self._by_person))}
                self._partial.publish(json.dumps(meta, indent=2) + "\n")
        except BaseException as error:
            self._give_up(error)
            raise
        self._finished = True
        return FeatureStore.open(self.path)

    def leave(self) -> None:
        """Stop here, and keep what is on the disk for ``create(..., resume=True)``."""
        self._finished = True
        self._partial.leave()

    def _give_up(self, error: BaseException) -> None:
        if self._resume and not isinstance(error, InvalidInput):
            self._partial.leave()
        else:
            self._partial.remove()

    def _check_free(self) -> None:
        if self.path.exists() or self.path.is_symlink():
            raise InvalidInput("feature store", str(self.path), "a path that does not exist yet")

    def __enter__(self) -> FeatureStoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._finished:
            return
        if error is not None:
            self._give_up(error)
        else:
            self.finish()


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    # Rows are then written one after another, not through a memory map: a full disk is an error, not a crash.
    stream = io.BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


def _opened_meta(path: Path) -> Mapping[str, Any]:
    PrivateFolder(path, "feature store").close()
    meta = json.loads((path / _META).read_text(encoding="utf-8"))
    if meta["version"] != _VERSION:
        raise InvalidInput(f"version of {path}", meta["version"], f"{_VERSION}")
    if "sealed" in meta:
        allowed = "a store without encryption: remove this one, and privmix creates it again"
        raise InvalidInput("feature store", str(path), allowed)
    return dict(meta)


def _names(by_person: bool) -> tuple[str, ...]:
    return (_FEATURES, _LABELS, _BEGINS) if by_person else (_FEATURES, _LABELS)


def _digest(folder: Path, names: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        with (folder / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
