"""Public gradients in private steps: weight multiplicity, recentring, mirror descent, preconditioning (Park et al.)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Final

import torch
from torch import Tensor

from privmix.training.gradients.parameters import SideInformation
from privmix.training.public.base import (
    METHODS,
    ExtendedMethod,
    PublicGradients,
    WithGradients,
    adaptive_ascent,
    ascent,
)

# Added to the sizes of weights, as ASAM's authors do (Kwon et al. 2021).
_ETA: Final = 0.01


@METHODS.register
class WeightMultiplicity(ExtendedMethod):
    """Perturbations v_k = rho g_k / ||g_k||, g_k the gradient of the step's k-th public batch (Park et al. 2024).

    The views of a record are split among w + v_1 ... w + v_V and their mean gradient is clipped once (equation 5), so
    the sensitivity is that of plain DP-SGD. Park et al. perturb every view on its own (V = K); fewer cost less time. A
    zero gradient gives a zero perturbation. Public batches are parts 1 to V of the step; a combined method has part 0.
    ``adaptive`` scales directions by the weights' sizes as ASAM does (Park et al. 2024, E.4: no gain on CIFAR-10).
    """

    name: ClassVar[str] = "multiplicity"
    directs: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ("rho", "perturbations", "adaptive")

    def __init__(
        self, source: PublicGradients, rho: float = 0.1, perturbations: int = 16, *, adaptive: bool = False
    ) -> None:
        self.source: Final = source
        self.rho: Final = rho
        self.perturbations: Final = perturbations
        self.adaptive: Final = adaptive

    def prepare(self, step: int) -> SideInformation:
        gradients = [self.source.at(step, part) for part in range(1, self.perturbations + 1)]
        if self.adaptive:
            weights = self.source.flat.get()
            rows = [adaptive_ascent(gradient, weights, self.rho, _ETA) for gradient in gradients]
        else:
            rows = [ascent(gradient, self.rho) for gradient in gradients]
        return SideInformation(perturbations=torch.stack(rows))


@METHODS.register
class DopeSgd(WithGradients):
    """DOPE-SGD (Nasr et al. 2023): clip the difference between a record's gradient and the public one.

    The direction is g_pub + (1/B) (sum_i clip(g_i - g_pub, C) + noise). If g_pub is close to the private gradients the
    differences are short: little is lost by clipping, and C, and with it the noise, can be smaller.

    * Sign: equation 3 of Park et al. (2024) has clip(g_pub - g_pr) added to g_pub. Unclipped and without noise, that is
      2 g_pub - g_pr, which steps against the private gradient. The sign here is that of Nasr et al.
    * The sum over a Poisson batch of n_t records is divided by the public expected size B. So (n_t / B) g_pub is
      subtracted and g_pub added back: they cancel exactly only in expectation. Dividing by n_t would show the size of
      the batch.
    * It may diverge when public gradients grow (Park et al. 2024, section 5.1 and D.3): they are cut, by default to C.
      The same cut vector is subtracted and added back.
    """

    name: ClassVar[str] = "dope"
    follows: ClassVar[bool] = True

    def _side_information(self, gradient: Tensor, step: int) -> SideInformation:
        return SideInformation(centre=gradient)

    def combine(self, mean: Tensor, step: int) -> Tensor:
        return self._gradient(step) + mean


@METHODS.register
class MirrorDescent(WithGradients):
    """PDA-DPMD in its first-order form (Amid et al. 2022): mix the noisy private gradient with the public one.

    The direction is a_t g_private + (1 - a_t) g_pub with a_t = cos(pi t / (2 T0)). The factor a_t falls from 1 at the
    start to 0 at step T0 (default T) and stays there, or at ``floor``. Records are clipped as in DP-SGD.
    """

    name: ClassVar[str] = "mirror"
    follows: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = ("steps", "decay_steps", "floor")

    def __init__(self, source: PublicGradients, steps: int, decay_steps: int | None = None, floor: float = 0.0) -> None:
        super().__init__(source)
        self.decay_steps: Final = decay_steps or steps
        self.floor: Final = floor

    def private_share(self, step: int) -> float:
        return max(self.floor, math.cos(math.pi / 2 * min(step / self.decay_steps, 1.0)))

    def _side_information(self, gradient: Tensor, step: int) -> SideInformation:
        return SideInformation()

    def combine(self, mean: Tensor, step: int) -> Tensor:
        share = self.private_share(step)
        return share * mean + (1 - share) * self._gradient(step)


@METHODS.register
class AdaDps(WithGradients):
    """AdaDPS (Li, Zaheer, Reddi, Smith 2022), with RMSProp: gradients are divided by the public second moment first.

    A running average A of squared public gradients, free of the bias towards its start at zero, gives D = sqrt(A) +
    damping * rms(sqrt(A)). A record's gradient is multiplied by c / D and clipped, and nothing is undone afterwards.
    The public c keeps the length of sqrt(A), so a clipping bound of DP-SGD suits this too (the paper has c = 1 and
    tunes the bound). A relative damping replaces an absolute epsilon: no factor exceeds another by more than
    (max(sqrt(A)) / rms + damping) / damping. A depends on the weights of earlier steps: a resumed run must load
    :meth:`state_dict`. ``combine`` updates A, so ``prepare`` may be repeated; steps must come in order.
    """

    name: ClassVar[str] = "adadps"
    settings: ClassVar[tuple[str, ...]] = ("moment_decay", "damping")

    def __init__(self, source: PublicGradients, moment_decay: float = 0.9, damping: float = 0.1) -> None:
        super().__init__(source)
        self.decay: Final = moment_decay
        self.damping: Final = damping
        self._moment = torch.zeros(source.flat.size, device=source.flat.device)
        self._steps = 0

    def _side_information(self, gradient: Tensor, step: int) -> SideInformation:
        self._check(step)
        root = (self._next(gradient) / (1 - self.decay ** (step + 1))).sqrt()
        typical = float(root.square().mean().sqrt())
        if typical == 0:
            return SideInformation(scale=torch.ones_like(root))
        scale = 1 / (root / typical + self.damping)
        # The constant for which sqrt(A) keeps its length.
        before, after = (torch.linalg.vector_norm(part, dtype=torch.float64) for part in (root, scale * root))
        return SideInformation(scale=scale * float(before / after))

    def combine(self, mean: Tensor, step: int) -> Tensor:
        self._check(step)
        self._moment = self._next(self._gradient(step))
        self._steps += 1
        return mean

    def _next(self, gradient: Tensor) -> Tensor:
        return self.decay * self._moment.to(gradient.device) + (1 - self.decay) * gradient.square()

    def _check(self, step: int) -> None:
        if step != self._steps:
            raise RuntimeError(f"step {step} after {self._steps} steps: AdaDPS resumes with its saved state only")

    def state_dict(self) -> dict[str, Tensor]:
        return {"moment": self._moment.clone(), "steps": torch.tensor(self._steps)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        self._moment = state["moment"].to(self._moment).clone()
        self._steps = int(state["steps"])
        self._held = None
