"""How sharp a minimum is: eigenvalues and trace of the public loss's Hessian (Park et al. 2024, table 4)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from privmix.errors import check_integer, check_number
from privmix.training.examples import PublicData
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.public.base import own_randomness, public_loss

_ROUNDING = 1e-5


def sharpness(
    model: nn.Module,
    data: PublicData,
    *,
    iterations: int = 40,
    tolerance: float = 1e-3,
    batch_size: int = 256,
    seed: int = 0,
) -> float:
    """Largest eigenvalue of the Hessian of the mean PUBLIC loss, by Lanczos iteration; 0 where the loss is flat."""
    # The same figure of private data would be a private quantity. Lanczos costs what power iteration costs, needs fewer
    # steps, and finds the largest eigenvalue where a negative one is larger in size. The result is the curvature along
    # some direction: it can be low, and is never high beyond rounding.
    check_integer("iterations", iterations, low=1)
    check_number("tolerance", tolerance, low=0)
    check_integer("batch size", batch_size, low=1)
    lanczos = _lanczos_of(model, data, batch_size, seed)
    value = 0.0
    for done in range(min(iterations, lanczos.size)):
        goes_on = lanczos.step()
        previous, value = value, float(lanczos.values[0][-1])
        if not goes_on or (done > 1 and abs(value - previous) <= tolerance * abs(value)):
            break
    return value


@dataclass(frozen=True)
class Curvature:
    """Figures of the public loss's Hessian (Park et al. 2024, table 4); `trace_error` is a standard error."""

    eigenvalues: tuple[float, ...]
    trace: float
    trace_error: float

    @property
    def ratio(self) -> float:
        """The largest eigenvalue over the last of ``eigenvalues``, the fifth in the paper; infinity over 0."""
        last = self.eigenvalues[-1]
        return self.eigenvalues[0] / last if last else math.inf

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the ratio is None where it is infinite."""
        ratio = self.ratio if math.isfinite(self.ratio) else None
        return {"eigenvalues": list(self.eigenvalues), "ratio": ratio, "trace": self.trace, "error": self.trace_error}


def curvature(
    model: nn.Module,
    data: PublicData,
    *,
    eigenvalues: int = 5,
    iterations: int = 100,
    tolerance: float = 1e-2,
    probes: int = 20,
    batch_size: int = 256,
    seed: int = 0,
) -> Curvature:
    """Return the largest eigenvalues of the Hessian of the mean PUBLIC loss, their ratio, and its trace.

    Eigenvalues by Lanczos iteration, until each is within `tolerance` times the largest of some eigenvalue; of equal
    ones fewer may be found. The trace is exact on the subspace of the iteration and estimated on the rest from `probes`
    random signs (Hutchinson 1989). Meyer, Musco, Musco and Woodruff 2021 take such a subspace out first. Each iteration
    and probe costs about two gradients of the whole data; an iteration keeps one more vector (P,).
    """
    check_integer("iterations", iterations, low=1)
    check_number("tolerance", tolerance, low=0)
    check_integer("probes", probes, low=2)
    check_integer("batch size", batch_size, low=1)
    lanczos = _lanczos_of(model, data, batch_size, seed)
    check_integer("eigenvalues", eigenvalues, low=1, high=min(iterations, lanczos.size))
    for done in range(1, min(iterations, lanczos.size) + 1):
        goes_on = lanczos.step() or (done < lanczos.size and lanczos.restart())
        values, errors = lanczos.values
        settled = bool((errors[-eigenvalues:] <= tolerance * values.abs().max()).all())
        if not goes_on or (done >= eigenvalues + 2 and settled):
            break
    trace, error = lanczos.trace(probes)
    return Curvature(tuple(values[-eigenvalues:].flip(0).tolist()), trace, error)


class _Lanczos:
    """Lanczos iteration with a symmetric matrix (`product`), vectors kept orthogonal to all before them."""

    def __init__(
        self, product: Callable[[Tensor], Tensor], size: int, draw: Callable[[], Tensor], signs: Callable[[], Tensor]
    ) -> None:
        self._product, self.size, self._draw, self._signs = product, size, draw, signs
        start = draw()
        self._basis, self._diagonal, self._beside = [start / start.norm()], list[float](), list[float]()
        self._next: Tensor | None = None

    def step(self) -> bool:
        """One product more; False where the vectors so far span a space that the matrix does not leave."""
        if self._next is not None:
            self._basis.append(self._next)
        direction = self._basis[-1]
        image = self._product(direction)
        size = float(image.norm())
        self._diagonal.append(float(direction @ image))
        image = self._outside(image)
        rest = float(image.norm())
        goes_on = rest > _ROUNDING * size
        self._beside.append(rest if goes_on else 0.0)
        self._next = image / rest if goes_on else None
        return goes_on

    def restart(self) -> bool:
        """Go on from a new direction outside of the space that was spanned."""
        direction = self._outside(self._draw())
        self._next = direction / direction.norm()
        return True

    @property
    def values(self) -> tuple[Tensor, Tensor]:
        """The matrix's eigenvalues on the spanned space, ascending, and how far each may be from one of its own."""
        main = torch.diag(torch.tensor(self._diagonal, dtype=torch.float64))
        if len(self._diagonal) > 1:
            side = torch.diag(torch.tensor(self._beside[:-1], dtype=torch.float64), 1)
            main = main + side + side.T
        values, vectors = torch.linalg.eigh(main)
        return values, self._beside[-1] * vectors[-1].abs()

    def trace(self, probes: int) -> tuple[float, float]:
        """Return the trace and its standard error: exact on the spanned space, estimated on the rest."""
        known = math.fsum(self._diagonal)
        if len(self._diagonal) == self.size:
            return known, 0.0
        found = []
        for _ in range(probes):
            outside = self._outside(self._signs())
            found.append(float(outside @ self._product(outside)))
        rest = torch.tensor(found, dtype=torch.float64)
        return known + float(rest.mean()), float(rest.std() / math.sqrt(probes))

    def _outside(self, vector: Tensor) -> Tensor:
        # Twice: once leaves rounding errors that grow into copies of eigenvalues already found.
        for _ in range(2):
            for one in self._basis:
                vector = vector - (one @ vector) * one
        return vector


