"""The warm-up: ordinary training on public records, by SGD or towards flat minima (Park et al. 2024, section 5.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput, check_choice, check_integer, check_number
from privmix.progress import Progress
from privmix.training.examples import Augment, PublicData, public_generator
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.public.adversary import STEPS, adversarial
from privmix.training.public.gradients import adaptive_ascent, ascent, public_gradient, public_loss_and_gradient
from privmix.training.views.augmentation import Augmentation, check_augmentations
from privmix.training.views.mixup import MIXINGS

# (epochs done, epochs, mean public loss of the last one)

OPTIMISERS = ("sgd", "sam", "asam")
SCHEDULES = ("cosine", "constant")
_OWN = ("augmentations", "mixing", "alpha", "adversary", "adversary_steps")


@dataclass(frozen=True)
class WarmUpConfig:
    """Settings of the warm-up; the defaults are those of Park et al. 2024, Table 12, for CIFAR-10.

    Attributes:
        epochs: passes over the public records; 0: no warm-up.
        batch_size: the last batch of an epoch may be smaller.
        learning_rate: at the start.
        momentum: of SGD.
        weight_decay: L2 coefficient added to the gradient.
        optimiser: ``sgd``, ``sam`` (Foret et al. 2020) or ``asam`` (Kwon et al. 2021).
        rho: radius of SAM and ASAM. 0.1 suits SAM; ASAM's authors use 0.5 to 1.
        eta: what ASAM adds to the weights' sizes.
        schedule: of the learning rate, step by step: ``cosine`` down to 0, or ``constant``.
        augmentations: of public images; None: those of the private views. Park et al. do best with flips,
            zero-padded crops and cutout here, and flips and crops in the private phase (section 5.1, Table 3).
        mixing: ``mixup`` or ``cutmix`` of every public record with another one of its batch, or None.
        alpha: its weights are Beta(alpha, alpha); 1 is what the authors of both take for small images.
        adversary: train on adversarial examples of images in [0, 1], in the l-infinity ball of this radius, in place of
            the images (Madry et al. 2018); 0: on the images. Park et al. (2024, E.4) find 8/255 and 2/255 to cost
            accuracy after the private phase.
        adversary_steps: of gradient ascent for each batch, every one of which costs as much as a gradient of the
            weights: see :mod:`privmix.training.public.adversary`.

    Raises:
        InvalidInput: a value is out of range.

    Example:
        >>> WarmUpConfig(epochs=10, optimiser="sgd").rate(0, steps=4)
        0.05
    """

    epochs: int = 100
    batch_size: int = 100
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    optimiser: str = "sam"
    rho: float = 0.1
    eta: float = 0.01
    schedule: str = "cosine"
    augmentations: tuple[Augmentation, ...] | None = None
    mixing: str | None = None
    alpha: float = 1.0
    adversary: float = 0.0
    adversary_steps: int = STEPS

    def __post_init__(self) -> None:
        check_integer("warm-up epochs", self.epochs, low=0)
        check_integer("warm-up batch size", self.batch_size, low=1)
        check_number("warm-up learning rate", self.learning_rate, low=0, low_open=True)
        check_number("warm-up momentum", self.momentum, low=0, high=1, high_open=True)
        check_number("warm-up weight decay", self.weight_decay, low=0)
        check_choice("warm-up optimiser", self.optimiser, OPTIMISERS)
        check_number("warm-up rho", self.rho, low=0, low_open=True)
        check_number("warm-up eta", self.eta, low=0)
        check_choice("warm-up schedule", self.schedule, SCHEDULES)
        check_augmentations(self.augmentations or ())
        if self.mixing is not None:
            check_choice("warm-up mixing", self.mixing, MIXINGS)
        check_number("warm-up alpha", self.alpha, low=0, low_open=True)
        check_number("warm-up adversary", self.adversary, low=0, high=1)
        check_integer("warm-up adversary steps", self.adversary_steps, low=1)

    def settings(self) -> dict[str, Any]:
        """JSON values; augmentations, mixing and an adversary only where they are the warm-up's own."""
        found = {name: value for name, value in vars(self).items() if name not in _OWN}
        if self.augmentations is not None:
            found["augmentations"] = [augmentation.spec() for augmentation in self.augmentations]
        if self.mixing is not None:
            found |= {"mixing": self.mixing, "alpha": self.alpha}
        if self.adversary > 0:
            found |= {"adversary": self.adversary, "adversary_steps": self.adversary_steps}
        return found

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of ``step`` (from 0) of ``steps``."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))


