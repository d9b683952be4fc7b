"""Quadratic discriminant analysis of a release in three stages: classes differ in the shape of their scatter, too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.designs.stages.three_plan import ThreeStagePlan
from privmix.designs.stages.three_released import ThreeStageMoments, class_deviation
from privmix.designs.stages.two_learner import TwoStageClassifier
from privmix.errors import InvalidInput
from privmix.learning.base import LEARNERS, ReleaseFacts, check_arrays
from privmix.learning.data_model import DataModel
from privmix.learning.spectrum import AdditiveNoise, known_variance
from privmix.plans.plan import Plan
from privmix.progress import Progress
from privmix.publication.dataset import ReleasedDataset

_RECORDS_AT_ONCE = 4096
# Directions along which public data were looked at; what more of them bring is not counted on.
_MEASURED = 50


@LEARNERS.register
class ThreeStageClassifier(TwoStageClassifier):
    """Linear discriminant analysis of two stages, and each class's own scatter along the third stage's directions.

    The scores of :class:`TwoStageClassifier` take one scatter for all classes. To that of class k is added

        -(v'S_k^-1 v - v'v) / 2,  v = sqrt(q) (D x / C - mean of k),

    v in the coordinates that this scatter made round, along the q directions D of the last stage. S_k is the class's
    own scatter there: its noisy matrix, with variances along eigenvectors by :mod:`privmix.learning.spectrum`, scaled
    to determinant 1; the class's sampling error counts as noise, too. Residuals were clipped to a sphere, so the
    release shows a class's shape and not its size; sizes are taken as equal (Tyler 1987 estimates shapes in this way).
    Like the linear scores, the sum is divided by how much larger residuals are than clipped ones.

    Attributes:
        coef_, intercept_: see :class:`TwoStageClassifier`.
        axes_: (q, d) float32, sqrt(q) D / C.
        means_: (K, q) float32, of the classes along them.
        shapes_: (K, q, q) float32, (S_k^-1 - 1) over twice the stretch.

    Example:
        >>> from privmix.engine.rows import PrivateRecords
        >>> from privmix.planning import ReleaseConfig
        >>> from privmix.mechanisms.streams import SecretStreams
        >>> from privmix.releases.api import release_to_memory
        >>> rng = np.random.default_rng(0)
        >>> y = rng.integers(0, 2, 4000)
        >>> x = rng.normal(size=(4000, 2)) * np.where(y == 0, [[0.3], [0.05]], [[0.05], [0.3]]).reshape(2, 4000).T
        >>> config = ReleaseConfig(4000, 2, ("flat", "tall"), "three-stage", rows=1)
        >>> release = release_to_memory(config.calibrate(4.0, 1e-4), PrivateRecords(x, y), SecretStreams.from_seed(0),
        ...                             extractor={"name": "identity"}, input_shape=(2,))
        >>> ThreeStageClassifier().fit(release).predict(np.array([[0.4, 0.0], [0.0, 0.4]])).tolist()
        [0, 1]
    """

    name: ClassVar[str] = "three-stage"
    takes_records: ClassVar[bool] = False
    axes_: NDArray[np.float32]
    means_: NDArray[np.float32]
    shapes_: NDArray[np.float32]

    @property
    def summary(self) -> str:
        return f"{super().summary}, {len(self.axes_)} for each class"

    @classmethod
    def errors_left(cls, plan: Plan, model: DataModel) -> float:
        """As many as public data lose by it along as many directions as the plan has for each class."""
        assert isinstance(plan, ThreeStagePlan)
        return math.exp(-model.own_shapes * min(plan.class_directions, _MEASURED))

    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        moments = release.beside
        if not isinstance(moments, ThreeStageMoments):
            raise InvalidInput("release", f"design {release.design}", "design three-stage for this learner")
        for values in (moments.class_directions, moments.class_means, moments.class_within):
            if not np.isfinite(values).all():
                raise InvalidInput("released moments", "NaN or infinity", "finite numbers")
        super()._fit(release, progress)
        axes = len(moments.class_directions)
        counts = moments.class_shares(release.label_offset) * moments.records
        self.axes_ = (np.sqrt(axes) * moments.class_directions / release.transform.final_clip_norm).astype(np.float32)
        self.means_ = (np.sqrt(axes) * moments.class_means).astype(np.float32)
        shapes = [
            _inverse(scatter / count, deviation) - np.eye(axes)
            for scatter, count, deviation in zip(
                moments.class_within.astype(np.float64), counts, class_deviation(moments, counts), strict=True
            )
        ]
        self.shapes_ = (np.stack(shapes) / (2 * self.stretch_)).astype(np.float32)

    def _scores(self, records: NDArray[np.float32]) -> NDArray[np.float32]:
        scores = super()._scores(records)
        for start in range(0, len(records), _RECORDS_AT_ONCE):
            part = slice(start, start + _RECORDS_AT_ONCE)
            along = records[part] @ self.axes_.T
            for number, (mean, shape) in enumerate(zip(self.means_, self.shapes_, strict=True)):
                apart = along - mean
                scores[part, number] -= np.einsum("ij,ij->i", apart @ shape, apart)
        return scores

    def _arrays(self) -> dict[str, NDArray[np.float32]]:
        return {**super()._arrays(), "axes": self.axes_, "means": self.means_, "shapes": self.shapes_}

    def _restore(self, arrays: Mapping[str, NDArray[np.float32]], facts: ReleaseFacts) -> None:
        classes, given = len(facts.classes), arrays.get("axes")
        axes = len(given) if given is not None and given.ndim == 2 else 0
        linear = {name: one for name, one in arrays.items() if name in ("coef", "intercept")}
        own = {name: one for name, one in arrays.items() if name not in linear}
        super()._restore(linear, facts)
        check_arrays(own, {"axes": (axes, facts.dim), "means": (classes, axes), "shapes": (classes, axes, axes)})
        self.axes_, self.means_, self.shapes_ = own["axes"], own["means"], own["shapes"]


def _inverse(scatter: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Inverse of a noisy (q, q) scatter, its noise taken out, of determinant 1."""
    values, basis = np.linalg.eigh(scatter)
    known = known_variance(values, AdditiveNoise(len(values), deviation)).variance
    # Every direction's variance is taken as at least the noise of an entry on the diagonal.
    told = np.log(np.maximum(known, np.sqrt(2) * deviation))
    return np.asarray((basis * np.exp(told.mean() - told)) @ basis.T)
