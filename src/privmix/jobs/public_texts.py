"""Public texts that a user gives with a release: a list, a mapping or a file of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from privmix.errors import InvalidInput
from privmix.jobs.class_texts import csv_rows
from privmix.untrusted import MEBIBYTE, parse_json, read_plain

FIELD: Final = "public_texts"
MOST: Final = 20_000
LONGEST: Final = 2000
_LARGEST_FILE: Final = 64 * MEBIBYTE
_COLUMNS: Final = ("text", "description")


def public_texts(given: Any) -> tuple[str, ...]:
    """Return the texts, each once, in their order."""
    # `given`: a list; a mapping from names to one text or several; or a file of either. A file is JSON, CSV with a
    # column `text` or `description`, or a text a line.
    found = _read(Path(given)) if isinstance(given, str | Path) else given
    texts = tuple(dict.fromkeys(_checked(text) for text in _flat(found)))
    if not 1 <= len(texts) <= MOST:
        raise InvalidInput(FIELD, f"{len(texts):,} texts", f"1 to {MOST:,}")
    return texts


def _flat(found: Any) -> list[Any]:
    """Every text of a list, or of a mapping from names to one text or several."""
    if isinstance(found, list | tuple):
        return list(found)
    if isinstance(found, Mapping):
        return [text for one in found.values() for text in (one if isinstance(one, list | tuple) else [one])]
    raise InvalidInput(
        FIELD, type(found).__name__, "a list of texts, a mapping from names to texts, or a file with one"
    )


def _checked(text: Any) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
        raise InvalidInput(FIELD, text, f"texts of 1 to {LONGEST:,} characters")
    return text


def _read(path: Path) -> Any:
    content = read_plain(path, FIELD, _LARGEST_FILE)
    ending = path.suffix.lower()
    if ending == ".json":
        return parse_json(content, FIELD)
    if ending == ".csv":
        return _of_csv(content)
    try:
        return [line for line in content.decode("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise InvalidInput(FIELD, "other bytes", "a text file in UTF-8") from None


def _of_csv(content: bytes) -> list[str]:
    header, *rows = csv_rows(content, FIELD) or [[]]
    names = [word.strip() for word in header]
    named = [name for name in _COLUMNS if names.count(name) == 1]
    if not named:
        raise InvalidInput(FIELD, ", ".join(names), f"a CSV file with a column {' or '.join(_COLUMNS)}")
    place = names.index(named[0])
    for number, row in enumerate(rows, start=2):
        if row and len(row) != len(names):
            raise InvalidInput(FIELD, f"{len(row)} values in row {number}", f"{len(names)} values a row")
    return [row[place] for row in rows if row]
