"""torch's optimisers, equal to the last bit but created at once; every layer may use this module."""
# torch's own import its compiler when made and used, which takes seconds in every process.

import inspect
from typing import Any

import torch
from torch.optim import Optimizer

_adam_step, _sgd_step = inspect.unwrap(torch.optim.Adam.step), inspect.unwrap(torch.optim.SGD.step)


class _AtOnce(Optimizer):
    """The same methods without what keeps torch's compiler out of them."""


for _name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
    setattr(_AtOnce, _name, inspect.unwrap(getattr(Optimizer, _name)))


class Adam(_AtOnce, torch.optim.Adam):
    """Adam (Kingma and Ba 2015), with the arguments of :class:`torch.optim.Adam`."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        return _adam_step(self, closure)


class Sgd(_AtOnce, torch.optim.SGD):
    """Gradient descent with momentum, with the arguments of :class:`torch.optim.SGD`."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        return _sgd_step(self, closure)
