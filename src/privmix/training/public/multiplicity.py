"""Weight multiplicity: each record's gradient is averaged over weights perturbed along public gradients."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from privmix.errors import check_integer, check_number
from privmix.training.gradients.side_information import SideInformation
from privmix.training.public.base import METHODS, ExtendedMethod
from privmix.training.public.gradients import PublicGradients, adaptive_ascent, ascent


@METHODS.register
class WeightMultiplicity(ExtendedMethod):
    """Perturbations v_k = rho g_k / ||g_k||, g_k the gradient of the step's k-th public batch (Park et al. 2024).

    The views of a record are split among w + v_1 ... w + v_V and their mean gradient is clipped once (Park et al. 2024,
    equation 5), so the sensitivity is that of plain DP-SGD. Park et al. perturb every view on its own: V = K. Fewer
    cost less time. Where Park et al. add a small constant to the norm, a zero gradient here gives a zero perturbation.

    Public batches are parts 1 to V of the step: part 0 is left to a method that is combined with this one.

    Args:
        source: of public gradients; its ``max_norm`` changes nothing here, since only directions count.
        rho: length of each perturbation (Park et al. 2024: 0.05 or 0.1, tables 10, 11 and 15).
        perturbations: V.
        adaptive: scale directions by the weights' sizes as ASAM does (Park et al. 2024, E.4: no gain on CIFAR-10).
        eta: of ASAM.

    Raises:
        InvalidInput: a number is out of range.

    Example:
        >>> from privmix.training.gradients.parameters import FlatParameters
        >>> from privmix.training.examples import PublicData
        >>> model = torch.nn.Linear(2, 2)
        >>> data = PublicData.of([[1.0, 0.0], [0.0, 1.0]], [0, 1], classes=2)
        >>> source = PublicGradients(model, FlatParameters(model), data, batch_size=1, seed=0)
        >>> steps = WeightMultiplicity(source, rho=0.1, perturbations=3).prepare(0).perturbations
        >>> tuple(steps.shape), bool(((steps.norm(dim=1) - 0.1).abs() < 1e-6).all())
        ((3, 6), True)
    """

    name: ClassVar[str] = "multiplicity"
    directs: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ("rho", "perturbations", "adaptive")

    def __init__(
        self,
        source: PublicGradients,
        rho: float = 0.1,
        perturbations: int = 16,
        *,
        adaptive: bool = False,
        eta: float = 0.01,
    ) -> None:
        self.source = source
        self.rho = check_number("rho", rho, low=0, low_open=True)
        self.perturbations = check_integer("perturbations", perturbations, low=1)
        self.adaptive = adaptive
        self.eta = check_number("eta", eta, low=0)

    def prepare(self, step: int) -> SideInformation:
        gradients = [self.source.at(step, part) for part in range(1, self.perturbations + 1)]
        if self.adaptive:
            weights = self.source.flat.get()
            rows = [adaptive_ascent(gradient, weights, self.rho, self.eta) for gradient in gradients]
        else:
            rows = [ascent(gradient, self.rho) for gradient in gradients]
        return SideInformation(perturbations=torch.stack(rows))

    def fingerprint(self) -> dict[str, Any]:
        settings = {"rho": self.rho, "perturbations": self.perturbations, "adaptive": self.adaptive, "eta": self.eta}
        return {"method": self.name, **settings, **self.source.fingerprint()}
