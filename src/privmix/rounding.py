"""Printed bounds, rounded to their safe side: guarantees up, proofs and remainders down. For every layer."""
# A figure set by a person (a budget, a delta) is printed exactly; a computed one never to the nearest.

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def rounded_up(value: float, digits: int = 3) -> str:
    """Return the least decimal of ``digits`` significant digits (at most 15) that is not below ``value``.

    Formal guarantees:
        * read back as a float, the text is never below ``value``, and above it by at most one unit of its last digit.

    Example:
        >>> rounded_up(7.9995), rounded_up(0.12341), rounded_up(1234.5), rounded_up(1.23433, 4), rounded_up(1e-15)
        ('8', '0.124', '1240', '1.235', '1e-15')
    """
    return _rounded(value, Context(prec=digits, rounding=ROUND_CEILING))


def rounded_down(value: float, digits: int = 3) -> str:
    """Return the greatest decimal of ``digits`` significant digits (at most 15) that is not above ``value``.

    Formal guarantees:
        * read back as a float, the text is never above ``value``, and below it by at most one unit of its last digit.
    """
    return _rounded(value, Context(prec=digits, rounding=ROUND_FLOOR))


def exact(value: float) -> str:
    """Return the shortest decimal that reads back as ``value``, for figures set by a person."""
    return repr(float(value)).removesuffix(".0")


def _rounded(value: float, context: Context) -> str:
    value = float(value)
    if not math.isfinite(value):
        return f"{value:g}"
    return exact(float(context.create_decimal(Decimal(repr(value)))))


def percent_up(share: float) -> str:
    """Return a share as a percentage, never below it; 100% only for a certainty."""
    if share >= 1:
        return "100%"
    # Two digits of small shares, and as many nines of large ones as they have.
    fewest = 1 if share >= 0.01 else 2 if share >= 0.001 else 3
    percents = 100 * Decimal(repr(float(share)))
    for decimals in range(fewest, 7):
        value = percents.quantize(Decimal(1).scaleb(-decimals), ROUND_CEILING)
        if value < 100:
            return f"{value:.{decimals}f}".rstrip("0").rstrip(".") + "%"
    return "practically 100%"
