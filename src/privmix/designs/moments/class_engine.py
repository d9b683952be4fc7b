"""Run a plan of second moments of each class: exact sums of products, one draw of noise a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from privmix.designs.moments.engine import MomentPass, MomentsEngine, MomentSums, noisy_symmetric
from privmix.designs.moments.plan import MomentsPlan
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.publication.second_moments import ClassSecondMoments, SecondMoments


class ClassMomentsEngine(MomentsEngine):
    """Carries out a plan of second moments of each class; its guarantees are those of :class:`MomentsEngine`."""

    def _released_moments(self, tell: Progress) -> SecondMoments:
        # The plan limits the matrices to what fits: there are no panels.
        return self._passes.over(self._pass(range(self._plan.dim)), tell).released(self._streams)

    def _pass(self, panel: range) -> MomentPass:
        return ClassPass(self._plan, self.transform, panel)


@dataclass(frozen=True, eq=False)
class ClassPass(MomentPass):
    """Products of records, X'X by class."""

    def empty(self) -> MomentSums:
        return ClassMomentSums(self.plan)


class ClassMomentSums(MomentSums):
    """Exact sums of products of the records of each class on the lattice. Secret."""

    released_as: ClassVar[type[SecondMoments]] = ClassSecondMoments

    def __init__(self, plan: MomentsPlan) -> None:
        super().__init__(plan)
        # Each class's matrix is in Fortran order, BLAS's own.
        self._second: NDArray[Any] = np.zeros((plan.dim, plan.dim, plan.num_classes), np.float64, order="F")

    def _add_products(self, steps: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        for label in np.unique(labels):
            own = steps[labels == label]
            self._second[..., label] = dsyrk(1.0, own.T, beta=1.0, c=self._second[..., label], lower=1, overwrite_c=1)

    def _noisy_second(self, streams: SecretStreams) -> NDArray[np.float32]:
        std, unit = self._plan.second_noise_multiplier / self._lattice.step**2, self._plan.part("second").unit
        return np.stack(
            [
                noisy_symmetric(self._second[..., label], std, unit, streams, "class second moment noise", label)
                for label in range(self._plan.num_classes)
            ]
        )
