"""Run records: one JSON file a measurement, the only source of reports (see :func:`public_records`)."""

import hashlib
import json
import re
import shlex
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from privmix._registry import entry_points
from privmix.errors import InvalidInput, check_choice
from privmix.fields import By, Checked, Choice, Coded, Switch, Text, Words, check_version, read, stored
from privmix.folders import whole_file
from privmix.untrusted import MEBIBYTE, read_json

_SCHEME: Final = re.compile(r"[A-Za-z][\w+.:-]*://")
# `@FILE` and `extractor:FILE`; one letter and a colon is a drive.
_PREFIX: Final = re.compile(r"@|[A-Za-z][\w.+-]+:")

# Fields whose lists are names that certificates publish as well.
_NAMES: Final = ("classes", "columns")


def last_name(text: str) -> str:
    """Return a file, folder or address without the way to it; other text as it is.

    Formal guarantees:
        * nothing before the last separator of a path is kept, and no host, user, password or query of an address. The
          same applies after ``@``, ``name:`` or a comma.

    Example:
        >>> last_name("scattering:ycbcr,mirror"), last_name("s3://ann:secret@bucket/hiv/train.csv?token=1")
        ('scattering:ycbcr,mirror', 'train.csv')
    """
    if scheme := _SCHEME.search(text):
        _, slash, path = re.split(r"[?#]", text[scheme.end() :], maxsplit=1)[0].rstrip("/").partition("/")
        # A password may hold a slash.
        return path.rpartition("/")[2].rpartition("@")[2] if slash else text[: scheme.end()]
    return ",".join(_last(part) for part in text.split(","))


def public_command(command: str) -> str:
    """Return a command line with places as last names; a text that is no command line is dropped."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    shown = []
    for word in words:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        shown.append(option + equals + last_name(value))
    return shlex.join(shown)


def public_values(values: Any) -> Any:
    """Return JSON values with every text as a last name, at any depth."""
    # Classes and columns stay whole: certificates hold them too, and `n/a` or `BMI (kg/m2)` are no paths.
    if isinstance(values, str):
        return last_name(values)
    if isinstance(values, Mapping):
        # As one text, names may be `@FILE`.
        listed = {key for key in _NAMES if isinstance(values.get(key), Sequence) and not isinstance(values[key], str)}
        return {key: value if key in listed else public_values(value) for key, value in values.items()}
    return [public_values(value) for value in values] if isinstance(values, Sequence) else values


def _last(text: str) -> str:
    prefix = found.group() if (found := _PREFIX.match(text)) else ""
    rest = text[len(prefix) :]
    if rest.startswith("~") and not re.search(r"[/\\]", rest):
        # A user's home.
        return prefix + "~"
    if not re.search(r"[/\\]", rest):
        return text
    return prefix + (re.split(r"[/\\]", rest.rstrip("/\\"))[-1])


# No measurement comes near; beyond it, drawing overflows.
_LARGEST: Final = 1e100


class RecordFields:
    """JSON values by name; every reader returns None or an empty value for another type."""

    def __init__(self, values: Any) -> None:
        self._values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def number(self, name: str) -> float | None:
        """Return a finite number, and none that nothing measures."""
        return _number(self._values.get(name))

    def text(self, name: str) -> str:
        found = self._values.get(name)
        return found if isinstance(found, str) else ""

    def flag(self, name: str) -> bool:
        """Whether the value is true, and nothing like it."""
        return self._values.get(name) is True

    def series(self, name: str) -> list[float]:
        """Return a list of finite numbers; nothing unless all of them are."""
        return _series(self._values.get(name))

    def matrix(self, name: str) -> list[list[float]]:
        """Return a square list of lists of finite numbers; nothing unless it is one."""
        found = self._values.get(name)
        rows = [_series(row) for row in found] if isinstance(found, list) else []
        return rows if rows and all(len(row) == len(rows) for row in rows) else []

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; nothing unless all of them are."""
        found = self._values.get(name)
        return found if isinstance(found, list) and all(isinstance(item, str) for item in found) else []

    def fields(self, name: str) -> "RecordFields":
        return RecordFields(self._values.get(name))

    def several(self, name: str) -> "list[RecordFields]":
        """Return a list of nested ones; what is none is left out."""
        found = self._values.get(name)
        return [RecordFields(item) for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []

    def numbers(self) -> dict[str, float]:
        return {str(name): found for name, value in self._values.items() if (found := _number(value)) is not None}

    def others(self, known: Collection[str]) -> dict[str, Any]:
        """Values by name, without those of ``known`` and without lists and nested values."""
        return {
            str(name): value
            for name, value in self._values.items()
            if name not in known and isinstance(value, str | int | float | bool)
        }

    def curve(self, *names: str) -> list[list[float]]:
        """Series of equal length, at least two long; nothing unless all of them are."""
        found = [self.series(name) for name in names]
        return found if len(found[0]) > 1 and len({len(values) for values in found}) == 1 else []


def flat(values: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as rows of name and text, in order.

    Example:
        >>> flat({"plans": [{"m": 1, "rows": 9}, {"m": 4, "rows": 9}]})
        [('plans.m', '1; 4'), ('plans.rows', '9')]
    """
    if isinstance(values, list) and values and all(isinstance(item, Mapping) for item in values):
        return _side_by_side([dict(flat(item, prefix)) for item in values])
    if isinstance(values, Mapping) and (values or not prefix):
        return [
            row for name, value in values.items() for row in flat(value, f"{prefix}.{name}" if prefix else str(name))
        ]
    return [(prefix, shown(values))]


def _side_by_side(rows: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Rows of several settings as one: what differs between them stands side by side."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    found = []
    for name in names:
        values = [row.get(name, "–") for row in rows]
        found.append((name, values[0] if len(set(values)) == 1 else "; ".join(values)))
    return found


def shown(value: Any) -> str:
    """Return a setting as people write it; long lists are cut, and marked as cut."""
    if value is None or value == {}:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        most = 20
        rest = f" and {len(value) - most} more" if len(value) > most else ""
        return ", ".join(shown(item) for item in value[:most]) + rest
    return str(value)


def _series(found: Any) -> list[float]:
    values = [_number(item) for item in found] if isinstance(found, list) else []
    numbers = [value for value in values if value is not None]
    return numbers if len(numbers) == len(values) else []


def _number(value: Any) -> float | None:
    # True is an int in Python.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        # An integer of JSON may exceed every float.
        return None
    return number if abs(number) <= _LARGEST else None


FORMAT: Final = "privmix-record"
SCHEMA_VERSION: Final = 1
RECORDS_FOLDER: Final = "records"
PANELS_GROUP: Final = "privmix.panels"
"""Group of entry points: each has the name of a kind of records, and names the module of its panel."""
KINDS: Final = (
    "guarantee", "ledger", "audit", "canary-audit", "noise-audit", "membership", "evaluation", "utility",
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
    if kind == "classes":
        allowed = "no pictures of classes, which earlier builds recorded: delete the run's `classes-*.json`"
        raise InvalidInput(name, kind, allowed)
    # Looked up for other kinds alone: it reads the metadata of all packages.
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
    def from_dict(cls, found: Any, name: str = "record") -> "RunRecord":
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
    with whole_file(path, "record", private=record.private) as stream:
        stream.write(content.encode())
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
