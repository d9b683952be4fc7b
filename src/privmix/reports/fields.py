"""Reading the content of records that another version may have written: what is missing or of another kind is absent.

A page must not fall over a field that it doesn't know, and must not guess at one that isn't there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

# No measurement comes near; beyond it, drawing overflows.
_LARGEST: Final = 1e100


class Fields:
    """JSON values by name; every reader returns None or nothing where the value isn't what it reads.

    Example:
        >>> found = Fields({"auc": 0.5, "roc": {"fpr": [0, 1]}, "name": 3})
        >>> found.number("auc"), found.fields("roc").series("fpr"), found.text("name"), found.number("other")
        (0.5, [0.0, 1.0], '', None)
    """

    def __init__(self, values: Any) -> None:
        self._values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def number(self, name: str) -> float | None:
        """A finite number, and none that nothing measures."""
        return _number(self._values.get(name))

    def text(self, name: str) -> str:
        """A text, else an empty one."""
        found = self._values.get(name)
        return found if isinstance(found, str) else ""

    def flag(self, name: str) -> bool:
        """Whether the value is true, and nothing like it."""
        return self._values.get(name) is True

    def says_no(self, name: str) -> bool:
        """Whether the value is false, and nothing like it."""
        return self._values.get(name) is False

    def series(self, name: str) -> list[float]:
        """A list of finite numbers; nothing unless all of them are."""
        return _series(self._values.get(name))

    def matrix(self, name: str) -> list[list[float]]:
        """A square list of lists of finite numbers; nothing unless it is one."""
        found = self._values.get(name)
        rows = [_series(row) for row in found] if isinstance(found, list) else []
        return rows if rows and all(len(row) == len(rows) for row in rows) else []

    def texts(self, name: str) -> list[str]:
        """A list of texts; nothing unless all of them are."""
        found = self._values.get(name)
        return found if isinstance(found, list) and all(isinstance(item, str) for item in found) else []

    def fields(self, name: str) -> Fields:
        """What is nested under the name."""
        return Fields(self._values.get(name))

    def several(self, name: str) -> list[Fields]:
        """A list of nested ones; what is none is left out."""
        found = self._values.get(name)
        return [Fields(item) for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []

    def several_lists(self, name: str) -> list[list[Fields]]:
        """A list of lists of nested ones; what is none is left out."""
        found = self._values.get(name)
        rows = [Fields({"row": row}).several("row") for row in found] if isinstance(found, list) else []
        return rows

    def numbers(self) -> dict[str, float]:
        """All finite numbers by name."""
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
    """Nested settings as rows of name and text, in their order.

    Example:
        >>> flat({"plan": {"rows": 5, "classes": ["a", "b"]}, "seed": None})
        [('plan.rows', '5'), ('plan.classes', 'a, b'), ('seed', 'none')]
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
    """A setting as people write it; long lists are cut, and say so."""
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
