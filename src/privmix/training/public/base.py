"""Base of all methods on public data: gradients of the public loss, and state that a checkpoint keeps."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from privmix._registry import Registry
from privmix.errors import InvalidInput, check_choice, check_integer
from privmix.training.examples import Augment, PublicData, public_generator
from privmix.training.gradients.parameters import FlatParameters, SideInformation


def public_gradient(model: nn.Module, flat: FlatParameters, x: Tensor, targets: Tensor, *, seed: int = 0) -> Tensor:
    """Return the gradient (P,) of the mean soft-target cross entropy over a public batch, detached.

    Formal guarantees:
        * Without a trace: weights, buffers, ``grad`` fields and torch's global generators are as before.
        * Repeatable: equal weights, batch and seed give equal gradients on one machine.
    """
    return public_loss_and_gradient(model, flat, x, targets, seed=seed)[1]


def public_loss_and_gradient(
    model: nn.Module, flat: FlatParameters, x: Tensor, targets: Tensor, *, seed: int = 0
) -> tuple[float, Tensor]:
    with torch.enable_grad(), own_randomness(flat.device, seed):
        loss, leaves = public_loss(model, flat, x, targets)
        parts = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    return float(loss.detach()), flat.flatten(dict(zip(flat.names, parts, strict=True))).detach()


def public_loss(model: nn.Module, flat: FlatParameters, x: Tensor, targets: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the mean public loss as a function of fresh leaves that share the weights' values, and these leaves."""
    named = dict(model.named_parameters())
    leaves = {name: named[name].detach().requires_grad_() for name in flat.names}
    # Copies, so that a layer that counts or averages does not do so here.
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    logits = functional_call(model, {**leaves, **buffers}, (x.to(flat.device),))
    return nn.functional.cross_entropy(logits, targets.to(flat.device)), list(leaves.values())


@contextmanager
def own_randomness(device: torch.device, seed: int) -> Iterator[None]:
    """Let what runs inside draw from ``seed``, and put torch's global generators back afterwards."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def ascent(gradient: Tensor, rho: float) -> Tensor:
    """Return the step of length ``rho`` along ``gradient`` (P,), or zero (Park et al., equations 4 and 6)."""
    return _with_length(gradient.double(), rho, _norm(gradient)).to(gradient.dtype)


def adaptive_ascent(gradient: Tensor, weights: Tensor, rho: float, eta: float) -> Tensor:
    """Return the adaptive step rho T² g / ||T g|| with T = |w| + eta, elementwise (ASAM, Kwon et al. 2021)."""
    # Unlike `ascent` it follows the scale of each weight (P,), so its natural radius is larger.
    scale = weights.double().abs() + eta
    scaled = scale * gradient
    return _with_length(scale * scaled, rho, _norm(scaled)).to(gradient.dtype)


@dataclass(frozen=True, eq=False)
class PublicGradients:
    """Public gradients by step, for extended methods; longer ones are cut to ``max_norm``."""

    # A gradient that is not finite counts as zero, with a warning: as a centre it would turn every private gradient
    # into NaN. Large ones are cut since DOPE-SGD may diverge (Park et al. 2024, section 5.1 and D.3).

    model: nn.Module
    flat: FlatParameters
    data: PublicData
    batch_size: int
    seed: int
    augment: Augment | None = None
    max_norm: float | None = None

    def __post_init__(self) -> None:
        check_integer("public_method batch_size", self.batch_size, low=1, high=self.data.size)

    def at(self, step: int, part: int = 0) -> Tensor:
        """Gradient (P,) of public batch ``part`` of ``step`` at the current weights."""
        x, targets = self.data.batch(step, self.batch_size, self.seed, part, self.augment)
        own = int(public_generator("model", self.seed, step, part).integers(2**31))
        gradient = public_gradient(self.model, self.flat, x, targets, seed=own)
        if not bool(torch.isfinite(gradient).all()):
            warnings.warn(f"step {step}: the public gradient is not finite and counts as zero", stacklevel=2)
            return torch.zeros_like(gradient)
        if self.max_norm is not None and (norm := _norm(gradient)) > self.max_norm:
            gradient = gradient * (self.max_norm / norm)
        return gradient


def _with_length(vector: Tensor, length: float, norm: float) -> Tensor:
    # In float64: near a minimum gradients get so small that in float32 length / norm overflows.
    return vector * (length / norm) if norm > 0 else torch.zeros_like(vector)


def _norm(vector: Tensor) -> float:
    # In float64: the squares of large float32 entries overflow.
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))


class ExtendedMethod(ABC):
    """A way to use public data in the private phase ("extended", Park et al. 2024, section 3).

    A step is ``prepare(step)``, the private sum, ``combine(mean, step)``, and then the optimiser's update.

    Formal guarantees:
        * Public: what ``prepare`` returns is a function of the released weights, public data and the seed. Methods with
          a state also use earlier weights. So it costs no privacy; ``combine`` is post-processing.
        * Repeatable: ``prepare`` twice, or in a fresh object at the same weights and state, returns the same bits.
        * Without a trace: ``prepare`` leaves weights, ``grad`` fields and torch's global generators as they were.

    Attributes:
        name: for :func:`privmix.training.public.base.parse_method`; ``METHODS.register`` makes it known.
        directs: whether it sets a centre or a scale, or changes the direction; at most one method may.
        follows: whether a step goes along the public gradient itself, whose length then counts.
        settings: its arguments: fields of :class:`~privmix.training.public.config.ExtendedConfig`, steps, or own
            options.
        options: ``"module:name"`` of the dataclass of its own options (all with defaults), or empty. Help imports that
            module, which must be quick (:mod:`privmix.options`).
    """

    name: ClassVar[str]
    directs: ClassVar[bool] = True
    follows: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[str] = ""

    @abstractmethod
    def prepare(self, step: int) -> SideInformation:
        """Public quantities for step ``step`` (from 0), at the model's current weights."""

    def combine(self, mean: Tensor, step: int) -> Tensor:
        """Turn the noisy private mean (P,) of this step into the direction that the optimiser follows."""
        return mean

    def state_dict(self) -> dict[str, Tensor]:
        """Return the next step's input except weights and step; empty for most methods. Public; valid after a step."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from :meth:`state_dict`; raise for another method's state."""
        if set(state) != set(self.state_dict()):
            raise InvalidInput("state of the public method", sorted(state), f"that of {self.name}")


