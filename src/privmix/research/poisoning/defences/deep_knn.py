"""Deep k-NN: records whose neighbours in feature space have other labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix.fields import Size
from privmix.research.poisoning.base import DEFENCES, Case, DefenceFilter

# Neighbours of as many records are held at a time.
BLOCK: Final = 1024


@DEFENCES.register
@dataclass(frozen=True)
class DeepKNN(DefenceFilter):
    """Drops records whose label is not the commonest one among their k nearest neighbours (Peri et al. 2020)."""

    # neighbours 0: twice the budget, so that poisons alone cannot outvote the others.
    neighbours: Size = 0
    name: ClassVar[str] = "deep-knn"
    about: ClassVar[str] = "drops records whose neighbours have other labels (Peri et al. 2020)"

    def keep(self, case: Case) -> NDArray[np.bool_]:
        wanted = self.neighbours or 2 * case.budget
        features = case.undefended.features(case.records.pixels)
        return agreeing(features, case.records.labels, min(wanted, len(case.records) - 1), case.records.classes)


def agreeing(features: ArrayLike, labels: NDArray[np.int64], neighbours: int, classes: int) -> NDArray[np.bool_]:
    """(n,) whose label is as common as any among their nearest neighbours in features (n, d)."""
    from sklearn.neighbors import NearestNeighbors

    points = np.asarray(features)
    search = NearestNeighbors(n_neighbors=neighbours + 1, algorithm="brute").fit(points)
    agrees = np.empty(len(labels), dtype=bool)
    for at in range(0, len(labels), BLOCK):
        asked = np.arange(at, min(at + BLOCK, len(labels)))
        found = _others(search.kneighbors(points[asked], return_distance=False), asked)
        # One count a record and label, in one array.
        places = np.arange(len(asked))[:, None] * classes + labels[found]
        votes = np.bincount(places.ravel(), minlength=len(asked) * classes).reshape(-1, classes)
        agrees[asked] = votes[np.arange(len(asked)), labels[asked]] == votes.max(axis=1)
    return agrees


def _others(found: NDArray[np.int64], asked: NDArray[np.int64]) -> NDArray[np.int64]:
    """(b, k + 1) nearest records -> (b, k) without those who ask; among more than k equal ones they may be missing."""
    dropped = found == asked[:, None]
    dropped[~dropped.any(axis=1), -1] = True
    others: NDArray[np.int64] = found[~dropped].reshape(len(asked), -1)
    return others
