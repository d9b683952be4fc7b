"""Whether numbers follow from others, where another machine may have rounded differently."""
# Eigenvectors have no sign and turn among equal eigenvalues: they are compared as spaces and not one by one.

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput

Reals = NDArray[np.float64]

UP_TO_ROUNDING: Final = ", up to rounding"
"""Ends the name of a test that held, but not bit for bit."""

ROUNDING: Final = 1e-4
"""Largest change by another machine's rounding, as a share of the largest number of its kind.

Measured on OpenBLAS's kernels for five kinds of processors it is a seventh of that at most, digits of a grid apart."""


def eigenvectors(what: str, rows: Reals, matrix: NDArray[Any], rounding: Reals) -> tuple[Reals, Reals]:
    """Return unit vectors of (r, d) ``rows`` and their eigenvalues; raise InvalidInput unless orthogonal."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = rows / np.maximum(lengths, np.finfo(float).tiny)
    agree(f"{what}: their angles", units @ units.T, np.eye(len(units)), rounding[:, None] + rounding)
    images = units @ matrix
    values = np.einsum("ij,ij->i", images, units)
    left = np.linalg.norm(images - values[:, None] * units, axis=1)
    agree(what, left, 0.0, rounding * _norm(matrix))
    return units, np.asarray(values)


def _norm(matrix: NDArray[Any]) -> float:
    """Return the largest eigenvalue's size, from below and closely."""
    vector, size = np.linspace(1.0, 1.001, len(matrix)) / math.sqrt(len(matrix)), 0.0
    for _ in range(30):
        image = matrix @ vector
        size = float(np.linalg.norm(image))
        if not size > 0:
            return 0.0
        vector = image / size
    return size


def agree(what: str, stated: Any, expected: Any, room: Any) -> None:
    """Raise :class:`InvalidInput` unless numbers differ by the tolerance at most."""
    apart = np.abs(np.asarray(stated, np.float64) - expected)
    # NaN compares false: what can't be compared is refused.
    if not (apart <= room + np.finfo(np.float32).tiny).all():
        raise InvalidInput(what, "other numbers", "those that follow from public numbers, up to rounding")
