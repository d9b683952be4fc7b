"""Run records: whole, unedited, or refused; private ones never reach the public."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from privmix.errors import InvalidInput, StorageError
from privmix.reports.records import RunRecord, public_records, read_record, read_records, write_record

SUBJECT = {"kind": "release", "id": "0" * 32}


def record(kind: str = "audit", private: bool = False, **content: Any) -> RunRecord:
    return RunRecord(kind, SUBJECT, private, content or {"proven_epsilon": 0.5}, {"runs": 10}, statements=["A bound."])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = [record("evaluation"), record("audit", accuracy=0.25), record("audit", private=True)]
    for one in written:
        write_record(one, tmp_path)
    found = read_records(tmp_path)
    assert [one.kind for one in found] == ["audit", "audit", "evaluation"]
    assert sorted(one.record_id for one in found) == sorted(one.record_id for one in written)
    assert {one.record_id: one for one in found} == {one.record_id: one for one in written}


def test_private_records_are_their_owners_and_not_public(tmp_path: Path) -> None:
    secret, shown = record(private=True), record()
    assert write_record(secret, tmp_path).stat().st_mode & 0o077 == 0
    assert write_record(shown, tmp_path).stat().st_mode & 0o044
    assert public_records(read_records(tmp_path)) == [shown]


def edits() -> dict[str, Any]:
    return {
        "a figure": lambda body: body["content"].update(proven_epsilon=0.0),
        "the privacy mark": lambda body: body.update(private=False),
        "the subject": lambda body: body["subject"].update(id="1" * 32),
        "a field more": lambda body: body.update(note="x"),
        "a field less": lambda body: body.pop("settings"),
        "another version": lambda body: body.update(schema_version=2),
        "another format": lambda body: body.update(format="other"),
        "no hash": lambda body: body.pop("content_sha256"),
    }


@pytest.mark.parametrize("name", sorted(edits()))
def test_an_edited_record_is_refused(name: str, tmp_path: Path) -> None:
    path = write_record(record(private=True), tmp_path)
    body = json.loads(path.read_text())
    edits()[name](body)
    path.write_text(json.dumps(body))
    with pytest.raises(InvalidInput):
        read_record(path)


@pytest.mark.parametrize("content", ["", "[]", "{", "null", '{"format": 1}', "[" * 100_000])
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(InvalidInput):
        read_record(path)


def test_only_plain_files_of_some_size_are_read(tmp_path: Path) -> None:
    """A link could lead to anything, a pipe would be waited for, and a file with holes costs its maker nothing."""
    real = write_record(record(), tmp_path / "elsewhere")
    folder = tmp_path / "run" / "records"
    folder.mkdir(parents=True)
    planted = folder / "audit-0.json"
    planted.symlink_to(real)
    with pytest.raises(InvalidInput, match="link"):
        read_records(tmp_path / "run")
    planted.unlink()
    os.mkfifo(planted)
    with pytest.raises(InvalidInput, match="regular file"):
        read_records(tmp_path / "run")
    planted.unlink()
    planted.touch()
    os.truncate(planted, 2**40)
    with pytest.raises(InvalidInput, match="bytes"):
        read_records(tmp_path / "run")
    planted.unlink()
    folder.rmdir()
    folder.symlink_to(real.parent)
    with pytest.raises(InvalidInput, match="link"):
        read_records(tmp_path / "run")


def test_a_missing_record_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        read_record(tmp_path / "none.json")
    assert read_records(tmp_path) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "gossip"),
        ("kind", "classes"),
        ("subject", {"kind": "release"}),
        ("subject", {"kind": "x", "id": None}),
        ("record_id", "1"),
    ],
)
def test_wrong_fields_are_refused(field: str, value: Any) -> None:
    given: dict[str, Any] = {"kind": "audit", "subject": SUBJECT, "private": True, "content": {}, "settings": {}}
    with pytest.raises(InvalidInput):
        RunRecord(**{**given, field: value})


def test_no_figure_is_a_number_that_json_has_not(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_record(record(epsilon=float("inf")), tmp_path)


@pytest.mark.parametrize("place", ["settings", "content"])
def test_deep_nesting_is_refused(place: str, tmp_path: Path) -> None:
    """Within reach of the reader of JSON, and out of that of what walks through records."""
    deep: dict[str, Any] = {"x": 1}
    for _ in range(300):
        deep = {"x": deep}
    path = write_record(RunRecord("audit", SUBJECT, False, deep, {}), tmp_path / "made")
    body = json.loads(path.read_text())
    with pytest.raises(InvalidInput, match="levels"):
        read_record(path)
    text = json.dumps({**body, place: "HERE"}).replace('"HERE"', '{"x":' * 20_000 + "1" + "}" * 20_000)
    path.write_text(text)
    with pytest.raises(InvalidInput):
        read_record(path)
