"""Privacy in plain words. Figures are rounded to the safe side: bounds up, what an attack proved down."""

import math
from decimal import Decimal
from typing import Final

from markupsafe import Markup

from privmix.rounding import exact, percent_up, rounded_up

ADD_REMOVE: Final = "add_remove"
PERSON: Final = "person"
SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# An even bet has a figure of its own, by the whole curve.
_PRIORS: Final = (0.01, 0.1)
# An attacker who is right more often than this, on an even bet, is hardly held back.
_WEAK: Final = 0.95
# Above this a bound is called loose: odds change by a factor of e^4 = 55, or one person in a thousand is exposed.
_LOOSE_EPSILON: Final = 4.0
_LARGE_DELTA: Final = 1e-3


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def percent(share: float | None, decimals: int = 1) -> str:
    """Write a measured share as a percentage; a dash for None."""
    return "–" if share is None else f"{100 * share:.{decimals}f}%"


def decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def figure(value: float | None, digits: int = 4) -> str:
    """Return a measured number; a dash where there is none."""
    if value is None:
        return "–"
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:.{digits}g}"


def odds(delta: float) -> str:
    """Write a small probability in words, never below it: 1e-5 is "1 in 100,000"."""
    if delta <= 0:
        return "never"
    if delta > 0.1:
        return f"{percent_up(delta)} of the time"
    # As decimals, so that 1 in 100,000 is not one less by a float's last bit.
    whole = math.floor(1 / Decimal(repr(max(delta, 1e-300))))
    # Rounded down to three digits: the probability is never understated.
    step = 10 ** max(0, len(str(whole)) - 3)
    return f"1 in {whole // step * step:,}"


def power_of_ten(value: float) -> str:
    """Write a small bound as people do (2.5 × 10⁻⁶), never below it."""
    if value <= 0 or value >= 0.001:
        return exact(value)
    mantissa, power = f"{float(rounded_up(value)):.2e}".split("e")
    mantissa = f"{float(mantissa):g}"
    raised = "10" + str(int(power)).translate(SUPERSCRIPTS)
    return raised if mantissa == "1" else f"{mantissa} × {raised}"


def belief(prior: float, epsilon: float) -> float:
    """Return the largest posterior of a belief ``prior`` under pure epsilon-DP, by Bayes' rule."""
    return prior / (prior + (1 - prior) * math.exp(min(-epsilon, 700.0)))


def beliefs(epsilon: float) -> list[tuple[str, str]]:
    """Beliefs before and, at most, after."""
    return [(f"{100 * prior:g}%", percent_up(belief(prior, epsilon))) for prior in _PRIORS]


def names_of(unit: str) -> tuple[str, str]:
    """One and many of what neighbours differ by, as a record of measurements names it; records where it does not."""
    return ("person", "persons") if unit == PERSON else ("record", "records")


def unit(adjacency: str, kind: str = "") -> tuple[str, str]:
    """Return the unit that a guarantee hides, and how."""
    person = kind == PERSON
    one = "one person, with all records" if person else "one record"
    if adjacency == ADD_REMOVE:
        return one, "present or absent"
    content = "their content" if person else "its content"
    return (one, content) if adjacency == "replace_one" else ("unknown", f"adjacency {adjacency}")


def meaning(adjacency: str, right: float, kind: str = "") -> Markup:
    """Explain the guarantee to a person in the data; ``right``: bound on winning an even bet, from the curve."""
    one, _ = names_of(kind)
    present = adjacency == ADD_REMOVE
    question = f"that a {one} is in the data" if present else f"on which of two versions of a {one} is in the data"
    weak = ": a weak guarantee, even if no known attack reaches it" if is_weak(right) else " (guessing: 50%)"
    bet = Markup(
        "Suppose an attacker gives 50:50 odds {}. After seeing everything, the best possible attack is right at "
        "most <strong>{}</strong> of the time{}."
    )
    return bet.format(question, percent_up(right), weak)


def is_weak(right: float | None) -> bool:
    """Whether the best attack may win an even bet so often that little is promised; not where that is unknown."""
    return right is not None and right > _WEAK


def is_loose(epsilon: float, delta: float) -> bool:
    """Whether a bound allows much to be learned about a record."""
    return epsilon > _LOOSE_EPSILON or delta >= _LARGE_DELTA


def how_often(delta: float) -> str:
    """:func:`odds` as part of a sentence."""
    return odds(delta) + ("" if delta > 0.1 else " times")
