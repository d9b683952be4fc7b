"""Run records: what was measured, in one JSON file a measurement. Reports are made of these and of nothing else.

A record says of itself whether it was computed from private rows. Everything that is shown to the public is made from
the records that :func:`public_records` lets through, before any of it is drawn or written.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final

from privmix.errors import InvalidInput, StorageError, check_choice
from privmix.fields import By, Checked, Choice, Coded, Switch, Text, Words, check_version, read, stored
from privmix.held_folders import write_durably
from privmix.private_files import file_mode
from privmix.untrusted import MEBIBYTE, read_json

FORMAT: Final = "privmix-record"
SCHEMA_VERSION: Final = 1
RECORDS_FOLDER: Final = "records"
PANELS_GROUP: Final = "privmix.panels"
"""Of entry points: each has the name of a kind of records, and names the module of the panel that shows them."""
KINDS: Final = (
    "guarantee",
    "ledger",
    "audit",
    "canary-audit",
    "noise-audit",
    "membership",
    "evaluation",
    "utility",
    "classes",
)
"""Those of privmix itself."""
SUBJECTS: Final = ("release", "model", "design", "dataset")
# Pictures of inversion studies lie in records; no verb writes a tenth of this.
_MOST_BYTES: Final = 64 * MEBIBYTE
# As they stand in a file, in whose hash and bytes their order has always been.
_ORDER: Final = (
    "kind",
    "record_id",
    "subject",
    "private",
    "title",
    "command",
    "settings",
    "content",
    "statements",
    "versions",
)
_Id = Annotated[str, Text("[0-9a-f]{32}", "32 hexadecimal digits")]


def _check_kind(name: str, kind: Any) -> None:
    if kind not in KINDS:
        check_choice(name, kind, (*KINDS, *kinds_from_elsewhere()))


@dataclass(frozen=True)
class _Subject(Checked):
    kind: Annotated[str, Choice(*SUBJECTS)]
    id: _Id | None


def _check_subject(name: str, subject: Any) -> None:
    read(_Subject, dict(subject) if isinstance(subject, Mapping) else subject, name)


def _sentences(texts: Any) -> list[str]:
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise InvalidInput("record statements", "other values", "sentences")
    return list(texts)


@dataclass(frozen=True)
class RunRecord(Checked):
    """One measurement and everything that a reader needs to judge it.

    Attributes:
        kind: what was measured, one of :data:`KINDS`, or a kind that a panel of another package shows.
        subject: what it is about: ``{"kind": ..., "id": ...}``, one of :data:`SUBJECTS` and its 32 hexadecimal digits
            or None.
        private: whether any figure in it was computed from private rows other than through a private release or model.
        content: the figures, JSON values; each kind has fields of its own.
        settings: everything that decided them, JSON values.
        title: a line for people.
        command: the command line that makes it again, or an empty text.
        statements: sentences that must stand beside the figures: what they mean and what they don't.
        versions: of the packages that made it.
        record_id: names the record.

    Example:
        >>> record = RunRecord("audit", {"kind": "design", "id": None}, False, {"proven_epsilon": 0.9}, {"runs": 100})
        >>> RunRecord.from_dict(record.to_dict()) == record
        True
    """

    kind: Annotated[str, By(_check_kind, "", "no kind", 1)]
    subject: Annotated[Mapping[str, Any], By(_check_subject, {}, {"kind": "page", "id": None}, [])]
    private: Switch
    content: Mapping[str, Any]
    settings: Mapping[str, Any]
    title: Words = ""
    command: Words = ""
    statements: Annotated[Sequence[str], Coded(_sentences, _sentences), By(lambda _, texts: _sentences(texts), [1])] = (
        field(default_factory=list)
    )
    versions: Mapping[str, Any] = field(default_factory=dict)
    record_id: _Id = field(default_factory=lambda: uuid.uuid4().hex)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, with a hash that shows edits."""
        own = stored(self)
        body = {"format": FORMAT, "schema_version": SCHEMA_VERSION, **{name: own[name] for name in _ORDER}}
        body["content_sha256"] = _hash(body)
        return body

    @classmethod
    def from_dict(cls, found: Any, name: str = "record") -> RunRecord:
        """The record that :meth:`to_dict` described.

        Raises:
            InvalidInput: it is no record of this version, or was edited since it was written.
        """
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise InvalidInput(name, "something else", f"a run record ({FORMAT})")
        version = check_version(f"{name} schema_version", found.get("schema_version"), 1, SCHEMA_VERSION)
        if found.get("content_sha256") != _hash(found):
            raise InvalidInput(f"{name}: content_sha256", found.get("content_sha256"), "the hash of an unedited record")
        beside = {"format", "schema_version", "content_sha256"}
        return read(cls, {one: value for one, value in found.items() if one not in beside}, name, version)


def write_record(record: RunRecord, run: Path) -> Path:
    """Store a record in the run folder ``run``; returns the file.

    Private records are readable by their owner only.

    Raises:
        StorageError: it can't be written.
    """
    path = run / RECORDS_FOLDER / f"{record.kind}-{record.record_id[:12]}.json"
    content = json.dumps(record.to_dict(), indent=1, allow_nan=False) + "\n"
    try:
        with file_mode(private=record.private):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, content.encode())
    except OSError as error:
        raise StorageError(f"{path}: can't be written: {error.strerror or type(error).__name__}") from None
    return path


def read_record(path: Path) -> RunRecord:
    """Read one record's file.

    Raises:
        StorageError: it can't be read.
        InvalidInput: it is no plain file of at most 64 MiB, no record, or was edited.
    """
    # Records may come from anyone: no link is followed, no pipe waited for, nothing nests without end.
    return RunRecord.from_dict(read_json(path, str(path), _MOST_BYTES), str(path))


def read_records(run: Path) -> list[RunRecord]:
    """All records of a run folder, by kind, then by name of file; none if it has no ``records`` folder.

    Raises:
        StorageError: one can't be read.
        InvalidInput: one is no record, or was edited.
    """
    folder = run / RECORDS_FOLDER
    if folder.is_symlink():
        raise InvalidInput(str(folder), "a link", "a folder, not a link to one")
    found = [read_record(path) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda record: order_of(record.kind))


def kinds_from_elsewhere() -> tuple[str, ...]:
    """Kinds of records that panels of other packages show; none of these is imported."""
    return _kinds_on(tuple(sys.path))


@lru_cache(maxsize=4)
def _kinds_on(path: tuple[str, ...]) -> tuple[str, ...]:
    """Of the packages on a path: each record asks, and what they say lies in hundreds of files."""
    # Most records are of privmix's own kinds, and do not wait for this.
    from importlib.metadata import entry_points

    return tuple(sorted({point.name for point in entry_points(group=PANELS_GROUP)} - set(KINDS)))


def order_of(kind: str) -> tuple[int, str]:
    """By which kinds are sorted: privmix's own as they are listed, then the others by their names."""
    return (KINDS.index(kind) if kind in KINDS else len(KINDS)), kind


def public_records(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Those that were not computed from private rows."""
    return [record for record in records if not record.private]


def _hash(body: Mapping[str, Any]) -> str:
    held = {key: value for key, value in body.items() if key != "content_sha256"}
    return hashlib.sha256(json.dumps(held, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
