"""What verbs note down of themselves."""

import shlex
from pathlib import Path

import pytest

from privmix.jobs.recording import Measurement, command_line
from privmix.reports.page import render_page
from privmix.reports.records import read_records

PASSWORD, TOKEN = "hunter2", "4f6b"


@pytest.mark.parametrize("private", [True, False])
def test_commands_hold_no_passwords(private: bool, tmp_path: Path) -> None:
    """Records are shown to others, and so are their commands."""
    given = [
        "audit",
        "/home/ann/hiv/REL",
        "--ledger",
        f"postgresql://ann:{PASSWORD}@host/books",
        f"--data=s3://b/x?token={TOKEN}",
    ]
    subject = {"kind": "design", "id": None}
    measured = Measurement("audit", subject, {"proven_epsilon": 0.1}, private, {}, "Audit")
    measured.keep(tmp_path, command_line(given, private=private))
    (record,) = read_records(tmp_path)
    full = ("/home/ann/hiv/REL", "postgresql://host/books", "s3://b/x")
    folder, ledger, data = full if private else ("REL", "books", "x")
    assert record.command == f"privmix audit {folder} --ledger {ledger} --data={data}"
    (file,) = (tmp_path / "records").iterdir()
    for text in (file.read_text(), render_page([record], "owner")):
        assert PASSWORD not in text
        assert TOKEN not in text


@pytest.mark.parametrize(
    "word", ["it's here", "part-*.parquet", "what?", "a@b", "#1", "", "scattering:ycbcr,mirror", "1e-5"]
)
def test_other_words_stay_as_they_are(word: str) -> None:
    for private in (True, False):
        assert shlex.split(command_line(["fit", word], private=private)) == ["privmix", "fit", word]
