"""The banded Toeplitz factor C whose inverse correlates the noise: its best coefficients, and the remaining error."""
# Training releases all prefix sums A x of the steps' sums x, up to learning rates: with noise C^-1 z these have the
# error A C^-1 z (Denisov et al. 2022; Choquette-Choo et al. 2023). Steps, bands and momentum are public.

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.signal import lfilter

from privmix.errors import check_integer, check_number
from privmix.mechanisms.factorisation import square_root

Array = NDArray[np.float64]
# Logarithm of an error that overflowed: the inverse grows from step to step.
_UNSTABLE: Final = 1e3


@lru_cache(maxsize=64)
def best_factor(steps: int, bands: int, momentum: float = 0.0) -> tuple[float, ...]:
    """Coefficients (b,) of the banded Toeplitz C, of norm 1, with the least mean squared error."""
    # With momentum, the workload is that of SGD's steps.
    check_integer("bands", bands, low=1, high=check_integer("steps", steps, low=1))
    check_number("momentum", momentum, low=0, high=1, high_open=True)
    if bands == 1:
        return (1.0,)
    workload = _workload(steps, momentum)

    def loss(tail: Array) -> tuple[float, Array]:
        c = np.concatenate([[1.0], tail])
        with np.errstate(over="ignore", invalid="ignore"):
            error = lfilter([1.0], c, workload)
            weight = np.arange(steps, 0, -1) / steps * error
            through = lfilter([1.0], c, error)
            total, square = float(weight @ error), float(c @ c)
        if not (math.isfinite(total) and np.isfinite(through).all()):
            return _UNSTABLE, np.zeros_like(tail)
        slope = np.array([-2 * (weight[k:] @ through[: steps - k]) for k in range(1, bands)])
        return math.log(total) + math.log(square), slope / total + 2 * tail / square

    # The workload's square root is best where there are as many bands as steps; with few bands, coefficients fall
    # slowly.
    slow = [(1 - share / steps) ** np.arange(1, bands) for share in (1.0, 4.0, 16.0) if share < steps]
    starts = [square_root(bands)[1:], *slow]
    found = [minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}) for start in starts]
    best = min(found, key=lambda one: float(one.fun)).x
    return tuple(normalised([1.0, *best.tolist()]))


def normalised(coefficients: Sequence[float]) -> list[float]:
    """Return the same of L2 norm 1, which is the largest column norm of C."""
    norm = math.sqrt(math.fsum(value * value for value in coefficients))
    return [value / norm for value in coefficients]


def errors(coefficients: Sequence[float], steps: int, momentum: float = 0.0) -> Array:
    """Return (steps,) squared error of each prefix sum for noise of variance 1 on C x."""
    return np.cumsum(lfilter([1.0], np.asarray(coefficients), _workload(steps, momentum)) ** 2)


def mean_error(coefficients: Sequence[float], steps: int, momentum: float = 0.0) -> float:
    return float(errors(coefficients, steps, momentum).mean())


def _workload(steps: int, momentum: float) -> Array:
    """First column of what training makes of its steps' sums: ones, or with momentum what has built up."""
    return np.cumsum(momentum ** np.arange(steps))
