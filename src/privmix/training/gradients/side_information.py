"""Public data in a private step: weight perturbations, a centre, a scale, and a combined direction."""
# They cost no privacy: a record's gradient before clipping may depend on public data and on released weights.

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class SideInformation:
    """Public quantities of one step, over the P trainable parameters; each may be None."""

    # perturbations (V, P): v_k; a record's views are split evenly among them and each share is differentiated at
    # weights + v_k (Park et al. 2024, equation 5). scale (P,): factors on a record's mean gradient, then centre (P,) is
    # subtracted, then it is clipped.

    perturbations: Tensor | None = None
    scale: Tensor | None = None
    centre: Tensor | None = None

    @property
    def is_empty(self) -> bool:
        return self.perturbations is None and self.scale is None and self.centre is None


class PublicMethod(ABC):
    """A way to use public data in the private phase ("extended", Park et al. 2024, section 3).

    Formal guarantees:
        * Public: it sees the weights, public data and its own seed, and never a private record.
        * Repeatable: what it draws depends on its seed and the step only, so a resumed run repeats it.
    """

    @abstractmethod
    def prepare(self, step: int) -> SideInformation:
        """Public quantities for step ``step`` (from 0), at the model's current weights."""

    def combine(self, mean: Tensor, step: int) -> Tensor:
        """Turn the noisy private mean (P,) of this step into the direction that the optimiser follows."""
        return mean
