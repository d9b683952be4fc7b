"""Columns of dates in a table's specification: formats, parts of a date, and their features."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.features.table_cells import NO_DATE, Missing, SingleKind, token_of

_ISO: Final = re.compile(r"(?P<Y>\d{4})-(?P<m>\d{2})-(?P<d>\d{2})(?:[T ](?P<H>\d{2})?[0-9:.,+Z -]*)?", re.ASCII)
_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
# Directives of strptime that mean the same everywhere; names are English.
_DIRECTIVES: Final = {
    "Y": r"(?P<Y>\d{4})",
    "m": r"(?P<m>\d{1,2})",
    "d": r"(?P<d>\d{1,2})",
    "y": r"(?P<y>\d{2})",
    "b": r"(?P<b>[A-Za-z]{3})",
    "B": r"(?P<B>[A-Za-z]{3,9})",
    "H": r"(?P<H>\d{1,2})",
    "M": r"\d{1,2}",
    "S": r"\d{1,2}",
    "I": r"(?P<I>\d{1,2})",
    "p": r"(?P<p>[AaPp])\.?[Mm]\.?",
    "%": "%",
}
_TIGHT: Final = {word: rule.replace(r"\d{1,2}", r"\d{2}") for word, rule in _DIRECTIVES.items()}
_LONGEST_FORMAT: Final = 40
PARTS: Final = ("days", "year", "month", "weekday", "hour")
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# Two digits of a year (%y) name one year of a century alone.
_MOST_YEARS: Final = 100
# Rows of a table are drawn from all hours of the range.
_MOST_DAYS: Final = 6_000


@dataclass(frozen=True)
class Dates(SingleKind):
    """A day between public bounds: its place between them in [0, 1], or its year, month, weekday and hour, one-hot."""

    low: date
    high: date
    pattern: re.Pattern[str]
    parts: tuple[str, ...]
    missing: Missing

    key: ClassVar[str] = "date"
    fields: ClassVar[tuple[str, ...]] = ("format", "parts", "missing", "missing_tokens")
    refusal: ClassVar[str] = NO_DATE
    wanted: ClassVar[str] = "a date of the declared format"

    @classmethod
    def read(cls, entry: Mapping[str, Any], field: str) -> Self:
        bounds = entry["date"]
        if not isinstance(bounds, list | tuple) or len(bounds) != 2:
            raise InvalidInput(field, bounds, 'date: [first, last], as ["2015-01-01", "2025-12-31"]')
        low, high = (_iso(field, bound) for bound in bounds)
        if not low < high:
            raise InvalidInput(field, list(bounds), "date: the first day, and a later one")
        parts = entry.get("parts", ["days"])
        if not isinstance(parts, list | tuple) or not parts or any(parts.count(part) > 1 for part in parts):
            raise InvalidInput(field, parts, f"parts: a list of some of {', '.join(PARTS)}")
        if unknown := [part for part in parts if part not in PARTS]:
            raise InvalidInput(field, unknown, f"parts: a list of some of {', '.join(PARTS)}")
        if "year" in parts and high.year - low.year >= _MOST_YEARS:
            raise InvalidInput(field, list(bounds), f"year as a part only for ranges of at most {_MOST_YEARS} years")
        pattern = _ISO if entry.get("format") is None else _date_pattern(entry["format"], field)
        if "y" in pattern.groupindex and high.year - low.year >= _MOST_YEARS:
            raise InvalidInput(field, list(bounds), f"a range of at most {_MOST_YEARS} years if format has %y")
        if "hour" in parts and (high - low).days > _MOST_DAYS:
            raise InvalidInput(field, list(bounds), f"a range of at most {_MOST_DAYS:,} days if hour is a part")
        if "hour" in parts and "H" not in pattern.groupindex and not {"I", "p"} <= pattern.groupindex.keys():
            raise InvalidInput(field, entry["format"], "a format with %H, or %I and %p, if hour is a part")
        found = Missing.read(entry, field, lambda said: _iso(field, said))
        return cls(low, high, pattern, tuple(parts), found)

    def _one_hot(self, part: str) -> list[tuple[str, int]]:
        """Names of a part's values, each with the value."""
        if part == "year":
            return [(str(year), year) for year in range(self.low.year, self.high.year + 1)]
        if part == "month":
            return [(str(month), month) for month in range(1, 13)]
        if part == "hour":
            return [(str(hour), hour) for hour in range(24)]
        return [(name, day) for day, name in enumerate(_WEEKDAYS)]

    @property
    def width(self) -> int:
        wide = sum(1 if part == "days" else len(self._one_hot(part)) for part in self.parts)
        return wide + self.missing.own

    def names(self, column: str) -> list[str]:
        found = []
        for part in self.parts:
            one_hot = [] if part == "days" else [f"{column} {part}={name}" for name, _ in self._one_hot(part)]
            found += one_hot or [column]
        return [*found, *self.missing.names(column)]

    @property
    def is_number(self) -> bool:
        return self.parts == ("days",)

    def value(self, cell: Any) -> date | None:
        """Return the day; with its hour, if that is a part."""
        found = self.pattern.fullmatch(token_of(cell).strip())
        if found is None:
            return None
        said = found.groupdict()
        month, year = int(said.get("m") or 1), int(said.get("Y") or said["y"])
        if name := (said.get("b") or said.get("B") or "").lower():
            names = [known if said.get("B") else known[:3] for known in _MONTHS]
            month = names.index(name) + 1 if name in names else 0
        if said.get("y"):
            # The hundred years around the middle of the declared ones.
            first = (self.low.year + self.high.year) // 2 - (_MOST_YEARS - 1) // 2
            year = first + (year - first) % _MOST_YEARS
        try:
            day = date(year, month, int(said.get("d") or "1"))
            return datetime(day.year, day.month, day.day, _hour(said)) if "hour" in self.parts else day
        except ValueError:
            return None

    def shown(self, value: Any) -> str:
        return "" if value is None else str(value)

    def cut(self, value: date) -> str | None:
        value = _day(value)
        if value < self.low:
            return f"before the first day: read as {self.low}"
        return f"after the last day: read as {self.high}" if value > self.high else None

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        values = self.values(cells, name)
        days = [self.low if value is None else min(max(_day(value), self.low), self.high) for value in values]
        found = []
        for part in self.parts:
            if part == "days":
                length = (self.high - self.low).days
                found.append(np.array([(day - self.low).days / length for day in days], np.float64).reshape(-1, 1))
                continue
            first = self._one_hot(part)[0][1]
            of = [getattr(value, "hour", 0) for value in values]
            if part != "hour":
                of = [day.weekday() if part == "weekday" else getattr(day, part) for day in days]
            found.append(np.eye(len(self._one_hot(part)))[np.array(of, dtype=np.int64) - first])
        # Each part has norm at most 1.
        return self.joined(values, np.concatenate(found, axis=1) / math.sqrt(len(self.parts)))


