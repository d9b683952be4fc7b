"""Readers of records that other versions may have written: missing or unknown fields are absent, never guessed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

# No measurement comes near; beyond it, drawing overflows.
_LARGEST: Final = 1e100


class RecordFields:
    """JSON values by name; every reader returns None or an empty value for another type."""

    def __init__(self, values: Any) -> None:
        self._values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def number(self, name: str) -> float | None:
        """Return a finite number, and none that nothing measures."""
        return _number(self._values.get(name))

    def text(self, name: str) -> str:
        found = self._values.get(name)
        return found if isinstance(found, str) else ""

    def flag(self, name: str) -> bool:
        """Whether the value is true, and nothing like it."""
        return self._values.get(name) is True

    def series(self, name: str) -> list[float]:
        """Return a list of finite numbers; nothing unless all of them are."""
        return _series(self._values.get(name))

    def matrix(self, name: str) -> list[list[float]]:
        """Return a square list of lists of finite numbers; nothing unless it is one."""
        found = self._values.get(name)
        rows = [_series(row) for row in found] if isinstance(found, list) else []
        return rows if rows and all(len(row) == len(rows) for row in rows) else []

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; nothing unless all of them are."""
        found = self._values.get(name)
        return found if isinstance(found, list) and all(isinstance(item, str) for item in found) else []

    def fields(self, name: str) -> RecordFields:
        return RecordFields(self._values.get(name))

    def several(self, name: str) -> list[RecordFields]:
        """Return a list of nested ones; what is none is left out."""
        found = self._values.get(name)
        return [RecordFields(item) for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []

    def several_lists(self, name: str) -> list[list[RecordFields]]:
        """Return a list of lists of nested ones; what is none is left out."""
        found = self._values.get(name)
        return [RecordFields({"row": row}).several("row") for row in found] if isinstance(found, list) else []

    def numbers(self) -> dict[str, float]:
        return {str(name): found for name, value in self._values.items() if (found := _number(value)) is not None}

    def others(self, known: Collection[str]) -> dict[str, Any]:
        """Values by name, without those of ``known`` and without lists and nested values."""
        return {
            str(name): value
            for name, value in self._values.items()
            if name not in known and isinstance(value, str | int | float | bool)
        }

    def curve(self, *names: str) -> list[list[float]]:
        """Series of equal length, at least two long; nothing unless all of them are."""
        found = [self.series(name) for name in names]
        return found if len(found[0]) > 1 and len({len(values) for values in found}) == 1 else []


def flat(values: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as rows of name and text, in order.

    Example:
        >>> flat({"plans": [{"m": 1, "rows": 9}, {"m": 4, "rows": 9}]})
        [('plans.m', '1; 4'), ('plans.rows', '9')]
    """
    if isinstance(values, list) and values and all(isinstance(item, Mapping) for item in values):
        return _side_by_side([dict(flat(item, prefix)) for item in values])
    if isinstance(values, Mapping) and (values or not prefix):
        return [
            row for name, value in values.items() for row in flat(value, f"{prefix}.{name}" if prefix else str(name))
        ]
    return [(prefix, shown(values))]


def _side_by_side(rows: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Rows of several settings as one: what differs between them stands side by side."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    found = []
    for name in names:
        values = [row.get(name, "–") for row in rows]
        found.append((name, values[0] if len(set(values)) == 1 else "; ".join(values)))
    return found


def shown(value: Any) -> str:
    """Return a setting as people write it; long lists are cut, and marked as cut."""
    if value is None or value == {}:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        most = 20
        rest = f" and {len(value) - most} more" if len(value) > most else ""
        return ", ".join(shown(item) for item in value[:most]) + rest
    return str(value)


def _series(found: Any) -> list[float]:
    values = [_number(item) for item in found] if isinstance(found, list) else []
    numbers = [value for value in values if value is not None]
    return numbers if len(numbers) == len(values) else []


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) <= _LARGEST else None
