"""Run records: what was measured, in one JSON file a measurement. Reports are made of these and of nothing else.

A record says of itself whether it was computed from private rows. Everything that is shown to the public is made from
the records that :func:`public_records` lets through, before any of it is drawn or written.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from privmix.errors import InvalidInput, StorageError, check_choice
from privmix.folders import write_durably
from privmix.private_files import file_mode

FORMAT: Final = "privmix-record"
SCHEMA_VERSION: Final = 1
RECORDS_FOLDER: Final = "records"
KINDS: Final = (
    "guarantee",
    "audit",
    "canary-audit",
    "noise-audit",
    "membership",
    "inversion",
    "collapse",
    "evaluation",
    "utility",
)
SUBJECTS: Final = ("release", "model", "design")
# No verb writes half as many levels; what walks through a record may rely on it.
_DEEPEST: Final = 40
_ID = re.compile(r"[0-9a-f]{32}\Z")
_TYPES: Final = {
    "kind": str,
    "record_id": str,
    "subject": dict,
    "private": bool,
    "title": str,
    "command": str,
    "settings": dict,
    "content": dict,
    "statements": list,
    "versions": dict,
}


@dataclass(frozen=True)
class RunRecord:
    """One measurement and everything that a reader needs to judge it.

    Attributes:
        kind: what was measured, one of :data:`KINDS`.
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

    kind: str
    subject: Mapping[str, Any]
    private: bool
    content: Mapping[str, Any]
    settings: Mapping[str, Any]
    title: str = ""
    command: str = ""
    statements: Sequence[str] = field(default_factory=list)
    versions: Mapping[str, str] = field(default_factory=dict)
    record_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        check_choice("record kind", self.kind, KINDS)
        if set(self.subject) != {"kind", "id"}:
            raise InvalidInput("record subject", sorted(self.subject), "the fields id and kind")
        check_choice("record subject kind", self.subject["kind"], SUBJECTS)
        for name, value in (("record_id", self.record_id), ("record subject id", self.subject["id"])):
            if not (value is None and name != "record_id") and not _ID.match(str(value)):
                raise InvalidInput(name, value, "32 hexadecimal digits")
        if not all(isinstance(text, str) for text in self.statements):
            raise InvalidInput("record statements", "other values", "sentences")

    def to_dict(self) -> dict[str, Any]:
        """JSON values, with a hash that shows edits."""
        body: dict[str, Any] = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            **{name: getattr(self, name) for name in _TYPES},
            "statements": list(self.statements),
        }
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
        if found.get("schema_version") != SCHEMA_VERSION:
            raise InvalidInput(f"{name} schema_version", found.get("schema_version"), str(SCHEMA_VERSION))
        for field_name, kind in _TYPES.items():
            if not isinstance(found.get(field_name), kind):
                raise InvalidInput(f"{name}: {field_name}", found.get(field_name), f"a JSON {kind.__name__}")
        extra = set(found) - set(_TYPES) - {"format", "schema_version", "content_sha256"}
        if extra:
            raise InvalidInput(name, sorted(extra), "no other fields")
        if found.get("content_sha256") != _hash(found):
            raise InvalidInput(f"{name}: content_sha256", found.get("content_sha256"), "the hash of an unedited record")
        return cls(**{field_name: found[field_name] for field_name in _TYPES})


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
        InvalidInput: it is no record, or was edited.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or type(error).__name__}") from None
    except (ValueError, RecursionError):
        raise InvalidInput(str(path), "other bytes", "a run record in JSON") from None
    if _depth(found) > _DEEPEST:
        raise InvalidInput(str(path), "deeper nesting", f"a run record of at most {_DEEPEST} levels")
    return RunRecord.from_dict(found, str(path))


def read_records(run: Path) -> list[RunRecord]:
    """All records of a run folder, by kind, then by name of file; none if it has no ``records`` folder.

    Raises:
        StorageError: one can't be read.
        InvalidInput: one is no record, or was edited.
    """
    found = [read_record(path) for path in sorted((run / RECORDS_FOLDER).glob("*.json"))]
    return sorted(found, key=lambda record: KINDS.index(record.kind))


def public_records(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Those that were not computed from private rows."""
    return [record for record in records if not record.private]


def _depth(found: Any) -> int:
    """Levels of nesting, counted level by level: calls of calls would end before the data."""
    levels, row = 0, [found]
    while row and levels <= _DEEPEST:
        levels += 1
        inner = [
            value.values() if isinstance(value, dict) else value for value in row if isinstance(value, dict | list)
        ]
        row = [value for values in inner for value in values]
    return levels


def _hash(body: Mapping[str, Any]) -> str:
    held = {key: value for key, value in body.items() if key != "content_sha256"}
    return hashlib.sha256(json.dumps(held, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
