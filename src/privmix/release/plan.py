"""The plan of a release: public constants from which both the sampler and the price follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from privmix.accounting import Adjacency, Event, Gaussian, Laplace
from privmix.errors import InvalidInput, check_choice, check_number
from privmix.mechanisms.sampling import (
    ClasswiseSampling,
    DirichletWeights,
    FixedSizeSampling,
    HierarchicalSampling,
    PoissonSampling,
    Sampler,
)
from privmix.release.moments_plan import MOMENTS, MomentsPlan
from privmix.release.plan_base import BasePlan, check_plan_integer

MIXUP_DESIGNS: Final = ("poisson", "fixed", "hierarchical", "classwise", "random-weight")
DESIGNS: Final = (*MIXUP_DESIGNS, MOMENTS)
NOISES: Final = ("gaussian", "laplace")
CENTRES: Final = ("private", "none")


@dataclass(frozen=True, kw_only=True)
class ReleasePlan(BasePlan):
    """Everything public about a release before it runs; made without reading a private row, and publishable.

    The sampler that draws and the event that is priced are properties of one plan: there is no way to sample one way
    and account another.

    Formal guarantees:
        * every field is a public constant: no value depends on a private row;
        * ``event`` is the sampler's own account of what it draws, with the noise that the engine adds;
        * one record changes a row's feature sum by at most ``feature_bound`` and its label sum by at most
          ``label_bound`` in norm, both of which the noise is scaled to.

    See :class:`privmix.release.config.ReleaseConfig` for the meaning of the fields.
    """

    mixup_degree: int
    record_rate: float
    class_rate: float | None
    noise: str
    label_noise_ratio: float
    dirichlet_alpha: float | None
    max_weight: float | None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_plan_integer("mixup_degree", self.mixup_degree)
        check_choice("design", self.design, MIXUP_DESIGNS)
        check_choice("noise", self.noise, NOISES)
        check_number("label_noise_ratio", self.label_noise_ratio, low=1e-3, high=1e3)
        self._check_part("class_rate", self.design == "hierarchical", 0.0, 1.0)
        self._check_part("dirichlet_alpha", self.design == "random-weight", 1e-3, 1e6)
        self._check_part("max_weight", self.design == "random-weight", 2.0**-16, 1.0)
        if self.noise == "laplace" and (self.design != "fixed" or self.centred):
            raise InvalidInput("noise", self.noise, "gaussian, unless the design is fixed and uncentred")
        expected = self._expected_rate()
        if not math.isclose(check_number("record_rate", self.record_rate), expected, rel_tol=1e-12):
            raise InvalidInput("record_rate", self.record_rate, f"{expected:.9g}, which follows from the other fields")

    def _expected_rate(self) -> float:
        overall = self.mixup_degree / self.records
        if self.design == "hierarchical":
            assert self.class_rate is not None
            return overall / self.class_rate
        if self.design == "classwise":
            return 1.0 if self.record_rate == 1 else overall * self.num_classes
        return overall

    @property
    def public_labels(self) -> bool:
        """Whether a row's label follows from its number alone, so that it needs no noise."""
        return self.design == "classwise"

    @property
    def sampler(self) -> Sampler:
        """How rows are drawn."""
        return self.sampler_for(self.records)

    def sampler_for(self, records: int) -> Sampler:
        """The same law over ``records`` records: rates stay, so a declared public count may differ from the real one.

        Fixed-size draws are the exception: their law depends on the count, which must then be the declared one.
        """
        match self.design:
            case "poisson":
                return PoissonSampling(records, self.rows, self.record_rate)
            case "hierarchical":
                assert self.class_rate is not None
                return HierarchicalSampling(records, self.rows, self.num_classes, self.class_rate, self.record_rate)
            case "classwise":
                return ClasswiseSampling(records, self.rows, self.num_classes, self.record_rate)
            case "fixed" | "random-weight":
                if records != self.records:
                    raise InvalidInput("records", self.records, f"the real record count for design {self.design}")
                return FixedSizeSampling(records, self.rows, self.mixup_degree, self._weights)
            case _:
                raise InvalidInput("design", self.design, "one of " + ", ".join(MIXUP_DESIGNS))

    @property
    def adjacency(self) -> Adjacency:
        """The relation the guarantee is stated for."""
        return self.sampler.adjacency

    @property
    def row_query(self) -> Event:
        """One row's noisy query: features and labels together are one query with the joint multiplier."""
        return Laplace(self.noise_multiplier) if self.noise == "laplace" else Gaussian(self.noise_multiplier)

    @property
    def main_event(self) -> Event:
        """What the rows do to the private records."""
        return self.sampler.event(self.row_query)

    @property
    def norm(self) -> str:
        """The norm that records are clipped in."""
        return "l1" if self.noise == "laplace" else "l2"

    @property
    def feature_noise_multiplier(self) -> float:
        """s_x, with 1/s^2 = 1/s_x^2 + 1/s_y^2 and s_y = lambda s_x (1/s = 1/s_x + 1/s_y for Laplace noise)."""
        if self.public_labels:
            return self.noise_multiplier
        ratio = self.label_noise_ratio
        return self.noise_multiplier * (1 + 1 / ratio if self.noise == "laplace" else math.sqrt(1 + ratio**-2))

    @property
    def label_noise_multiplier(self) -> float:
        """s_y = lambda s_x; 0 where labels are public."""
        return 0.0 if self.public_labels else self.label_noise_ratio * self.feature_noise_multiplier

    @property
    def feature_bound(self) -> float:
        """Most that one record adds to a row's feature sum, in the units of the features."""
        return self.final_clip_norm * (1.0 if self.max_weight is None else self.max_weight)

    @property
    def label_bound(self) -> float:
        """Most that one record adds to a row's label sum: the norm of a one-hot label minus the offset."""
        return self.label_norm * (1.0 if self.max_weight is None else self.max_weight)

    @property
    def expected_members(self) -> float:
        """Expected number of records in a row, from public numbers (classes taken as equally large)."""
        return (
            self.records
            * self.record_rate
            * (self.class_rate or 1.0)
            / (self.num_classes if self.design == "classwise" else 1)
        )

    @property
    def weight_step(self) -> float:
        """Unit of the weights: sums are integers in units of the lattice step times this."""
        return 1.0 if self._weights is None else 2.0**-self._weights.bits

    @property
    def _weights(self) -> DirichletWeights | None:
        if self.dirichlet_alpha is None or self.max_weight is None:
            return None
        return DirichletWeights(self.dirichlet_alpha, self.max_weight)

    @property
    def divisor(self) -> float:
        """What sums are divided by: the public degree, or 1 where weights already sum to about 1."""
        return 1.0 if self.design == "random-weight" else float(self.mixup_degree)

    @property
    def unit_x(self) -> float:
        """Grid of released features: they are multiples of it, rounded to float32."""
        return 2.0**-self.lattice_bits * self.weight_step * self.final_clip_norm / self.divisor

    @property
    def unit_y(self) -> float:
        """Grid of released labels, where labels are not public."""
        return 2.0**-self.lattice_bits * self.weight_step / self.divisor

    @property
    def noise_std_x(self) -> float:
        """Standard deviation of the noise in a released feature entry."""
        scale = self.feature_bound * self.feature_noise_multiplier / self.divisor
        return scale * (math.sqrt(2) if self.noise == "laplace" else 1.0)

    @property
    def noise_std_y(self) -> float:
        """Standard deviation of the noise in a released label entry."""
        scale = self.label_bound * self.label_noise_multiplier / self.divisor
        return scale * (math.sqrt(2) if self.noise == "laplace" else 1.0)

    @property
    def noise_std(self) -> dict[str, float]:
        """Of features and labels."""
        return {"x": self.noise_std_x, "y": self.noise_std_y}


Plan = ReleasePlan | MomentsPlan


def plan_from_dict(description: Mapping[str, Any]) -> Plan:
    """Rebuild a plan of whichever kind from its ``to_dict()``.

    Raises:
        InvalidInput: anything but exactly the fields of a plan.
    """
    if not isinstance(description, Mapping):
        raise InvalidInput("plan", type(description).__name__, "the fields of a release plan")
    kind = MomentsPlan if description.get("design") == MOMENTS else ReleasePlan
    return kind.from_dict(description)
