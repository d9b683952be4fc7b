"""What follows the private gradient: an optimiser, its schedule, and an average of the weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from privmix.training.config import OptimiserConfig
from privmix.training.gradients.parameters import FlatParameters

# Those of PyTorch's classes.
_BETAS, _EPS = (0.9, 0.999), 1e-8


class Optimiser:
    """Moves a model's weights along private directions; all of its state is tensors, so it can be kept.

    The steps are those of PyTorch's optimisers, by their functions: the first of its classes to be made imports
    PyTorch's compiler, which takes longer than many a training.

    Args:
        flat: the model's parameters.
        config: settings.
        steps: T, for the schedule.
    """

    def __init__(self, flat: FlatParameters, config: OptimiserConfig, steps: int) -> None:
        self._flat, self._config, self._steps = flat, config, steps
        self._weights = flat.get()
        self._average = None if config.ema_decay is None else self._weights.clone()
        self._kept: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, direction: Tensor, step: int) -> None:
        """Take step ``step`` (from 0) along ``direction`` (P,) and put the new weights into the model."""
        rate = self._config.rate(step, self._steps)
        if self._config.name == "sgd":
            self._descend(direction, rate)
        else:
            self._adapt(direction, rate)
        self._flat.set(self._weights)
        if self._average is not None and self._config.ema_decay is not None:
            decay = min(self._config.ema_decay, (1 + step) / (10 + step))
            self._average.lerp_(self._weights, 1 - decay)

    def _descend(self, direction: Tensor, rate: float) -> None:
        config, last = self._config, [self._kept.get("momentum_buffer")]
        sgd(
            [self._weights],
            [direction],
            last,
            lr=rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        if last[0] is not None:
            self._kept["momentum_buffer"] = last[0]

    def _adapt(self, direction: Tensor, rate: float) -> None:
        if not self._kept:
            zero = torch.zeros_like(self._weights)
            self._kept = {"step": torch.tensor(0.0), "exp_avg": zero, "exp_avg_sq": zero.clone()}
        adam(
            [self._weights],
            [direction],
            [self._kept["exp_avg"]],
            [self._kept["exp_avg_sq"]],
            [],
            [self._kept["step"]],
            lr=rate,
            beta1=_BETAS[0],
            beta2=_BETAS[1],
            weight_decay=self._config.weight_decay,
            eps=_EPS,
            amsgrad=False,
            maximize=False,
        )

    @property
    def evaluated(self) -> Tensor:
        """(P,) the weights to evaluate: their average if there is one, else the last."""
        return self._weights.clone() if self._average is None else self._average.clone()

    @property
    def finite(self) -> bool:
        """Whether all weights are numbers. They are private outputs already, so this may be told."""
        return bool(torch.isfinite(self._weights).all())

    def state(self) -> dict[str, Tensor]:
        """All that :meth:`load` needs to go on with the same bits."""
        state = {"weights": self._weights}
        if self._average is not None:
            state["average"] = self._average
        state |= {f"optimiser.{name}": tensor for name, tensor in self._kept.items()}
        return {name: tensor.clone() for name, tensor in state.items()}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from :meth:`state`."""
        self._weights.copy_(state["weights"])
        self._flat.set(self._weights)
        if self._average is not None:
            self._average.copy_(state["average"])
        prefix = "optimiser."
        inner = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        # The number of steps stays where PyTorch keeps it, and as what it is.
        self._kept = {
            name: tensor.clone() if name == "step" else tensor.to(self._weights, copy=True)
            for name, tensor in inner.items()
        }
