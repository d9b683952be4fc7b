"""Nearest class embedding: a classifier from noisy kernel mean embeddings alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.learning.base import LEARNERS, ReleaseFacts, ReleaseLearner, check_arrays
from privmix.learning.data_model import DataModel
from privmix.learning.forecast import LinearRule
from privmix.plans.plan import Plan
from privmix.progress import Progress
from privmix.publication.dataset import ReleasedDataset
from privmix.research.rivals.embedding.plan import SIZES, EmbeddingPlan
from privmix.research.rivals.embedding.released import ClassEmbeddings, FeatureMap, map_from

_MAP = "map."
_RECORDS_AT_ONCE = 1024
# The assumed length of records less their mean, as a share of whole ones, as where a mean is released first.
_LENGTH = 0.55
_FEWEST = 0.1


@LEARNERS.register
class ClassEmbeddingClassifier(ReleaseLearner):
    """The class whose mean embedding is nearest to a record's features, for releases of class embeddings.

    A record x is scored by 2 phi(x)'m_k - q_k. Here m_k (`coef_`) is the released sum of class k over its size, and q_k
    the squared norm of the class's mean without noise. The square of a noisy mean is too large by its noise's. The rest
    is drawn towards the classes' average by as much of its spread as is noise (James and Stein 1961, with the spread of
    all classes).
    """

    name: ClassVar[str] = "class-embeddings"
    takes_records: ClassVar[bool] = False
    reads_rows: ClassVar[bool] = False
    coef_: NDArray[np.float32]
    intercept_: NDArray[np.float32]
    map_: FeatureMap

    @classmethod
    def forecast(cls, plan: Plan, model: DataModel, seed: int) -> LinearRule | None:
        """Return the rule to first order in the classes' means and in the noise, where the kernel is a Gaussian's."""
        # The noise is a Gaussian process whose covariance is the kernel: a number for each class, and one along each
        # axis.
        if not isinstance(plan, EmbeddingPlan):
            return None
        generator, (classes, axes) = np.random.default_rng(seed), model.means.shape
        counts = plan.records * model.shares[:, None]
        means = _LENGTH * model.means + _LENGTH * np.sqrt(model.within / counts) * generator.standard_normal(
            (classes, axes)
        )
        divisors, level = plan.response(_LENGTH**2 * model.within)
        noise = plan.noise_std_score / counts
        # Sizes are known from a query of their own, and from the sums.
        error = 1 + plan.noise_std[SIZES] / counts * generator.standard_normal((classes, 1))
        means, noise = means / np.maximum(error, _FEWEST), noise / np.maximum(error, _FEWEST)
        along = noise / plan.kernel_width * generator.standard_normal((classes, axes))
        weights = level * means / divisors + along
        offsets = (
            noise[:, 0] * generator.standard_normal(classes) - level * (np.square(means) / divisors).sum(axis=1) / 2
        )
        return _LENGTH * weights.T, offsets

    def _check_params(self) -> None:
        """There are none."""

    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        found = release.beside
        if not isinstance(found, ClassEmbeddings):
            raise InvalidInput("release", f"design {release.design}", "one of class embeddings for this learner")
        for values in (*found.sums.values(), found.sizes):
            if not np.isfinite(values).all():
                raise InvalidInput("released embeddings", "NaN or infinity", "finite numbers")
        sizes, squares = found.class_sizes(), np.zeros(release.num_classes)
        means = []
        for name, sums in found.sums.items():
            mean = sums / sizes
            means.append(mean.astype(np.float32))
            squares += _squares(mean, found.noise_std[name] / sizes)
        self.coef_, self.map_ = np.concatenate(means), found.map
        self.intercept_ = (-squares / 2).astype(np.float32)
        progress("steps", 1, 1)

    def _scores(self, records: NDArray[np.float32]) -> NDArray[np.float32]:
        bound = self.facts_.transform.final_clip_norm
        scores = np.empty((len(records), len(self.intercept_)), np.float32)
        for start in range(0, len(records), _RECORDS_AT_ONCE):
            part = slice(start, start + _RECORDS_AT_ONCE)
            features = self.map_(records[part].astype(np.float64) / bound)
            scores[part] = np.concatenate(list(features.values()), axis=1) @ self.coef_ + self.intercept_
        return scores

    def _arrays(self) -> dict[str, NDArray[np.float32]]:
        own = {"coef": self.coef_, "intercept": self.intercept_}
        return {**own, **{_MAP + name: values for name, values in self.map_.whole().items()}}

    def _restore(self, arrays: Mapping[str, NDArray[np.float32]], facts: ReleaseFacts) -> None:
        own = {name: one for name, one in arrays.items() if not name.startswith(_MAP)}
        features = len(own["coef"]) if own.get("coef", np.zeros(())).ndim == 2 else 0
        check_arrays(own, {"coef": (features, len(facts.classes)), "intercept": (len(facts.classes),)})
        parts = {name.removeprefix(_MAP): one for name, one in arrays.items() if name.startswith(_MAP)}
        check_arrays(parts, {name: one.shape for name, one in parts.items()})
        self.map_ = map_from(parts, facts.dim, features)
        self.coef_, self.intercept_ = own["coef"], own["intercept"]


def _squares(means: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K,) squared norms of the means behind noisy ones, (D, K), whose entries have noise ``noise`` (K,)."""
    variance, features = np.square(noise), len(means)
    raw = np.square(means, dtype=np.float64).sum(axis=0) - features * variance
    # The variance of |m + e|^2: 4 v |m|^2 + 2 D v^2.
    errors = 4 * variance * np.maximum(raw, 0) + 2 * features * variance**2
    if not errors.all():
        return np.asarray(raw)
    middle = float(np.average(raw, weights=1 / errors))
    # Each square less its error is an estimate of the spread, itself with a variance of twice the square of that error.
    spread = max(0.0, float(np.average(np.square(raw - middle) - errors, weights=1 / errors**2)))
    return np.asarray(middle + (raw - middle) * spread / (spread + errors))
