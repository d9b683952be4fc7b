"""Reading what a stranger handed over: bounded JSON, plain files, array headers before arrays.

Certificates, models, run records and ledgers may come from anyone. Nothing here runs code of theirs, follows a link,
opens an address, or takes more memory than the file's own size justifies. This module sits beside the floors, so every
floor may use it.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Collection, Mapping
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import numpy as np

from privmix.errors import InvalidInput, StorageError
from privmix.fields import is_printable

MEBIBYTE: Final = 2**20
# No file of privmix nests half as deep or writes numbers a tenth as long; parsers of both take time beyond that.
_DEEPEST: Final = 40
_MOST_DIGITS: Final = 400
_WIDTHS: Final = {
    "BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
_HEADER_LENGTH: Final = 8
# Where a string may hold half of a surrogate pair: escaped, or as it is in text that was decoded elsewhere.
_SURROGATE: Final = re.compile(r"\\u[dD]|[\ud800-\udfff]")
# A string with all that is in it, closed or not; it never goes back, so time and memory are linear.
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")
_DEEPER: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


def open_plain(path: Path, name: str) -> IO[bytes]:
    """Open a regular file for reading; a link, a folder, a pipe or a device is refused.

    Args:
        path: the file; links among the folders above it are the caller's, the last step may be none.
        name: what messages call it.

    Raises:
        StorageError: it is missing or can't be read.
        InvalidInput: it is no regular file.
    """
    try:
        # Without O_NONBLOCK a pipe that nobody writes to would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise InvalidInput(name, path.name, "a file, not a link to one") from None
        raise StorageError(f"{name}: can't read {path}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidInput(name, path.name, "a regular file")
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, name: str, most_bytes: int) -> bytes:
    """The bytes of a regular file of at most ``most_bytes``.

    Raises:
        StorageError: it is missing or can't be read.
        InvalidInput: it is no regular file, or larger.
    """
    with open_plain(path, name) as stream:
        try:
            content = stream.read(most_bytes + 1)
        except OSError as error:
            raise StorageError(f"{name}: can't read {path}: {error.strerror}") from None
    if len(content) > most_bytes:
        raise InvalidInput(name, f"more than {most_bytes:,} bytes", f"a file of at most {most_bytes:,} bytes")
    return content


def read_json(path: Path, name: str, most_bytes: int = 16 * MEBIBYTE) -> Any:
    """The JSON value in a regular file; see :func:`parse_json` for what is refused.

    Raises:
        StorageError: it is missing or can't be read.
        InvalidInput: it is no regular file, too large, or no JSON that privmix could have written.
    """
    return parse_json(read_plain(path, name, most_bytes), name)


def parse_json(content: bytes | str, name: str) -> Any:
    """Parse JSON of a stranger, strictly.

    Formal guarantees:
        * nesting is at most 40 levels and numbers at most 400 characters, so time and memory are linear in the size;
        * every number is finite; a name stands once in an object; text is UTF-8, and each string in it can be
          written as UTF-8 again (JSON can spell half of a surrogate pair, which is no text).

    Raises:
        InvalidInput: the content is anything else.

    Example:
        >>> parse_json('{"a": [1, 2.5]}', "settings")
        {'a': [1, 2.5]}
        >>> parse_json("[" * 10_000, "settings")
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: settings: got deeper nesting; allowed: JSON of at most 40 levels
    """
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
    except UnicodeDecodeError:
        raise InvalidInput(name, _Words("other bytes"), "JSON in UTF-8") from None
    if _depth(text) > _DEEPEST:
        raise InvalidInput(name, _Words("deeper nesting"), f"JSON of at most {_DEEPEST} levels")
    try:
        found = json.loads(
            text,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_refuse,
            object_pairs_hook=_object,
        )
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise InvalidInput(name, _Words("other text"), "strict JSON as privmix writes it") from None
    return found


def check_texts(value: Any, name: str) -> None:
    """Raise :class:`InvalidInput` where a text in JSON values, or a name, has a character that does not show.

    Lines are looked at one by one: the instruction that a text encoder is given may have several.
    """
    match value:
        case str():
            if not all(map(is_printable, value.split("\n"))):
                raise InvalidInput(name, value, "texts in which every character shows")
        case dict():
            for key, inner in value.items():
                check_texts(key, name)
                check_texts(inner, f"{name} {key}")
        case list():
            for inner in value:
                check_texts(inner, name)


def array_shapes(path: Path, name: str, most_header: int = 16 * MEBIBYTE) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Element type and shape of every array in a safetensors file, from its header alone.

    The arrays fill the file exactly: whatever is allocated for them afterwards is no more than the file holds.

    Args:
        path: the file.
        name: what messages call it.
        most_header: bytes the header may have.

    Returns:
        name of array -> (element type such as "F32", shape).

    Raises:
        StorageError: it is missing or can't be read.
        InvalidInput: it is no regular file, or no safetensors file whose arrays fill it; free text in its header
            (``__metadata__``) is refused as well.
    """
    allowed = "a safetensors file whose arrays fill it exactly, without free text"
    with open_plain(path, name) as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(_HEADER_LENGTH), "little")
        if size < _HEADER_LENGTH or length > min(most_header, size - _HEADER_LENGTH):
            raise InvalidInput(name, path.name, allowed)
        header = parse_json(stream.read(length), name)
    if not isinstance(header, dict):
        raise InvalidInput(name, path.name, allowed)
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    spans: list[tuple[int, int]] = []
    for key, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise InvalidInput(name, key, allowed)
        kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [shape, offsets]
        if (
            kind not in _WIDTHS
            or not all(isinstance(part, list) and all(type(n) is int and n >= 0 for n in part) for part in numbers)
            or len(offsets) != 2
            or offsets[1] - offsets[0] != math.prod(shape) * _WIDTHS[kind]
        ):
            raise InvalidInput(name, key, allowed)
        found[key] = (kind, tuple(shape))
        spans.append((offsets[0], offsets[1]))
    end = 0
    for first, last in sorted(spans):
        if first != end:
            raise InvalidInput(name, path.name, allowed)
        end = last
    if end != size - _HEADER_LENGTH - length:
        raise InvalidInput(name, path.name, allowed)
    return found


