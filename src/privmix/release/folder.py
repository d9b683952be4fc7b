"""A release on disk: Parquet shards, the released mean, certificate and data card; written beside, then renamed."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from privmix.errors import InvalidInput, StorageError
from privmix.folders import FolderKind, sync_folder, write_durably
from privmix.release.certificate import CERTIFICATE_FILE, certificate_bytes, read_certificate
from privmix.release.dataset import RecordTransform, ReleasedDataset
from privmix.release.engine import RowBlock
from privmix.release.moments import SecondMoments
from privmix.release.moments_plan import MomentsPlan
from privmix.release.plan import Plan, ReleasePlan, plan_from_dict

DATA_FOLDER = "data"
CENTRE_FILE = "centre.safetensors"
MOMENTS_FILE = "moments.safetensors"
# Rows a shard; public, and a multiple of the row tile.
SHARD_ROWS = 8192


RELEASE_FOLDER = FolderKind("--out", "a release", frozenset({CERTIFICATE_FILE}))


class ShardWriter:
    """Writes row blocks as Parquet shards of a fixed public number of rows, hashes and records them.

    A shard is written beside its place, on disk for good, before it is renamed into it and noted in the run's journal:
    a run that was killed goes on after the last shard noted.

    Args:
        folder: the release being made.
        rows: T.
        journal: where finished shards are noted; None notes nothing.
        files: shards that an earlier run finished, in order from the first.
    """

    def __init__(
        self, folder: Path, rows: int, journal: Journal | None = None, files: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._folder = folder / DATA_FOLDER
        self._folder.mkdir(exist_ok=True)
        self._rows, self._journal = rows, journal
        self._pending: list[RowBlock] = []
        self.files: list[dict[str, Any]] = [dict(item) for item in files]
        self._waiting = 0

    @property
    def first(self) -> int:
        """The row that the next block begins with."""
        return min(self._rows, len(self.files) * SHARD_ROWS) + self._waiting

    def write(self, block: RowBlock) -> None:
        """Take the next block, of any size; write the shards that are full, and the last one."""
        assert block.start == self.first
        self._pending.append(block)
        self._waiting += len(block.x)
        while self._waiting >= SHARD_ROWS or (self._waiting and self.first == self._rows):
            x = np.concatenate([held.x for held in self._pending]) if len(self._pending) > 1 else self._pending[0].x
            y = np.concatenate([held.y for held in self._pending]) if len(self._pending) > 1 else self._pending[0].y
            start = self.first - self._waiting
            self._shard(x[:SHARD_ROWS], y[:SHARD_ROWS])
            self._pending = [RowBlock(start + SHARD_ROWS, x[SHARD_ROWS:], y[SHARD_ROWS:])]
            self._waiting = len(self._pending[0].x)
        if not self._waiting:
            self._pending = []

    def _shard(self, x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
        name = f"train-{len(self.files):05d}-of-{-(-self._rows // SHARD_ROWS):05d}.parquet"
        path, draft = self._folder / name, self._folder / f".{name}"
        table = pa.table({"x": _lists(x), "y": _lists(y)})
        with draft.open("wb") as stream:
            # Noise neither compresses nor repeats, so plain pages are the smallest and fastest.
            pq.write_table(table, stream, compression="NONE", use_dictionary=False, write_statistics=False)
            stream.flush()
            os.fsync(stream.fileno())
        self.files.append({"file": f"{DATA_FOLDER}/{name}", "rows": len(x), "sha256": file_hash(draft)})
        os.replace(draft, path)
        if self._journal is not None:
            sync_folder(self._folder)
            self._journal.note(self.files[-1])


@dataclass(frozen=True)
class Journal:
    """A run's notes of its finished shards, a line each, with a seal that only the run's key makes.

    Attributes:
        file: where they are.
        seal: makes the seal of a line.
    """

    file: Path
    seal: Callable[[bytes], str]

    def note(self, item: Mapping[str, Any]) -> None:
        """Add a shard, and wait until the disk has it."""
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(self._line(item))
            stream.flush()
            os.fsync(stream.fileno())

    def kept(self, folder: Path) -> list[dict[str, Any]]:
        """The shards, from the first on without a gap, that are noted and whose bytes are those noted."""
        kept: list[dict[str, Any]] = []
        for line in self.file.read_text(encoding="utf-8", errors="replace").splitlines() if self.file.exists() else []:
            try:
                item = json.loads(line)
                del item["seal"]
                number = int(item["file"].rsplit("-", 3)[-3])
                whole = number == len(kept) and hmac.compare_digest(self._line(item), line + "\n")
                whole = whole and file_hash(folder / item["file"]) == item["sha256"]
            except (ValueError, KeyError, IndexError, TypeError, OSError, RecursionError, AttributeError):
                # A line cut short by the kill, or a shard that is not there.
                break
            if not whole:
                break
            kept.append(item)
        return kept

    def rewrite(self, kept: Sequence[Mapping[str, Any]]) -> None:
        """Begin anew with these shards."""
        write_durably(self.file, "".join(self._line(item) for item in kept).encode())

    def _line(self, item: Mapping[str, Any]) -> str:
        return json.dumps({**item, "seal": self.seal(json.dumps(item).encode())}) + "\n"


def _lists(values: NDArray[np.float32]) -> pa.FixedSizeListArray:
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_centre(folder: Path, centre: NDArray[np.float32]) -> dict[str, Any]:
    """Store the released mean; returns its entry for the certificate."""
    write_durably(folder / CENTRE_FILE, save({"centre": centre}))
    return {"file": CENTRE_FILE, "rows": 1, "sha256": file_hash(folder / CENTRE_FILE)}


def write_moments(folder: Path, moments: SecondMoments) -> dict[str, Any]:
    """Store released moments, of X'X its lower triangle by rows; returns their entry for the certificate."""
    content = {
        "second": moments.second[np.tril_indices(moments.dim)],
        "cross": np.ascontiguousarray(moments.cross),
        "label_sums": moments.label_sums,
    }
    write_durably(folder / MOMENTS_FILE, save(content))
    return {"file": MOMENTS_FILE, "rows": moments.dim, "sha256": file_hash(folder / MOMENTS_FILE)}


