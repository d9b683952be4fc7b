"""Designs ``fixed`` and ``random-weight``: each row has the same number of records, drawn without replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.events import Adjacency
from privmix.errors import InvalidInput
from privmix.fields import Choice, Number, Rate
from privmix.mechanisms.sampling import FixedSizeSampling, Sampler
from privmix.options import described, option
from privmix.plans.registry import register
from privmix.plans.rows import GAUSSIAN, LAPLACE, NOISES, DrawnMembers, ReleasePlan
from privmix.plans.setting import Setting


@described
@dataclass(frozen=True)
class FixedSize(DrawnMembers):
    """Rows of exactly m records, drawn uniformly without replacement; priced for replaced records."""

    fixed_size = True

    @classmethod
    def sampler(cls, plan: ReleasePlan, records: int) -> Sampler:
        """How rows are drawn; ``records`` decides the law, and must be what the plan was priced for."""
        # A declared count is not enough: sampling is at exactly m of n, and the price holds for this n.
        if records != plan.records:
            raise InvalidInput("records", plan.records, f"the real record count for design {cls.name}")
        return FixedSizeSampling(records, plan.rows, plan.mixup_degree, plan.weights)


@register
@described
@dataclass(frozen=True)
class Fixed(FixedSize):
    """Each row takes m records without replacement (DP-InstaHide; Lee et al. 2019)."""

    name = "fixed"
    persons = True
    worst_case = "privmix.designs.rows.replace_one:replace_case"
    words = "each row averages the same number of records, drawn without replacement"
    draws = "each row takes m records without replacement"
    noises: ClassVar[tuple[str, ...]] = NOISES

    noise: Annotated[str, Choice(*NOISES)] = option(GAUSSIAN, "Noise distribution: gaussian, or laplace (L1 clipping).")

    def check(self, setting: Setting) -> None:
        super().check(setting)
        # The private mean is a Gaussian query: with it no guarantee at delta 0 is possible.
        if self.noise == LAPLACE and setting.centre == "private":
            raise InvalidInput("centre", setting.centre, "none with laplace noise")

    @property
    def centre(self) -> str:
        return "none" if self.noise == LAPLACE else "private"

    @property
    def pure(self) -> bool:
        return self.noise == LAPLACE

    @property
    def other_adjacency(self) -> Adjacency | None:
        # See PureAccountant: a record that is added takes another's place. For Gaussian noise there is no proof here.
        return Adjacency.ADD_REMOVE if self.noise == LAPLACE else None

    def fields(self, setting: Setting) -> dict[str, Any]:
        return {**super().fields(setting), "noise": self.noise}

    @classmethod
    def label_counts(
        cls, plan: ReleasePlan, sizes: NDArray[np.int64], rows: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        return generator.multivariate_hypergeometric(sizes, plan.mixup_degree, size=rows, method="marginals")


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
