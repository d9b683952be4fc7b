"""Reading a stranger's files: bounded JSON, plain files, array headers before arrays. For every layer."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Collection, Mapping
from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from privmix.errors import InvalidInput, StorageError, Unquoted
from privmix.fields import is_printable
from privmix.folders import storage_errors

if TYPE_CHECKING:
    import numpy as np

MEBIBYTE: Final = 2**20
# No file of privmix nests half as deep or writes numbers a tenth as long; parsers of both take time beyond that.
_DEEPEST: Final = 40
_MOST_DIGITS: Final = 400
# Bytes of a number, by the names of safetensors.
_WIDTHS: Final = {
    "BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
# A safetensors file begins with the length of its header, in eight bytes.
_HEADER_LENGTH: Final = 8
# Places where a string may hold half of a surrogate pair: escaped, or as it is in text that was decoded elsewhere.
_SURROGATE: Final = re.compile(r"\\u[dD]|[\ud800-\udfff]")
# A string with all that is in it, closed or not; it never goes back, so time and memory are linear.
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")
_DEEPER: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


def open_plain(path: Path, name: str) -> IO[bytes]:
    """Open a regular file for reading; refuse a link (as last step of the path), folder, pipe or device."""
    try:
        # Without O_NONBLOCK a pipe without a writer would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise InvalidInput(name, path.name, "a file, not a link to one") from None
        raise StorageError(f"{name}: cannot read {path}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidInput(name, path.name, "a regular file")
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, name: str, most_bytes: int) -> bytes:
    """Return the bytes of a regular file of at most ``most_bytes``."""
    with open_plain(path, name) as stream, storage_errors(name, "read", path):
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise InvalidInput(name, f"more than {most_bytes:,} bytes", f"a file of at most {most_bytes:,} bytes")
    return content


def read_json(path: Path, name: str, most_bytes: int = 16 * MEBIBYTE) -> Any:
    """Return the JSON value in a regular file; see :func:`parse_json`."""
    return parse_json(read_plain(path, name, most_bytes), name)


def parse_json(content: bytes | str, name: str) -> Any:
    """Parse a stranger's JSON strictly.

    Formal guarantees:
        * nesting is at most 40 levels and numbers at most 400 characters, so time and memory are linear in the size;
        * every number is finite; a name stands once in an object; text is UTF-8. Each string in it can be written as
          UTF-8 again (JSON can spell half of a surrogate pair, which is no text).
    """
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
    except UnicodeDecodeError:
        raise InvalidInput(name, Unquoted("other bytes"), "JSON in UTF-8") from None
    if _depth(text) > _DEEPEST:
        raise InvalidInput(name, Unquoted("deeper nesting"), f"JSON of at most {_DEEPEST} levels")
    try:
        found = json.loads(
            text, parse_int=_integer, parse_float=_number, parse_constant=_number, object_pairs_hook=_object
        )
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise InvalidInput(name, Unquoted("other text"), "strict JSON as privmix writes it") from None
    return found


def check_texts(value: Any, name: str) -> None:
    """Raise :class:`InvalidInput` for a character in JSON texts or names that does not show."""
    # Line by line: a text encoder's instruction may have several.
    match value:
        case str():
            if not all(map(is_printable, value.split("\n"))):
                raise InvalidInput(name, value, "texts of visible characters only")
        case dict():
            for key, inner in value.items():
                check_texts(key, name)
                check_texts(inner, f"{name} {key}")
        case list():
            for inner in value:
                check_texts(inner, name)


def array_shapes(path: Path, name: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return element type ("F32") and shape of each array in a safetensors file, from its header alone."""
    # The arrays must fill the file exactly, so that later allocations are no larger than the file. Free text in the
    # header (__metadata__) is refused.
    allowed = "a safetensors file whose arrays fill it exactly, without free text"
    with open_plain(path, name) as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(_HEADER_LENGTH), "little")
        if size < _HEADER_LENGTH or length > min(16 * MEBIBYTE, size - _HEADER_LENGTH):
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
    """Check that exactly these plain files and folders are below ``folder``: no link, device or further entry."""
    # folder itself may be a link of the caller's; files and folders are relative paths with "/".
    wanted, found = set(files), set()
    waiting = [("", folder)]
    while waiting:
        above, here = waiting.pop()
        with storage_errors(name, "read", here):
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        for entry in entries:
            place = f"{above}{entry.name}"
            if entry.is_symlink():
                raise InvalidInput(name, place, "regular files and folders, no links")
            if entry.is_dir(follow_symlinks=False) and place in folders:
                waiting.append((f"{place}/", Path(entry.path)))
            elif entry.is_file(follow_symlinks=False) and place in wanted:
                found.add(place)
            else:
                raise InvalidInput(name, place, "only the files that belong to it")
    if missing := sorted(wanted - found):
        raise StorageError(f"{name}: {missing[0]} is missing from {folder}")


def all_finite(arrays: Mapping[str, np.ndarray[Any, Any]], name: str) -> None:
    """Raise :class:`InvalidInput` for an array with a value that is not finite."""
    # The command line imports this module, and prints help without NumPy.
    import numpy as np

    for key, values in arrays.items():
        if not np.isfinite(values).all():
            raise InvalidInput(name, key, "finite values")


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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found