METHODS: Final[Registry[type[ExtendedMethod]]] = Registry(
    "public method", "privmix.training.public", "privmix.public_methods"
)


def method_names() -> tuple[str, ...]:
    """Every name that :func:`parse_method` takes alone."""
    return ("none", *METHODS)


def parse_method(name: str, field: str = "public_method") -> tuple[str, ...]:
    """Split ``none``, a method's name, or weight multiplicity and one other joined by ``+``; raise otherwise."""
    # The methods' modules are imported for those who use them.
    if name == "none":
        return ()
    names = tuple(part.strip() for part in name.split("+")) if isinstance(name, str) else (name,)
    for part in names:
        check_choice(field, part, method_names())
    if "none" in names or len(set(names)) < len(names) or sum(METHODS[part].directs for part in names) > 1:
        free, directing = (
            ", ".join(kind.name for kind in METHODS.all() if kind.directs is way) for way in (False, True)
        )
        raise InvalidInput(field, name, f"one method, or {free} and one of {directing}")
    return names


def settings_of(name: str) -> frozenset[str]:
    """Fields of ``ExtendedConfig`` that the methods of this name are made with."""
    return frozenset(one for part in parse_method(name) for one in METHODS[part].settings) - {"steps"}


class WithGradients(ExtendedMethod):
    """A method that follows one public gradient g_pub per step: computed by ``prepare``, used by ``combine``."""

    def __init__(self, source: PublicGradients) -> None:
        self.source = source
        self._held: tuple[int, Tensor] | None = None

    def prepare(self, step: int) -> SideInformation:
        gradient = self.source.at(step)
        self._held = step, gradient
        return self._side_information(gradient, step)

    @abstractmethod
    def _side_information(self, gradient: Tensor, step: int) -> SideInformation:
        """Return result of ``prepare``, from this step's public gradient (P,)."""

    def _gradient(self, step: int) -> Tensor:
        """Return the public gradient that ``prepare(step)`` saw: the weights may have been touched since."""
        if self._held is None or self._held[0] != step:
            raise RuntimeError(f"prepare({step}) comes before combine({step})")
        return self._held[1]
