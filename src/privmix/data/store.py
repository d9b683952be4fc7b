"""A feature store: the extracted features of a private dataset, on disk and memory-mapped."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.files import decoding, reading
from privmix.data.source import Schema, as_inputs, encode_labels
from privmix.errors import WITHHELD, InvalidInput, check_integer

_VERSION: Final = 2
_FEATURES, _LABELS, _META = "features.npy", "labels.npy", "meta.json"


@dataclass(frozen=True)
class FeatureStore:
    """Features and labels of a dataset. Private: the folder is readable by its owner only.

    Attributes:
        path: the folder.
        schema: public facts of the raw dataset.
        extractor: spec of the extractor that made the features.
        features: (n, d) float32, memory-mapped and read-only.
        labels: (n,) int64.
        fingerprint: SHA-256 of features and labels. It stems from private rows: never publish it.

    Example:
        >>> folder = Path(tempfile.mkdtemp()) / "store"
        >>> schema = Schema(records=2, input_shape=(3,), classes=("cat", "dog"))
        >>> with FeatureStore.create(folder, 2, 3, schema=schema, extractor={"name": "identity"}) as writer:
        ...     writer.append(np.eye(2, 3, dtype=np.float32), np.array([0, 1]))
        >>> store = FeatureStore.open(folder)
        >>> store.features.shape, store.labels.tolist()
        ((2, 3), [0, 1])
    """

    path: Path
    schema: Schema
    extractor: Mapping[str, Any]
    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    fingerprint: str

    @staticmethod
    def create(
        path: str | Path, records: int, dim: int, *, schema: Schema, extractor: Mapping[str, Any]
    ) -> FeatureStoreWriter:
        """Begin a store of ``records`` rows of ``dim`` features at ``path``, which must not exist.

        Nothing appears at ``path`` before the writer's ``finish()``.

        Raises:
            InvalidInput: ``path`` exists, or ``records`` is not ``schema.records``.
            StorageError: the folder that is to hold it cannot be written.
        """
        if records != schema.records:
            raise InvalidInput("records", records, f"{schema.records}, as the schema says")
        return FeatureStoreWriter(Path(path), schema, check_integer("feature dimension", dim, low=1), extractor)

    @staticmethod
    def open(path: str | Path) -> FeatureStore:
        """Open a finished store.

        Raises:
            InvalidInput: not a store, or its files do not agree.
            StorageError: it cannot be read.
        """
        path = Path(path)
        with decoding(path, "a feature store"):
            meta = json.loads((path / _META).read_text(encoding="utf-8"))
            if meta["version"] != _VERSION:
                raise InvalidInput(f"version of {path}", meta["version"], f"{_VERSION}")
            columns = None if meta["columns"] is None else tuple(meta["columns"])
            schema = Schema(meta["records"], tuple(meta["input_shape"]), tuple(meta["classes"]), columns)
            features = np.load(path / _FEATURES, mmap_mode="r", allow_pickle=False)
            labels = np.load(path / _LABELS, allow_pickle=False)
            expected = (schema.records, meta["dim"])
            if features.shape != expected or features.dtype != np.float32:
                raise InvalidInput(f"features of {path}", features.shape, f"float32 of shape {expected}")
            if labels.shape != expected[:1] or labels.dtype != np.int64:
                raise InvalidInput(f"labels of {path}", labels.shape, f"int64 of shape {expected[:1]}")
            return FeatureStore(path, schema, dict(meta["extractor"]), features, labels, str(meta["sha256"]))

    @property
    def dim(self) -> int:
        """d."""
        return int(self.features.shape[1])

    def verify(self) -> None:
        """Compare features and labels with the fingerprint.

        Raises:
            InvalidInput: they were changed since the store was finished.
        """
        with reading(self.path, "a feature store"):
            if _digest(self.path) != self.fingerprint:
                raise InvalidInput(str(self.path), WITHHELD, "features and labels as they were written")


class FeatureStoreWriter:
    """Appends batches to a store that is being made beside its place; see :meth:`FeatureStore.create`.

    A ``with`` block finishes the store at its end, or removes what was written if an error leaves the block.
    """

    def __init__(self, path: Path, schema: Schema, dim: int, extractor: Mapping[str, Any]) -> None:
        self._path, self._schema, self._dim, self._extractor = path, schema, dim, extractor
        self._rows, self._finished = 0, False
        self._files: list[IO[bytes]] = []
        if path.exists():
            raise InvalidInput("feature store", str(path), "a path where nothing is yet")
        with reading(path.parent, "a folder"):
            # mkdtemp makes the folder 0700, and its contents are never wider than that.
            self._folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            self._features = self._begin(_FEATURES, np.dtype("<f4"), (schema.records, dim))
            self._labels = self._begin(_LABELS, np.dtype("<i8"), (schema.records,))
        except BaseException:
            self.abort()
            raise

    def append(self, features: NDArray[Any], labels: NDArray[Any]) -> None:
        """Write the next rows: (b, d) finite numbers and (b,) labels.

        Raises:
            InvalidInput: shapes, labels or values do not fit, or more rows than announced; nothing private is shown.
            StorageError: writing failed, for example because the disk is full.
        """
        x = as_inputs(np.asarray(features), (self._dim,)).astype("<f4", copy=False)
        y = encode_labels(np.asarray(labels), self._schema.classes)
        if x.ndim != 2 or len(x) != len(y) or self._rows + len(x) > self._schema.records:
            raise InvalidInput("rows", self._rows + len(x), f"{self._schema.records} rows, one label a row")
        with reading(self._path, "a folder"):
            self._features.write(np.ascontiguousarray(x).data)
            self._labels.write(y.astype("<i8").data)
        self._rows += len(x)

    def finish(self) -> FeatureStore:
        """Write the metadata, rename the folder into place and open it; on failure remove what was written.

        Raises:
            InvalidInput: fewer rows than announced.
            StorageError: writing failed.
        """
        try:
            self._publish()
        except BaseException:
            self.abort()
            raise
        self._finished = True
        return FeatureStore.open(self._path)

    def _publish(self) -> None:
        if self._rows != self._schema.records:
            raise InvalidInput("rows", self._rows, f"{self._schema.records}, the number announced")
        with reading(self._path, "a folder"):
            for file in self._files:
                file.flush()
                os.fsync(file.fileno())
                file.close()
            meta = {
                "version": _VERSION,
                "records": self._schema.records,
                "input_shape": list(self._schema.input_shape),
                "classes": list(self._schema.classes),
                "columns": None if self._schema.columns is None else list(self._schema.columns),
                "dim": self._dim,
                "extractor": dict(self._extractor),
                "sha256": _digest(self._folder),
            }
            (self._folder / _META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
            if self._path.exists():
                raise InvalidInput("feature store", str(self._path), "a path where nothing is yet")
            self._folder.rename(self._path)

    def abort(self) -> None:
        """Remove what was written."""
        for file in self._files:
            # Closing flushes, and may fail again on the full disk that brought us here.
            try:
                file.close()
            except OSError:
                continue
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> FeatureStoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
        elif not self._finished:
            self.finish()

    def _begin(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> IO[bytes]:
        # Sequential writes, not a memory map: a full disk is then an error here, not a crash of the process.
        with reading(self._path, "a folder"):
            file = (self._folder / name).open("wb")
            self._files.append(file)
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            return file


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in (_FEATURES, _LABELS):
        with (folder / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
