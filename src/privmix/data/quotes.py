"""Quotes of CSV files: around whole cells, doubled within them, and closed; else nobody can say what one record is.

A quote that is opened and not closed, or that stands in a cell without quotes, would make a parser take records after
it for a part of its own. No line that is added to a file that fits can do that: either its quotes are even in number,
and a record ends where it ends, or they are odd, as those of the whole file then are, which does not fit.
"""

from __future__ import annotations

from typing import Final

import numpy as np

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
