"""A feature store: the extracted features of a private dataset, on disk and memory-mapped."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.files import decoding, reading
from privmix.data.partial import PartialFolder
from privmix.data.sealed_arrays import BlockWriter, SealedArray, block_rows, sealed_bytes
from privmix.data.sealing import Sealer, StoreKey
from privmix.data.source import Schema, as_inputs, encode_labels
from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.private_files import check_private_folder

_VERSION: Final = 2
_FEATURES, _LABELS, _BEGINS, _META = "features.npy", "labels.npy", "begins.npy", "meta.json"
_SEALED_FEATURES, _SEALED_LABELS, _SEALED_BEGINS = "features.sealed", "labels.sealed", "begins.sealed"
_FACTS: Final = b"privmix facts"


@dataclass(frozen=True)
class FeatureStore:
    """Features and labels of a dataset. Private: the folder is readable by its owner only.

    Attributes:
        path: the folder.
        schema: public facts of the raw dataset.
        extractor: spec of the extractor that made the features.
        features: (n, d) float32, memory-mapped and read-only.
        labels: (n,) int64.
        fingerprint: SHA-256 of its arrays. It stems from private rows: never publish it.
        begins: (n,) uint8, memory-mapped unless encrypted: 1 where a person's records begin, in a store that is sorted
            by person; see :func:`privmix.engine.grouping.store_by_person`. None elsewhere.
        key: where the key is that the arrays are encrypted by; they are opened as they are read, and ``features`` is
            then a :class:`privmix.data.sealed_arrays.SealedArray`. None: they are plain.

    Example:
        >>> import tempfile
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
    begins: NDArray[np.uint8] | None = None
    key: StoreKey | None = None

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
        key: StoreKey | None = None,
    ) -> FeatureStoreWriter:
        """Begin a store of ``records`` rows of ``dim`` features at ``path``, which must not exist.

        Nothing appears at ``path`` before the writer's ``finish()``. Until then the rows are in ``.{name}.partial``
        beside it, a hidden folder for the owner only. One process at a time may write a store.

        Args:
            path: the folder to make.
            records: n, as in the schema.
            dim: d.
            schema: public facts of the raw dataset.
            extractor: what made the features, and from what; JSON values.
            resume: go on where an interrupted writer of the very same store stopped: ``rows`` of the writer says how
                many rows are there already. Rows of any other store are removed.
            runtime: what else must be equal to go on, such as the device; not kept in the finished store.
            by_person: each person's records stand side by side, and ``append`` is told where they begin.
            key: encrypt what is written by this key.

        Raises:
            InvalidInput: ``path`` exists, or ``records`` is not ``schema.records``.
            StorageError: the folder that is to hold it cannot be written, or another process is writing the store.
        """
        if records != schema.records:
            raise InvalidInput("records", records, f"{schema.records}, as the schema says")
        dim = check_integer("feature dimension", dim, low=1)
        return FeatureStoreWriter(
            Path(path), schema, dim, extractor, resume=resume, runtime=runtime, by_person=by_person, key=key
        )

    @staticmethod
    def open(path: str | Path, key: StoreKey | None = None) -> FeatureStore:
        """Open a finished store.

        Args:
            path: the folder.
            key: of an encrypted store.

        Raises:
            InvalidInput: not a store, or its files do not agree; or the folder is not this user's alone (mode 0700);
                it is encrypted and the key is missing or another one's, or it is not and there is a key.
            StorageError: it cannot be read.
        """
        path = Path(path)
        with decoding(path, "a feature store"):
            meta, sealer, facts = _opened_meta(path, key)
            columns = None if meta["columns"] is None else tuple(meta["columns"])
            schema = Schema(meta["records"], tuple(meta["input_shape"]), tuple(meta["classes"]), columns)
            if sealer is not None:
                shape, rows = (schema.records, meta["dim"]), meta["sealed"]["rows"]
                sealed, labels, begins = _sealed_arrays(path, sealer, shape, rows, meta.get("by_person", False))
                return FeatureStore(path, schema, facts, sealed, labels, str(meta["sha256"]), begins, key)
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
            return FeatureStore(path, schema, facts, features, labels, str(meta["sha256"]), begins)

    @staticmethod
    def check_key(path: str | Path, key: StoreKey | None) -> None:
        """Raise where a finished store needs another key than this, or none; no record is read.

        Raises:
            InvalidInput, StorageError: as :meth:`open`.
        """
        with decoding(Path(path), "a feature store"):
            _opened_meta(Path(path), key)

    @property
    def dim(self) -> int:
        """d."""
        return int(self.features.shape[1])

    def verify(self) -> None:
        """Compare the arrays with the fingerprint.

        Raises:
            InvalidInput: they were changed since the store was finished.
        """
        with reading(self.path, "a feature store"):
            if _digest(self.path, _names(self.begins is not None, self.key)) != self.fingerprint:
                raise InvalidInput(str(self.path), WITHHELD, "features and labels as they were written")


