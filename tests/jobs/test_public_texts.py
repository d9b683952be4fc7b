"""Public texts: lists, mappings and files, each text once; what is none is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privmix.errors import StorageError
from privmix.jobs.public_texts import public_texts
from tests.refusals import refuses

TEXTS = ("It purrs.", "It barks, too.", "It eats.")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps(TEXTS)),
        ("b.json", json.dumps({"cat": TEXTS[0], "dog": TEXTS[1:]})),
        ("c.csv", 'class,description\ncat,It purrs.\ndog,"It barks, too."\ndog,It eats.\n'),
        ("d.csv", 'text\nIt purrs.\n"It barks, too."\nIt eats.\nIt eats.\n'),
        ("e.txt", "It purrs.\n\nIt barks, too.\r\nIt eats.\n"),
    ],
)
def test_files(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert public_texts(path) == TEXTS
    assert public_texts(str(path)) == TEXTS


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "0 texts"),
        ([" "], "texts of 1 to 2,000"),
        (["a" * 2001], "texts of 1 to 2,000"),
        ([3], "got 3"),
        ({"cat": {"dog": 3}}, "got {'dog': 3}"),
        ({"cat": 3}, "got 3"),
        (3, "got 'int'"),
        ([str(number) for number in range(20_001)], "20,001 texts"),
    ],
)
def test_what_is_no_list_of_texts_is_one_line(given: Any, words: str) -> None:
    with refuses("public_texts") as error:
        public_texts(given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", b"name\nx\n"), ("b.csv", b"text,y\nx\n"), ("c.txt", b"\xff\xfe"), ("d.json", b"[")]
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with refuses("public_texts"):
        public_texts(path)
    with pytest.raises(StorageError):
        public_texts(tmp_path / "none.txt")