def write_certificate(folder: Path, certificate: dict[str, Any]) -> None:
    """Store the certificate as readable JSON."""
    write_durably(folder / CERTIFICATE_FILE, certificate_bytes(certificate))


def load_release(folder: str | Path) -> ReleasedDataset:
    """Read a release folder into memory.

    Args:
        folder: what ``privmix release`` wrote.

    Raises:
        StorageError: a file is missing or unreadable.
        InvalidInput: the certificate was edited or a shard does not have the shape it states.
    """
    root = Path(folder)
    certificate = read_certificate(root)
    plan = plan_from_dict(certificate["plan"])
    shards = [item for item in certificate["files"] if item["file"].startswith(DATA_FOLDER + "/")]
    x = np.empty((plan.rows, plan.dim), np.float32)
    y = np.empty((plan.rows, plan.num_classes), np.float32)
    start = 0
    for item in shards:
        block_x, block_y = _read_shard(root / item["file"], plan)
        if len(block_x) != item["rows"] or start + len(block_x) > plan.rows:
            raise InvalidInput(item["file"], f"{len(block_x)} rows", f"{item['rows']} rows, as certified")
        x[start : start + len(block_x)], y[start : start + len(block_x)] = block_x, block_y
        start += len(block_x)
    if start != plan.rows:
        raise InvalidInput("shards", f"{start} rows", f"{plan.rows} rows, as certified")
    moments = _read_moments(root, plan) if isinstance(plan, MomentsPlan) else None
    return assemble(plan, x, y, _read_centre(root, plan), certificate, moments)


def read_transform(folder: Path, plan: Plan) -> RecordTransform:
    """The public map from features to what the release in ``folder`` mixed, without reading its rows.

    Raises:
        StorageError: the released mean is missing or unreadable.
        InvalidInput: it does not fit the plan.
    """
    return RecordTransform(plan.clip_norm, plan.norm, _read_centre(folder, plan), plan.residual_clip_norm)


