"""Numbers of a release of corrected moments, and the models that follow from them: post-processing."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privmix.designs.corrected.plan import CONSTANT, ERROR_BOUND
from privmix.learning.calibration import capped, imagined
from privmix.learning.class_statistics import of_moments
from privmix.mechanisms.noise import exact_bits
from privmix.publication.second_moments import Arrays, SecondMoments

Reals = NDArray[np.float64]

# Standard deviation that the noise of one correction adds to log odds. From 0.5 to 1 accuracy is the same.
_TRUST: Final = 0.7
# Records that stand for the private ones in the Hessian, with a fixed seed. Their numbers and log odds are limited: a
# small file may be a release of very many classes.
_RECORDS, _RECORDS_A_CLASS, _NUMBERS, _SEED = 4000, 40, 2**24, 0
# Numerical: with more left, other machines would end elsewhere where features are nearly dependent.
_STEPS, _LEFT = 400, 1e-8
# Log odds are rounded to whole steps before they become probabilities; those farther behind the best count alike.
_STEP, _DEEPEST, _WHOLE = 2.0**-8, 16, 2.0**32
_TABLE: Final = np.rint(_WHOLE * np.exp(-_STEP * np.arange(_DEEPEST / _STEP + 1)))


@dataclass(frozen=True, eq=False)
class CorrectedSecondMoments(SecondMoments):
    """Public second moments of records (:class:`SecondMoments`), and the errors of models that follow from them."""

    # models (J, d + 1, K): see :class:`Model`. errors (J, d + 1, K): sums of C (z, 1/4) e' over records, with noise of
    # deviation noise_std_errors. z is a record in clipping bounds, e its error by the model of the same number, and
    # bound is C.

    models: NDArray[np.float32]
    errors: NDArray[np.float32]
    noise_std_errors: float
    bound: float
    label_offset: float
    centred: bool

    @classmethod
    def derived(cls, plan: Any, arrays: Arrays) -> Mapping[str, Any]:
        return {"bound": plan.final_clip_norm, "label_offset": plan.label_offset, "centred": plan.centred}

    @property
    def following(self) -> list[Reals]:
        """(J + 1) models that follow: the first from the moments, each other from the errors of that before it."""
        corrections = Corrections(self, self.bound, self.noise_std_errors, self.label_offset, self.centred)
        pairs = zip(self.models, self.errors, strict=True)
        return [corrections.first, *(corrections.next(model, errors) for model, errors in pairs)]


@dataclass(frozen=True, eq=False)
class Model:
    """Log odds of the classes: ``matrix`` (d + 1, K) float32 on a grid, for records in clipping bounds and a constant.

    Formal guarantees:
        * Per record: errors depend, to the last bit, on the record, its class and the model alone. Entries of the
          matrix and of records are integers times powers of 2, whose products add up exactly. Log odds are rounded to
          whole steps, and probabilities are quotients of whole numbers from a table. So no block, neighbour, thread
          or order of adding changes a bit.
        * Bounded: errors are at most sqrt(2), in norm; those who sum them clip them.
    """

    matrix: NDArray[np.float32]
    lattice_bits: int

    @classmethod
    def on_grid(cls, matrix: Reals, lattice_bits: int) -> "Model":
        # The grid is that of slightly larger entries: rounding takes none beyond it.
        grid = 2.0 ** exact_bits((matrix * (1 + 2.0**-12)).T, lattice_bits)
        return cls((np.rint(matrix * grid) / grid).astype(np.float32), lattice_bits)

    @cached_property
    def _steps(self) -> tuple[Reals, float]:
        bits = exact_bits(self.matrix.T, self.lattice_bits)
        steps = self.matrix.astype(np.float64) * 2.0**bits
        assert np.array_equal(steps, np.rint(steps)), "a model off its grid"
        return steps, 2.0 ** -(bits + self.lattice_bits)

    def errors(self, steps: Reals, labels: NDArray[np.int64]) -> Reals:
        """(b, d + 1) records in lattice steps, and their (b,) classes -> (b, K) labels less probabilities."""
        matrix, unit = self._steps
        odds = steps @ matrix
        odds *= unit
        odds -= odds.max(axis=1, keepdims=True)
        table = _TABLE[np.minimum(np.rint(odds / -_STEP), len(_TABLE) - 1).astype(np.int64)]
        table /= -table.sum(axis=1, keepdims=True)
        table[np.arange(len(labels)), labels] += 1
        return np.asarray(table)


class Corrections:
    """The models of a release, (d + 1, K): the first one from its moments, and others from errors of those before."""

    def __init__(
        self, moments: SecondMoments, bound: float, noise_std: float, label_offset: float, centred: bool
    ) -> None:
        found = of_moments(moments, label_offset, centred, digits=np.float64)
        weights, offsets = found.discriminants(found.between())
        most = max(1, _NUMBERS // sum(weights.shape))
        count = min(max(_RECORDS, _RECORDS_A_CLASS * len(offsets)), most)
        records = imagined(found, count, np.random.default_rng(_SEED), turned=True) @ found.basis.T + found.origin
        records /= np.maximum(np.linalg.norm(records, axis=1, keepdims=True), bound)
        self._records = np.column_stack([records, np.full(count, CONSTANT)])
        first = np.vstack([bound * weights, (offsets - found.origin @ weights) / CONSTANT])
        self.first: Final[Reals] = first * capped(self._records @ first)
        self._count = moments.records * bound
        self._damping = noise_std / self._count * math.hypot(1, CONSTANT) / _TRUST

    def next(self, model: NDArray[np.float32], errors: NDArray[np.float32]) -> Reals:
        """Return the model after a damped Newton step along noisy ``errors`` (d + 1, K)."""
        # The Hessian is A = mean of f z z' x (diag p - p p') over the records drawn. p are their probabilities, and f
        # is the part of their errors that clipping leaves. The step is (A + l)^-1 E / n. Noise of deviation s moves the
        # log odds of a record of norm c by s c / (l n) at most; l makes that the trust.
        records, matrix = self._records, model.astype(np.float64)
        shares = softmax(records @ matrix, axis=1)
        # An error of class k is of squared length 1 - 2 p_k + sum p^2.
        lengths = np.sqrt(np.maximum(1 - 2 * shares + np.square(shares).sum(axis=1, keepdims=True), 0.0))
        kept = (shares * ERROR_BOUND / np.maximum(lengths, ERROR_BOUND)).sum(axis=1, keepdims=True)

        def changed(step: Reals) -> Reals:
            odds = records @ step
            odds -= (shares * odds).sum(axis=1, keepdims=True)
            return np.asarray(records.T @ (kept * shares * odds) / len(records) + self._damping * step)

        about = np.square(records).mean(axis=0)[:, None] * (kept * shares * (1 - shares)).mean(axis=0) + self._damping
        return matrix + _solved(changed, errors.astype(np.float64) / self._count, about)


def _solved(matrix: Callable[[Reals], Reals], wanted: Reals, about: Reals) -> Reals:
    """Solve matrix(x) = wanted by conjugate gradients, ``about`` being near the diagonal of the matrix."""
    found, left = np.zeros_like(wanted), wanted.copy()
    ahead = left / about
    direction, size = ahead, float((left * ahead).sum())
    enough = _LEFT * float(np.linalg.norm(wanted))
    for _ in range(_STEPS):
        if not float(np.linalg.norm(left)) > enough:
            break
        image = matrix(direction)
        length = size / float((direction * image).sum())
        found, left = found + length * direction, left - length * image
        ahead = left / about
        size, before = float((left * ahead).sum()), size
        direction = ahead + size / before * direction
    return found
