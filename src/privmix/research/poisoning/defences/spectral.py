"""Spectral signatures: records that stand out along the direction in which their class's features vary most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix.fields import Positive
from privmix.research.poisoning.base import DEFENCES, Case, DefenceFilter


@DEFENCES.register
@dataclass(frozen=True)
class SpectralSignatures(DefenceFilter):
    """Drops, of each class, the records with the largest spectral scores (Tran, Li and Madry 2018, Algorithm 1)."""

    # Never more than half of a class is dropped: the method reckons with a minority, and a class that the attacker
    # holds whole has no clean records to compare with. `multiple` of the budget are dropped from each class.
    multiple: Positive = 1.5
    name: ClassVar[str] = "spectral-signatures"
    about: ClassVar[str] = "drops what stands out in the features of its class (Tran et al. 2018)"

    def keep(self, case: Case) -> NDArray[np.bool_]:
        features = case.undefended.features(case.records.pixels)
        kept = np.ones(len(case.records), dtype=bool)
        for label in range(case.records.classes):
            inside = case.records.of_class(label)
            dropped = min(int(self.multiple * case.budget), len(inside) // 2)
            if dropped:
                scores = spectral_scores(features[inside])
                kept[inside[np.argsort(-scores, kind="stable")[:dropped]]] = False
        return kept


def spectral_scores(features: ArrayLike) -> NDArray[np.float64]:
    """(m,) squared projections of centred features (m, d) on their top right singular vector (Tran et al. 2018)."""
    centred = np.asarray(features, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    scores: NDArray[np.float64] = (centred @ direction) ** 2
    return scores
