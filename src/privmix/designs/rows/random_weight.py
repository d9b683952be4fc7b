"""Design ``random-weight``: every row is a sum of records with random weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.designs.rows.fixed import FixedSize
from privmix.errors import InvalidInput
from privmix.fields import Number, Rate
from privmix.options import described, option
from privmix.plans.registry import register
from privmix.plans.rows import ReleasePlan
from privmix.plans.setting import Setting


@register
@described
@dataclass(frozen=True)
class RandomWeight(FixedSize):
    """Dirichlet weights on m records drawn without replacement: a record's sensitivity is its largest weight."""

    name = "random-weight"
    persons = True
    worst_case = "privmix.designs.rows.replace_one:replace_case"
    words = "each row is a Dirichlet-weighted sum of records drawn without replacement"
    draws = "each row is a randomly weighted sum of m records"
    averages = False
    parts: ClassVar[frozenset[str]] = frozenset({"dirichlet_alpha", "max_weight"})

    dirichlet_alpha: Annotated[float, Number(1e-3, 1e6)] = option(1.0, "Concentration of the Dirichlet weights.")
    max_weight: Rate = option(1.0, "Upper bound on a record's weight.")

    def fields(self, setting: Setting) -> dict[str, Any]:
        return {
            **super().fields(setting),
            "dirichlet_alpha": float(self.dirichlet_alpha),
            "max_weight": float(self.max_weight),
        }

    @classmethod
    def divisor(cls, plan: ReleasePlan) -> float:
        """1: weights already sum to about 1."""
        return 1.0

    @classmethod
    def label_counts(
        cls, plan: ReleasePlan, sizes: NDArray[np.int64], rows: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Weights are no counts."""
        raise InvalidInput("design", plan.design, "one whose rows are averages of records")
