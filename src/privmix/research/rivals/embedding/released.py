"""Released class embeddings: noisy sums of a public feature map over each class, and the class sizes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.publication.second_moments import Arrays, Released, estimated_shares
from privmix.research.rivals.embedding.feature_maps import FeatureMap, map_from, map_of_arrays
from privmix.research.rivals.embedding.plan import SIZES, EmbeddingPlan

__all__ = ["ClassEmbeddings", "FeatureMap", "map_from"]


@dataclass(frozen=True, eq=False)
class ClassEmbeddings(Released):
    """Noisy sums of a feature map over each class. Public, like all of a release."""

    # `sums`: by part (features, K); `sizes`: (K,); `noise_std`: of an entry, by part, and under "sizes".
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
        """(K,) estimated sizes that sum to n: from the released sizes, and from the sums themselves."""
        # A class's sum holds its size, too: its length along the mean of all features, of which every record has about
        # the same amount where the kernel is wide. Errors weigh both; how far both are apart shows how much classes
        # differ. The rest is drawn towards equal sizes by as much as is noise.
        told = self.noise_std[SIZES] ** 2
        along, error = self._along_the_mean()
        sizes = self.sizes.astype(np.float64)
        if np.isfinite(error):
            spread = float((np.square(sizes - along) - told - error).sum())
            differs = max(0.0, spread / max(float(np.square(along).sum()), 1.0))
            errors = error + differs * np.square(along)
            sizes = (sizes * errors + along * told) / (told + errors)
            told = float((told * errors / (told + errors)).mean())
        return estimated_shares(sizes / self.records, math.sqrt(told) / self.records)[0] * self.records

    def _along_the_mean(self) -> tuple[NDArray[np.float64], float]:
        """(K,) sizes by the sums' lengths along their mean, and their noise variance; infinite where none show."""
        # In units of the noise: of products of noisy sums, the squares of the noise in them are taken off.
        noisy = np.concatenate([sums.astype(np.float64) / self.noise_std[name] for name, sums in self.sums.items()])
        features, classes = noisy.shape
        mean = noisy.sum(axis=1) / self.records
        products = noisy.T @ mean - features / self.records
        square = float(mean @ mean) - classes * features / self.records**2
        error = square + features * (classes + 1) / self.records**2
        # Under three errors of its own, the mean is too faint to measure by.
        if square <= 3 * np.sqrt(2 * features) * classes / self.records**2:
            return products, np.inf
        return products / square, error / square**2

    @classmethod
    def of(cls, plan: EmbeddingPlan, arrays: Arrays) -> Self:
        sums = {name: arrays[name] for name in plan.map_sizes}
        return cls(sums, arrays[SIZES], map_of_arrays(plan, arrays), plan.records, plan.noise_std)

    @property
    def arrays(self) -> Arrays:
        return {**self.map.arrays(), **self.sums, SIZES: self.sizes}
