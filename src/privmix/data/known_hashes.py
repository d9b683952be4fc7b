"""SHA-256 of files that this process has read, by what tells a file's content from an earlier one."""

from __future__ import annotations

from typing import Final

_MOST: Final = 2**17
_hashes: Final[dict[tuple[int, ...], str]] = {}


def known_hash(state: tuple[int, ...]) -> str | None:
    """The hash of what is in that state, if it was made.

    Example:
        >>> know_hash((1, 2), "ab")
        >>> known_hash((1, 2)), known_hash((1, 3))
        ('ab', None)
    """
    return _hashes.get(state)


def know_hash(state: tuple[int, ...], digest: str) -> None:
    """Keep a hash for the rest of the process."""
    if len(_hashes) >= _MOST:
        _hashes.clear()
    _hashes[state] = digest
