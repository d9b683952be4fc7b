"""Types of fields of frozen dataclasses: checked when made, stored as JSON, read back strictly.

A field has its range in its type, and optional ones state when they are stored:

    @dataclass(frozen=True)
    class Draw(Checked):
        rate: Share
        rows: Count = 1
        noise: Annotated[str, Choice("gaussian", "laplace")] = used("gaussian")

Not msgspec (checks only what it decodes), attrs (types have no ranges) or pydantic (own errors; converts texts to
numbers): the command line, editors and ``dataclasses.replace`` know dataclasses.
"""

import builtins
import functools
import inspect
import math
import operator
import re
import sys
import types
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Final, Protocol, TypeVar, Union, get_args, get_origin

from privmix.errors import InvalidInput, check_choice, check_integer, check_number, in_terms_of

Kind = TypeVar("Kind")
# Metadata: stored where it is not the default (True), or where the field of this name is not; and never (False).
_USED: Final = "where_used"
_STORED: Final = "stored"
# Metadata: the version of the whole in which the field came.
_SINCE: Final = "since"
# The longest text and the largest whole number that a stored field may be, unless its range has another limit.
_WORD: Final = re.compile(r"[0-9A-Za-z_.:,+~/ -]{0,200}")
_LARGEST: Final = 2**63
_WORDS: Final = {int: "an integer", float: "a number", bool: "true or false", str: "a text", dict: "values by name"}
# Control and format characters (zero-width and bidirectional ones among them), surrogates, private use, unassigned,
# line and paragraph separators: two texts may look equal and differ by one of these.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Fillers, joiners and blanks of other categories that show nothing either.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# These two change how their neighbours look in emoji, Persian and Indic scripts, and in Latin nothing.
_JOINERS: Final = frozenset("\u200c\u200d")
# Variation selectors: colour of an emoji, form of an ideograph.
_SELECTORS: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def is_printable(text: str) -> bool:
    """Whether a text is one line in which every character shows."""
    # A joiner is allowed in emoji, between Arabic letters and after an Indic virama, where spelling needs it. Names
    # that must differ are compared by looks.
    return all(mark.isprintable() or _shows(text, place) for place, mark in enumerate(text)) and _BLANK.isdisjoint(text)


def _shows(text: str, place: int) -> bool:
    if text[place] not in _JOINERS:
        return unicodedata.category(text[place]) not in _UNSEEN
    before, after = _SELECTORS.sub("", text[:place])[-1:], text[place + 1 : place + 2]
    if not before or not after:
        return False
    emoji = unicodedata.category(after) == "So" and unicodedata.category(before) in ("So", "Sk")
    arabic = unicodedata.bidirectional(before) == unicodedata.bidirectional(after) == "AL"
    return emoji or arabic or unicodedata.combining(before) == 9


def looks(text: str) -> str:
    """Return a printable text without marks that hardly change its look: two names must differ in more."""
    return "".join(mark for mark in _SELECTORS.sub("", text) if mark not in _JOINERS)


def printable(text: str, instead: str = "?") -> str:
    """Return a text from a stranger as one line, each character that does not show replaced."""
    if is_printable(text):
        return text
    return "".join(mark if mark.isprintable() and mark not in _BLANK else instead for mark in text)


class Range(Protocol):
    """Range of a field's values; it stands in the field's type: ``Annotated[int, Whole(1)]``."""

    def check(self, name: str, value: Any) -> None:
        """Raise :class:`InvalidInput` about the field ``name`` unless ``value`` is right."""
        ...


@dataclass(frozen=True)
class Number:
    """A finite number in an interval."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def check(self, name: str, value: Any) -> None:
        check_number(name, value, low=self.low, high=self.high, low_open=self.low_open, high_open=self.high_open)


@dataclass(frozen=True)
class Whole:
    """An integer from ``low`` to ``high``; ``plain``: an int itself, since no bool or NumPy number survives JSON."""

    low: int
    high: int | None = None
    plain: bool = False

    def check(self, name: str, value: Any) -> None:
        check_integer(name, value, low=self.low, high=self.high)
        if self.plain and type(value) is not int:
            raise InvalidInput(name, value, "an integer")


class Choice:
    """One of some words, or of those that a function returns when needed, such as a registry's."""

    def __init__(self, *words: str, of: Callable[[], Sequence[str]] | None = None) -> None:
        self._words, self._of = words, of

    def check(self, name: str, value: Any) -> None:
        check_choice(name, value, self._words if self._of is None else self._of())