def assemble(
    plan: Plan,
    x: NDArray[np.float32],
    y: NDArray[np.float32],
    centre: NDArray[np.float32] | None,
    certificate: dict[str, Any],
    moments: SecondMoments | None = None,
) -> ReleasedDataset:
    """Put released arrays and their public facts together."""
    # Sampled rows stand for single records and carry no noise of their own.
    degree, std_x, std_y = (
        (plan.mixup_degree, plan.noise_std_x, plan.noise_std_y) if isinstance(plan, ReleasePlan) else (1, 0.0, 0.0)
    )
    return ReleasedDataset(
        x=x,
        y=y,
        design=plan.design,
        mixup_degree=degree,
        noise_std_x=std_x,
        noise_std_y=std_y,
        label_offset=plan.label_offset,
        classes=plan.classes,
        transform=RecordTransform(plan.clip_norm, plan.norm, centre, plan.residual_clip_norm),
        extractor=certificate["extractor"],
        input_shape=tuple(certificate["input_shape"]),
        release_id=certificate["release_id"],
        certificate=certificate,
        moments=moments,
    )


def _read_shard(path: Path, plan: Plan) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    try:
        table = pq.read_table(path, memory_map=True)
    except FileNotFoundError:
        raise StorageError(f"shard: {path.name} is missing from {path.parent}") from None
    except (OSError, pa.ArrowException):
        raise InvalidInput("shard", path.name, "a Parquet file as privmix wrote it") from None
    return _matrix(table, "x", plan.dim, path), _matrix(table, "y", plan.num_classes, path)


def _matrix(table: pa.Table, column: str, width: int, path: Path) -> NDArray[np.float32]:
    if column not in table.column_names or table.schema.field(column).type != pa.list_(pa.float32(), width):
        raise InvalidInput(path.name, f"column {column!r}", f"a fixed-size list of {width} float32")
    values = table.column(column).combine_chunks()
    flat = values.flatten() if isinstance(values, pa.FixedSizeListArray) else pa.concat_arrays(values.chunks).flatten()
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(-1, width)


def _read_moments(root: Path, plan: MomentsPlan) -> SecondMoments:
    path = root / MOMENTS_FILE
    found = _read_tensors(path, "moments")
    dim, classes = plan.dim, plan.num_classes
    shapes = {"second": (dim * (dim + 1) // 2,), "cross": (dim, classes), "label_sums": (classes,)}
    if {name: array.shape for name, array in found.items()} != shapes:
        raise InvalidInput("moments", path.name, f"the entries {shapes}")
    second = np.empty((dim, dim), np.float32)
    second[np.tril_indices(dim)] = found["second"]
    # Entry (i, j) above the diagonal is (j, i) below it.
    second.T[np.tril_indices(dim)] = found["second"]
    return SecondMoments(
        second=second,
        cross=found["cross"].astype(np.float32, copy=False),
        label_sums=found["label_sums"].astype(np.float32, copy=False),
        records=plan.records,
        noise_std_second=plan.noise_std_second,
        noise_std_cross=plan.noise_std_cross,
        noise_std_counts=plan.noise_std_counts,
    )


def _read_centre(root: Path, plan: Plan) -> NDArray[np.float32] | None:
    if not plan.centred:
        return None
    found = _read_tensors(root / CENTRE_FILE, "centre")
    if set(found) != {"centre"}:
        raise InvalidInput("centre", CENTRE_FILE, "a safetensors file with the entry 'centre'")
    centre = found["centre"]
    if centre.shape != (plan.dim,):
        raise InvalidInput("centre", centre.shape, f"shape ({plan.dim},)")
    return np.asarray(centre, dtype=np.float32)


def _read_tensors(path: Path, what: str) -> dict[str, NDArray[Any]]:
    try:
        return dict(load_file(str(path)))
    except FileNotFoundError:
        raise StorageError(f"{what}: {path.name} is missing from {path.parent}") from None
    except (SafetensorError, KeyError, TypeError, OSError):
        raise InvalidInput(what, path.name, "a safetensors file as privmix wrote it") from None
