"""Hashes of files that identify a private dataset. They are private, like the files."""

import glob
import hashlib
import json
import os
import struct
import time
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import numpy as np
from numpy.typing import NDArray

from privmix.data.files import know_hash, known_hash, reading
from privmix.data.remote import is_remote, local_path, public_name, remote_digests
from privmix.data.remote_files import as_remote
from privmix.data.source import NUMERIC, Source
from privmix.errors import StorageError
from privmix.folders import hold, open_private

_RECORDS: Final = b"privmix records 1\n"
_BATCH: Final = 4096
# Equal cells of these types are written alike.
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_EMPTY: Final = hashlib.sha256().hexdigest()
# File systems note times in steps of some milliseconds; clocks of servers may differ.
SETTLED: Final = 5 * 10**9


def fingerprint(path: str | Path) -> str:
    """Hash the content of a file, or of all files but hidden ones below a folder, at a pattern or at an address."""
    # The hash is private: anyone who guesses the data can confirm it. It belongs in the owner's ledger only.
    if is_remote(path):
        return listing_hash(remote_digests(str(path)))
    root = local_path(path)
    with reading(root, "a file or folder"):
        return listing_hash([_file_hash(file) for file in files_of(root)])


def content_hashes(source: Source) -> tuple[str, ...]:
    """SHA-256 of each file that holds records of ``source``: sorted, distinct, private.

    A copy, another name, place or shard order gives the same hashes. Empty files and files that the reader leaves out
    have none. Records in memory have one hash (:func:`records_hash`); frames and tables add those of all columns, since
    other columns, with another label, are about the same people.
    """
    if not source.files:
        found, one = set[str](), cast("Source | None", source)
        while one is not None:
            found |= _record_hashes(one)
            one = getattr(one, "whole", None)
        return tuple(sorted(found))
    return tuple(sorted({digest for _, digest in hashed_files(source) if digest != _EMPTY}))


def hashed_files(source: Source) -> list[tuple[Path, str]]:
    """Return the files that hold records of ``source``, in its order, each with its SHA-256. Private."""
    found = []
    for file in source.files:
        # The file's own name may be private.
        with reading(file.parent, "data"):
            found.append((file, _file_hash(file)))
    return found


def origin_files(source: Source, place: str | None) -> list[list[str]]:
    """Return what a store's origin states about the files of its records; ``place`` is None in memory. Private."""
    if place is None:
        inputs, _ = next(iter(source._silent_chunks(1)))
        # Among equal numbers, those of type uint8 are pixels.
        return [["memory", str(inputs.dtype == np.uint8), records_hash(source)]]
    if is_remote(place):
        # No cheap sign shows changed remote content: hash it.
        return [[public_name(place), fingerprint(place)]]
    return [[str(path.resolve()), digest] for path, digest in hashed_files(source)]


def _file_hash(path: Path) -> str:
    """SHA-256 of a file, cached while nothing touches the file."""
    # Size and modification time can be set (rsync -t, a restored backup). The inode's change time cannot; it counts
    # once it is old enough that another change would have another time.
    if (remote := as_remote(path)) is not None:
        return remote.sha256()
    with path.open("rb") as stream:
        state = _state(stream)
        if (known := known_hash(state)) is not None:
            return known
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if time.time_ns() - state[-1] > SETTLED and _state(stream) == state:
            know_hash(state, digest)
        return digest


def keep_hashes(path: Path, files: Iterable[Path]) -> None:
    """Write what is known of these files' hashes to ``path``, a file of its owner alone, for :func:`recall_hashes`."""
    known = []
    for file in files:
        remote = as_remote(file)
        if remote is None:
            with file.open("rb") as stream:
                state: tuple[int, ...] | None = _state(stream)
        else:
            state = remote.lasting_state()
        if state is not None and (digest := known_hash(state)) is not None:
            known.append([list(state), digest])
    if known:
        with hold(path.parent) as folder:
            folder.write(path.name, json.dumps(known).encode())


def recall_hashes(path: Path) -> None:
    """Load the hashes that another process kept, for files unchanged since."""
    try:
        with open_private(path, path.name) as stream:
            known = json.load(stream)
        for state, digest in known:
            know_hash(tuple(map(int, state)), str(digest))
    except FileNotFoundError:
        return
    except (ValueError, TypeError):
        # A truncated file or something else: hash again.
        return


