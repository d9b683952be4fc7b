"""A release on disk: what may be in it, how it is written, and how it is read back, each file opened once."""

import hashlib
import hmac
import json
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.certificate.about import LICENCE_FILE, has_licence_file
from privmix.certificate.certificate import CERTIFICATE_FILE, Certificate
from privmix.certificate.croissant import CROISSANT_FILE
from privmix.certificate.signing import ATTESTATION_FILE
from privmix.engine.rows import RowBlock
from privmix.errors import InvalidInput, StorageError
from privmix.folders import FolderKind, HeldFolder, PrivateFolder
from privmix.planning.table import has_pairs
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by, plan_from_dict
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform, ReleasedDataset
from privmix.publication.second_moments import from_arrays, to_arrays
from privmix.releases.certificate import PICTURE_FILE, read_certificate, told_in_shards
from privmix.releases.shards import Shapes, ShardForm, Told, arrays_bytes, read_arrays, read_shard, write_shard
from privmix.untrusted import all_finite, check_listing, open_plain

_REPLAY_ENDED: Final = "replay-ended.dsse.json"
DATA_FOLDER: Final = "data"
CARD_FILE: Final = "README.md"
CENTRE_FILE: Final = "centre.safetensors"
ROWS_FILE: Final = "rows.csv"
"""Rows in a table's columns, sampled from the released numbers."""
# Rows a shard; public, and a multiple of the row tile.
SHARD_ROWS = 8192
# Size limit of a journal: some 200 a shard.
_MOST_NOTES: Final = 2**28
# Pages that the reader may be ahead of the hash.
_PAGES_AHEAD: Final = 4


RELEASE_FOLDER = FolderKind("out", "a release", frozenset({CERTIFICATE_FILE}))


@dataclass(frozen=True)
class Member:
    """A file that releases may hold next to their shards."""

    # belongs: whether a release of this plan and certificate has it; rows: in the certificate's list, None: not there.

    name: str
    belongs: Callable[[Plan, Mapping[str, Any]], bool] = lambda plan, certificate: True
    rows: Callable[[Plan], int] | None = None
    optional: bool = False


def members(plan: Plan) -> tuple[Member, ...]:
    """Return the allowed files next to shards, in the certificate's order; any other file makes a folder no release."""
    beside = made_by(plan).beside(plan)
    return (
        Member(CERTIFICATE_FILE),
        Member(CARD_FILE),
        Member(CROISSANT_FILE),
        Member(ATTESTATION_FILE, optional=True),
        *(() if beside is None else (Member(beside.file, rows=lambda _: beside.rows),)),
        Member(PICTURE_FILE, lambda _, certificate: certificate["choice"] is not None, lambda _: 0),
        Member(CENTRE_FILE, lambda plan, _: plan.centred, lambda _: 1),
        Member(LICENCE_FILE, lambda _, certificate: has_licence_file(certificate), lambda _: 0),
        Member(ROWS_FILE, has_table_rows, lambda _: 0),
    )


def has_table_rows(plan: Plan, certificate: Mapping[str, Any]) -> bool:
    """Whether the certificate lists rows of a table, and the plan releases the table's pairs of columns."""
    listed = any(item["file"] == ROWS_FILE for item in certificate["files"])
    return listed and has_pairs(plan) and certificate["extractor"].get("name") == "tabular"


def check_files(folder: Path, certificate: Mapping[str, Any], plan: Plan) -> None:
    """Raise unless folder and certificate list hold exactly the files that follow from the plan, each once."""
    belonging = [member for member in members(plan) if member.belongs(plan, certificate)]
    listed = [(member.name, member.rows(plan)) for member in belonging if member.rows is not None]
    stated = [(item["file"], item["rows"]) for item in certificate["files"]]
    # One by one: an unknown author decides how many files follow from the plan.
    for found, wanted in zip_longest(stated, chain(_shard_rows(plan.rows), listed)):
        if wanted is None:
            raise InvalidInput("files", found[0], "the files that follow from the plan, each listed once")
        # True and 1.0 equal 1 in Python, but are other bytes in a certificate.
        if found != wanted or type(found[1]) is not int:
            raise InvalidInput("files", found, f"{wanted[0]} of {wanted[1]} rows, which follows from the plan")
    if os.path.lexists(folder / _REPLAY_ENDED):
        allowed = (
            "no statement, of an earlier version, that a key was destroyed: delete it, and sign a signed release again"
        )
        raise InvalidInput("files", _REPLAY_ENDED, allowed)
    names = {file for file, _ in stated}
    names |= {member.name for member in belonging if not member.optional or os.path.lexists(folder / member.name)}
    check_listing(folder, "files", names, [DATA_FOLDER])


