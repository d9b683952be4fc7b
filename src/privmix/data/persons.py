"""Whose the records of a dataset are: a column, an array, or the names of files.

Identifiers are read once, and leave this file as numbers: a person's number is how many others had a record before the
first of theirs. They are written nowhere. Keyed hashes of many are on the disk until they are numbered, in a folder of
the owner's alone; the key is in memory and never kept.
"""

from __future__ import annotations

import csv
import hashlib
import math
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.dataset import open_dataset
from privmix.data.dialect import Dialect
from privmix.data.files import decoding
from privmix.data.frames import library_of
from privmix.data.memory import column_part, plain
from privmix.data.numbering import DIGEST, Numbering
from privmix.data.numpy_files import npz_member, npz_values
from privmix.data.remote import is_remote, local_path
from privmix.data.remote_files import RemotePath
from privmix.data.source import Source
from privmix.errors import WITHHELD, InvalidInput, in_terms_of

ERROR, OWN = "error", "own"
MISSING: Final = (ERROR, OWN)
"""What a record without an identifier is: an error, or a person of its own. Never one shared "unknown" person."""
MARK: Final = "mark"
"""In their place, for the owner's eyes: the number -1."""

_BATCH: Final = 65_536
# Integers below are exact as floats, which tables of numbers may hold them as.
_EXACT: Final = 2**53
_FILE, _PERSON = "file_name", "person"


def persons_in_column(
    data: Any,
    column: str | Sequence[str],
    *,
    split: str = "train",
    dialect: Dialect | None = None,
    missing: str = ERROR,
) -> NDArray[np.int64]:
    """(n,) whose each record is, by a column of the data; anything :func:`privmix.data.open_dataset` reads columns of.

    Of an .npz archive it is the array of that name, or with the split's behind it (``who_train``).

    Formal guarantees:
        * Exact: two records are of one person exactly where their identifiers are the same text, but for spaces around
          it; a whole number is the text of its digits. Numbers that could have been rounded are refused. With several
          columns, where the text in each is the same.
        * Silent: no identifier stands in an error; none is kept, nor a hash of it; numbers follow from the order of
          records alone.

    Args:
        data: as for :func:`privmix.data.open_dataset`.
        column: its name, or the names of several that identify a person together.
        split: which part of the data.
        dialect: of CSV files.
        missing: what records without one are; see :data:`MISSING`.

    Raises:
        InvalidInput: there is no such column, or identifiers are missing, where that is an error.
        StorageError: the data can't be read.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"who": ["b", "a", "b "], "dose": [1, 2, 3]})
        >>> persons_in_column(frame, "who").tolist()
        [0, 1, 0]
    """
    opened = _opened(data, column, split, dialect)
    if isinstance(opened, list):
        arrays = [npz_values(local_path(data), member) for member in opened]
        parts = [column_part(array, "person")(0, len(array)).tolist() for array in arrays]
        if len(set(map(len, parts))) > 1:
            raise InvalidInput("person", WITHHELD, "arrays of one length")
        return numbered(zip(*parts, strict=True), missing)
    return numbered((tuple(row) for chunk in _chunks(opened) for row in chunk.tolist()), missing)


def check_column(
    data: Any, column: str | Sequence[str], *, split: str = "train", dialect: Dialect | None = None
) -> None:
    """Raise :class:`InvalidInput` where the data's header has no such column; no record is read.

    JSON lines have no header.
    """
    _opened(data, column, split, dialect)


def _opened(data: Any, column: str | Sequence[str], split: str, dialect: Dialect | None) -> Source | list[str]:
    """The columns alone; of an .npz archive, the names of its members."""
    names = [column] if isinstance(column, str) else list(column)
    archive = local_path(data) if isinstance(data, str | Path) and not is_remote(data) else None
    if archive is not None and archive.suffix.lower() == ".npz" and archive.is_file():
        members = [(name, npz_member(archive, name, split)) for name in names]
        if lacking := [name for name, member in members if member is None]:
            raise InvalidInput("person", lacking[0], f"an array of {archive}")
        return [member for _, member in members if member is not None]
    inputs = data[0] if isinstance(data, tuple) and data else data
    if not isinstance(data, str | Path | RemotePath) and not library_of(inputs):
        # Whatever stands in the first column there would be taken for a person.
        raise InvalidInput("person", column, "an array of identifiers, one a record: these data have no named columns")
    # Classes play no part: labels are not read.
    with in_terms_of({"columns": "person"}):
        return open_dataset(
            data, split=split, classes=1, columns=names, label_column="", labelled=False, dialect=dialect
        )


def persons_in(values: Any, missing: str = ERROR) -> NDArray[np.int64]:
    """(n,) whose each record is, by an array or list of identifiers.

    Example:
        >>> persons_in([70, 50, 70]).tolist()
        [0, 1, 0]
    """
    values = plain(values, "person")
    return numbered(column_part(values, "person")(0, len(values)).tolist(), missing)


def persons_in_names(names: Sequence[str], pattern: str, missing: str = ERROR) -> NDArray[np.int64]:
    """(n,) whose each file is, by the first group of a pattern that is found in its name.

    Args:
        names: of the files, with the folders that they lie in; see :attr:`privmix.data.Source.names`.
        pattern: a regular expression with one group.
        missing: what files are whose name it is not found in.

    Raises:
        InvalidInput: it is no such pattern, or it is not found in a name, where that is an error.

    Example:
        >>> persons_in_names(["ill/p7_1.png", "well/p9_1.png", "ill/p7_2.png"], r"p(\\d+)_").tolist()
        [0, 1, 0]
    """
    compiled = compiled_pattern(pattern)
    return numbered((found[1] if (found := compiled.search(name)) else None for name in names), missing)


