"""Printed bounds, rounded to their safe side: what was guaranteed upwards, what was proven or is left downwards.

This module sits beside the floors, so every floor may use it. A figure that somebody set (a budget, a delta) is printed
exactly; a figure that was computed is printed by one of these, never to the nearest.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def rounded_up(value: float, digits: int = 3) -> str:
    """The least decimal of so many significant digits that is not below ``value``.

    Formal guarantees:
        * read back as a float, the text is never below ``value``, and above it by at most one unit of its last digit.

    Args:
        value: any float; its shortest decimal counts, so 0.1 stays 0.1.
        digits: significant digits, at most 15.

    Example:
        >>> rounded_up(7.9995), rounded_up(0.12341), rounded_up(1234.5), rounded_up(1.23433, 4), rounded_up(1e-15)
        ('8', '0.124', '1240', '1.235', '1e-15')
    """
    return _rounded(value, Context(prec=digits, rounding=ROUND_CEILING))


def rounded_down(value: float, digits: int = 3) -> str:
    """The greatest decimal of so many significant digits that is not above ``value``.

    Formal guarantees:
        * read back as a float, the text is never above ``value``, and below it by at most one unit of its last digit.

    Args:
        value: any float; its shortest decimal counts.
        digits: significant digits, at most 15.

    Example:
        >>> rounded_down(0.98765), rounded_down(0.0), rounded_down(2.4999, 4)
        ('0.987', '0', '2.499')
    """
    return _rounded(value, Context(prec=digits, rounding=ROUND_FLOOR))


def exact(value: float) -> str:
    """The shortest decimal that reads back as ``value``: for figures that somebody set.

    Example:
        >>> exact(8.0), exact(1.23456499e-05), exact(4)
        ('8', '1.23456499e-05', '4')
    """
    return repr(float(value)).removesuffix(".0")


def _rounded(value: float, context: Context) -> str:
    value = float(value)
    if not math.isfinite(value):
        return f"{value:g}"
    return exact(float(context.create_decimal(Decimal(repr(value)))))


def percent_up(share: float) -> str:
    """A share as a percentage, never below it; never a certainty unless it is one.

    Example:
        >>> percent_up(0.43211), percent_up(0.99996), percent_up(0.0021), percent_up(0.0)
        ('43.3%', '99.996%', '0.21%', '0%')
    """
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