@dataclass(frozen=True)
class Text:
    """A text that a regular expression matches as a whole; ``words``: what it allows."""

    pattern: str
    words: str

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, str) or re.fullmatch(self.pattern, value, re.DOTALL) is None:
            raise InvalidInput(name, value, self.words)


@dataclass(frozen=True)
class Line:
    """A line of printable characters; ``trimmed``: without spaces around it."""

    most: int
    trimmed: bool = True

    def check(self, name: str, value: Any) -> None:
        fits = isinstance(value, str) and bool(value.strip()) and len(value) <= self.most and is_printable(value)
        if not fits or (self.trimmed and value != value.strip()):
            raise InvalidInput(name, value, f"a line of 1 to {self.most} printable characters")


class By:
    """A check by a function of field name and value, which raises; ``wrong``: refused values, for tests."""

    wrong: tuple[Any, ...]

    def __init__(self, function: Callable[[str, Any], object], *wrong: Any) -> None:
        self._function, self.wrong = function, wrong

    def check(self, name: str, value: Any) -> None:
        try:
            self._function(name, value)
        except (TypeError, AttributeError):
            # It was made for values of the field's own type.
            raise InvalidInput(name, type(value).__name__, "a value of another type") from None


class Flag:
    """Yes or no: True or False itself, no number for it."""

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, bool):
            raise InvalidInput(name, value, "True or False")


@dataclass(frozen=True)
class Coded:
    """A codec for values that are not plain: ``write`` to a JSON value, ``read`` from one of any origin, or raise."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


Positive = Annotated[float, Number(0, low_open=True)]
Amount = Annotated[float, Number(0)]
Share = Annotated[float, Number(0, 1, low_open=True, high_open=True)]
Fraction = Annotated[float, Number(0, 1, high_open=True)]
Rate = Annotated[float, Number(0, 1, low_open=True)]
Proportion = Annotated[float, Number(0, 1)]
Count = Annotated[int, Whole(1)]
# For plans, which are read back from JSON.
PlainCount = Annotated[int, Whole(1, plain=True)]
Size = Annotated[int, Whole(0)]
Seed = Annotated[int, Whole(0, 2**31 - 1)]
Words = Annotated[str, Text(".*", "a text")]
Digest = Annotated[str, Text("[0-9a-f]{64}", "64 hexadecimal digits")]
Switch = Annotated[bool, Flag()]


def used(default: Any) -> Any:
    """Return a field stored only where it is not its default, so that older content reads as before."""
    return field(default=default, metadata={_USED: True})


def later(version: int, older: Any) -> Any:
    """Return a field added in ``version`` (at least 2); content stored before lacks it and means ``older``."""
    return field(default=older, metadata={_SINCE: version})


def newest(kind: type[Any], first: int = 1) -> int:
    """Return the version in which a dataclass's last field came; ``first`` if all were there from the beginning."""
    versions: list[int] = [item.metadata.get(_SINCE, first) for item in fields(kind)]
    return max([first, *versions])


def names_of(kind: type[Any]) -> list[str]:
    return [item.name for item in fields(kind)]


def before(kind: type[Any], version: int) -> dict[str, Any]:
    """Return the fields that came after a version, and what was stored in it means by having none."""
    return {item.name: item.default for item in fields(kind) if item.metadata.get(_SINCE, version) > version}


def check_version(name: str, version: Any, first: int, last: int) -> int:
    """Raise :class:`InvalidInput` unless a stored version can be read here."""
    if type(version) is not int or not first <= version <= last:
        newer = type(version) is int and last < version < 10**6
        older = "others are read by the privmix that wrote them"
        why = f"written by a newer privmix, version {version}; this one reads up to {last}" if newer else older
        raise InvalidInput(name, version, f"{last if newer or first == last else f'{first} to {last}'}: {why}")
    return version


@dataclass(frozen=True)
class _Said:
    """Facts of a type: the kinds of its values, whether None is allowed, its range and its coding."""

    kinds: tuple[Any, ...]
    none: bool
    range: Range | None
    coded: Coded | None
    each: "_Said | None"

    @property
    def ranged(self) -> bool:
        return self.range is not None or (self.each is not None and self.each.ranged)


