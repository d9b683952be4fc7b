"""The errors a user meets: one line that names the field, the value and what is allowed.

This module sits beside the floors and imports none of them, so every floor may use it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final


class PrivmixError(Exception):
    """Base of every error privmix raises on purpose; ``exit_code`` is what the CLI returns for it.

    ``resumable`` says whether the run that it ended may succeed when it goes on; see :mod:`privmix.mechanisms.run`.
    ``about`` names the parts of a job that the error is of, outermost first; its text begins with them. Texts are made
    when they are shown: :func:`in_terms_of` changes what an error is of, and no text.
    """

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
    """A value the user gave is not acceptable. Exit code 2.

    A run with the same inputs would fail again: where another attempt may give the value otherwise, whoever raises it
    sets ``resumable``.

    Args:
        field: the name the user knows it by: an argument (several are joined by ", "), a config field, a file. Never a
            flag: the command line makes flags of arguments.
        value: what was given. Pass ``WITHHELD`` when it stems from private rows: the message then does not show it.
        allowed: what would have been accepted, in words, with other arguments between backticks.

    ``field``, ``shown`` (the value as messages show it; the value itself is not kept) and ``allowed`` stay apart.

    Example:
        >>> str(InvalidInput("epsilon", -1, "a number > 0"))
        'epsilon: got -1; allowed: a number > 0'
    """

    exit_code = 2
    resumable = False

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.allowed = field, allowed
        self.shown = "a value that is private and not shown" if value is WITHHELD else _shown(value)
        super().__init__(field, self.shown, allowed)

    def _text(self) -> str:
        return f"{self.field}: got {self.shown}; allowed: {self.allowed}"


_WIDTH: Final = 80
_MARKED: Final = re.compile(r"`(\w+)`")


@contextmanager
def in_terms_of(
    arguments: Mapping[str, str] | None = None, *, part: str = "", texts: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Let errors speak of what their reader gave: who gave arguments knows no fields that were made of them.

    The one place where errors are reworded on their way up.

    Args:
        arguments: field -> argument; of fields that texts mark, too.
        part: of the job, which errors are then said to be of, unless they name it themselves.
        texts: what stands for what, wherever it stands in an error: an address for the copy that was read.

    Example:
        >>> with in_terms_of({"steps": "sampler_steps"}):
        ...     raise InvalidInput("steps", 0, "an integer >= 2")
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: sampler_steps: got 0; allowed: an integer >= 2
    """
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
        "kymatio is not installed; install it with: pip install 'privmix[bench]'"
    """

    exit_code = 2

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; install it with: pip install 'privmix[{extra}]'")


class HeadFailed(PrivmixError):
    """The first of several processes failed, and says why; the others end."""


class _Withheld:
    def __repr__(self) -> str:
        return "WITHHELD"


WITHHELD: Final = _Withheld()

# What float() takes and no number is.
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
    """Return ``value`` as a finite float in the interval, or raise :class:`InvalidInput`.

    Example:
        >>> check_number("delta", 1e-5, low=0, high=1, low_open=True, high_open=True)
        1e-05
    """
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
    """Return ``value`` as an int in ``[low, high]``, or raise :class:`InvalidInput`.

    Example:
        >>> check_integer("rows", 10, low=1)
        10
    """
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
    """Return ``value`` if it is one of ``choices``, or raise :class:`InvalidInput`.

    Example:
        >>> check_choice("noise", "gaussian", ["gaussian", "laplace"])
        'gaussian'
    """
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
    """A value on one line; of a list, as many items as there is room for, none of them cut."""
    if not isinstance(value, list | tuple) or len(shown := _shorten(repr(value), 10**4)) <= _WIDTH:
        return _shorten(repr(value))
    parts, room = [_shorten(repr(item)) for item in value], _WIDTH
    kept = next((place for place, part in enumerate(parts) if (room := room - len(part) - 2) < 0), len(parts))
    return f"{shown[0]}{', '.join(parts[: max(1, kept)])}, ... ({len(parts)}){shown[-1]}"


def _shorten(text: str, width: int = _WIDTH) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 3] + "..."


class NotPrivateWarning(UserWarning):
    """What comes of this is not private, or spends more privacy than it may look."""
