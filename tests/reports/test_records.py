"""Run records: whole, unedited, or refused; private ones never reach the public."""

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


def test_what_is_written_is_read_and_private_records_are_their_owners(tmp_path: Path) -> None:
    written = [record("evaluation"), record("audit", accuracy=0.25), record("audit", private=True)]
    modes = [write_record(one, tmp_path).stat().st_mode for one in written]
    assert [mode & 0o077 != 0 for mode in modes] == [True, True, False]
    found = read_records(tmp_path)
    assert [one.kind for one in found] == ["audit", "audit", "evaluation"]
    assert {one.record_id: one for one in found} == {one.record_id: one for one in written}
    assert public_records(found) == [one for one in found if not one.private]


@pytest.mark.parametrize(
    "edit",
    [
        lambda body: body["content"].update(proven_epsilon=0.0),
        lambda body: body.update(private=False),
        lambda body: body["subject"].update(id="1" * 32),
        lambda body: body.update(note="x"),
        lambda body: body.pop("settings"),
        lambda body: body.update(schema_version=2),
        lambda body: body.update(format="other"),
        lambda body: body.pop("content_sha256"),
        lambda body: body.clear(),
    ],
    ids=["figure", "privacy mark", "subject", "field more", "field less", "version", "format", "no hash", "nothing"],
)
def test_an_edited_record_is_refused(edit: Any, tmp_path: Path) -> None:
    path = write_record(record(private=True), tmp_path)
    body = json.loads(path.read_text())
    edit(body)
    path.write_text(json.dumps(body))
    with pytest.raises(InvalidInput):
        read_record(path)


def test_only_plain_files_of_some_size_are_read(tmp_path: Path) -> None:
    """A link could lead to anything, a pipe would be waited for, and a file with holes costs its maker nothing."""
    with pytest.raises(StorageError):
        read_record(tmp_path / "none.json")
    assert read_records(tmp_path) == []
    real = write_record(record(), tmp_path / "elsewhere")
    folder = tmp_path / "run" / "records"
    folder.mkdir(parents=True)
    planted = folder / "audit-0.json"
    for plant, words in (
        (lambda: planted.symlink_to(real), "link"),
        (lambda: os.mkfifo(planted), "regular file"),
        (lambda: (planted.touch(), os.truncate(planted, 2**40)), "bytes"),
    ):
        plant()
        with pytest.raises(InvalidInput, match=words):
            read_records(tmp_path / "run")
        planted.unlink()
    folder.rmdir()
    folder.symlink_to(real.parent)
    with pytest.raises(InvalidInput, match="link"):
        read_records(tmp_path / "run")


@pytest.mark.parametrize(
    ("kind", "subject"), [("classes", SUBJECT), ("audit", {"kind": "release"}), ("audit", {"kind": "x", "id": None})]
)
def test_wrong_fields_are_refused(kind: str, subject: Any) -> None:
    with pytest.raises(InvalidInput):
        RunRecord(kind, subject, True, {}, {})


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
    path.write_text(json.dumps({**body, place: "HERE"}).replace('"HERE"', '{"x":' * 20_000 + "1" + "}" * 20_000))
    with pytest.raises(InvalidInput):
        read_record(path)
