"""Cells of a table: texts, numbers and missing values, and the interface of a kind of column."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import WITHHELD, InvalidInput

INDICATOR: Final = "indicator"
"""The value of ``"missing"`` that gives missing values a separate feature."""

NO_NUMBER: Final = "not a number"
COMMA: Final = "not a number: it has a decimal comma"
GROUPS: Final = "not a number: it has thousands separators"
SIGN: Final = "not a number: it has a currency or percent sign"
NO_DATE: Final = "not a date of the declared format"
NO_TRUTH: Final = "neither true nor false"
NO_RANK: Final = "not an ordered category"
REFUSED: Final = frozenset({NO_NUMBER, COMMA, GROUPS, SIGN, NO_DATE, NO_TRUTH, NO_RANK})
"""Reasons to refuse a record; for all other results of :meth:`ColumnKind.unusual` there is a replacement."""

OWN_PLACE: Final = "missing: has a separate feature"


class ColumnKind(ABC):
    """The declared content of one column.

    Formal guarantees:
        - Per cell: what a cell becomes depends on that cell and on the declaration alone.
        - Norm: what one cell becomes has norm at most 1.
    """

    # `key` is the field of a specification that declares the kind, `fields` are the others that it allows.
    # `is_number`: a cell becomes one number on [0, 1], and one feature more where missing values have their own.

    key: ClassVar[str]
    fields: ClassVar[tuple[str, ...]] = ()

    @property
    def is_number(self) -> bool:
        return False

    @classmethod
    @abstractmethod
    def read(cls, entry: Mapping[str, Any], field: str) -> Self:
        """Return the kind of a column's entry, whose fields are those of the kind; messages name it ``field``."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many features one cell becomes."""

    @abstractmethod
    def names(self, column: str) -> list[str]:
        """Names of the features of such a column."""

    @abstractmethod
    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        """(b,) cells -> (b, width)."""

    @abstractmethod
    def unusual(self, cells: list[Any]) -> Iterator[tuple[int, str]]:
        """(row, why) of cells that are refused, cut, missing or unknown; no value."""


def token_of(value: Any) -> str:
    """Return a category as text: a reader of tables may have made the category 3 a float."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def is_blank(cell: Any) -> bool:
    """Whether nothing is there: files without types leave a cell empty where others have none."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def number_in(cell: Any) -> float:
    """Return the finite number that a cell is or spells; NaN otherwise."""
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    return number if math.isfinite(number) else math.nan


MARKS: Final = {",": ".", ".": ",", " ": ".", "'": "."}
"""Marks between thousands that a column can declare, each with the decimal mark of its texts."""

SIGNS: Final = "$€£¥₹%"
# No text of a number: what becomes of one whose groups are no thousands.
_ODD_GROUPS: Final = "\0"


def ungrouped(cell: Any, mark: str | None) -> Any:
    """Return a number's text without its thousands mark, with a decimal point; other cells as they are."""
    if mark is None or not isinstance(cell, str):
        return cell
    text, point = cell.strip().replace("\xa0", " ").replace("\u202f", " "), MARKS[mark]
    parts = rf"[+-]?\d{{1,3}}({re.escape(mark)}\d{{3}})+({re.escape(point)}\d*)?"
    if mark in text and not re.fullmatch(parts, text, re.ASCII):
        return _ODD_GROUPS
    return text.replace(mark, "").replace(point, ".")


def like_thousands(text: str) -> bool | None:
    """Whether the decimal mark of a text may part thousands: three digits behind it; None where there is none."""
    found = re.fullmatch(r"\s*[+-]?(\d+)[.,](\d+)\s*", text, re.ASCII)
    return None if found is None else bool(len(found[2]) == 3 and re.fullmatch("[1-9][0-9]{0,2}", found[1]))


@dataclass(frozen=True)
class Missing:
    """Cells that mean a missing value, and the value ``instead`` (None: refused; ``own``: its own feature)."""

    # `texts` are such cells, in addition to empty ones; `numbers` are those of them that are numbers in any notation.

    instead: Any = None
    own: bool = False
    texts: frozenset[str] = frozenset()
    numbers: frozenset[float] = frozenset()

    @classmethod
    def read(cls, entry: Mapping[str, Any], field: str, value: Any) -> "Missing":
        """Read ``missing`` and ``missing_tokens`` of an entry; ``value`` makes a value of the first one."""
        said, tokens = entry.get("missing"), entry.get("missing_tokens")
        if tokens is not None and said is None:
            raise InvalidInput(field, "missing_tokens alone", f'"missing" with a replacement value, or "{INDICATOR}"')
        texts = tokens_in(field, "missing_tokens", tokens or ())
        numbers = frozenset(number for text in texts if not math.isnan(number := number_in(text)))
        own = said == INDICATOR
        return cls(None if said is None or own else value(said), own, frozenset(texts), numbers)

    @property
    def declared(self) -> bool:
        return self.own or self.instead is not None

    def holds(self, cell: Any) -> bool:
        if not self.declared:
            return False
        if is_blank(cell):
            return True
        return bool(self.texts) and (token_of(cell).strip() in self.texts or number_in(cell) in self.numbers)

    def names(self, column: str) -> list[str]:
        return [f"{column} missing"] if self.own else []

    def why(self, shown: str) -> str:
        """Message about a missing value; ``shown``: the replacement as written."""
        return OWN_PLACE if self.own else f"missing: read as {shown}"