def _lanczos_of(model: nn.Module, data: PublicData, batch_size: int, seed: int) -> _Lanczos:
    flat = FlatParameters(model)
    generator = torch.Generator().manual_seed(seed)

    def product(direction: Tensor) -> Tensor:
        return _hessian_product(model, flat, data, direction, batch_size, seed)

    def draw() -> Tensor:
        return torch.randn(flat.size, generator=generator).to(flat.device)

    def signs() -> Tensor:
        return (2.0 * torch.randint(2, (flat.size,), generator=generator) - 1.0).to(flat.device)

    return _Lanczos(product, flat.size, draw, signs)


def _hessian_product(
    model: nn.Module, flat: FlatParameters, data: PublicData, direction: Tensor, batch_size: int, seed: int
) -> Tensor:
    """Return the Hessian of the mean loss times ``direction`` (P,): the gradient of (gradient · direction)."""
    total = torch.zeros_like(direction)
    for start in range(0, data.size, batch_size):
        x, targets = data.x[start : start + batch_size], data.targets[start : start + batch_size]
        with torch.enable_grad(), own_randomness(flat.device, seed):
            loss, leaves = public_loss(model, flat, x, targets)
            parts = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True, materialize_grads=True)
            slope = flat.flatten(dict(zip(flat.names, parts, strict=True))) @ direction
            if not slope.requires_grad:
                continue
            second = torch.autograd.grad(slope, leaves, allow_unused=True, materialize_grads=True)
        total += flat.flatten(dict(zip(flat.names, second, strict=True))) * (len(x) / data.size)
    return total
