"""The data owner's choices, and the search for the noise that makes them private."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeVar

from privmix.accounting.api import calibrate, guess_noise
from privmix.accounting.pricing import budget_after_count, small_query_noise
from privmix.designs.moments.plan import MOMENTS
from privmix.mechanisms.plan import check_target
from privmix.named import options_in
from privmix.planning.theory import best_mixup_degree
from privmix.plans.design import Design
from privmix.plans.plan import Plan
from privmix.plans.registry import check_options, check_unit, check_weights, design_named
from privmix.plans.setting import Setting, unlabelled

_Found = TypeVar("_Found")
_NEAREST: Final = 0.3
WHY: Final = "the least error of linear regression at n, T and the target (Li et al. 2022, Theorem 3.1, noise by PLD)"
"""Why theory takes the number that it takes."""


def degree_by_theory(setting: Setting, design: Design[Any], epsilon: float, delta: float) -> int:
    """Return the mixup degree of :func:`best_mixup_degree` for these records, rows and target.

    Formal guarantees:
        * it depends on the public record count, the rows, the design's options and the target alone, and not on
          whether a mean is released or a count was estimated: what ``account`` prices is what ``release`` plans.
    """
    # The theory is of rows that average independent draws; its best degree grows with n / sqrt(T), for any features.
    # Designs that draw otherwise take the same number, for at most half of those who may join a row. With Laplace noise
    # and delta 0: the power of two with the least noise relative to the variation of rows, at the design's own price.
    rows, largest = setting.rows or setting.records, design.largest_degree(setting) or setting.records
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
    # The facts that draws depend on.
    plain = Setting(records=setting.records, dim=1, classes=setting.classes, rows=setting.rows, centre="none")
    given = replace(design, mixup_degree=degree)
    plan = given.plan(plain, 1.0, None)
    found = calibrate(
        lambda noise: given.plan(plain, noise, None).event, epsilon, 0.0, accountant="pure", adjacency=plan.adjacency
    )
    return float(found.noise_multiplier**2 / (degree * (1 - plan.record_rate)))


@dataclass(frozen=True, init=False)
class ReleaseConfig(Setting):
    """Every public choice of a release but its noise: a :class:`privmix.plans.setting.Setting` and a design."""

    # Set by ``__init__``, which makes it of a name and options.
    design: Design[Any] = field(kw_only=True)

    def __init__(
        self, records: int, dim: int, classes: tuple[str, ...], design: str | Design[Any] = "poisson", **given: Any
    ) -> None:
        """Take public facts, a design (object or ``NAME:KEY=VALUE,...``), other settings, the design's options."""
        shared = {item.name for item in fields(Setting)}
        super().__init__(records, dim, classes, **{name: given[name] for name in given if name in shared})
        options = {name: given[name] for name in given if name not in shared}
        if isinstance(design, Design):
            check_options(type(design), options)
            design = replace(design, **options)
        else:
            name, _, said = design.partition(":")
            kind = design_named(name)
            options = {**options_in("design", said, kind, of=name), **options}
            check_options(kind, options)
            design = kind(**options)
        check_unit(type(design), self.per_person)
        check_weights(design.name, design.weighs_persons, self.per_person, self.person_quantile)
        if len(classes) == 1 and design.name != MOMENTS:
            raise unlabelled(design.name)
        design.check(self)
        object.__setattr__(self, "design", design)

    def calibrate(self, epsilon: float, delta: float) -> Plan:
        """Return the plan with the least noise that meets the target; delta 0 needs Laplace noise. Reads no data."""
        config = self.resolved(epsilon, delta)
        found = config._search(calibrate, epsilon, delta)
        plan = config.with_noise(found.noise_multiplier, self._centre_noise(epsilon))
        return replace(plan, epsilon=float(epsilon), delta=float(delta))

    def sketch(self, epsilon: float, delta: float) -> Plan:
        """Return about the plan of :meth:`calibrate`, without target and price, but much faster: for pictures."""
        config = self.resolved(epsilon, delta)
        return config.with_noise(config._search(guess_noise, epsilon, delta), self._centre_noise(epsilon))

    def _centre_noise(self, epsilon: float) -> float:
        # Records that are clipped nearer to the mean suffer as much more from its error: half of that is paid for, down
        # to the bound of numbers of a table. A mean for smaller ones would leave too little for the rest.
        nearer = math.sqrt(min(1.0, max(_NEAREST, self.residual_clip_norm) / Setting.residual_clip_norm))
        return max(4.0, nearer * small_query_noise(epsilon))

    def _search(self, search: Callable[..., _Found], epsilon: float, delta: float) -> _Found:
        pure = self.design.pure and delta == 0
        check_target(epsilon, delta, pure=pure)
        centre_noise, rest = self._centre_noise(epsilon), (epsilon, delta)
        if self.records_noise_multiplier is not None:
            rest = budget_after_count(self.records_noise_multiplier, epsilon, delta)
        return search(
            lambda s: self.with_noise(s, centre_noise).event_after_count,
            *rest,
            accountant="pure" if pure else "pld",
            adjacency=self.with_noise(1.0, centre_noise).adjacency,
        )

    def resolved(self, epsilon: float, delta: float) -> "ReleaseConfig":
        """Return the same with a number for a mixup degree that is left to theory (``"auto"``). Reads no data."""
        if self.design.largest_degree(self) is None:
            return self
        check_target(epsilon, delta, pure=self.design.pure and delta == 0)
        return self._of_degree(degree_by_theory(self, self.design, epsilon, delta))

    def draft(self) -> Plan:
        """Return a plan with some noise, and degree 1 where theory chooses: for facts that depend on neither."""
        return (self if self.design.largest_degree(self) is None else self._of_degree(1)).with_noise(1.0)

    def _of_degree(self, degree: int) -> "ReleaseConfig":
        design: Any = self.design
        return replace(self, design=replace(design, mixup_degree=degree))

    def with_noise(self, noise_multiplier: float, centre_noise_multiplier: float | None = None) -> Plan:
        """Return the plan at a given joint noise multiplier s (and, with private centring, the mean query's)."""
        # It has no target and no price: it can be drawn from, attacked and compared, and released after
        # plan.priced(delta).
        if (self.centre or self.design.centre) == "none":
            centre_noise_multiplier = None
        elif centre_noise_multiplier is None:
            centre_noise_multiplier = self._centre_noise(1.0)
        plan: Plan = self.design.plan(self, noise_multiplier, centre_noise_multiplier)
        return plan
