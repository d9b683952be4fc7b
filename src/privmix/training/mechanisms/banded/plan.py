"""The plan of a run with banded noise: cyclic Poisson batches, priced by the turns that a record has."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar

from privmix.accounting.events import Event, Gaussian
from privmix.errors import InvalidInput, check_integer
from privmix.fields import Number
from privmix.mechanisms.sampling import PoissonSampling
from privmix.training.plan import TrainingPlan

# The norm of the coefficients is 1 but for rounding, for which the noise has a margin of a thousandth more.
_ROUNDING = 1e-9
# Noise that grows from step to step is of no use, and its digits are lost.
_MOST = 1e6


@dataclass(frozen=True)
class BandedPlan(TrainingPlan):
    """``steps`` sums of clipped gradients whose noise is C^-1 z, over cyclic Poisson batches.

    Each record is in one of b groups, drawn for it alone, secretly and uniformly. In step t the records of group t mod
    b join the batch, each independently with probability ``group_rate``, b B / n. A batch has B records in expectation.

    Formal guarantees:
        * Price: C has b bands, so what a record adds in two of its turns, b steps apart, shows in different rows of
          C x + z. The rows of one turn are one Gaussian query, Poisson-sampled at ``group_rate``. A record moves it by
          at most ``sensitivity`` times the norm of a column, 1. A record has at most ceil(T / b) turns, in whichever
          group it is: the run is their adaptive composition (Choquette-Choo et al. 2023, Theorem 4).
        * Own group: the group of one record reveals nothing of another's, so neighbours differ in one record's group
          alone.
        * With one band this is the plan of DP-SGD, at its price.

    Attributes:
        coefficients: (b,) first column of C, of L2 norm 1, public.
    """

    mechanism: ClassVar[str] = "banded"

    coefficients: tuple[Annotated[float, Number()], ...] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.coefficients:
            raise InvalidInput("coefficients", self.coefficients, "at least one number")
        norm = math.hypot(*self.coefficients)
        if not 1 - _ROUNDING <= norm <= 1 + _ROUNDING:
            raise InvalidInput("coefficients", norm, "numbers of L2 norm 1: it is what the noise is measured by")
        if self.coefficients[0] <= 1 / _MOST:
            raise InvalidInput("coefficients", self.coefficients[0], "more than 0 on the diagonal")
        if self.microbatch_size > 1:
            raise InvalidInput("microbatch_size", self.microbatch_size, "1 with `mechanism` banded")
        if self.bands * self.batch_size > self.records:
            most = self.records // self.batch_size
            allowed = f"at most {most}, records over batch size: a batch comes from one of as many groups"
            raise InvalidInput("bands", self.bands, allowed)

    @property
    def bands(self) -> int:
        return len(self.coefficients)

    @property
    def group_rate(self) -> float:
        """Probability with which a record joins a batch of its group."""
        return self.bands * self.batch_size / self.records

    @cached_property
    def sampler(self) -> PoissonSampling:
        """Draws from all records at ``group_rate``; of these, batches keep one group."""
        return replace(super().sampler, sampling_rate=self.group_rate)

    def event_of(self, steps: int) -> Event:
        """Return a record's turns in the first ``steps`` steps, in the group that has most."""
        turns = -(-check_integer("steps", steps, low=1, high=self.steps) // self.bands)
        return replace(self.sampler, rows=turns).event(Gaussian(self.noise_multiplier))
