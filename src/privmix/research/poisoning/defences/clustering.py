"""Activation clustering: a class whose features fall into two heaps, and which of the heaps is poison."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.fields import Choice, Count
from privmix.research.poisoning.base import DEFENCES, Case, Filter

ANALYSES: Final = ("smaller", "relative-size", "silhouette")
REDUCTIONS: Final = ("pca", "ica")
# A heap is suspicious if it holds less than this share of its class, and the heaps are apart if the silhouette is above
# that: the thresholds of the adversarial robustness toolbox.
_SMALL: Final = 0.35
_APART: Final = 0.1

Features = NDArray[np.floating]


@DEFENCES.register
@dataclass(frozen=True)
class ActivationClustering(Filter):
    """Parts the features of each class in two and drops a part (Chen et al. 2018, Algorithm 1).

    Features are reduced to a few dimensions and parted by 2-means.

    Attributes:
        analysis: which part is dropped. ``smaller``: the smaller one of each class, poisoned or not, which costs
            accuracy as it does in the comparison of Borgnia et al. (2021, Table A1); ``relative-size``: the smaller one
            where it has less than 35% of the class; ``silhouette``: that, where the parts are well apart, too.
        reduction: ``pca``: principal components; ``ica``: independent ones (FastICA), as Chen et al. have them with
            thousands of records a class. These have the same variance each, so that a heap hardly stands out from ten
            of them where there are few records: of 60 records, a heap that principal components show goes unseen.
        components: how many; fewer where features have fewer dimensions.
    """

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
    """Which records of a class are in the smaller of two heaps, if that is suspicious.

    Args:
        reduced: (m, r) features of one class.
        analysis: see :class:`ActivationClustering`.
        seed: of 2-means.

    Returns:
        (m,); none where there are no two heaps.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> heaps = np.concatenate([rng.normal(0, 1, (40, 9)), rng.normal(6, 1, (8, 9))])
        >>> smaller_heap(heaps, "silhouette").nonzero()[0].tolist()
        [40, 41, 42, 43, 44, 45, 46, 47]
    """
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