def _day(value: date) -> date:
    return value.date() if isinstance(value, datetime) else value


def _hour(said: Mapping[str, str | None]) -> int:
    """Return the hour of a cell; 0 where it has none."""
    if said.get("I"):
        return int(said["I"] or 0) % 12 + 12 * ((said.get("p") or "").lower() == "p")
    return int(said.get("H") or 0)


def _iso(field: str, given: Any) -> date:
    """Return a day that a specification names, as 2015-01-31."""
    found = _ISO.fullmatch(given) if isinstance(given, str) and len(given) == len("2015-01-31") else None
    try:
        return date(*map(int, found.group("Y", "m", "d"))) if found else date(0, 0, 0)
    except ValueError:
        raise InvalidInput(field, given, "a day as 2015-01-31") from None


def _date_pattern(text: Any, field: str) -> re.Pattern[str]:
    """Return a pattern for year, month and day in texts of a format such as ``%d.%m.%Y``; it matches in linear time."""
    allowed = (
        "format: %Y or %y, and %m, %b or %B, %d, %H, %I, %M, %S, %p, each at most once, with separators, as %d.%m.%Y"
    )
    if not isinstance(text, str) or len(text) > _LONGEST_FORMAT:
        raise InvalidInput(field, text, allowed)
    found, seen, rest = [], [], text
    while rest:
        literal, percent, rest = rest.partition("%")
        found.append(re.escape(literal))
        if percent:
            word, rest = rest[:1], rest[1:]
            if word not in _DIRECTIVES or word in seen:
                raise InvalidInput(field, text, allowed)
            # A boundary between digits and digits needs a fixed number of them.
            close = rest.startswith("%") or (bool(found) and len(found) > 1 and not literal)
            found.append((_TIGHT if close else _DIRECTIVES)[word])
            seen += [word] if word != "%" else []
    years, months = ({"Y", "y"} & set(seen), {"m", "b", "B"} & set(seen))
    if len(years) != 1 or len(months) > 1 or ("d" in seen and not months):
        raise InvalidInput(field, text, allowed)
    return re.compile("".join(found), re.ASCII)
