"""Deep k-NN: records whose neighbours in feature space have other labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix.attacks.poisoning.base import DEFENCES, Case, Filter
from privmix.errors import check_integer


@DEFENCES.register
@dataclass(frozen=True)
class DeepKNN(Filter):
    """Drops records whose label is not the commonest one among their k nearest neighbours (Peri et al. 2020).

    Attributes:
        neighbours: k; 0: twice the budget, so that poisons alone can't outvote the others.
    """

    neighbours: int = 0
    name: ClassVar[str] = "deep-knn"
    about: ClassVar[str] = "drops records whose neighbours have other labels (Peri et al. 2020)"

    def __post_init__(self) -> None:
        check_integer("neighbours", self.neighbours, low=0)

    def keep(self, case: Case) -> NDArray[np.bool_]:
        wanted = self.neighbours or 2 * case.budget
        features = case.undefended.features(case.records.pixels)
        return agreeing(features, case.records.labels, min(wanted, len(case.records) - 1), case.records.classes)


def agreeing(features: ArrayLike, labels: NDArray[np.int64], neighbours: int, classes: int) -> NDArray[np.bool_]:
    """Whose label is as common as any among their nearest neighbours.

    Args:
        features: (n, d), compared by Euclidean distance.
        labels: (n,) in [0, classes).
        neighbours: how many others are asked, in [1, n).
        classes: number of labels.

    Returns:
        (n,).

    Example:
        >>> agreeing([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], np.array([0, 0, 1, 1, 1, 1]), 2, 2).tolist()
        [True, True, False, True, True, True]
    """
    from sklearn.neighbors import NearestNeighbors

    found = NearestNeighbors(n_neighbors=neighbours, algorithm="brute").fit(np.asarray(features)).kneighbors()[1]
    votes = np.zeros((len(labels), classes), dtype=np.int64)
    np.add.at(votes, (np.arange(len(labels))[:, None], labels[found]), 1)
    agrees: NDArray[np.bool_] = votes[np.arange(len(labels)), labels] == votes.max(axis=1)
    return agrees