class SingleKind(ColumnKind):
    """A kind whose cells are single values: each is one, or missing, or refused."""

    missing: Missing
    refusal: ClassVar[str]
    wanted: ClassVar[str]

    @abstractmethod
    def value(self, cell: Any) -> Any:
        """Return the value of a cell that is not missing; None where it is none."""

    @property
    def width(self) -> int:
        return 1 + self.missing.own

    def names(self, column: str) -> list[str]:
        return [column, *self.missing.names(column)]

    def shown(self, value: Any) -> str:
        """How a declared value is written in messages."""
        return "" if value is None else f"{value:g}"

    def gone(self, cell: Any) -> bool:
        return self.missing.holds(cell)

    def cut(self, value: Any) -> str | None:
        """Message where the value is taken for another; else None."""
        return None

    def why_refused(self, cell: Any) -> str:
        """Message about a cell that is no value and not missing; one of :data:`REFUSED`."""
        return self.refusal

    def values(self, cells: list[Any], name: str) -> list[Any]:
        """Values; None where one is missing and has a feature of its own."""
        found = []
        for cell in cells:
            value = self.missing.instead if (gone := self.gone(cell)) else self.value(cell)
            if value is None and not (self.missing.own and gone):
                allowed = f"{self.wanted} in every record (or declare missing values)"
                raise InvalidInput(f"column {name}", WITHHELD, allowed)
            found.append(value)
        return found

    def unusual(self, cells: list[Any]) -> Iterator[tuple[int, str]]:
        for row, cell in enumerate(cells):
            if self.gone(cell):
                yield row, self.missing.why(self.shown(self.missing.instead))
                continue
            value = self.value(cell)
            why = self.why_refused(cell) if value is None else self.cut(value)
            if why is not None:
                yield row, why

    def joined(self, values: list[Any], found: NDArray[np.float64]) -> NDArray[np.float64]:
        """(b, w) features of the values, and the feature of missing ones, where there is one: then all others are 0."""
        if not self.missing.own:
            return found
        gone = np.array([value is None for value in values], dtype=np.float64).reshape(-1, 1)
        return np.concatenate([found * (1 - gone), gone], axis=1)


class NumberKind(SingleKind):
    thousands: str | None
    refusal: ClassVar[str] = NO_NUMBER
    wanted = "a number"

    def values(self, cells: list[Any], name: str) -> list[Any]:
        # All at once where each cell is a finite number that means itself: one by one takes three times as long.
        if not self.missing.numbers and set(map(type, cells)) <= {float, int}:
            with suppress(OverflowError):
                numbers = np.array(cells, np.float64)
                if np.isfinite(numbers).all():
                    return list(numbers.tolist())
        return super().values(cells, name)

    def gone(self, cell: Any) -> bool:
        return self.missing.holds(ungrouped(cell, self.thousands))

    def value(self, cell: Any) -> float | None:
        number = number_in(ungrouped(cell, self.thousands))
        return None if math.isnan(number) else number

    def why_refused(self, cell: Any) -> str:
        if not isinstance(cell, str):
            return self.refusal
        if any(not math.isnan(number_in(ungrouped(cell, mark))) for mark in MARKS if mark != "." or mark in cell):
            return GROUPS
        if "," in cell and not math.isnan(number_in(cell.replace(",", "."))):
            return COMMA
        bare = cell.strip().strip(SIGNS)
        signed = bare != cell.strip() and (self.value(bare) is not None or self.why_refused(bare) != self.refusal)
        return SIGN if signed else self.refusal


def tokens_in(field: str, word: str, given: Any) -> list[str]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InvalidInput(field, given, f"{word}: a list of texts or numbers")
    plain = (isinstance(one, str | int | float) and not isinstance(one, bool) for one in given)
    if not all(plain) or any(map(is_endless, given)):
        raise InvalidInput(field, list(given), f"{word}: a list of texts or numbers")
    return [token_of(one) for one in given]


def is_endless(value: Any) -> bool:
    """Whether this is infinite or NaN, which JSON lacks."""
    return isinstance(value, float) and not math.isfinite(value)


def folded(text: str) -> str:
    return text.strip().casefold()
