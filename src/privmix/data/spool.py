"""A stream of records, kept in the reader's own files until they are used, so that a kill loses little work."""
# A closed folder holds parts, each whole or absent, with the stream's state. A later process resumes there if the first
# and the last kept records are those of its stream.

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from privmix.data.files import reading
from privmix.data.held import schema_of, silenced
from privmix.errors import InvalidInput, StorageError
from privmix.folders import PathLock
from privmix.private_files import PrivateFolder

_NOTES: Final = "notes.json"
_MOST_NOTES: Final = 2**26
BATCH: Final = 1024
# Records of a part, at most, and bytes: what a kill may cost of what was read.
PART_RECORDS: Final = 2**16
_PART_BYTES: Final = 2**28
_UNREAD: Final = "the stream cannot be read"
_ALLOWED: Final = "an IterableDataset that gives records of its features; `next(iter(stream))` shows one"


class Spool:
    """The records read so far of a Hugging Face stream, next to the store ``path``; a context manager.

    Formal guarantees:
        - Closed: the folder and its files are the owner's only, and no link is followed; they are gone once the store
          is made.
        - Once: records are in the parts once each, in the stream's order. The stream goes on behind the last part only
          where the batch before is, to the bit, the last one that was kept; else all is read again.
        - Alone: while one process has it, another one's attempt is a :class:`StorageError`.
        - Silent: what a stream raises is not shown; it may quote a record.
    """

    def __init__(self, stream: Any, path: Path) -> None:
        self._schema, self._stream = schema_of(stream), stream.with_format("arrow")
        self._begin = self._state()
        place = path.with_name(f".{path.name}.records")
        with reading(path.parent, "a folder"):
            self._lock = PathLock(place, StorageError(f"{path}: another process is writing it"))
            try:
                try:
                    self._folder = PrivateFolder(place, place.name)
                except FileNotFoundError:
                    self._folder = PrivateFolder(place, place.name, create=True)
                self._notes = self._left()
            except BaseException:
                self._lock.release()
                raise

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, InvalidInput):
            with contextlib.suppress(OSError):
                self._folder.discard()
        self._folder.close()
        self._lock.release()

    def dataset(self) -> Any:
        """Return the records as a ``Dataset`` that reads parts when needed; the stream is read to its end."""
        if not self._notes["whole"]:
            self._fill()
        library: Any = sys.modules["datasets"]
        parts = [str(self._folder.path / _part(number)) for number in range(self._notes["parts"])]
        # A name for Arrow's map, of a file in a folder that was checked.
        return library.concatenate_datasets([library.Dataset.from_file(part) for part in parts])

    def known(self, key: str, made: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the result kept under that key, or made now from the whole: records need not be read for it again."""
        facts: dict[str, Any] = self._notes["facts"]
        if key not in facts:
            facts[key] = dict(made())
            self._note()
        found: Mapping[str, Any] = facts[key]
        return found

    def _left(self) -> dict[str, Any]:
        """Return notes of an attempt that this one resumes; of a new one if there is none, or of another stream."""
        schema = hashlib.sha256(self._schema.serialize().to_pybytes()).hexdigest()
        fresh = {"schema": schema, "parts": 0, "whole": False, "first": None, "last": None, "state": None, "facts": {}}
        with reading(self._folder.path, "a folder"):
            kept = self._folder.names()
            known = {_NOTES, *(name for name in kept if name.startswith(("part-", ".part-", f".{_NOTES}")))}
            self._folder.check_names(known)
            found = json.loads(self._folder.read(_NOTES, _MOST_NOTES)) if _NOTES in kept else {}
            fits = isinstance(found, dict) and found.keys() == fresh.keys() and found["schema"] == schema
            if not fits or not self._is_the_stream(found):
                for name in kept:
                    self._folder.remove(name)
                return fresh
            for name in kept - {_NOTES, *(_part(number) for number in range(found["parts"]))}:
                self._folder.remove(name)
        return found

    def _is_the_stream(self, notes: Mapping[str, Any]) -> bool:
        if not notes["parts"]:
            return False
        with silenced(_ALLOWED, _UNREAD):
            first = next(iter(self._stream.iter(BATCH)), None)
        return first is not None and _digest(self._cast(first)) == notes["first"]

    def _fill(self) -> None:
        batches = self._batches()
        while self._keep(batches):
            pass
        self._notes["whole"] = True
        self._note()

    def _batches(self) -> Iterator[tuple[Any, Any]]:
        """Yield the stream's batches behind the parts, each with the stream's state before it."""
        notes = self._notes
        if notes["parts"] and notes["state"] is not None:
            with silenced(_ALLOWED, _UNREAD):
                self._stream.load_state_dict(notes["state"])
            batches = self._read()
            _, again = next(batches, (None, None))
            if again is not None and _digest(again) == notes["last"]:
                yield from batches
                return
        if notes["parts"]:
            notes |= {"parts": 0, "first": None, "last": None, "state": None, "facts": {}}
            self._note()
            if self._begin is not None:
                with silenced(_ALLOWED, _UNREAD):
                    self._stream.load_state_dict(self._begin)
        yield from self._read()

    def _read(self) -> Iterator[tuple[Any, Any]]:
        before = self._state()
        with silenced(_ALLOWED, _UNREAD):
            for table in self._stream.iter(BATCH):
                yield before, self._cast(table)
                before = self._state()

    def _cast(self, table: Any) -> Any:
        return table.select(self._schema.names).cast(self._schema)

    def _state(self) -> Any:
        """Return the stream's position, as the stream reports it; None if it reports none."""
        try:
            found = self._stream.state_dict()
            json.dumps(found)
        except Exception:
            return None
        return json.loads(json.dumps(found))

    def _keep(self, batches: Iterator[tuple[Any, Any]]) -> bool:
        """Write a part as its batches come, and note it; whether there may be more."""
        notes = self._notes
        # First of all: where the stream is another one, the number of the part is another.
        before, batch = next(batches, (None, None))
        if batch is None and notes["parts"]:
            return False
        rows = size = 0
        with reading(self._folder.path, "a folder"):
            with self._folder.new(_part(notes["parts"])) as file, pa.ipc.new_stream(file, self._schema) as writer:
                while batch is not None:
                    writer.write_table(batch)
                    rows, size = rows + batch.num_rows, size + batch.nbytes
                    notes |= {"first": notes["first"] or _digest(batch), "last": batch, "state": before}
                    if rows >= PART_RECORDS or size >= _PART_BYTES:
                        break
                    before, batch = next(batches, (None, None))
            if notes["last"] is not None:
                notes["last"] = _digest(notes["last"])
            notes["parts"] += 1
            self._note()
        return batch is not None

    def _note(self) -> None:
        with reading(self._folder.path, "a folder"):
            self._folder.write(_NOTES, json.dumps(self._notes).encode())


def _part(number: int) -> str:
    return f"part-{number:06d}.arrow"


def _digest(table: Any) -> str:
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(stream.getvalue()).hexdigest()
