"""How CSV files are written where they are not as usual: declared, never guessed from records."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privmix.data.files import plain_name
from privmix.errors import InvalidInput
from privmix.fields import Choice, check_fields

# As they are declared: a tab in a command line is easily lost.
_SEPARATORS: Final = {",": ",", ";": ";", "|": "|", "tab": "\t", "\\t": "\t", "\t": "\t"}
# In all of them quotes, separators and line ends are the bytes of ASCII, and no others.
_ENCODINGS: Final = ("utf-8", "latin-1", "cp1252", "cp1250", "iso-8859-15")
# Cells that may be a number in either notation, with one mark at most; all others, such as 31.12.1999, stay as written.
_LIKE_NUMBER: Final = r"^\s*[+-]?[0-9 '" "\u00a0\u202f" r"]*[.,]?[0-9]*([eE][+-]?[0-9]+)?\s*$"


@dataclass(frozen=True)
class Dialect:
    """How the CSV files of a dataset are written."""

    # separator: "tab", or one of `,;|`; by default a tab for .tsv, a comma for others, and to be declared for .txt.
    # decimal: also counts in the table columns `numbers`. header: column names of files without a header line.
    # needed: whether data in another format are refused.

    separator: str | None = None
    decimal: Annotated[str, Choice(".", ",")] = "."
    encoding: Annotated[str, Choice(*_ENCODINGS)] = "utf-8"
    header: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    needed: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.separator is not None and self.separator not in tuple(_SEPARATORS):
            raise InvalidInput("separator", self.separator, "one of comma ; | tab")
        if len(set(self.header)) < len(self.header) or not all(self.header):
            raise InvalidInput("header", self.header, "non-empty names without repetition")

    @property
    def mark(self) -> str:
        return _SEPARATORS[self.separator or ","]

    def of(self, file: Path) -> "Dialect":
        """Return the dialect with its separator, which the file name gives where none is declared."""
        if self.separator is not None:
            return self
        name = plain_name(file.name.lower())
        if name.endswith(".txt"):
            allowed = f"separator=;, one of comma ; | tab: the suffix of {file.name} does not determine the separator"
            raise InvalidInput("csv", None, allowed)
        return replace(self, separator="tab" if name.endswith(".tsv") else ",")

    def as_point(self, column: pa.Array) -> pa.Array:
        """Texts of a column of numbers with a decimal point."""
        # Points, which may separate thousands, become commas: such a cell is then no number, not a thousandth of one.
        if self.decimal == ".":
            return column
        swapped = pc.replace_substring(column, ".", ";")
        swapped = pc.replace_substring(pc.replace_substring(swapped, ",", "."), ";", ",")
        return pc.if_else(pc.match_substring_regex(column, _LIKE_NUMBER), swapped, column)

    def point(self, text: str) -> str:
        if self.decimal == "." or not re.match(_LIKE_NUMBER, text, re.ASCII):
            return text
        return text.translate({ord("."): ",", ord(","): "."})


def other_separator(header: str, dialect: Dialect) -> str | None:
    """Return the declared name of another separator that would split a one-column header; None where there is none."""
    found = {"\t": "tab"}
    marks = [mark for mark in (";", "\t", "|", ",") if mark != dialect.mark and mark in header]
    return found.get(marks[0], marks[0]) if marks else None


_QUOTE: Final = ord('"')


class BrokenQuotes(ValueError):
    """A quote that opens or closes no whole cell, or a cell that is never closed. The message omits the place."""


class Quotes:
    """Check the quotes of a text, piece by piece; ``mark`` is the separator, one ASCII character."""

    def __init__(self, mark: str) -> None:
        self._edges = np.zeros(256, dtype=bool)
        # If two quotes stand side by side in a cell, the first closes it and the second opens it again.
        self._edges[[ord(mark), ord("\n"), ord("\r"), _QUOTE]] = True
        self._inside, self._last = False, b"\n"

    def add(self, piece: bytes) -> None:
        if not piece or (self._last != b'"' and b'"' not in piece):
            self._last = piece[-1:] or self._last
            return
        content = np.frombuffer(self._last + piece, dtype=np.uint8)
        # Places in ``content``, whose first byte is the one before.
        places = np.flatnonzero(content[1:] == _QUOTE) + 1
        opening, closing = places[self._inside :: 2], places[not self._inside :: 2]
        if self._last == b'"' and not self._inside:
            closing = np.concatenate([[0], closing])
        closing = closing[closing + 1 < len(content)]
        if not (self._edges[content[opening - 1]].all() and self._edges[content[closing + 1]].all()):
            raise BrokenQuotes
        self._inside ^= bool(len(places) % 2)
        self._last = piece[-1:]

    def end(self) -> None:
        """Check that no cell is open where the text ends."""
        if self._inside:
            raise BrokenQuotes
