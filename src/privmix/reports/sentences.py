"""Privacy in plain words. Figures are rounded to the safe side: bounds up, what an attack proved down."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

from markupsafe import Markup

from privmix.rounding import exact, percent_up, rounded_up

ADD_REMOVE: Final = "add_remove"
PERSON: Final = "person"
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# An even bet has a figure of its own, by the whole curve.
_PRIORS: Final = (0.01, 0.1)
# An attacker who is right more often than this, on an even bet, is hardly held back.
_WEAK: Final = 0.95
# Above this a bound is called loose: odds change by a factor of e^4 = 55, or one person in a thousand is exposed.
_LOOSE_EPSILON: Final = 4.0
_LARGE_DELTA: Final = 1e-3


def capitalised(text: str) -> str:
    """A title as titles begin."""
    return text[:1].upper() + text[1:]


def percent(share: float | None, decimals: int = 1) -> str:
    """A measured share as a percentage; a dash where there is none.

    Example:
        >>> percent(0.90277), percent(None)
        ('90.3%', '–')
    """
    return "–" if share is None else f"{100 * share:.{decimals}f}%"


def figure(value: float | None, digits: int = 4) -> str:
    """A measured number; a dash where there is none."""
    if value is None:
        return "–"
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:.{digits}g}"


def odds(delta: float) -> str:
    """A small probability in words, never below it.

    Example:
        >>> odds(1e-5), odds(3e-4), odds(0.0), odds(0.7)
        ('1 in 100,000', '1 in 3,330', 'never', '70% of the time')
    """
    if delta <= 0:
        return "never"
    if delta > 0.1:
        return f"{percent_up(delta)} of the time"
    # As decimals, so that 1 in 100,000 is not one less by a float's last bit.
    whole = math.floor(1 / Decimal(repr(max(delta, 1e-300))))
    step = 10 ** max(0, len(str(whole)) - 3)
    return f"1 in {whole // step * step:,}"


def power_of_ten(value: float) -> str:
    """A small bound as people write it, never below it.

    Example:
        >>> power_of_ten(1e-5), power_of_ten(2.5e-6), power_of_ten(0.01)
        ('10⁻⁵', '2.5 × 10⁻⁶', '0.01')
    """
    if value <= 0 or value >= 0.001:
        return exact(value)
    mantissa, power = f"{float(rounded_up(value)):.2e}".split("e")
    mantissa = f"{float(mantissa):g}"
    raised = "10" + str(int(power)).translate(_SUPERSCRIPTS)
    return raised if mantissa == "1" else f"{mantissa} × {raised}"


def belief(prior: float, epsilon: float) -> float:
    """The most that a belief of ``prior`` can become under pure epsilon-DP, by Bayes' rule.

    Example:
        >>> round(belief(0.5, 1.0), 3), belief(0.5, 0.0)
        (0.731, 0.5)
    """
    return prior / (prior + (1 - prior) * math.exp(min(-epsilon, 700.0)))


def beliefs(epsilon: float) -> list[tuple[str, str]]:
    """What may be believed before and, at most, after."""
    return [(f"{100 * prior:g}%", percent_up(belief(prior, epsilon))) for prior in _PRIORS]


def names_of(unit: str) -> tuple[str, str]:
    """One and many of what neighbours differ by, as a record of measurements names it; records where it does not."""
    return ("person", "persons") if unit == PERSON else ("record", "records")


def unit(adjacency: str, kind: str = "") -> tuple[str, str]:
    """What a guarantee hides, and how."""
    person = kind == PERSON
    one = "one person, with all records" if person else "one record"
    if adjacency == ADD_REMOVE:
        return one, "present or absent"
    content = "their content" if person else "its content"
    return (one, content) if adjacency == "replace_one" else ("unknown", f"adjacency {adjacency}")


def meaning(adjacency: str, caught: float | None, right: float | None, kind: str = "") -> list[Markup]:
    """What the guarantee means to a person in the data, in two sentences at most.

    Args:
        adjacency: of the guarantee.
        caught: the most an attacker with 5% false alarms detects, from the trade-off curve; None where unknown.
        right: how often the best attacker wins an even bet, from the same curve; None where unknown.
        kind: what neighbours differ by: person, or a record.
    """
    present = adjacency == ADD_REMOVE
    one, many = names_of(kind)
    question = f"that a {one} is in the data" if present else f"on which of two versions of a {one} is in the data"
    found = []
    if right is not None:
        weak = ": a weak promise, even if no attack has managed it so far" if is_weak(right) else " (guessing: 50%)"
        bet = Markup(
            "Suppose an attacker gives 50:50 odds {}. After seeing everything, the best possible attack is right at "
            "most <strong>{}</strong> of the time{}."
        )
        found.append(bet.format(question, percent_up(right), weak))
    if caught is not None:
        text = (
            f"An attack that wrongly accuses 5% of the {many} that are not in the data finds at most "
            "<strong>{}</strong> of those that are."
            if present
            else "An attack that is wrong about 5% of one version recognises at most <strong>{}</strong> of the other."
        )
        found.append(Markup(text).format(percent_up(caught)))
    return found


def is_weak(right: float | None) -> bool:
    """Whether the best attack may win an even bet so often that little is promised; not where that is unknown."""
    return right is not None and right > _WEAK


def is_loose(epsilon: float, delta: float) -> bool:
    """Whether a bound leaves room for much to be learned about a record."""
    return epsilon > _LOOSE_EPSILON or delta >= _LARGE_DELTA


def how_often(delta: float) -> str:
    """:func:`odds` as part of a sentence."""
    return odds(delta) + ("" if delta > 0.1 else " times")