def compiled_pattern(pattern: str) -> re.Pattern[str]:
    """A regular expression with one group, which is the person.

    Raises:
        InvalidInput: it is something else.
    """
    try:
        compiled = re.compile(pattern)
    except re.error:
        raise InvalidInput("person_pattern", pattern, "a regular expression") from None
    if compiled.groups != 1:
        raise InvalidInput("person_pattern", pattern, "a regular expression with one group, which is the person")
    return compiled


def persons_in_list(names: Sequence[str], file: Path, missing: str = ERROR) -> NDArray[np.int64]:
    """(n,) whose each file is, by a CSV file with the columns ``file_name`` and ``person``.

    Args:
        names: of the files, as :func:`persons_in_names`.
        file: names files as they are, or without the folders that they lie in where these names differ.
        missing: what files are that are not in it.

    Raises:
        InvalidInput: the file lacks these columns or names a file twice; or one is missing, where that is an error.
        StorageError: it can't be read.
    """
    with decoding(file, "a CSV file"), file.open(encoding="utf-8-sig", newline="") as stream:
        rows = _listed(file, stream)
        whose: dict[str, str] = {}
        for row in rows:
            if row[_FILE] in whose:
                raise InvalidInput("person_file", WITHHELD, "each file once")
            whose[row[_FILE]] = row[_PERSON]
    alone = Counter(Path(name).name for name in names if name not in whose)
    if any(count > 1 and name in whose for name, count in alone.items()):
        # Two people would be taken for one, whose contribution each of them moves by more than their own.
        raise InvalidInput("person_file", WITHHELD, "names with their folders, where files in several have one name")
    return numbered((whose.get(name, whose.get(Path(name).name)) for name in names), missing)


def check_list(file: Path) -> None:
    """Raise :class:`InvalidInput` where the header of such a CSV file lacks a column; no line of it is read.

    Raises:
        StorageError: it can't be read.
    """
    with decoding(file, "a CSV file"), file.open(encoding="utf-8-sig", newline="") as stream:
        _listed(file, stream)


def _listed(file: Path, stream: IO[str]) -> csv.DictReader[str]:
    rows = csv.DictReader(stream)
    if not {_FILE, _PERSON} <= set(rows.fieldnames or ()):
        raise InvalidInput("person_file", str(file), f"a CSV file with the columns {_FILE} and {_PERSON}")
    return rows


def numbered(cells: Iterator[Any] | Sequence[Any], missing: str = ERROR) -> NDArray[np.int64]:
    """Numbers for identifiers, in the order in which they are first met.

    Example:
        >>> numbered(["b", None, "a", None], missing="own").tolist()
        [0, 1, 2, 3]
    """
    numbering = Numbering()
    try:
        without = _taken(cells, missing, numbering)
        found = numbering.numbers()
    except BaseException:
        # An error keeps what it met alive, for as long as somebody looks at it.
        numbering.discard()
        raise
    if missing == MARK:
        found[without] = -1
    return found


def _taken(cells: Iterator[Any] | Sequence[Any], missing: str, numbering: Numbering) -> list[int]:
    """Places of the records without an identifier, each of which is taken as one of its own."""
    # The key is never kept: nobody can guess at identifiers by their hashes, wherever these lie.
    key, without = secrets.token_bytes(32), []
    for place, cell in enumerate(cells):
        text = _text(cell) if not isinstance(cell, tuple) else _text_of_all(cell)
        if text:
            # Half characters, too, which names of files hold for bytes that are no text, stay what they are.
            numbering.add(hashlib.blake2b(text.encode(errors="surrogatepass"), key=key, digest_size=DIGEST).digest())
            continue
        if missing == ERROR:
            allowed = 'an identifier in every record; or `person_missing` "own": each without is a person of its own'
            raise InvalidInput("person", WITHHELD, allowed)
        numbering.add(secrets.token_bytes(DIGEST))
        without.append(place)
    return without


def _text_of_all(cells: tuple[Any, ...]) -> str:
    """Identifiers in several columns as one text, of which none is part of another; empty where one is missing."""
    texts = [_text(cell) for cell in cells]
    if len(texts) == 1:
        return texts[0]
    return "".join(f"{len(text)}:{text}" for text in texts) if all(texts) else ""


def _text(cell: Any) -> str:
    """An identifier as a text; empty where there is none."""
    if cell is None:
        return ""
    if isinstance(cell, bool | np.bool_):
        raise _no_identifier()
    if isinstance(cell, int | np.integer):
        return str(int(cell))
    if isinstance(cell, float | np.floating):
        number = float(cell)
        if math.isnan(number):
            return ""
        if not number.is_integer() or abs(number) >= _EXACT:
            raise _no_identifier()
        return str(int(number))
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", "surrogateescape")
    if not isinstance(cell, str):
        if _is_missing(cell):
            return ""
        # Days, and whatever else has one way to be written.
        cell = str(cell)
    return str(cell).strip()


def _is_missing(cell: Any) -> bool:
    """Whether it is a day, decimal number or the like that is not there: none is equal to itself."""
    try:
        return bool(cell != cell)
    except TypeError:
        # pandas' NA says neither.
        return True
    except (ValueError, ArithmeticError):
        # Arrays, which have no one way to be written.
        raise _no_identifier() from None


def _no_identifier() -> InvalidInput:
    return InvalidInput("person", WITHHELD, "texts, or whole numbers below 2^53; longer numbers as texts")


def _chunks(source: Source) -> Iterator[NDArray[Any]]:
    """Cells as they are read, before tables make floats of numbers."""
    seen = 0
    for raw, _ in source._silent_chunks(_BATCH):
        seen += len(raw)
        yield raw
    if seen != source.schema.records:
        raise InvalidInput("records", WITHHELD, "as many as the header gives")
