"""Run records: one JSON file a measurement, the only source of reports; see :func:`public_records`."""

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
"""Group of entry points: each has the name of a kind of records, and names the module of its panel."""
KINDS: Final = (
    "guarantee", "ledger", "audit", "canary-audit", "noise-audit", "membership", "evaluation", "utility", "classes",
)  # fmt: skip
"""Panels of privmix itself."""
SUBJECTS: Final = ("release", "model", "design", "dataset")
# Pictures of inversion studies lie in records; no verb writes a tenth of this.
_MOST_BYTES: Final = 64 * MEBIBYTE
# As they stand in a file, in whose hash and bytes their order has always been.
_ORDER: Final = (
    "kind", "record_id", "subject", "private", "title", "command", "settings", "content", "statements", "versions",
)  # fmt: skip
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
    """One measurement and all that a reader needs to judge it."""

    # kind: of KINDS or of another package's panel; subject: {"kind": ..., "id": ...}, of SUBJECTS with 32 hexadecimal
    # digits or None. private: a figure was computed from private rows other than through a private release or model.
    # content: figures; settings: what decided them; command: reproduces it, or ""; statements: must accompany the
    # figures.

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
        """Read a record from :meth:`to_dict`; raise InvalidInput for another version or an edited one."""
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise InvalidInput(name, "something else", f"a run record ({FORMAT})")
        version = check_version(f"{name} schema_version", found.get("schema_version"), 1, SCHEMA_VERSION)
        if found.get("content_sha256") != _hash(found):
            raise InvalidInput(f"{name}: content_sha256", found.get("content_sha256"), "the hash of an unedited record")
        beside = {"format", "schema_version", "content_sha256"}
        return read(cls, {one: value for one, value in found.items() if one not in beside}, name, version)


def write_record(record: RunRecord, run: Path) -> Path:
    """Store a record in the run folder ``run`` and return its file; private ones are readable by their owner only."""
    path = run / RECORDS_FOLDER / f"{record.kind}-{record.record_id[:12]}.json"
    content = json.dumps(record.to_dict(), indent=1, allow_nan=False) + "\n"
    try:
        with file_mode(private=record.private):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, content.encode())
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or type(error).__name__}") from None
    return path


def read_record(path: Path) -> RunRecord:
    """Read one record's plain file of at most 64 MiB; raise InvalidInput for an edited one."""
    # Records may come from anyone: no link is followed, no pipe waited for, nothing nests without end.
    return RunRecord.from_dict(read_json(path, str(path), _MOST_BYTES), str(path))


def read_records(run: Path) -> list[RunRecord]:
    """Read a run folder's records, by kind, then file name; an empty list without a ``records`` folder."""
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
    """Kinds of the packages on a path, cached: each record asks, and the entry points lie in hundreds of files."""
    # Most records are of privmix's own kinds, and do not wait for this.
    from importlib.metadata import entry_points

    return tuple(sorted({point.name for point in entry_points(group=PANELS_GROUP)} - set(KINDS)))


def order_of(kind: str) -> tuple[int, str]:
    """By which kinds are sorted: privmix's own as they are listed, then the others by their names."""
    return (KINDS.index(kind) if kind in KINDS else len(KINDS)), kind


def public_records(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Return records that were not computed from private rows."""
    return [record for record in records if not record.private]


def _hash(body: Mapping[str, Any]) -> str:
    held = {key: value for key, value in body.items() if key != "content_sha256"}
    return hashlib.sha256(json.dumps(held, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
