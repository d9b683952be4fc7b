"""The mixup degree where it is left to theory: a number of public facts, taken before the plan is made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from privmix.accounting import calibrate
from privmix.planning.theory import best_mixup_degree
from privmix.plans import Design, Setting

WHY: Final = "the least error of linear regression at n, T and the target (Li et al. 2022, Theorem 3.1, noise by PLD)"
"""Why theory takes the number that it takes."""


def degree_by_theory(setting: Setting, design: Design[Any], epsilon: float, delta: float) -> int:
    """The mixup degree of :func:`best_mixup_degree` for these records, rows and target.

    The theory is of rows that average records drawn independently, and its best degree grows with n / sqrt(T); features
    do not enter. Designs that draw otherwise take the same number, but for at most half of those who may join a row.
    Where the noise is Laplace and delta 0, the degree is the power of two with the least noise beside what rows vary
    by, at the design's own price.

    Formal guarantees:
        * it depends on the public record count, the rows, the design's options and the target alone, and not on
          whether a mean is released or a count was estimated: what ``account`` prices is what ``release`` plans.

    Args:
        setting: its ``records``, ``rows`` and, for the largest degree, ``classes`` are used.
        design: one that leaves its degree to theory.
        epsilon, delta: the target.

    Raises:
        InvalidInput: a target out of range, or one that no noise meets.

    Example:
        >>> from privmix.designs import Poisson
        >>> facts = Setting(records=60_000, dim=3969, classes=tuple("0123456789"))
        >>> degree_by_theory(facts, Poisson(), 1.0, 1e-5)
        35
    """
    rows, largest = setting.rows or setting.records, design.largest_degree(setting)
    if design.pure and delta == 0:
        powers = [2**power for power in range(largest.bit_length())]
        best: int = min(powers, key=lambda degree: _pure(setting, design, degree, epsilon))
        return best
    # Fewer records or rows determine no regression.
    if setting.records < 2 or rows < 3:
        return 1
    return min(best_mixup_degree(setting.records, rows, 1, epsilon, delta).mixup_degree, largest)


def _pure(setting: Setting, design: Any, degree: int, epsilon: float) -> float:
    """Squared noise over what a row's sum varies by."""
    plain, given = _drawn_from(setting), replace(design, mixup_degree=degree)
    plan = given.plan(plain, 1.0, None)
    found = calibrate(
        lambda noise: given.plan(plain, noise, None).event, epsilon, 0.0, accountant="pure", adjacency=plan.adjacency
    )
    return float(found.noise_multiplier**2 / (degree * (1 - plan.record_rate)))


def _drawn_from(setting: Setting) -> Setting:
    """The facts that draws depend on."""
    return Setting(records=setting.records, dim=1, classes=setting.classes, rows=setting.rows, centre="none")
