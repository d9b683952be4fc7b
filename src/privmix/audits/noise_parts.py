"""Figures of released rows that tests of noise need: sums over a part of them, and over its weakest directions."""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.audits.noise_tests import NoiseTest, energy_test, grid_indices
from privmix.errors import InvalidInput

# The unit in the last place of float32's numbers about 1.
ULP: Final = 2.0**-23
# Sums of squares about a mean lose so much of the sum about 0 at most, in float64 and by blocks.
CANCELLED: Final = 1e-12
# Integers of a release's sums are below 2^53 steps, and no draw of noise exceeds 2^6 scales.
_LARGEST_SUM, _LARGEST_DRAW = 2.0**53, 64.0
_BLOCK: Final = 256
_ROWS_AT_ONCE: Final = 1024
_VALUES_AT_ONCE: Final = 2**20


class Part:
    """Sums over the rows of ``x`` or ``y``, in units of its noise."""

    def __init__(self, width: int, std: float, unit: float, laplace: bool = False) -> None:
        self.width: Final = width
        self.std: Final = std
        self.unit: Final = unit
        self.laplace: Final = laplace
        self.scale: Final = std / math.sqrt(2) if laplace else std
        self._sums, self._energies = np.zeros(width), np.zeros(width)
        self.largest: float = 0.0

    @property
    def norm(self) -> float:
        """Euclidean norm of all values (with Laplace noise the L1 norm), in units of the noise."""
        total = float(self._energies.sum())
        return total if self.laplace else math.sqrt(total)

    def check_grid(self, name: str, values: NDArray[np.float32]) -> None:
        """See :func:`check_grid`; the largest value is kept."""
        if self.unit:
            check_grid(f"rows: {name}", values, self.unit, self.std)
        self.largest = max(self.largest, float(np.abs(values).max()))

    def add(self, exact: NDArray[np.float64]) -> NDArray[np.float64]:
        """Count values (rows, width), which are overwritten; returns the energy of each row."""
        exact /= self.scale
        self._sums += exact.sum(axis=0)
        energies = np.abs(exact, out=exact) if self.laplace else np.square(exact, out=exact)
        self._energies += energies.sum(axis=0)
        return np.asarray(energies.sum(axis=1))

    def rounding(self, entries: int) -> float:
        """Norm of half a grid step in each of this number of entries, in units of the noise."""
        return self.unit / (2 * self.scale) * (entries if self.laplace else math.sqrt(entries))

    def tests(self, name: str, rows: int) -> list[NoiseTest]:
        if self.laplace:
            whole = self._energies.sum(), rows * self.width, self.rounding(rows * self.width)
            return [
                energy_test(
                    f"noise of each column of {name}", self._energies, rows, self.rounding(rows), law="laplace"
                ),
                energy_test(f"noise of {name}", *whole, law="laplace"),
            ]
        about_mean = self._energies - np.square(self._sums) / rows + CANCELLED * self._energies
        columns = self.rounding(rows) + ULP * np.sqrt(self._energies)
        whole = about_mean.sum(), (rows - 1) * self.width, self.rounding(rows * self.width) + ULP * self.norm
        return [
            energy_test(f"noise of each column of {name}", about_mean, rows - 1, columns),
            energy_test(f"noise of {name}", *whole),
        ]


class WeakDirections:
    """Noise of features in directions of least variation, where it shows even next to strong signals."""

    # Directions (an eighth of the columns) come from the first half of the rows and noise is tested in the second half.
    # The second half is independent: for it, the directions are fixed.

    def __init__(self, rows: int, part: Part) -> None:
        self._rows, self._half, self._part = rows, rows // 2, part
        width = max(1, min(_BLOCK, rows // 8))
        self._blocks = [slice(first, min(first + width, part.width)) for first in range(0, part.width, width)]
        self._grams = [np.zeros((b.stop - b.start,) * 2) for b in self._blocks]
        self._sums = np.zeros(part.width)
        self._buffer = np.empty((min(_ROWS_AT_ONCE, self._half), part.width), np.float32)
        self._filled = 0
        self._bases: list[NDArray[np.float64]] = []
        self._totals = self._squares = np.zeros(0)
        self._norm = 0.0

    def add(self, start: int, values: NDArray[np.float32], exact: NDArray[np.float64]) -> None:
        early = min(max(self._half - start, 0), len(values))
        done = 0
        while done < early:
            more = min(early - done, len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + more] = values[done : done + more]
            self._filled, done = self._filled + more, done + more
            if self._filled == len(self._buffer):
                self._fold()
        if early < len(values):
            if not self._bases:
                self._choose()
            self._project(exact[early:])

    def _fold(self) -> None:
        rows = self._buffer[: self._filled]
        self._sums += rows.sum(axis=0, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            for gram, block in zip(self._grams, self._blocks, strict=True):
                gram += rows[:, block].T @ rows[:, block]
        self._filled = 0

    def _choose(self) -> None:
        self._fold()
        for gram, block in zip(self._grams, self._blocks, strict=True):
            mean = self._sums[block] / self._half
            scatter = gram / self._half - np.outer(mean, mean)
            # Squares beyond float32 carry no information. Any directions will do that the second half has no part in.
            _, vectors = np.linalg.eigh(scatter if np.isfinite(scatter).all() else np.eye(len(gram)))
            self._bases.append(vectors[:, : max(1, len(gram) // 8)] / self._part.std)
        self._totals = np.zeros(sum(basis.shape[1] for basis in self._bases))
        self._squares = np.zeros_like(self._totals)
        self._grams = []

    def _project(self, exact: NDArray[np.float64]) -> None:
        along = np.hstack([exact[:, block] @ basis for block, basis in zip(self._blocks, self._bases, strict=True)])
        self._totals += along.sum(axis=0)
        self._squares += np.square(along).sum(axis=0)
        self._norm += float(np.einsum("ij,ij->", exact, exact)) / self._part.std**2

    def test(self) -> NoiseTest:
        rows = self._rows - self._half
        energy = (self._squares - np.square(self._totals) / rows + CANCELLED * self._squares).sum()
        rounding = self._part.rounding(rows * self._part.width) + ULP * math.sqrt(self._norm)
        name = "noise of x where it varies least"
        return energy_test(name, energy, (rows - 1) * len(self._totals), rounding)


def check_grid(name: str, values: NDArray[np.float32], unit: float, std: float) -> None:
    """Check that values are on the grid of ``unit`` and no larger than any sum with noise of ``std``."""
    largest = np.float32(min(_LARGEST_SUM * unit + _LARGEST_DRAW * std, float(np.finfo(np.float32).max)))
    flat: Any = values.reshape(-1)
    for first in range(0, len(flat), _VALUES_AT_ONCE):
        part = flat[first : first + _VALUES_AT_ONCE]
        if not (np.abs(part) <= largest).all():
            raise InvalidInput(name, "values that no sum with noise has", f"finite values of at most {largest:.3g}")
        if not grid_indices(part, unit).all():
            raise InvalidInput(name, "values off the public grid", f"float32 roundings of multiples of {unit:.6g}")
