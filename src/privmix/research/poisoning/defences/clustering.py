"""Activation clustering: a class whose features fall into two heaps, and which of the heaps is poison."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.fields import Choice, Count
from privmix.research.poisoning.base import DEFENCES, Case, DefenceFilter

ANALYSES: Final = ("smaller", "relative-size", "silhouette")
REDUCTIONS: Final = ("pca", "ica")
# A heap is suspicious if it holds less than this share of its class. The heaps are apart if the silhouette is above
# that. Both are thresholds of the adversarial robustness toolbox.
_SMALL: Final = 0.35
_APART: Final = 0.1

Features = NDArray[np.floating]


@DEFENCES.register
@dataclass(frozen=True)
class ActivationClustering(DefenceFilter):
    """Splits the features of each class by 2-means and drops a part (Chen et al. 2018, Algorithm 1)."""

    # `smaller`: the smaller part of each class (as Borgnia et al. 2021, Table A1); `relative-size`: if it has less
    # than 35% of the class; `silhouette`: if the parts are well apart, too. `ica` (FastICA, Chen et al. with
    # thousands of records) makes all variances equal: of 60 records, a part that `pca` shows goes unseen.
    analysis: Annotated[str, Choice(*ANALYSES)] = "smaller"
    reduction: Annotated[str, Choice(*REDUCTIONS)] = "pca"
    components: Count = 10
    name: ClassVar[str] = "activation-clustering"
    about: ClassVar[str] = "parts each class's features in two and drops a part (Chen et al. 2018)"

    def keep(self, case: Case) -> NDArray[np.bool_]:
        features = case.undefended.features(case.records.pixels)
        kept = np.ones(len(case.records), dtype=bool)
        for label in range(case.records.classes):
            inside = case.records.of_class(label)
            seed = int(case.scene.generator(f"activation-clustering {label}").integers(2**32))
            reduced = reduce(features[inside], self.reduction, self.components, seed)
            kept[inside] = ~smaller_heap(reduced, self.analysis, seed)
        return kept


def reduce(features: Features, reduction: str, components: int, seed: int) -> Features:
    """(m, d) features of one class -> (m, r) of at most ``components`` dimensions; r = 0 where all are equal."""
    from sklearn.decomposition import PCA, FastICA
    from sklearn.exceptions import ConvergenceWarning

    # An empty class, one record and equal ones span nothing.
    rank = int(np.linalg.matrix_rank(features - features.mean(axis=0))) if len(features) > 1 else 0
    dimensions = min(components, rank)
    if dimensions == 0:
        return features[:, :0]
    if reduction == "pca":
        reduced: Features = PCA(dimensions, random_state=seed).fit_transform(features)
        return reduced
    # It divides by all singular values, also by those of 0 that are beyond the rank, and drops what comes of these.
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        # Components that are not quite independent part a class as well.
        warnings.simplefilter("ignore", ConvergenceWarning)
        reduced = FastICA(dimensions, max_iter=1000, tol=0.005, random_state=seed).fit_transform(features)
    return reduced


def smaller_heap(reduced: Features, analysis: str = "smaller", seed: int = 0) -> NDArray[np.bool_]:
    """(m,) which records of a class, features (m, r), are in the smaller of two parts, if that part is suspicious."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    if len(reduced) < 3 or not np.ptp(reduced, axis=0).any():
        return np.zeros(len(reduced), dtype=bool)
    parts = KMeans(n_clusters=2, random_state=seed).fit_predict(reduced)
    sizes = np.bincount(parts, minlength=2)
    small = sizes.min() < _SMALL * len(parts)
    if analysis == "silhouette":
        small = small and silhouette_score(reduced, parts) > _APART
    suspicious = small or analysis == "smaller"
    return parts == sizes.argmin() if suspicious else np.zeros(len(parts), dtype=bool)
