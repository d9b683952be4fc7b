"""Adversarial examples of public images: projected gradient ascent in an l-infinity ball (Madry et al. 2018)."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput, check_integer, check_number
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.public.config import ADVERSARY_STEPS
from privmix.training.public.gradients import own_randomness, public_loss

"""Madry et al.'s steps on CIFAR-10, each of :data:`STEP_SHARE` of the radius: 2/255 at their 8/255."""
STEP_SHARE: Final = 0.25


def adversarial(
    model: nn.Module,
    flat: FlatParameters,
    x: Tensor,
    targets: Tensor,
    *,
    radius: float,
    steps: int = ADVERSARY_STEPS,
    seed: int = 0,
) -> Tensor:
    """Return images near ``x`` with a larger loss (Madry et al. 2018, section 2.1), for training or attacks.

    From a uniform point of the ball, each step goes a quarter of the radius along the sign of the loss's gradient. It
    then returns to the nearest image of the ball. The unit of ``radius`` is 1 for white; with 0 steps the random point
    is returned.

    Formal guarantees:
        * In the ball: no value is farther than ``radius`` from its own, and all are in [0, 1].
        * Without a trace: weights, buffers, ``grad`` fields and torch's global generators are as before.
        * Repeatable: equal weights, images and seed give equal results on one machine.
    """
    check_number("radius of the adversary", radius, low=0, high=1)
    check_integer("steps of the adversary", steps, low=0)
    if len(x) == 0 or radius == 0:
        return x
    if float(x.min()) < 0 or float(x.max()) > 1:
        raise InvalidInput("images for the adversary", "values outside [0, 1]", "values from 0 to 1")
    low, high = (x - radius).clamp(min=0.0), (x + radius).clamp(max=1.0)
    start = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)).to(x)
    found = torch.clamp(x + radius * (2 * start - 1), low, high)
    for _ in range(steps):
        with torch.enable_grad(), own_randomness(flat.device, seed):
            moved = found.detach().requires_grad_()
            loss, _leaves = public_loss(model, flat, moved, targets)
            (slope,) = torch.autograd.grad(loss, [moved])
        found = torch.clamp(found + STEP_SHARE * radius * slope.sign(), low, high)
    return found.detach()