def _state(stream: BinaryIO) -> tuple[int, ...]:
    found = os.fstat(stream.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _record_hashes(source: Source) -> set[str]:
    """Hashes of records in memory: as given, and in pieces of one length, where chunks of a table have another."""
    # Refused records have the first hash alone: the other one may begin with the record that is refused.
    lengths: list[int] = []
    found = {records_hash(source, lengths)}
    regular = all(length == _BATCH for length in lengths[:-1]) and max(lengths, default=0) <= _BATCH
    return found if regular else {*found, records_hash(source, regroup=True)}


def _regrouped(chunks: Iterable[tuple[NDArray[Any], NDArray[Any]]]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the same records in pieces of ``_BATCH``."""
    held: list[tuple[NDArray[Any], NDArray[Any]]] = []
    room = _BATCH
    for inputs, labels in chunks:
        while len(inputs):
            held.append((inputs[:room], labels[:room]))
            taken = len(held[-1][0])
            inputs, labels, room = inputs[taken:], labels[taken:], room - taken
            if not room:
                yield np.concatenate([one for one, _ in held]), np.concatenate([one for _, one in held])
                held, room = [], _BATCH
    if held:
        yield np.concatenate([one for one, _ in held]), np.concatenate([one for _, one in held])


def records_hash(source: Source, lengths: list[int] | None = None, *, regroup: bool = False) -> str:
    """SHA-256 of all records in order, inputs and labels as given. Private."""
    # Equal numbers hash alike in all array types, since one record may decide these; a number and its text differ.
    # Records that a reader would refuse are hashed too: refusing them is not the job of this function.
    hasher = hashlib.sha256(_RECORDS)
    try:
        chunks = source._chunks(0, source.schema.records, _BATCH)
        for inputs, labels in _regrouped(chunks) if regroup else chunks:
            if lengths is not None:
                lengths.append(len(inputs))
            for values in (inputs, labels):
                hasher.update(repr(values.shape[1:]).encode())
                hasher.update(_canonical(values))
    except (OSError, MemoryError):
        raise
    except Exception:
        # The error's message may quote a record.
        hasher.update(b"refused")
        if lengths is not None:
            lengths.clear()
    return hasher.hexdigest()


def _canonical(values: NDArray[Any]) -> bytes:
    if values.dtype.kind == "O":
        cells = values.reshape(-1).tolist()
        if set(map(type, cells)) <= _PLAIN:
            # A table's cells repeat, and equal ones are written alike.
            written = {cell: _cell(cell) for cell in set(cells)}
            return b"".join(map(written.__getitem__, cells))
        return b"".join(map(_cell, cells))
    if values.dtype.kind not in NUMERIC:
        return b"".join(_cell(value) for value in values.reshape(-1).tolist())
    # Adding zero makes -0 the same as 0.
    numbers = np.ascontiguousarray(values, dtype="<f8").reshape(-1) + 0.0
    return b"".join(map(_number, numbers.tolist())) if values.ndim == 1 else numbers.tobytes()


def _cell(value: Any) -> bytes:
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        return b"s%d:%b" % (len(text), text)
    if isinstance(value, bool | int | float | np.number | np.bool_):
        try:
            return _number(float(value.real))
        except OverflowError:
            return b"i%d;" % value
    if isinstance(value, date | np.datetime64):
        # A day is what the reader makes of it: its text, or nothing where it is no time at all.
        return b"-" if value != value else _cell(str(value))
    return b"-" if value is None else b"?%b;" % type(value).__name__.encode()


def _number(value: float) -> bytes:
    return b"n" + struct.pack("<d", value + 0.0)


def listing_hash(digests: Iterable[str]) -> str:
    """:func:`fingerprint` of files with these hashes."""
    # Sorted: a copy under other names is the same data.
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def files_of(path: Path) -> list[Path]:
    """Return the file ``path``, or all files but hidden ones below it or matching it, in order. Links are followed."""
    if path.is_file():
        return [path]
    if not path.exists() and glob.has_magic(str(path)):
        found = [Path(name) for name in glob.glob(str(path), recursive=True)]
    else:
        found = [Path(folder) / name for folder, _, names in os.walk(path, followlinks=True) for name in names]
    files = sorted(file for file in found if file.is_file() and not file.name.startswith("."))
    if not files:
        raise StorageError(f"{path}: no such file or folder, or nothing in it")
    return files