def _shard_rows(rows: int) -> Iterator[tuple[str, int]]:
    shards = -(-rows // SHARD_ROWS)
    for number in range(shards):
        yield f"{DATA_FOLDER}/{shard_name(number, shards)}", min(SHARD_ROWS, rows - number * SHARD_ROWS)


def shard_name(number: int, shards: int) -> str:
    return f"train-{number:05d}-of-{shards:05d}.parquet"


class ShardCutter(ABC):
    """Cut row blocks of any size into shards of a fixed public number of rows; ``done``: first shards to leave out."""

    def __init__(self, rows: int, done: int = 0) -> None:
        self._rows, self._done, self._waiting = rows, done, 0
        self._pending: list[RowBlock] = []

    @property
    def first(self) -> int:
        return min(self._rows, self._done * SHARD_ROWS) + self._waiting

    def write(self, block: RowBlock) -> None:
        """Take the next block, of any size; give on the shards that are full, and the last one."""
        assert block.start == self.first
        self._pending.append(block)
        self._waiting += len(block.x)
        while self._waiting >= SHARD_ROWS or (self._waiting and self.first == self._rows):
            x = np.concatenate([held.x for held in self._pending]) if len(self._pending) > 1 else self._pending[0].x
            y = np.concatenate([held.y for held in self._pending]) if len(self._pending) > 1 else self._pending[0].y
            start = self.first - self._waiting
            self._shard(self._done, start, x[:SHARD_ROWS], y[:SHARD_ROWS])
            self._done += 1
            self._pending = [RowBlock(start + SHARD_ROWS, x[SHARD_ROWS:], y[SHARD_ROWS:])]
            self._waiting = len(self._pending[0].x)
        if not self._waiting:
            self._pending = []

    @abstractmethod
    def _shard(self, number: int, start: int, x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
        """Do with a whole shard, whose first row is ``start``, what is to be done."""


class ShardWriter(ShardCutter):
    """Write row blocks as Parquet shards of a fixed public number of rows, and hash and record them."""

    # A shard is on disk for good before it is renamed into place and noted in the run's journal, after whose last shard
    # a killed run resumes. folder: an open handle, under any name by then; files: shards of an earlier run, in order;
    # told: texts of their schema.

    def __init__(
        self,
        folder: HeldFolder,
        rows: int,
        journal: "Journal | None" = None,
        files: Sequence[Mapping[str, Any]] = (),
        told: Told = (),
    ) -> None:
        super().__init__(rows, len(files))
        self._above, self._folder = folder, folder.folder(DATA_FOLDER)
        self._journal, self._told = journal, told
        self.files: list[dict[str, Any]] = [dict(item) for item in files]

    def _shard(self, number: int, start: int, x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
        del start
        name = shard_name(number, -(-self._rows // SHARD_ROWS))
        # Data written to a folder that has been moved away would be lost.
        self._above.check_in_place()
        with self._folder.new(name, shared=True) as stream:
            digest = write_shard(stream, x, y, self._told)
        # Noted last: a kill before leaves a shard without a note, and its rows are made again.
        self.files.append({"file": f"{DATA_FOLDER}/{name}", "rows": len(x), "sha256": digest})
        if self._journal is not None:
            self._journal.note(self.files[-1])


@dataclass(frozen=True)
class Journal:
    """A run's notes of its finished shards, a line each, with a seal that only the run's key makes."""

    folder: PrivateFolder
    name: str
    seal: Callable[[bytes], str]

    def note(self, item: Mapping[str, Any]) -> None:
        """Add a shard, and wait until the disk has it."""
        with self.folder.append(self.name) as stream:
            stream.write(self._line(item).encode())
            stream.flush()
            os.fsync(stream.fileno())

    def kept(self) -> list[dict[str, Any]]:
        """Return the shards, from the first on without a gap, that are noted and whose bytes are those noted."""
        kept: list[dict[str, Any]] = []
        found = self.folder.read(self.name, _MOST_NOTES) if self.folder.has(self.name) else b""
        for line in found.decode(errors="replace").splitlines():
            try:
                item = json.loads(line)
                del item["seal"]
                number = int(item["file"].rsplit("-", 3)[-3])
                whole = number == len(kept) and hmac.compare_digest(self._line(item), line + "\n")
                # The seal covers the note alone: the shard may have changed since.
                whole = whole and file_hash(self.folder.path / item["file"]) == item["sha256"]
            except (ValueError, KeyError, IndexError, TypeError, OSError, RecursionError, AttributeError):
                # A line cut short by the kill, or a shard that is not there.
                break
            if not whole:
                break
            kept.append(item)
        return kept

    def rewrite(self, kept: Sequence[Mapping[str, Any]]) -> None:
        self.folder.write(self.name, "".join(self._line(item) for item in kept).encode())

    def _line(self, item: Mapping[str, Any]) -> str:
        return json.dumps({**item, "seal": self.seal(json.dumps(item).encode())}) + "\n"


def file_hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def centre_bytes(centre: NDArray[np.float32]) -> bytes:
    return arrays_bytes({"centre": centre})


def write_file(folder: HeldFolder, name: str, content: bytes, rows: int) -> dict[str, Any]:
    """Store a file of released numbers; return its entry for the certificate."""
    folder.write(name, content, shared=True)
    return {"file": name, "rows": rows, "sha256": hashlib.sha256(content).hexdigest()}


def write_beside(folder: HeldFolder, plan: Plan, beside: Any) -> list[dict[str, Any]]:
    """Store what is released in addition to the rows, if anything is; returns its entry for the certificate."""
    content, declared = beside_bytes(plan, beside), made_by(plan).beside(plan)
    if content is None or declared is None:
        return []
    return [write_file(folder, declared.file, content, declared.rows)]


def beside_bytes(plan: Plan, beside: Any) -> bytes | None:
    """Bytes of the file that is released in addition to the rows; None where there is none."""
    declared = made_by(plan).beside(plan)
    if declared is None:
        return None
    arrays = to_arrays(plan, beside)
    assert {name: array.shape for name, array in arrays.items()} == dict(declared.shapes), "other arrays than declared"
    return arrays_bytes(arrays)


def load_release(folder: str | Path) -> ReleasedDataset:
    """Read a release folder into memory; every file is opened once, and only bytes with certified hashes are used."""
    root = Path(folder)
    certificate = read_certificate(root)
    plan = plan_from_dict(certificate["plan"])
    shards = check_shards(root, certificate, plan)
    x = np.empty((plan.rows, plan.dim), np.float32)
    y = np.empty((plan.rows, plan.num_classes), np.float32)
    for column, start, values in read_rows(root, shards, plan, told_in_shards(certificate)):
        all_finite({column: values}, "rows")
        (x if column == "x" else y)[start : start + len(values)] = values
    beside = read_beside(root, plan, certificate)
    return assemble(plan, x, y, read_centre(root, plan, certificate), certificate, beside)


def check_shards(root: Path, certificate: Mapping[str, Any], plan: Plan) -> list[Mapping[str, Any]]:
    """Return the certificate's entries of shards, in order; sizes on disk are the plan's, which bounds allocation."""
    shards = [item for item in certificate["files"] if item["file"].startswith(f"{DATA_FOLDER}/")]
    told = told_in_shards(certificate)
    for item, wanted in zip_longest(shards, _shard_rows(plan.rows)):
        if item is None or (item["file"], item["rows"]) != wanted:
            raise InvalidInput("shards", None if item is None else item["file"], f"{plan.rows} rows, as certified")
        path = root / item["file"]
        try:
            size = path.lstat().st_size
        except OSError:
            raise StorageError(f"shard: {item['file']} is missing from {root}") from None
        ShardForm(item["rows"], plan.dim, plan.num_classes, told).check_size(size, item["file"])
    return shards


def read_rows(
    root: Path, shards: Sequence[Mapping[str, Any]], plan: Plan, told: Told = ()
) -> Iterator[tuple[str, int, NDArray[np.float32]]]:
    """Yield all rows a page at a time: column, first row and read-only values (rows, width)."""
    # A second thread hashes the yielded bytes; another hash raises after the last page: nothing is certain before.
    first = 0
    # hashlib works without the GIL, so a page is hashed while the next is read. One worker keeps the pieces in order.
    with ThreadPoolExecutor(1) as pool:
        for item in shards:
            hashing, name = _Hashing(pool), item["file"]
            with open_plain(root / name, name) as stream:
                form = ShardForm(item["rows"], plan.dim, plan.num_classes, told)
                for place, values in read_shard(stream, form, name, hashing.add):
                    yield place.column, first + place.start, values
            check_hash(item, hashing.digest())
            first += item["rows"]


class _Hashing:
    """SHA-256 of pieces, made by another thread, a few pieces behind at most."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool, self._hasher, self._pending = pool, hashlib.sha256(), deque[Future[None]]()

    def add(self, piece: Any) -> None:
        self._pending.append(self._pool.submit(self._hasher.update, piece))
        # Wait, or pages that the hash has not seen pile up in memory.
        if len(self._pending) > _PAGES_AHEAD:
            self._pending.popleft().result()

    def digest(self) -> str:
        while self._pending:
            self._pending.popleft().result()
        return self._hasher.hexdigest()


def check_hash(item: Mapping[str, Any], found: str) -> None:
    """Raise :class:`InvalidInput` unless the file of this entry has the hash that it states."""
    if found != item["sha256"]:
        raise InvalidInput(item["file"], "other content", "the bytes whose SHA-256 is in the certificate")


def assemble(
    plan: Plan,
    x: NDArray[np.float32],
    y: NDArray[np.float32],
    centre: NDArray[np.float32] | None,
    certificate: Certificate,
    beside: Any = None,
) -> ReleasedDataset:
    return ReleasedDataset(
        x=x,
        y=y,
        design=plan.design,
        mixup_degree=plan.mixup_degree if isinstance(plan, ReleasePlan) else 1.0,
        noise_std_x=plan.noise_std.get("x", 0.0),
        noise_std_y=plan.noise_std.get("y", 0.0),
        label_offset=plan.label_offset,
        classes=plan.classes,
        transform=RecordTransform(plan.clip_norm, plan.norm, centre, plan.residual_clip_norm),
        extractor=certificate["extractor"],
        input_shape=tuple(certificate["input_shape"]),
        release_id=certificate.id,
        certificate=certificate,
        beside=beside,
    )


def read_beside(root: Path, plan: Plan, certificate: Mapping[str, Any]) -> Any:
    """Arrays released in addition to the rows, as learners take them; None where there are none."""
    declared = made_by(plan).beside(plan)
    if declared is None:
        return None
    return from_arrays(plan, _certified_arrays(root, declared.file, declared.shapes, certificate))


def read_centre(root: Path, plan: Plan, certificate: Mapping[str, Any] | None = None) -> NDArray[np.float32] | None:
    """Return the released mean, or None where the plan makes none; with a certificate, the one that it lists."""
    if not plan.centred:
        return None
    return _certified_arrays(root, CENTRE_FILE, {"centre": (plan.dim,)}, certificate)["centre"]


def _certified_arrays(
    root: Path, name: str, shapes: Shapes, certificate: Mapping[str, Any] | None
) -> dict[str, NDArray[np.float32]]:
    found, digest = read_arrays(root / name, name, shapes)
    if certificate is not None:
        item = next((item for item in certificate["files"] if item["file"] == name), None)
        if item is None:
            raise InvalidInput("files", "a list without it", f"{name}, which the plan makes")
        check_hash(item, digest)
    all_finite(found, name)
    return found