def _read_types(kind: Any) -> Mapping[str, _Said]:
    hints = hints_of(kind)
    return {item.name: _of(hints[item.name]) for item in fields(kind)}


# Typed here: type checkers do not see classes as hashable, which a cache takes alone.
_said: Callable[[Any], Mapping[str, _Said]] = functools.cache(_read_types)


class NotImported:
    """Stands for the types that a module names and does not import at run time: its own business, and never stored."""

    def __class_getitem__(cls, _: Any) -> "type[NotImported]":
        return cls


class _Names(dict[str, Any]):
    """Meaning of names in a module."""

    def __init__(self, module: str) -> None:
        # A class may be of code that no module holds.
        self.known = vars(sys.modules[module]) if module in sys.modules else {}

    def __missing__(self, name: str) -> Any:
        return self.known.get(name, getattr(builtins, name, NotImported))


def hints_of(kind: type[Any]) -> dict[str, Any]:
    """Return the type of each field of a dataclass, with its range, as far as it is imported."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        names = _Names(base.__module__)
        for name, hint in inspect.get_annotations(base).items():
            found[name] = eval(hint, names.known, names) if isinstance(hint, str) else hint
    return found


def bare(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        return bare(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return functools.reduce(operator.or_, map(bare, get_args(hint)))
    return hint


def _of(hint: Any) -> _Said:
    """Read a type: ``Annotated``, a union with None, a tuple or mapping of equals, or a plain one."""
    notes: list[Any] = []
    none, several = False, [hint]
    found: list[Any] = []
    while several:
        one = several.pop(0)
        if get_origin(one) is Annotated:
            inner, *more = get_args(one)
            notes += more
            several.insert(0, inner)
        elif get_origin(one) in (Union, types.UnionType):
            several = [*get_args(one), *several]
        elif one is type(None):
            none = True
        else:
            found.append(one)
    limits = next((note for note in notes if hasattr(note, "check")), None)
    coded = next((note for note in notes if isinstance(note, Coded)), None)
    each = None
    if len(found) == 1 and get_origin(found[0]) is tuple and get_args(found[0])[1:] == (...,):
        each = _of(get_args(found[0])[0])
    elif len(found) == 1 and _is_mapping(get_origin(found[0])) and len(get_args(found[0])) > 1:
        each = _of(get_args(found[0])[1])
    return _Said(tuple(found), none, limits, coded, each)


def _is_mapping(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Mapping)


def check_fields(made: Any) -> None:
    """Raise :class:`InvalidInput` unless every field of a dataclass has a value of its type."""
    # Fields without a range, and relations of fields, are the class's own work in __post_init__.
    for name, said in _said(type(made)).items():
        if said.ranged:
            _check(name, getattr(made, name), said)


class Checked:
    """Base of the dataclasses whose fields are checked when made, by :func:`check_fields`."""

    def __post_init__(self) -> None:
        check_fields(self)


def _check(name: str, value: Any, said: _Said) -> None:
    if value is None and said.none:
        return
    if said.range is not None:
        said.range.check(name, value)
    elif said.each is not None and said.each.ranged:
        several = _is_mapping(get_origin(said.kinds[0]))
        if not isinstance(value, Mapping if several else tuple):
            raise InvalidInput(name, value, "values by name" if several else "a tuple")
        for part in value.values() if isinstance(value, Mapping) else value:
            _check(name, part, said.each)


def stored(made: Any) -> dict[str, Any]:
    """Return a dataclass as JSON values, field by field; :func:`read` is the inverse."""
    said, known = _said(type(made)), {item.name: item for item in fields(made)}
    return {
        name: _written(getattr(made, name), said[name]) for name, item in known.items() if _is_stored(made, item, known)
    }


def _is_stored(made: Any, item: Field[Any], known: Mapping[str, Field[Any]]) -> bool:
    rule = item.metadata.get(_USED)
    if rule:
        decides = item if rule is True else known[rule]
        return not value_is_default(decides, getattr(made, decides.name))
    return bool(item.metadata.get(_STORED, True))


def value_is_default(item: Field[Any], value: Any) -> bool:
    factory: Any = item.default_factory
    usual = item.default if factory is MISSING else factory()
    # Arrays and frames compare by element.
    return value is usual if usual is None or value is None else bool(value == usual)


def _written(value: Any, said: _Said | None) -> Any:
    if value is None:
        return None
    if said is not None and said.coded is not None:
        return said.coded.write(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        # NumPy's are floats of a class of their own.
        return float(value)
    if is_dataclass(value):
        return stored(value)
    if isinstance(value, tuple | list):
        return [_written(part, None if said is None else said.each) for part in value]
    if isinstance(value, Mapping):
        return {name: _written(part, None if said is None else said.each) for name, part in value.items()}
    return value


def read(kind: type[Kind], values: Any, name: str, version: int | None = None) -> Kind:
    """Read the object that :func:`stored` described, from JSON values of any origin.

    Formal guarantees:
        * Typed: each value is of its field's type, no number a text, no bool a number, and in the field's range;
        * Nothing else: a name that is no field is refused, and a missing one unless it is stored where used alone;
        * The same again: :func:`stored` of the object gives these values.
    """
    # name: of the whole in messages, before the name of a field. version: later fields are missing and have their older
    # values; None: the newest.
    if not isinstance(values, Mapping):
        raise InvalidInput(name, type(values).__name__, "its fields, by name")
    said = _said(kind)
    known = {item.name: item for item in fields(kind) if item.metadata.get(_STORED, True)}  # type: ignore[arg-type]
    if version is not None:
        known = {one: item for one, item in known.items() if item.metadata.get(_SINCE, version) <= version}
    missing = [one for one, item in known.items() if one not in values and not item.metadata.get(_USED)]
    if odd := sorted({*missing, *(set(values) - set(known))}):
        unknown = ", written by another version" if set(values) - set(known) else ""
        raise InvalidInput(
            name, odd, f"exactly its fields{'' if version is None else f' in version {version}'}{unknown}"
        )
    try:
        given = {one: _value(value, said[one], f"{name} {one}") for one, value in values.items()}
        with in_terms_of({one: f"{name} {one}" for one in known}):
            made: Kind = kind(**given)
    except InvalidInput:
        raise
    except (TypeError, KeyError, ValueError, ArithmeticError, AttributeError):
        raise InvalidInput(name, "values of other types", "the values that privmix wrote") from None
    again = {one: value for one, value in stored(made).items() if one in known}
    if odd := sorted(
        one for one in {*again, *values} if one not in again or one not in values or again[one] != values[one]
    ):
        raise InvalidInput(name, odd, "as privmix writes them")
    return made


def _value(value: Any, said: _Said, name: str) -> Any:
    """One value of its type; a range is looked at when the object is made."""
    if value is None and said.none:
        return None
    if said.coded is not None:
        try:
            return said.coded.read(value)
        except InvalidInput:
            raise
        except (TypeError, KeyError, ValueError, AttributeError):
            raise InvalidInput(name, value, "what privmix writes there") from None
    if said.each is not None and _is_mapping(get_origin(said.kinds[0])):
        if type(value) is not dict or not all(type(one) is str for one in value):
            raise InvalidInput(name, type(value).__name__, "values by name")
        return {one: _value(part, said.each, name) for one, part in value.items()}
    if said.each is not None:
        if not isinstance(value, list):
            raise InvalidInput(name, value, "a list")
        return tuple(_value(part, said.each, name) for part in value)
    for kind in said.kinds:
        if isinstance(kind, type) and issubclass(kind, Enum):
            check_choice(name, value, [one.value for one in kind])
            return kind(value)
        if is_dataclass(kind):
            return read(kind, value, name)  # type: ignore[arg-type]
    plain = [get_origin(kind) or kind for kind in said.kinds]
    if Any in plain:
        return value
    # An int is a float where one is meant; a bool is a number nowhere.
    fits = type(value) in plain or (type(value) is int and float in plain)
    fits = fits or (isinstance(value, Mapping) and any(map(_is_mapping, plain)))
    if isinstance(value, str) and said.range is None:
        fits = fits and _WORD.fullmatch(value) is not None
    elif isinstance(value, int):
        fits = fits and abs(value) <= _LARGEST
    if not fits:
        raise InvalidInput(name, value, " or ".join(_WORDS.get(kind, f"a {kind.__name__}") for kind in plain))
    return value
