"""How sharp a minimum is: the largest eigenvalue of the public loss's Hessian (Park et al. 2024, table 4)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from privmix.errors import check_integer, check_number
from privmix.training.examples import PublicData
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.public.gradients import own_randomness, public_loss

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
    """Largest eigenvalue of the Hessian of the mean public loss, by Lanczos iteration.

    For public data only: of private data it would be a private quantity, and its release a query to pay for.

    Lanczos iteration costs what power iteration costs, needs fewer steps, and finds the largest eigenvalue where a
    negative one is larger in size, as away from minima. Its result is the curvature along some direction: if anything
    it is low, and never high beyond rounding.

    Args:
        model: in the mode it is in; left as it was.
        data: public records, all of which are used.
        iterations: at most; each costs about two gradients of the whole data, and memory for one more vector (P,).
        tolerance: relative change at which the iteration ends.
        batch_size: records at a time; the result does not depend on it but for rounding.
        seed: of the starting direction.

    Returns:
        The eigenvalue; 0 where the loss is flat.

    Raises:
        InvalidInput: a number is out of range.

    Example:
        >>> model = nn.Linear(1, 2, bias=False)
        >>> _ = nn.init.zeros_(model.weight)
        >>> round(sharpness(model, PublicData.of([[2.0]], [0], classes=2)), 4)
        2.0
    """
    check_integer("iterations", iterations, low=1)
    check_number("tolerance", tolerance, low=0)
    check_integer("batch size", batch_size, low=1)
    flat = FlatParameters(model)
    start = torch.randn(flat.size, generator=torch.Generator().manual_seed(seed)).to(flat.device)

    def product(direction: Tensor) -> Tensor:
        return _hessian_product(model, flat, data, direction, batch_size, seed)

    return _largest_eigenvalue(product, start, min(iterations, flat.size), tolerance)


def _largest_eigenvalue(product: Callable[[Tensor], Tensor], start: Tensor, iterations: int, tolerance: float) -> float:
    """The largest eigenvalue of the symmetric matrix behind ``product``, on the subspace that its powers span."""
    direction = start / start.norm()
    basis, diagonal, beside = [direction], list[float](), list[float]()
    value = 0.0
    for _ in range(iterations):
        image = product(direction)
        diagonal.append(float(direction @ image))
        previous, value = value, _top_of_tridiagonal(diagonal, beside)
        size = float(image.norm())
        # Twice: once leaves rounding errors that grow into copies of eigenvalues already found.
        for _ in range(2):
            for vector in basis:
                image = image - (vector @ image) * vector
        rest = float(image.norm())
        settled = len(diagonal) > 2 and abs(value - previous) <= tolerance * abs(value)
        if settled or rest <= _ROUNDING * size:
            break
        beside.append(rest)
        direction = image / rest
        basis.append(direction)
    return value


def _top_of_tridiagonal(diagonal: list[float], beside: list[float]) -> float:
    main = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    side = torch.diag(torch.tensor(beside, dtype=torch.float64), 1) if beside else torch.zeros_like(main)
    return float(torch.linalg.eigvalsh(main + side + side.T)[-1])


def _hessian_product(
    model: nn.Module, flat: FlatParameters, data: PublicData, direction: Tensor, batch_size: int, seed: int
) -> Tensor:
    """The Hessian of the mean loss times ``direction`` (P,): the gradient of (gradient · direction)."""
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
