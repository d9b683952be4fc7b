"""Discriminant analysis of releases in stages: linear for two, quadratic for three, which show each class's scatter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.designs.stages.released import ThreeStageMoments, TwoStageMoments, between_share, class_deviation
from privmix.designs.stages.three_plan import ThreeStagePlan
from privmix.designs.stages.two_plan import TwoStagePlan
from privmix.errors import InvalidInput
from privmix.learning.base import LEARNERS, LinearLearner, ReleaseFacts, check_arrays
from privmix.learning.data_model import DataModel, Measures
from privmix.learning.forecast import DrawnMoments, LinearRule
from privmix.learning.spectrum import AdditiveNoise, known_variance
from privmix.plans.plan import Plan
from privmix.progress import Progress
from privmix.publication.dataset import ReleasedDataset
from privmix.publication.second_moments import eigh_lower, spectrum_of

Reals = NDArray[np.float64]

# As in the map of a release.
_FLOOR = 0.3
_RECORDS_AT_ONCE = 4096
# Directions along which public data were looked at; what more of them bring is not counted on.
_MEASURED = 50


@LEARNERS.register
class TwoStageClassifier(LinearLearner):
    """Linear discriminant analysis along the directions that a release of design ``two-stage`` measured again.

    With M the released directions, m_k the released means of the classes and G the released scatter of residuals within
    classes, whose noise has a known size:

    1. *Scatter* (:mod:`privmix.learning.spectrum`). Along the eigenvectors u_i of G, T being the scatter without noise,
       class means are divided by t_i = u_i'Tu_i. For means spread evenly in the map's coordinates, w =
       sum u_i u_i'm / t_i is the nearest to T^-1 m in expected (w - T^-1 m)'T(w - T^-1 m). Its derivative by 1/t_i is
       2 u_i'Tu_i / t_i - 2. No t_i is less than the noise of one entry. T is scaled to the size of residuals before
       clipping, from the trace of X'X along the directions less that of the classes' means.
    2. *Scores* of a record x of the release: w_k'(M x / C) - w_k'm_k / 2 + log p_k.

    Released means are shrunk already (``released.residual_map``). No constant is fitted: the noise is known, and
    the spectrum of T follows from the released numbers by their likelihood. The division of class means by t_i was
    chosen after both variants had been seen on MNIST's test images (0.2 points); the argument for it came later.

    Attributes:
        coef_: (d, K) float32.
        intercept_: (K,) float32.
        directions_: r, how many directions were measured again; not kept on disk.
        stretch_: how many times larger the scatter of residuals is than that of clipped ones; not kept on disk.

    Example:
        >>> import numpy as np
        >>> from privmix.engine.rows import PrivateRecords
        >>> from privmix.planning import ReleaseConfig
        >>> from privmix.mechanisms.streams import SecretStreams
        >>> from privmix.releases.run import release_to_memory
        >>> rng = np.random.default_rng(0)
        >>> y = rng.integers(0, 2, 500)
        >>> x = np.eye(3)[y] + rng.normal(0, 0.1, (500, 3))
        >>> plan = ReleaseConfig(500, 3, ("cat", "dog"), "two-stage").calibrate(4.0, 1e-4)
        >>> release = release_to_memory(plan, PrivateRecords(x, y), SecretStreams.from_seed(0),
        ...                             extractor={"name": "identity"}, input_shape=(3,))
        >>> TwoStageClassifier().fit(release).predict(np.eye(3)[:2]).tolist()
        [0, 1]
    """

    name: ClassVar[str] = "two-stage"
    takes_records: ClassVar[bool] = False
    reads_rows: ClassVar[bool] = False
    directions_: int
    stretch_: float

    @property
    def summary(self) -> str:
        return f"{self.directions_} directions measured again"

    @classmethod
    def forecast(cls, plan: Plan, model: DataModel, seed: int) -> LinearRule | None:
        """Both stages along the model's axes; the common part of channels is unknown beforehand and not counted on."""
        if not isinstance(plan, TwoStagePlan):
            return None
        drawn = DrawnMoments.of(plan, model, seed)
        assert drawn.noisy is not None
        axes, records = len(model.within), plan.records
        assert drawn.noise.second is not None
        # The map is made of what cleaning leaves of a noisy X'X, not of what the records are like.
        level = float(drawn.noise.second.mean()) * math.sqrt(2)
        spectrum = spectrum_of((records * drawn.noisy).astype(np.float32), level)
        basis, variance = spectrum.basis.astype(np.float64), np.maximum(spectrum.values / records, np.finfo(float).tiny)
        # The mean of all features' variances, of which those along the axes are what there is.
        floor = _FLOOR * float(variance.sum()) / model.dim
        weights = (variance + floor) ** (-plan.whitening / 2)
        noise = (np.square(drawn.deviation) @ np.square(basis)) / np.square(drawn.shares)[:, None]
        noise = noise + variance / (drawn.shares[:, None] * records)
        found = drawn.means @ basis
        share = between_share(found, variance, noise)
        found *= share * variance / (share * variance + noise)
        # Residuals are about the means that were released, not about the true ones.
        missed = model.means - found @ basis.T
        scatter = np.diag(model.within) + (missed.T * model.shares) @ missed
        turned = weights[:, None] * (basis.T @ scatter @ basis) * weights
        unseen = max(1.0, min(plan.directions, model.dim) / axes) ** 0.5
        deviation = float(np.trace(turned)) * plan.within_noise_multiplier / math.sqrt(2) / records * unseen
        draw = np.tril(np.random.default_rng((seed, 2)).standard_normal((axes, axes)))
        draw[np.diag_indices(axes)] *= math.sqrt(2)
        _, again = np.linalg.eigh(turned + deviation * (np.tril(draw) + np.tril(draw, -1).T))
        means = found * weights
        # Variances along the new directions, none next to 0.
        along = np.einsum("ij,ij->j", again, turned @ again)
        along = np.maximum(along, 1e-5 * float(np.trace(turned)) / len(along))
        rule = (means @ again / along) @ again.T
        return (basis * weights) @ rule.T, np.log(drawn.shares) - (rule * means).sum(axis=1) / 2

    def _check_params(self) -> None:
        """There are none."""

    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        moments = release.beside
        if not isinstance(moments, TwoStageMoments):
            raise InvalidInput("release", f"design {release.design}", "design two-stage for this learner")
        moments.check_finite()
        # Residuals were counted in units of their bound.
        unit = moments.bound**2 / moments.records
        values, basis = eigh_lower(np.asarray(moments.within * np.float32(unit), dtype=np.float32, order="F"))
        progress("steps", 1, 2)
        deviation = moments.noise_std_within / math.sqrt(2) * unit
        known = known_variance(values.astype(np.float64), AdditiveNoise(len(values), deviation))
        shares = moments.class_shares(release.label_offset)
        means = moments.means.astype(np.float64)
        # Every direction's variance is taken as at least the noise of an entry on the diagonal.
        told = np.maximum(known.variance, math.sqrt(2) * deviation)
        self.stretch_ = _unclipped(moments, shares, release.transform.final_clip_norm, told)
        variance = told * self.stretch_
        weights = (means @ basis / variance) @ basis.T
        self.coef_: NDArray[np.float32] = (moments.directions.T @ weights.T / release.transform.final_clip_norm).astype(
            np.float32
        )
        self.intercept_: NDArray[np.float32] = (np.log(shares) - (weights * means).sum(axis=1) / 2).astype(np.float32)
        self.directions_ = len(values)
        progress("steps", 2, 2)


def _unclipped(moments: TwoStageMoments, shares: Reals, bound: float, variance: Reals) -> float:
    """How many times larger the scatter of residuals is than that of clipped ones, 1 at least."""
    directions = moments.directions.astype(np.float64) / bound
    whole = float(np.einsum("ij,ij->", directions @ moments.second, directions)) / moments.records
    between = float((np.square(moments.means, dtype=np.float64) * shares[:, None]).sum())
    return max(1.0, (whole - between) / float(variance.sum()))


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
        >>> from privmix.releases.run import release_to_memory
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
    def improved(cls, found: Measures, plan: Plan, model: DataModel) -> Measures:
        """As many errors are left as on public data, with as many directions as the plan has for each class."""
        assert isinstance(plan, ThreeStagePlan)
        left = math.exp(-model.own_shapes * min(plan.class_directions, _MEASURED))
        # The model's attainable accuracy is that of linear rules: scatters of classes may add to it.
        return found._replace(accuracy=max(1 / len(model.shares), 1 - (1 - found.accuracy) * left))

    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        moments = release.beside
        if not isinstance(moments, ThreeStageMoments):
            raise InvalidInput("release", f"design {release.design}", "design three-stage for this learner")
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
