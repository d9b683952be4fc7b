"""A draft of each column's specification from its records, for owners who accept that they are looked at."""
# No guarantee covers a draft: it reveals the records. A specification made from it states so.

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import date
from typing import Any, Final

from privmix.data.dialect import Dialect
from privmix.features.table_cells import INDICATOR, MARKS, SIGNS, is_blank, number_in, token_of, ungrouped
from privmix.features.table_dates import Dates

RAREST: Final = 10
"""Values of fewer records than this are not listed as categories: a rare value identifies a person easily."""

_MOST_CATEGORIES: Final = 60
_MOST_VALUES: Final = 2000
# A longer text, or one of several lines, is no category.
_LONGEST: Final = 60
# Entries that forms and programs write where a value is unknown.
_ABSENT: Final = frozenset({"na", "n/a", "#n/a", "n.a.", "nan", "null", "none", "?", "-", "."})
_SENTINELS: Final = frozenset({-9.0, -99.0, -999.0, -9999.0})
_TRUTH: Final = ({"true", "false"}, {"yes", "no"}, {"1", "0"})
_TIMES: Final = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_DAYS: Final = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
    "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%d. %B %Y", "%b %d, %Y", "%B %d, %Y",
)  # fmt: skip
_FORMATS: Final = ("", *(day + time for day in _DAYS for time in _TIMES))
_LIKE_DAY: Final = re.compile(
    r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}|(?=.*\d).*\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)", re.I
)
# Bounds that follow from the last word of a column's name.
_BOUNDS: Final = {"month": (1, 12), "day": (1, 31), "weekday": (0, 7), "hour": (0, 23), "minute": (0, 59)}
_NOT_YET: Final = {
    "comma": "a number with a decimal comma: declare `csv` decimal=comma and look again",
    "sign": "a number after removal of signs such as $ and % from the data",
}
# A column with nearly all values different, in at least this many records, identifies people.
_FEWEST, _NEARLY_ALL = 20, 0.95
# One in this many cells may be of another kind than the column; formats of days are judged by as many cells.
_ODD, _ENOUGH = 20, 100
# Whole numbers with at most this many values have a bin each.
_MOST_BINS: Final = 12


