"""What the fields of frozen dataclasses may hold, said once: checked when made, stored as JSON, read back strictly.

A field says its range in its type, and optional ones say when they are stored:

    @dataclass(frozen=True)
    class Draw:
        rate: Share
        rows: Count = 1
        noise: Annotated[str, Choice("gaussian", "laplace")] = used("gaussian")

        def __post_init__(self) -> None:
            check_fields(self)

Why not msgspec, attrs or pydantic: options, plans and configs are dataclasses that the command line, editors and
``dataclasses.replace`` know; msgspec checks only what it decodes, attrs knows no ranges of types, pydantic's errors and
conversions are its own (a text becomes a number). What is needed beside dataclasses is this file.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from privmix.errors import InvalidInput, check_choice, check_integer, check_number

Kind = TypeVar("Kind")
# Metadata: stored where it is not the default (True), or where the field of this name is not; and never (False).
_USED: Final = "where_used"
_STORED: Final = "stored"
# The longest text and the largest whole number that a stored field may be, unless its range says otherwise.
_WORD: Final = re.compile(r"[0-9A-Za-z_.:,+~/ -]{0,200}")
_LARGEST: Final = 2**63


class Range(Protocol):
    """What a field may hold; it stands in the field's type: ``Annotated[int, Whole(1)]``."""

    def check(self, name: str, value: Any) -> None:
        """Raise :class:`InvalidInput` about the field ``name`` unless ``value`` is right."""
        ...

    def wrong(self) -> Sequence[Any]:
        """Values that are not, for tests."""
        ...


@dataclass(frozen=True)
class Number:
    """A finite number in an interval.

    Example:
        >>> Number(0, 1, high_open=True).check("momentum", 1.0)
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: momentum: got 1.0; allowed: a finite number >= 0 and < 1
    """

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def check(self, name: str, value: Any) -> None:
        """See :class:`Range`."""
        check_number(name, value, low=self.low, high=self.high, low_open=self.low_open, high_open=self.high_open)

    def wrong(self) -> Sequence[Any]:
        """See :class:`Range`."""
        ends = []
        if self.low > -math.inf:
            ends.append(self.low if self.low_open else math.nextafter(self.low, -math.inf))
        if self.high < math.inf:
            ends.append(self.high if self.high_open else math.nextafter(self.high, math.inf))
        return [*ends, math.nan, math.inf, -math.inf, "1", True, [1.0]]


@dataclass(frozen=True)
class Whole:
    """An integer from ``low`` to ``high``."""

    low: int
    high: int | None = None

    def check(self, name: str, value: Any) -> None:
        """See :class:`Range`."""
        check_integer(name, value, low=self.low, high=self.high)

    def wrong(self) -> Sequence[Any]:
        """See :class:`Range`."""
        return [self.low - 1, *([] if self.high is None else [self.high + 1]), self.low + 0.5, math.nan, "1", True, [1]]


class Choice:
    """One of some words; a function gives those of a registry, which is asked when it is needed.

    Example:
        >>> Choice("flat", "automatic").check("clipping", "round")
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: clipping: got 'round'; allowed: one of flat, automatic
    """

    def __init__(self, *words: str, of: Callable[[], Sequence[str]] | None = None) -> None:
        self._words, self._of = words, of

    def check(self, name: str, value: Any) -> None:
        """See :class:`Range`."""
        check_choice(name, value, self._words if self._of is None else self._of())

    def wrong(self) -> Sequence[Any]:
        """See :class:`Range`."""
        return ["", "no such word", 1, True, ["a"]]


@dataclass(frozen=True)
class Text:
    """A text that a pattern matches as a whole.

    Args:
        pattern: a regular expression.
        words: what it allows, for people.
    """

    pattern: str
    words: str

    def check(self, name: str, value: Any) -> None:
        """See :class:`Range`."""
        if not isinstance(value, str) or re.fullmatch(self.pattern, value, re.DOTALL) is None:
            raise InvalidInput(name, value, self.words)

    def wrong(self) -> Sequence[Any]:
        """See :class:`Range`."""
        return [text for text in ("", "\0", "x" * 100_000) if re.fullmatch(self.pattern, text, re.DOTALL) is None] + [1]


