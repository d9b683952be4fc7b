"""How CSV files are written where they are not as usual: declared, never guessed from records."""

from __future__ import annotations

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
# What may be a number in either notation, with one mark at most; all else, such as 31.12.1999, stays as it is written.
_LIKE_NUMBER: Final = r"^\s*[+-]?[0-9 '" "\u00a0\u202f" r"]*[.,]?[0-9]*([eE][+-]?[0-9]+)?\s*$"


@dataclass(frozen=True)
class Dialect:
    """How the CSV files of a dataset are written.

    Attributes:
        separator: between the cells of a line: ``,``, ``;``, ``|`` or ``tab``. Default: a tab in files called .tsv, a
            comma in others; of .txt it must be declared.
        decimal: the mark in numbers: ``.`` or ``,``.
        encoding: of the texts; a byte order mark of UTF-8 may stand before them.
        header: names of the columns of files that have no header line, or that one; empty: the first line says them.
        numbers: columns of a table in which ``decimal`` counts; columns of numbers are known without.
        needed: whether data in another format are refused; else the dialect is for those that are CSV.

    Raises:
        InvalidInput: something else is declared.

    Example:
        >>> Dialect("tab").mark, Dialect(";", decimal=",").decimal
        ('\\t', ',')
    """

    separator: str | None = None
    decimal: Annotated[str, Choice(".", ",")] = "."
    encoding: Annotated[str, Choice(*_ENCODINGS)] = "utf-8"
    header: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    needed: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.separator is not None and self.separator not in tuple(_SEPARATORS):
            raise InvalidInput("separator", self.separator, "one of , ; | tab")
        if len(set(self.header)) < len(self.header) or not all(self.header):
            raise InvalidInput("header", self.header, "names that are not empty, each of them once")

    @property
    def mark(self) -> str:
        """The separator as one character."""
        return _SEPARATORS[self.separator or ","]

    def of(self, file: Path) -> Dialect:
        """The same with its separator, by a file's name where none is declared.

        Raises:
            InvalidInput: the name says none.
        """
        if self.separator is not None:
            return self
        name = plain_name(file.name.lower())
        if name.endswith(".txt"):
            raise InvalidInput("separator", None, f"one of , ; | tab: {file.name} may be a table with any of them")
        return replace(self, separator="tab" if name.endswith(".tsv") else ",")

    def as_point(self, column: pa.Array) -> pa.Array:
        """Texts of a column of numbers with a decimal point.

        Points, which may part thousands, become commas: such a cell is no number, and not a thousandth of one.

        Example:
            >>> Dialect(decimal=",").as_point(pa.array(["2,5", "1.234", "n.a."])).to_pylist()
            ['2.5', '1,234', 'n.a.']
        """
        if self.decimal == ".":
            return column
        swapped = pc.replace_substring(column, ".", ";")
        swapped = pc.replace_substring(pc.replace_substring(swapped, ",", "."), ";", ",")
        return pc.if_else(pc.match_substring_regex(column, _LIKE_NUMBER), swapped, column)

    def point(self, text: str) -> str:
        """As :meth:`as_point`, for one text.

        Example:
            >>> Dialect(decimal=",").point("2,5")
            '2.5'
        """
        if self.decimal == "." or not re.match(_LIKE_NUMBER, text, re.ASCII):
            return text
        return text.translate({ord("."): ",", ord(","): "."})


def other_separator(header: str, dialect: Dialect) -> str | None:
    """What may part the columns of a header that is one column, as it is declared; None where nothing does.

    Example:
        >>> other_separator("age;y", Dialect())
        ';'
    """
    found = {"\t": "tab"}
    marks = [mark for mark in (";", "\t", "|", ",") if mark != dialect.mark and mark in header]
    return found.get(marks[0], marks[0]) if marks else None


_QUOTE: Final = ord('"')


class BrokenQuotes(ValueError):
    """A quote that opens or closes no whole cell, or a cell that is never closed. It says nothing of where."""


class Quotes:
    """What is checked of the quotes in a text, piece by piece.

    Args:
        mark: the separator, one character of ASCII.

    Example:
        >>> def hold(text: str) -> bool:
        ...     quotes = Quotes(",")
        ...     try:
        ...         quotes.add(text.encode())
        ...         quotes.end()
        ...     except BrokenQuotes:
        ...         return False
        ...     return True
        >>> hold('1,"a ""b"", \\n c",2'), hold('1,"a,2'), hold('1,5" pipe,2'), hold('1,"a"b,2')
        (True, False, False, False)
    """

    def __init__(self, mark: str) -> None:
        self._edges = np.zeros(256, dtype=bool)
        # Of two quotes side by side in a cell, the first closes it and the second opens it again.
        self._edges[[ord(mark), ord("\n"), ord("\r"), _QUOTE]] = True
        self._inside, self._last = False, b"\n"

    def add(self, piece: bytes) -> None:
        """Check what comes next.

        Raises:
            BrokenQuotes: it is wrong.
        """
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
        """Check that nothing is open where the text ends.

        Raises:
            BrokenQuotes: a cell is.
        """
        if self._inside:
            raise BrokenQuotes