class Look:
    """Observations of one column; ``number``: a schema declares numbers, so 1 and 0 are no truth values."""

    # `tokens` are cells that the owner declares missing, numbers with a decimal point. A column of texts keeps its
    # cells under every `decimal` mark.

    def __init__(
        self, name: str = "", tokens: Collection[str] = (), decimal: str = ".", *, number: bool = False
    ) -> None:
        self._word = re.split("[^a-z]+", name.casefold())[-1]
        self._dialect, self._declared_number = Dialect(decimal=decimal), number
        # A point in a number with a decimal comma may part thousands, and the other way round.
        self._marks = [mark for mark, point in MARKS.items() if point == decimal or mark not in ",."]
        self._declared, self._blank, self._count = frozenset(tokens), False, 0
        self._numbers_declared = {number_in(token) for token in tokens}
        self._tokens: dict[str, None] = {}
        self._values: Counter[Any] = Counter()
        self._unique_of = 0
        self._integers, self._low, self._high = True, math.inf, -math.inf
        self._sentinels: set[float] = set()
        # How many cells are of a kind: numbers, some of them with a mark between thousands; days, by their format; ...
        self._hits: Counter[str] = Counter()
        self._dates = {text: _reader(text) for text in _FORMATS}
        self._days: dict[str, tuple[date, date]] = dict.fromkeys(_FORMATS, (date.max, date.min))

    def add(self, cells: Iterable[Any]) -> None:
        for cell, times in Counter(cells).items():
            if is_blank(cell):
                self._blank = True
                continue
            text = token_of(cell).strip()
            if text in self._declared or text.casefold() in _ABSENT:
                self._tokens[text] = None
            elif self._numbers_declared and self._number(cell) in self._numbers_declared:
                self._tokens[token_of(self._number(cell))] = None
            else:
                self._see(text, cell, times)
        if self._count >= _ENOUGH:
            self._dates = {text: reader for text, reader in self._dates.items() if self._all(text)}

    def _all(self, *kinds: str) -> bool:
        """Whether these are all cells but for a few: no single one decides what a column is."""
        hits = sum(self._hits[kind] for kind in kinds)
        return hits > 0 and hits >= self._count - self._count // _ODD

    def _number(self, cell: Any) -> float:
        return number_in(self._dialect.point(cell) if isinstance(cell, str) else cell)

    def _see(self, text: str, cell: Any, times: int) -> None:
        self._count += times
        if len(self._values) < _MOST_VALUES:
            # How many differ is judged by the first ones.
            self._unique_of = self._count
        value = text if isinstance(cell, str) else cell
        if len(self._values) < _MOST_VALUES or value in self._values:
            self._values[value] += times
        number = self._number(cell)
        for mark in self._marks if math.isnan(number) else ():
            number = number_in(ungrouped(text if mark in ",." else self._dialect.point(text), mark))
            if not math.isnan(number):
                self._hits[f"thousands{mark}"] += times
                break
        if not math.isnan(number):
            self._hits["number"] += times
            if number in _SENTINELS:
                self._sentinels.add(number)
            else:
                self._integers = self._integers and number.is_integer()
                self._low, self._high = min(self._low, number), max(self._high, number)
            return
        bare = text.strip(SIGNS).replace(",", "")
        comma = self._dialect.decimal == "." and not math.isnan(number_in(text.replace(",", ".")))
        self._hits["comma"] += times * comma
        self._hits["sign"] += times * (text.strip(SIGNS) != text and not math.isnan(number_in(bare)))
        self._hits["like a day"] += times * bool(_LIKE_DAY.search(text))
        for format_, reader in self._dates.items():
            if (day := reader.value(text)) is not None:
                first, last = self._days[format_]
                self._days[format_] = min(first, day), max(last, day)
                self._hits[format_] += times

    def draft(self) -> tuple[dict[str, Any], str]:
        """Return an entry of a specification and its reason; placeholders stand where looking does not decide."""
        entry, words, fit = self._draft()
        if fit < self._count:
            words += f"; {self._count - fit:,} of {self._count:,} cells do not fit: `privmix check` lists them"
        return entry, words

    def _draft(self) -> tuple[dict[str, Any], str, int]:
        """(entry, words, cells that fit)."""
        distinct, count = len(self._values), self._count
        if not count:
            return {"ignore": True}, "left out: no record has a value", 0
        texts = [token_of(value) for value in self._values]
        if {text.casefold() for text in texts} in _TRUTH:
            return {"boolean": self._truth(), **self._missing()}, "true or false", count
        if self._all("number") and self._low <= self._high:
            if self._integers and distinct == self._unique_of >= _FEWEST:
                return {"ignore": True}, "left out: a different number in every record", count
            return *self._range(), self._hits["number"]
        for kind, words in _NOT_YET.items():
            if self._all("number", kind):
                return {"declare": f"{words}; or ignore"}, words, count
        days = [text for text in self._dates if self._all(text)]
        if days:
            return self._days_between(max(days, key=self._hits.__getitem__))
        if self._all("like a day"):
            return {"declare": 'a date with its "format"; categories; or ignore'}, "dates of an unknown format", count
        if distinct >= _NEARLY_ALL * max(self._unique_of, 1) and count >= _FEWEST:
            return {"ignore": True}, "left out: nearly every record has a different value", count
        common = sorted(token_of(value) for value, times in self._values.items() if times >= RAREST)
        if any(len(text) > _LONGEST or not text.isprintable() for text in texts):
            return {"ignore": True}, f"left out: texts of several lines, or longer than {_LONGEST} characters", count
        if not common or len(common) > _MOST_CATEGORIES:
            allowed = f"1 to {_MOST_CATEGORIES} are listed as categories"
            return {"ignore": True}, f"left out: {len(common)} values have {RAREST} records or more; {allowed}", count
        missing = {"missing_tokens": list(self._tokens)} if self._tokens or self._blank else {}
        rare = count - sum(times for times in self._values.values() if times >= RAREST)
        other, words = ({"other": True}, f"; {rare:,} of {count:,} cells are other") if rare else ({}, "")
        return {"categories": common, **missing, **other}, f"{len(common)} categories{words}", count

    def _truth(self) -> Any:
        """As true and false are spelt most often."""
        spelt = [value for value, _ in self._values.most_common()]
        if not self._declared_number and not all(isinstance(value, str) for value in spelt):
            return True
        texts = [int(text) if (text := token_of(value)) in ("0", "1") else text for value in spelt]
        true = [text for text in texts if str(text).casefold() in ("true", "yes", "1")]
        return {"true": true[:1], "false": [text for text in texts if text not in true][:1]}

    def _missing(self, numbers: Iterable[float] = ()) -> dict[str, Any]:
        tokens: list[Any] = [*self._tokens, *(int(number) for number in sorted(numbers))]
        if not (tokens or self._blank):
            return {}
        return {"missing": INDICATOR, **({"missing_tokens": tokens} if tokens else {})}

    def _range(self) -> tuple[dict[str, Any], str]:
        low, high, absent = self._low, self._high, self._sentinels
        if low < 0 and absent:
            low, high, absent = min(low, *absent), max(high, *absent), set()
        marks = [mark for mark in self._marks if self._hits[f"thousands{mark}"]]
        more = {**({"thousands": marks[0]} if marks else {}), **self._missing(absent)}
        if not self._integers:
            return {"range": list(rounded(low, high)), **more}, "a number"
        known = _BOUNDS.get(self._word)
        if known is not None and known[0] <= low and high <= known[1]:
            low, high = known
            each = list(range(low, high + 1))
        else:
            low, high = rounded(low, high)
            numbers: Counter[float] = Counter()
            for value, times in self._values.items():
                numbers[self._number(value)] += times
            frequent = {number for number, times in numbers.items() if times >= RAREST and not math.isnan(number)}
            each = [int(number) for number in sorted(frequent - absent)]
        several = len(each) > 1 and len(self._values) <= _MOST_BINS
        if len(each) <= _MOST_BINS and several and each[-1] - each[0] < len(each):
            bins = {"bins": each[1:], "range": [each[0], each[-1]]}
            return {**bins, "integer": True, **more}, f"a whole number, {len(each)} values with a bin each"
        hint = f" of {len(self._values)} values: categories may serve better" if several else ""
        return {"range": [low, high], "integer": True, **more}, f"a whole number{hint}"

    def _days_between(self, format_: str) -> tuple[dict[str, Any], str, int]:
        twin = "".join({"d": "m", "m": "d"}.get(sign, sign) for sign in format_)
        if twin != format_ and self._hits[twin] == self._hits[format_]:
            allowed = f'a date: {{"date": [first, last], "format": "{format_}"}} or "{twin}"'
            return {"declare": allowed}, "dates with ambiguous day and month", self._count
        first, last = self._days[format_]
        bounds = [f"{first.year:04}-01-01", f"{last.year:04}-12-31"]
        entry = {"date": bounds, **({"format": format_} if format_ else {}), **self._missing()}
        return entry, "a day", self._hits[format_]


def rounded(low: float, high: float) -> tuple[float, float]:
    """Round numbers below and above: to one digit of the distance between them."""
    if low == high:
        return _plain(math.floor(low) - 1), _plain(math.ceil(high) + 1)
    # Not finer than the resolution of numbers of this size.
    finest = max(math.log10(max(-low, high, 1e-290)) - 14, -300)
    digits = math.floor(max(math.log10(high - low), finest))
    step = 10.0**digits
    below = round(math.floor(low / step) * step, max(0, -digits))
    above = round(math.ceil(high / step) * step, max(0, -digits))
    # A quotient that is rounded, to 0 at the smallest numbers, can end inside.
    return _plain(below if below <= low else below - step), _plain(above if above >= high else above + step)


def _plain(number: float) -> float:
    return int(number) if float(number).is_integer() else number


def _reader(text: str) -> Dates:
    years = ["1950-01-01", "2049-12-31"] if "%y" in text else ["1000-01-01", "9999-12-31"]
    return Dates.read({"date": years, **({"format": text} if text else {})}, "date")