class FeatureStoreWriter:
    """Appends batches to a store that is being made beside its place; see :meth:`FeatureStore.create`.

    A ``with`` block finishes the store at its end. If an error leaves the block, what was written is removed; with
    ``resume``, it is kept for another attempt unless the error is about the data themselves.
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
        key: StoreKey | None = None,
    ) -> None:
        self._path, self._schema, self._dim, self._resume = path, schema, dim, resume
        self._meta = _metadata(schema, dim, extractor) | ({"by_person": True} if by_person else {})
        self._finished, self._by_person, self._key = False, by_person, key
        self._blocks: BlockWriter | None = None
        self._check_free()
        if key is not None:
            self._begin_sealed(key, runtime)
            return
        headers = {
            _FEATURES: _header(np.dtype("<f4"), (schema.records, dim)),
            _LABELS: _header(np.dtype("<i8"), (schema.records,)),
        }
        row_bytes = {_FEATURES: 4 * dim, _LABELS: 8}
        if by_person:
            headers[_BEGINS], row_bytes[_BEGINS] = _header(np.dtype("u1"), (schema.records,)), 1
        self._open_partial(headers, row_bytes, {**self._meta, "runtime": dict(runtime or {})})

    def _begin_sealed(self, key: StoreKey, runtime: Mapping[str, Any] | None) -> None:
        # Paths and hashes of the data would tell what is in it to whoever can guess.
        private = {"extractor": self._meta.pop("extractor"), "runtime": dict(runtime or {})}
        mark = key.mark(json.dumps({**self._meta, **private}, sort_keys=True).encode())
        self.sealer, self._mark = key.sealer(mark), mark
        rows = block_rows(self._dim)
        self._meta["sealed"] = {"mark": mark.hex(), "rows": rows}
        files = dict(zip(_names(self._by_person, key), (4 * self._dim, 8, 1), strict=False))
        sizes = {name: sealed_bytes(rows, size) for name, size in files.items()}
        self._open_partial(dict.fromkeys(files, b""), sizes, self._meta)
        self._private = json.dumps(private["extractor"]).encode()
        self._blocks, self._block_rows = BlockWriter(self.sealer, rows, self._partial.rows), rows

    def _open_partial(
        self, headers: Mapping[str, bytes], row_bytes: Mapping[str, int], facts: Mapping[str, Any]
    ) -> None:
        self._facts = dict(facts)
        self._partial = PartialFolder(self._path, headers, row_bytes, facts, _META, resume=self._resume)
        try:
            # Another process may have finished it before the lock was ours.
            self._check_free()
        except BaseException:
            self.abort()
            raise

    sealer: Sealer | None = None
    """Who encrypts what is written; None: nobody."""
    _mark: bytes = b""
    _private: bytes = b""

    @property
    def path(self) -> Path:
        """Where the store will be."""
        return self._path

    @property
    def dim(self) -> int:
        """d."""
        return self._dim

    @property
    def facts(self) -> Mapping[str, Any]:
        """What must be equal to go on with what another process left; of an encrypted store, a mark of it."""
        return self._facts

    @property
    def sealed_by(self) -> tuple[StoreKey | None, bytes]:
        """Where the key is, and the mark, for who writes tiles elsewhere; None and nothing: the store is plain."""
        return self._key, self._mark

    @property
    def rows(self) -> int:
        """Rows written so far, by this writer and the one whose work it continues."""
        if self._blocks is None:
            return self._partial.rows
        return min(self._partial.rows * self._block_rows, self._schema.records) + self._blocks.held

    @property
    def durable_rows(self) -> int:
        """Rows that a kill leaves, at the least."""
        if self._blocks is None:
            return self._partial.durable_rows
        return min(self._partial.durable_rows * self._block_rows, self._schema.records)

    def append(self, features: NDArray[Any], labels: NDArray[Any], begins: NDArray[np.bool_] | None = None) -> None:
        """Write the next rows: (b, d) finite numbers, (b,) labels and, by person, (b,) whether a person begins.

        Raises:
            InvalidInput: shapes, labels or values do not fit, or more rows than announced; nothing private is shown.
            StorageError: writing failed, for example because the disk is full.
        """
        x = as_inputs(np.asarray(features), (self._dim,)).astype("<f4", copy=False)
        y = encode_labels(np.asarray(labels), self._schema.classes)
        if x.ndim != 2 or len(x) != len(y) or self.rows + len(x) > self._schema.records:
            raise InvalidInput("rows", self.rows + len(x), f"{self._schema.records} rows, one label a row")
        arrays = [x, y.astype("<i8")]
        if self._by_person:
            if begins is None or begins.shape != y.shape:
                raise InvalidInput("begins", WITHHELD, "whether a person begins, once a row")
            arrays.append(begins.astype("u1"))
        named = dict(zip(_names(self._by_person, self._key), arrays, strict=True))
        if self._blocks is not None:
            self._write_blocks(self._blocks.add(named))
            return
        contents = {name: np.ascontiguousarray(array).data for name, array in named.items()}
        with reading(self._path, "a folder"):
            self._partial.write(len(x), contents)

    def _write_blocks(self, blocks: Iterable[dict[str, bytes]]) -> None:
        with reading(self._path, "a folder"):
            for block in blocks:
                self._partial.write(1, {name: memoryview(content) for name, content in block.items()})

    def checkpoint(self) -> None:
        """Return when all rows so far are on the disk (encrypted: all whole blocks); happens every few seconds, too."""
        with reading(self._path, "a folder"):
            self._partial.checkpoint()

    def finish(self) -> FeatureStore:
        """Write the metadata, rename the folder into place and open it; on failure as when an error leaves the block.

        Raises:
            InvalidInput: fewer rows than announced.
            StorageError: writing failed.
        """
        try:
            self._publish()
        except BaseException as error:
            self._give_up(error)
            raise
        self._finished = True
        return FeatureStore.open(self._path, self._key)

    def _publish(self) -> None:
        if self.rows != self._schema.records:
            raise InvalidInput("rows", self.rows, f"{self._schema.records}, the number announced")
        self._check_free()
        if self._blocks is not None:
            self._write_blocks(self._blocks.last())
        with reading(self._path, "a folder"):
            self._partial.checkpoint()
            names = _names(self._by_person, self._key)
            meta = {**self._meta, "sha256": _digest(self._partial.folder, names)}
            if self.sealer is not None:
                meta["facts"] = self.sealer.seal(_named(meta), self._private).hex()
            self._partial.publish(json.dumps(meta, indent=2) + "\n")

    def abort(self) -> None:
        """Remove what was written."""
        self._partial.remove()

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
        if self._path.exists() or self._path.is_symlink():
            raise InvalidInput("feature store", str(self._path), "a path where nothing is yet")

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


def _metadata(schema: Schema, dim: int, extractor: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "records": schema.records,
        "input_shape": list(schema.input_shape),
        "classes": list(schema.classes),
        "columns": None if schema.columns is None else list(schema.columns),
        "dim": dim,
        "extractor": dict(extractor),
    }


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    # Rows are then written one after another, not through a memory map: a full disk is an error, not a crash.
    stream = io.BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


def _opened_meta(path: Path, key: StoreKey | None) -> tuple[Mapping[str, Any], Sealer | None, dict[str, Any]]:
    """What a finished store says of itself, who opens it where it is encrypted, and what it was made from and by."""
    check_private_folder(path, "feature store")
    meta = json.loads((path / _META).read_text(encoding="utf-8"))
    if meta["version"] != _VERSION:
        raise InvalidInput(f"version of {path}", meta["version"], f"{_VERSION}")
    if ("sealed" in meta) is not (key is not None):
        wanted = "the key of the store, which is encrypted" if key is None else "none: the store is plain"
        raise InvalidInput("store_key", None if key is None else key.place, wanted)
    if key is None:
        return meta, None, dict(meta["extractor"])
    sealer = key.sealer(bytes.fromhex(meta["sealed"]["mark"]))
    sealed = bytes.fromhex(meta["facts"])
    facts = sealer.opened(_named(meta), sealed)
    if facts is None and sealer.opened(_FACTS, sealed) is not None:
        allowed = "a store whose description can't be changed without its key: remove this older one, and make it again"
        raise InvalidInput("store", str(path), allowed)
    if facts is None:
        allowed = "the key that the store was encrypted by, and its description as it was written"
        raise InvalidInput("store_key", key.place, allowed)
    return meta, sealer, dict(json.loads(facts))


def _named(meta: Mapping[str, Any]) -> bytes:
    """What the private facts of an encrypted store are sealed under: all else that is said of it, which then holds."""
    said = {name: value for name, value in meta.items() if name != "facts"}
    return _FACTS + b"\n" + json.dumps(said, sort_keys=True).encode()


def _sealed_arrays(
    path: Path, sealer: Sealer, shape: tuple[int, int], rows: Any, by_person: bool
) -> tuple[Any, NDArray[np.int64], NDArray[np.uint8] | None]:
    check_integer("rows", rows, low=1)
    labels = SealedArray(path / _SEALED_LABELS, sealer, shape[:1], "<i8", rows)
    begins = SealedArray(path / _SEALED_BEGINS, sealer, shape[:1], "u1", rows)[:] if by_person else None
    return SealedArray(path / _SEALED_FEATURES, sealer, shape, "<f4", rows), labels[:], begins


def _names(by_person: bool, key: StoreKey | None) -> tuple[str, ...]:
    names = (_FEATURES, _LABELS, _BEGINS) if key is None else (_SEALED_FEATURES, _SEALED_LABELS, _SEALED_BEGINS)
    return names if by_person else names[:2]


def _digest(folder: Path, names: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        with (folder / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
