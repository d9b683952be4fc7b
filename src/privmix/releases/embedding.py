"""Released class embeddings: noisy sums of a public feature map over each class, and the class sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privmix.designs import EmbeddingPlan
from privmix.designs.embedding import SIZES
from privmix.errors import InvalidInput
from privmix.releases.beside import Arrays, from_arrays, to_arrays
from privmix.releases.feature_maps import FeatureMap, map_from, map_of_arrays

__all__ = ["ClassEmbeddings", "FeatureMap", "map_from"]

# Every class keeps at least this part of an equal share of the records.
_FEWEST = 0.1


@dataclass(frozen=True, eq=False)
class ClassEmbeddings:
    """Noisy sums of a feature map over each class. Public, like all of a release.

    Attributes:
        sums: by part of the map (features, K) float32: sums over the records of each class plus noise.
        sizes: (K,) float32: records of each class plus noise.
        map: the public map.
        records: the public record count n.
        noise_std: standard deviation of the noise in an entry, by part; that of the sizes under ``"sizes"``.
    """

    sums: Mapping[str, NDArray[np.float32]]
    sizes: NDArray[np.float32]
    map: FeatureMap
    records: int
    noise_std: Mapping[str, float]

    def __post_init__(self) -> None:
        for name, values in self.sums.items():
            if values.ndim != 2 or values.shape[1:] != self.sizes.shape:
                raise InvalidInput(f"class embeddings: {name}", values.shape, f"(features, {len(self.sizes)})")

    def class_sizes(self) -> NDArray[np.float64]:
        """(K,) estimated sizes that sum to n, drawn towards equal ones by as much as is noise."""
        classes = len(self.sizes)
        apart = self.sizes / self.records - 1 / classes
        energy = float(np.square(apart, dtype=np.float64).sum())
        noise = classes * (self.noise_std[SIZES] / self.records) ** 2
        kept = max(0.0, 1 - noise / energy) if energy > 0 else 0.0
        shares = np.maximum(1 / classes + kept * apart.astype(np.float64), _FEWEST / classes)
        return np.asarray(shares / shares.sum() * self.records)


@from_arrays.register
def _(plan: EmbeddingPlan, arrays: Arrays) -> ClassEmbeddings:
    return ClassEmbeddings(
        sums={name: arrays[name] for name in plan.map_sizes},
        sizes=arrays[SIZES],
        map=map_of_arrays(plan, arrays),
        records=plan.records,
        noise_std=plan.noise_std,
    )


@to_arrays.register
def _(found: ClassEmbeddings) -> Arrays:
    return {**found.map.arrays(), **found.sums, SIZES: found.sizes}
