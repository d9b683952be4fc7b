"""Steps after the private gradient: an optimiser, its schedule, and an average of the weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from privmix.optimisers import Adam, Sgd
from privmix.training.config import OptimiserConfig
from privmix.training.gradients.parameters import FlatParameters


class Optimiser:
    """Moves a model's weights along private directions; its state is tensors, for checkpoints."""

    def __init__(self, flat: FlatParameters, config: OptimiserConfig, steps: int) -> None:
        self._flat, self._config, self._steps = flat, config, steps
        self._weights = nn.Parameter(flat.get())
        self._average = None if config.ema_decay is None else self._weights.detach().clone()
        rate, decay = config.learning_rate, config.weight_decay
        self._torch: torch.optim.Optimizer = (
            Sgd([self._weights], lr=rate, momentum=config.momentum, weight_decay=decay)
            if config.name == "sgd"
            else Adam([self._weights], lr=rate, weight_decay=decay)
        )

    @torch.no_grad()
    def step(self, direction: Tensor, step: int) -> None:
        """Take step ``step`` (from 0) along ``direction`` (P,) and put the new weights into the model."""
        self._torch.param_groups[0]["lr"] = self._config.rate(step, self._steps)
        self._weights.grad = direction
        self._torch.step()
        self._flat.set(self._weights)
        if self._average is not None and self._config.ema_decay is not None:
            decay = min(self._config.ema_decay, (1 + step) / (10 + step))
            self._average.lerp_(self._weights, 1 - decay)

    @property
    def evaluated(self) -> Tensor:
        """(P,) the weights to evaluate: their average if there is one, else the last."""
        return self._weights.detach().clone() if self._average is None else self._average.clone()

    @property
    def finite(self) -> bool:
        """Whether all weights are numbers. They are private outputs already, so this may be published."""
        return bool(torch.isfinite(self._weights).all())

    def state(self) -> dict[str, Tensor]:
        """All that :meth:`load` needs to go on with the same bits."""
        state = {"weights": self._weights.detach()}
        if self._average is not None:
            state["average"] = self._average
        inner = self._torch.state_dict()["state"].get(0, {})
        state |= {f"optimiser.{name}": torch.as_tensor(value) for name, value in inner.items() if value is not None}
        return {name: tensor.clone() for name, tensor in state.items()}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        self._weights.copy_(state["weights"])
        self._flat.set(self._weights)
        if self._average is not None:
            self._average.copy_(state["average"])
        prefix = "optimiser."
        inner = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        if inner:
            groups = self._torch.state_dict()["param_groups"]
            self._torch.load_state_dict({"state": {0: inner}, "param_groups": groups})
