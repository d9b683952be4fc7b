"""Errors that a user meets: one line with the field, the value and what is allowed. Every layer may use this module."""

import math
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final


class PrivmixError(Exception):
    """Base of every error that privmix raises on purpose; the CLI exits with ``exit_code``.

    ``resumable``: the run may succeed when it resumes; see :mod:`privmix.mechanisms.run`. ``about`` names the parts of
    a job, outermost first; messages begin with them.
    """

    # Texts are made when shown: in_terms_of changes the parts and no text.

    exit_code = 1
    resumable = True
    about: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ": ".join([*self.about, self._text()])

    def _text(self) -> str:
        return super().__str__()


class StorageError(PrivmixError):
    """Reading or writing failed (missing file, full disk, no permission). Exit code 1."""


class InvalidInput(PrivmixError, ValueError):
    """A value from the user is not acceptable. Exit code 2.

    Args:
        field: the user's name of it: an argument (several joined by ", "), a config field, a file. Never a flag: the
            command line makes flags of arguments.
        value: the value. Pass ``WITHHELD`` when it stems from private rows: the message then hides it.
        allowed: acceptable values in words, with other arguments between backticks.

    Set ``resumable`` where another attempt may have another value. The value is kept only as ``shown`` in messages.

    Example:
        >>> str(InvalidInput("epsilon", -1, "a number > 0"))
        'epsilon: got -1; allowed: a number > 0'
    """

    exit_code = 2
    resumable = False

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field: str = field
        self.allowed: str = allowed
        self.shown: Final = "a private value (hidden)" if value is WITHHELD else _shown(value)
        super().__init__(field, self.shown, allowed)

    def _text(self) -> str:
        return f"{self.field}: got {self.shown}; allowed: {self.allowed}"


_WIDTH: Final = 80
_MARKED: Final = re.compile(r"`(\w+)`")


@contextmanager
def in_terms_of(
    arguments: Mapping[str, str] | None = None, *, part: str = "", texts: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Rename fields of errors to the user's arguments; the one place where errors are reworded on their way up."""
    # arguments: field -> argument, also of fields marked in texts. part: of the job, unless errors name one themselves.
    # texts: replacements anywhere in an error, such as an address for the copy that was read.
    try:
        yield
    except PrivmixError as error:
        if isinstance(error, InvalidInput) and not error.about:
            named = {"": "", **(arguments or {})}
            error.field = ", ".join(named.get(one, one) for one in error.field.split(", "))
            words = {one: to for one, to in named.items() if to.isidentifier()}
            error.allowed = _MARKED.sub(lambda found: f"`{words.get(found[1], found[1])}`", error.allowed)
        if part and not (isinstance(error, InvalidInput) and error.field == part):
            error.about = (part, *error.about)
        for old, new in (texts or {}).items():
            error.args = tuple(str(one).replace(old, new) for one in error.args)
            for name in {"field", "shown", "allowed"} & set(vars(error)):
                setattr(error, name, getattr(error, name).replace(old, new))
        raise


class MissingExtra(PrivmixError, ImportError):
    """An optional dependency is needed. Exit code 2.

    Example:
        >>> str(MissingExtra("kymatio", "bench"))
        "kymatio is not installed. In the privmix checkout, run: pip install '.[bench]'"
    """

    exit_code = 2

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed. In the privmix checkout, run: pip install '.[{extra}]'")


class HeadFailed(PrivmixError):
    """The first of several processes failed, and states why; the others end."""


class _Withheld:
    def __repr__(self) -> str:
        return "WITHHELD"


WITHHELD: Final = _Withheld()


class Unquoted(str):
    """Text that messages show without quotes."""

    def __repr__(self) -> str:
        return str(self)


# Types that float() takes and that are no numbers.
_NO_NUMBERS: Final = (bool, str, bytes)


def check_number(
    field: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    low_open: bool = False,
    high_open: bool = False,
) -> float:
    """Return ``value`` as a finite float in the interval, or raise :class:`InvalidInput`."""
    # Millions of values are right: what is allowed is put into words where one is not.
    try:
        number = math.nan if isinstance(value, _NO_NUMBERS) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    below = number < low or (low_open and number == low)
    above = number > high or (high_open and number == high)
    if not math.isfinite(number) or below or above:
        raise InvalidInput(field, value, "a finite number" + _interval(low, high, low_open, high_open))
    return number


def check_integer(field: str, value: Any, *, low: int, high: int | None = None) -> int:
    """Return ``value`` as an int in ``[low, high]``, or raise :class:`InvalidInput`."""
    try:
        number = int(value)
        exact = not isinstance(value, bool) and number == value
    except (TypeError, ValueError, OverflowError):
        number, exact = 0, False
    if not exact or number < low or (high is not None and number > high):
        allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
        raise InvalidInput(field, value, allowed)
    return number


def check_choice(field: str, value: Any, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``, or raise :class:`InvalidInput`."""
    options = list(choices)
    if not isinstance(value, str) or value not in options:
        raise InvalidInput(field, value, "one of " + ", ".join(options))
    return value


def _interval(low: float, high: float, low_open: bool, high_open: bool) -> str:
    parts = []
    if low > -math.inf:
        parts.append(f"{'>' if low_open else '>='} {low:g}")
    if high < math.inf:
        parts.append(f"{'<' if high_open else '<='} {high:g}")
    return " " + " and ".join(parts) if parts else ""


def _shown(value: object) -> str:
    """Return a value on one line; of a list, as many items as fit, none of them cut."""
    if not isinstance(value, list | tuple) or len(shown := _shorten(repr(value), 10**4)) <= _WIDTH:
        return _shorten(repr(value))
    parts, room = [_shorten(repr(item)) for item in value], _WIDTH
    kept = next((place for place, part in enumerate(parts) if (room := room - len(part) - 2) < 0), len(parts))
    return f"{shown[0]}{', '.join(parts[: max(1, kept)])}, ... ({len(parts)}){shown[-1]}"


def _shorten(text: str, width: int = _WIDTH) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 3] + "..."


REFUTED: Final = 4
"""Exit code where a claim is refuted; the figures are shown and kept all the same."""


class Caution(UserWarning):
    """Information that a caller should have before the work goes on; the command line prints it at once."""


def warn(text: str) -> None:
    """Give a :class:`Caution` at the line outside this package that called."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "privmix":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, Caution, stacklevel=level)


class NotPrivateWarning(UserWarning):
    """Warning that a result is not private, or spends more privacy than it may look."""