def warm_up(
    model: nn.Module,
    public: PublicData,
    config: WarmUpConfig,
    seed: int,
    progress: Progress | None = None,
    augment: Augment | None = None,
) -> None:
    """Train ``model`` in place on public records, without privacy.

    An epoch visits every record once, in an order that depends on (seed, epoch). Buffers (running averages) stay as
    they are, as in the private phase; the model's mode and its ``grad`` fields are put back.

    Formal guarantees:
        * Repeatable: equal models, data, config and seed give equal weights on one machine.
        * Apart: torch's and NumPy's global generators are neither read nor moved.

    Args:
        model: its trainable parameters are changed.
        public: records without protection.
        config: settings.
        seed: a public integer >= 0.
        progress: called after each epoch; the stage tells the loss of public records.
        augment: of each batch.

    Raises:
        InvalidInput: the public loss is no longer finite: the learning rate is too large.

    Example:
        >>> data = PublicData.of([[1.0, 0.0], [0.0, 1.0]], [0, 1], classes=2)
        >>> model = nn.Linear(2, 2)
        >>> warm_up(model, data, WarmUpConfig(epochs=30, batch_size=2, learning_rate=1.0), seed=0)
        >>> model(data.x).argmax(dim=1).tolist()
        [0, 1]
    """
    check_integer("public seed", seed, low=0)
    flat = FlatParameters(model)
    weights = [tensor for tensor in model.parameters() if tensor.requires_grad]
    kept = [tensor.grad for tensor in weights]
    optimiser = torch.optim.SGD(
        weights, lr=config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay
    )
    was_training = model.training
    model.train()
    try:
        for epoch in range(config.epochs):
            loss = _epoch(model, flat, optimiser, public, config, seed, epoch, augment)
            if not math.isfinite(loss):
                raise InvalidInput("warm-up learning rate", config.learning_rate, "a smaller one: the loss diverged")
            if progress is not None:
                progress(f"warm-up (public loss {loss:.3f})", epoch + 1, config.epochs)
    finally:
        model.train(was_training)
        for tensor, gradient in zip(weights, kept, strict=True):
            tensor.grad = gradient


def _epoch(
    model: nn.Module,
    flat: FlatParameters,
    optimiser: torch.optim.Optimizer,
    public: PublicData,
    config: WarmUpConfig,
    seed: int,
    epoch: int,
    augment: Augment | None,
) -> float:
    """One pass over the public records; returns their mean loss, each at the weights it was met with."""
    generator = public_generator("warm-up", seed, epoch)
    order = torch.from_numpy(generator.permutation(public.size))
    batches = torch.split(order, config.batch_size)
    total = 0.0
    for index, rows in enumerate(batches):
        x, targets = public.rows(rows, generator, augment)
        own = int(generator.integers(2**31))
        if config.adversary > 0:
            # Of a generator of its own: orders and views are those of a warm-up without an adversary.
            start = int(public_generator("adversary", seed, epoch, index).integers(2**31))
            radius, steps = config.adversary, config.adversary_steps
            x = adversarial(model, flat, x, targets, radius=radius, steps=steps, seed=start)
        for group in optimiser.param_groups:
            group["lr"] = config.rate(epoch * len(batches) + index, config.epochs * len(batches))
        loss, gradient = step_gradient(model, flat, x, targets, config, seed=own)
        flat.set_grad(gradient)
        optimiser.step()
        total += loss * len(rows)
    return total / public.size


def step_gradient(
    model: nn.Module, flat: FlatParameters, x: Tensor, targets: Tensor, config: WarmUpConfig, *, seed: int = 0
) -> tuple[float, Tensor]:
    """The loss at the weights w, and the gradient that the optimiser follows, (P,).

    SGD's is that at w; SAM's and ASAM's that at w + v, where v is the step of radius rho along which the loss of the
    same batch rises most to first order (Park et al. 2024, equation 4). The weights are the same bits afterwards.
    """
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
