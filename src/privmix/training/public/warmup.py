"""The warm-up: ordinary training on public records, by SGD or towards flat minima (Park et al. 2024, section 5.1)."""

import math
from typing import Final

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput
from privmix.optimisers import Sgd
from privmix.progress import Progress
from privmix.training.examples import Augment, PublicData, public_generator
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.public.base import (
    adaptive_ascent,
    ascent,
    own_randomness,
    public_gradient,
    public_loss,
    public_loss_and_gradient,
)
from privmix.training.public.config import ADVERSARY_STEPS, WarmUpConfig

# A step's share of the radius: 2/255 at 8/255, as on CIFAR-10 (Madry et al. 2018).
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
    if len(x) == 0 or radius == 0:
        return x
    # The ball is cut at 0 and 1, so values outside would move by more than the radius.
    if float(x.min()) < 0 or float(x.max()) > 1:
        raise InvalidInput("images for the adversary", "values outside [0, 1]", "values from 0 to 1")
    low, high = (x - radius).clamp(min=0.0), (x + radius).clamp(max=1.0)
    # The point is drawn on the CPU, so that a seed gives the same point on every device.
    start = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)).to(x)
    found = torch.clamp(x + radius * (2 * start - 1), low, high)
    for _ in range(steps):
        with torch.enable_grad(), own_randomness(flat.device, seed):
            moved = found.detach().requires_grad_()
            loss, _leaves = public_loss(model, flat, moved, targets)
            (slope,) = torch.autograd.grad(loss, [moved])
        found = torch.clamp(found + STEP_SHARE * radius * slope.sign(), low, high)
    return found.detach()


def warm_up(
    model: nn.Module,
    public: PublicData,
    config: WarmUpConfig,
    seed: int,
    progress: Progress | None = None,
    augment: Augment | None = None,
) -> None:
    """Train ``model`` in place on public records, without privacy.

    An epoch visits every record once, in an order that depends on (seed, epoch). Buffers, mode and ``grad`` fields stay
    as they are. The stage of ``progress`` shows the public loss.

    Formal guarantees:
        * Repeatable: equal models, data, config and seed give equal weights on one machine.
        * Apart: torch's and NumPy's global generators are neither read nor moved.
    """
    flat = FlatParameters(model)
    weights = [tensor for tensor in model.parameters() if tensor.requires_grad]
    kept = [tensor.grad for tensor in weights]
    optimiser = Sgd(weights, lr=config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay)
    was_training = model.training
    model.train()
    try:
        for epoch in range(config.epochs):
            generator = public_generator("warm-up", seed, epoch)
            batches = torch.split(torch.from_numpy(generator.permutation(public.size)), config.batch_size)
            # The mean loss of all records, each at the weights it was met with.
            loss = 0.0
            for index, rows in enumerate(batches):
                x, targets = public.rows(rows, generator, augment)
                own = int(generator.integers(2**31))
                if config.adversary > 0:
                    # A generator of its own: orders and views are those of a warm-up without an adversary.
                    start = int(public_generator("adversary", seed, epoch, index).integers(2**31))
                    radius, steps = config.adversary, config.adversary_steps
                    x = adversarial(model, flat, x, targets, radius=radius, steps=steps, seed=start)
                for group in optimiser.param_groups:
                    group["lr"] = config.rate(epoch * len(batches) + index, config.epochs * len(batches))
                batch_loss, gradient = step_gradient(model, flat, x, targets, config, seed=own)
                for tensor, slope in zip(weights, flat.unflatten(gradient).values(), strict=True):
                    # Slopes are views of one vector, and an optimiser may change `grad` in its memory.
                    tensor.grad = slope.to(tensor.dtype).clone()
                optimiser.step()
                loss += batch_loss * len(rows) / public.size
            if not math.isfinite(loss):
                raise InvalidInput("warm_up learning_rate", config.learning_rate, "a smaller one: the loss diverged")
            if progress is not None:
                progress(f"warm-up (public loss {loss:.3f})", epoch + 1, config.epochs)
    finally:
        model.train(was_training)
        for tensor, before in zip(weights, kept, strict=True):
            tensor.grad = before


def step_gradient(
    model: nn.Module, flat: FlatParameters, x: Tensor, targets: Tensor, config: WarmUpConfig, *, seed: int = 0
) -> tuple[float, Tensor]:
    """Return the loss at the weights w, and the gradient (P,) that the optimiser follows; w is restored bit by bit."""
    # SGD's is at w; SAM's and ASAM's at w + v. The step v of radius rho is along the steepest rise of the same batch's
    # loss to first order (Park et al. 2024, equation 4).
    loss, gradient = public_loss_and_gradient(model, flat, x, targets, seed=seed)
    if config.optimiser == "sgd":
        return loss, gradient
    weights = flat.get()
    if config.optimiser == "sam":
        perturbation = ascent(gradient, config.rho)
    else:
        perturbation = adaptive_ascent(gradient, weights, config.rho, config.eta)
    flat.set(weights + perturbation)
    try:
        return loss, public_gradient(model, flat, x, targets, seed=seed)
    finally:
        flat.set(weights)