@dataclass(frozen=True)
class Coded:
    """How values are stored that are no plain ones, in a field's type beside or in place of a range.

    Args:
        write: to a JSON value.
        read: from one, of whoever it comes from; raises :class:`InvalidInput`, TypeError, KeyError or ValueError.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


Positive = Annotated[float, Number(0, low_open=True)]
"""A number above 0."""
Amount = Annotated[float, Number(0)]
"""A number of at least 0."""
Share = Annotated[float, Number(0, 1, low_open=True, high_open=True)]
"""A number between 0 and 1, both excluded."""
Fraction = Annotated[float, Number(0, 1, high_open=True)]
"""A number from 0 to below 1."""
Count = Annotated[int, Whole(1)]
"""An integer of at least 1."""
Size = Annotated[int, Whole(0)]
"""An integer of at least 0."""
Seed = Annotated[int, Whole(0, 2**31 - 1)]
"""Of draws that are public."""


def used(default: Any = MISSING, *, beside: str | None = None, **more: Any) -> Any:
    """A field that is stored only where it is not its default: what was written before there was one is read as before.

    Args:
        default: of the field.
        beside: another field, with which it is stored: exactly where that one is not its default.
        more: as of :func:`dataclasses.field`.
    """
    metadata = {**more.pop("metadata", {}), _USED: beside or True}
    return field(**({} if default is MISSING else {"default": default}), metadata=metadata, **more)


@dataclass(frozen=True)
class _Said:
    """What a type says: of which kinds values are, whether none is allowed, and what else there is to it."""

    kinds: tuple[Any, ...]
    none: bool
    range: Range | None
    coded: Coded | None
    each: _Said | None


def _said(kind: Any) -> Mapping[str, _Said]:
    return _read_types(kind)


@cache
def _read_types(kind: Any) -> Mapping[str, _Said]:
    hints = get_type_hints(kind, include_extras=True)
    return {item.name: _of(hints[item.name]) for item in fields(kind)}


def _of(hint: Any) -> _Said:
    """Read a type: ``Annotated``, a union with None, a tuple of equals, or a plain one."""
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
    limits = next((note for note in notes if hasattr(note, "wrong")), None)
    coded = next((note for note in notes if isinstance(note, Coded)), None)
    each = None
    if len(found) == 1 and get_origin(found[0]) is tuple and get_args(found[0])[1:] == (...,):
        each = _of(get_args(found[0])[0])
    return _Said(tuple(found), none, limits, coded, each)


def check_fields(made: Any, but: Sequence[str] = ()) -> None:
    """Raise :class:`InvalidInput` unless every field of a dataclass holds what its type says.

    Fields without a range are not looked at: of these, and of what fields mean together, the class knows more.

    Args:
        made: the object, in its ``__post_init__``.
        but: fields that are not looked at here.

    Example:
        >>> @dataclass(frozen=True)
        ... class Draw:
        ...     rate: Share
        >>> check_fields(Draw(1.5))
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: rate: got 1.5; allowed: a finite number > 0 and < 1
    """
    for name, said in _said(type(made)).items():
        if name not in but:
            _check(name, getattr(made, name), said)


def _check(name: str, value: Any, said: _Said) -> None:
    if value is None and said.none:
        return
    if said.range is not None:
        said.range.check(name, value)
    elif said.each is not None and said.each.range is not None:
        if not isinstance(value, tuple):
            raise InvalidInput(name, value, "a tuple")
        for part in value:
            _check(name, part, said.each)


def wrong_values(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """For tests: a field of the class and a value that its type does not allow, one after the other.

    Example:
        >>> @dataclass(frozen=True)
        ... class Draw:
        ...     rows: Count | None
        >>> next(wrong_values(Draw))
        ('rows', 0)
    """
    for name, said in _said(kind).items():
        if said.range is not None:
            yield from ((name, value) for value in said.range.wrong())
            if not said.none:
                yield name, None


def stored(made: Any) -> dict[str, Any]:
    """A dataclass as JSON values, field by field; :func:`read` is the inverse.

    Example:
        >>> @dataclass(frozen=True)
        ... class Draw:
        ...     rate: Share
        ...     noise: str = used("gaussian")
        >>> stored(Draw(0.5)), stored(Draw(0.5, "laplace"))
        ({'rate': 0.5}, {'rate': 0.5, 'noise': 'laplace'})
    """
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
    """Whether a field has the value that it has when nothing is said."""
    factory: Any = item.default_factory
    return bool(value == (item.default if factory is MISSING else factory()))


def _written(value: Any, said: _Said | None) -> Any:
    if value is None:
        return None
    if said is not None and said.coded is not None:
        return said.coded.write(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return stored(value)
    if isinstance(value, tuple | list):
        return [_written(part, None if said is None else said.each) for part in value]
    if isinstance(value, Mapping):
        return {name: _written(part, None) for name, part in value.items()}
    return value


def read(kind: type[Kind], values: Any, name: str) -> Kind:
    """The object that :func:`stored` described, from JSON values of whoever they come from.

    Formal guarantees:
        * Typed: each value is of its field's type, no number a text, no bool a number, and in the field's range;
        * Nothing else: a name that is no field is refused, and a missing one unless it is stored where used alone;
        * The same again: :func:`stored` of the object gives these values.

    Args:
        kind: a frozen dataclass.
        values: JSON values.
        name: what messages call the whole, before the name of a field.

    Raises:
        InvalidInput: they describe no such object; the field is named by its path.

    Example:
        >>> @dataclass(frozen=True)
        ... class Draw:
        ...     rate: Share
        ...     def __post_init__(self): check_fields(self)
        >>> read(Draw, {"rate": 0.5}, "draw")
        Draw(rate=0.5)
        >>> read(Draw, {"rate": "0.5"}, "draw")
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: draw rate: got '0.5'; allowed: a float
    """
    if not isinstance(values, Mapping):
        raise InvalidInput(name, type(values).__name__, "its fields, by name")
    said = _said(kind)
    known = {item.name: item for item in fields(kind) if item.metadata.get(_STORED, True)}  # type: ignore[arg-type]
    missing = [one for one, item in known.items() if one not in values and not item.metadata.get(_USED)]
    if odd := sorted({*missing, *(set(values) - set(known))}):
        unknown = ", written by another version" if set(values) - set(known) else ""
        raise InvalidInput(name, odd, f"exactly its fields{unknown}")
    try:
        made: Kind = kind(**{one: _value(value, said[one], f"{name} {one}") for one, value in values.items()})
    except InvalidInput as error:
        raise _within(name, error, known) from None
    except (TypeError, KeyError, ValueError, ArithmeticError, AttributeError):
        raise InvalidInput(name, "values of other types", "the values that privmix wrote") from None
    again = stored(made)
    if odd := sorted(
        one for one in {*again, *values} if one not in again or one not in values or again[one] != values[one]
    ):
        raise InvalidInput(name, odd, "as privmix writes them")
    return made


def _within(name: str, error: InvalidInput, known: Mapping[str, Any]) -> InvalidInput:
    """The same error, of a field within ``name``."""
    if error.field in known and str(error).startswith(f"{error.field}: "):
        text = str(error)
        error.args = (f"{name} {text}",)
        error.field = f"{name} {error.field}"
    return error


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
    fits = fits or (
        isinstance(value, Mapping) and any(isinstance(kind, type) and issubclass(kind, Mapping) for kind in plain)
    )
    if isinstance(value, str) and said.range is None:
        fits = fits and _WORD.fullmatch(value) is not None
    elif isinstance(value, int | float):
        fits = fits and abs(value) <= _LARGEST
    if not fits:
        raise InvalidInput(name, value, " or ".join(f"a {getattr(kind, '__name__', kind)}" for kind in plain))
    return value