def check_listing(folder: Path, name: str, files: Collection[str], folders: Collection[str] = ()) -> None:
    """Exactly these files and folders are below ``folder``, each a plain one: no link, device or further entry.

    Args:
        folder: what was handed over; it may itself be a link of the caller's.
        name: what messages call it.
        files: the files, as paths relative to ``folder`` with ``/``.
        folders: folders, likewise.

    Raises:
        StorageError: a file is missing, or a folder can't be read.
        InvalidInput: something else is there, or it is no plain file or folder.
    """
    wanted, found = set(files), set()
    waiting = [("", folder)]
    while waiting:
        above, here = waiting.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            raise StorageError(f"{name}: can't read {here}: {error.strerror}") from None
        for entry in entries:
            place = f"{above}{entry.name}"
            if entry.is_symlink():
                raise InvalidInput(name, place, "plain files and folders: no links")
            if entry.is_dir(follow_symlinks=False) and place in folders:
                waiting.append((f"{place}/", Path(entry.path)))
            elif entry.is_file(follow_symlinks=False) and place in wanted:
                found.add(place)
            else:
                raise InvalidInput(name, place, "only the files that belong to it")
    if missing := sorted(wanted - found):
        raise StorageError(f"{name}: {missing[0]} is missing from {folder}")


def all_finite(arrays: Mapping[str, np.ndarray[Any, Any]], name: str) -> None:
    """Raise :class:`InvalidInput` where an array holds a value that is not finite.

    Example:
        >>> all_finite({"x": np.ones(3)}, "moments.safetensors")
    """
    for key, values in arrays.items():
        if not np.isfinite(values).all():
            raise InvalidInput(name, key, "finite values")


class _Words(str):
    """Text that messages show without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _depth(text: str) -> int:
    """Deepest nesting of brackets outside strings; may be too large for text that is no JSON, never too small."""
    if text.count("[") + text.count("{") <= _DEEPEST:
        # Nearly every record of a data file; looking at each character would take longer than parsing it.
        return 0
    steps = map(_DEEPER.__getitem__, _BRACKET.findall(_STRING.sub("", text)))
    return max(accumulate(steps, initial=0))


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits) if len(digits) <= _MOST_DIGITS else math.inf
    if not math.isfinite(value):
        raise ValueError
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found
