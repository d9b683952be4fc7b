"""Values that a field's type refuses, for every dataclass whose types have ranges."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_origin

from privmix import fields


def wrong_values(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield fields of the class with values that their types refuse."""
    for name, said in fields._said(kind).items():
        if said.range is not None:
            yield from ((name, value) for value in wrong(said.range))
        elif said.each is not None and said.each.range is not None:
            origin = get_origin(said.kinds[0])
            by_name = isinstance(origin, type) and issubclass(origin, Mapping)
            yield from ((name, {"a": value} if by_name else (value,)) for value in wrong(said.each.range))
        if said.ranged and not said.none:
            yield name, None


def wrong(limits: Any) -> Sequence[Any]:
    match limits:
        case fields.Number(low=low, high=high):
            ends = [low if limits.low_open else math.nextafter(low, -math.inf)] if low > -math.inf else []
            ends += [high if limits.high_open else math.nextafter(high, math.inf)] if high < math.inf else []
            return [*ends, math.nan, math.inf, -math.inf, "1", True, [1.0]]
        case fields.Whole(low=low, high=top):
            ends = [low - 1, *([] if top is None else [top + 1]), *([float(low)] if limits.plain else [])]
            return [*ends, low + 0.5, math.nan, "1", True, [1]]
        case fields.Choice():
            return ["", "no such word", 1, True, ["a"]]
        case fields.Text(pattern=pattern):
            texts = ("", "\0", "x" * 100_000)
            return [*(text for text in texts if re.fullmatch(pattern, text, re.DOTALL) is None), 1]
        case fields.Line(most=most):
            return ["", " ", "x" * (most + 1), "a\nb", "a\u200bb", 1, *([" a"] if limits.trimmed else [])]
        case fields.Flag():
            return [0, 1, "yes"]
        case _ if hasattr(limits, "wrong"):
            return limits.wrong
    raise TypeError(type(limits).__name__)
