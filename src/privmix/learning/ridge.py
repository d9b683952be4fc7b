"""Ridge regression that knows how much noise the released rows carry, and takes it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import ssyrk

from privmix.errors import InvalidInput, check_number
from privmix.learning.base import LEARNERS, LinearLearner
from privmix.learning.data_model import DataModel
from privmix.learning.forecast import LinearRule, drawn_regression
from privmix.learning.rows import CentredRows, slices
from privmix.plans.plan import Plan
from privmix.progress import Progress
from privmix.publication.dataset import ReleasedDataset
from privmix.publication.second_moments import eigh_lower

AUTO: Final = "auto"
_GRID: Final = np.logspace(-5, 0, 41)
# Values of r for a forecast.
_FEW: Final = (1e-3, 1e-2, 0.1, 0.5)
_FOLDS: Final = 10
_MIN_FOLD: Final = 5
# Up to this many rows or features an eigendecomposition takes under a second, so every fold can have its own.
_CHEAP: Final = 1024


class RidgeLearner(LinearLearner):
    """Base of regressions whose regularisation is a number above 0 or follows from the release."""

    def __init__(self, regularisation: float | str = AUTO) -> None:
        self.regularisation = regularisation

    def _check_params(self) -> None:
        if self.regularisation != AUTO:
            if isinstance(self.regularisation, str):
                raise InvalidInput("regularisation", self.regularisation, "'auto' or a number > 0")
            check_number("regularisation", self.regularisation, low=0, low_open=True)


@LEARNERS.register
class NoiseAwareRidgeClassifier(RidgeLearner):
    """Errors-in-variables ridge regression of released label rows on released feature rows.

    With X, Y the T released rows minus their column means and s the known standard deviation of the noise in X,

        G = X'X - (T - 1) s^2 I, its negative eigenvalues cut to 0,   W = (G + r g_max I)^-1 X'Y,

    where g_max is G's largest eigenvalue and r the regularisation. Subtracting s^2 corrects the noise in X'X on
    average; noise in Y is independent of X and needs no correction. A record f has the score
    (f - column mean of x) W + column mean of y + label offset: m records over m average to a record.

    With ``regularisation="auto"`` the release alone chooses r, in three steps.

    1. Each r on a grid from 1e-5 to 1 is fitted without a part of the rows. Its loss on them is corrected for their
       noise: mean |y - x W|^2 - s^2 |W|_F^2 - K s_y^2. This is unbiased, since the held-out noise is independent of W.
       With at most 1024 rows or features there are ten folds; beyond, half of the rows is held out once. One standard
       error of the loss is added: it is large at small r, where the correction is.
    2. From r = 1 downwards the first minimum is taken, and no r whose corrected loss is below 0, which is chance. r
       shrinks by the share of rows it was fitted to, as noise counts for less among more rows.
    3. Squared loss needs more shrinkage than the arg max where records are separated well, and less elsewhere. So r is
       multiplied by 2 (1 - R^2) / R^2, within [1/4, 2], with R^2 the share of squared labels explained at the minimum.
       The factor is empirical: MNIST and digits releases with R^2 from 0.2 to 0.8 had their best accuracy near it. It
       is 2 for designs whose rows do not mix all classes, because their R^2 is not that of single records.

    If a tenth of the rows is fewer than 5 or K, no rows are held out. Then r is 3 d s^2 / g_max, close to assigning by
    class means. It is at least 0.1 (0.3 for designs whose rows do not mix all classes) and at most 1.

    Args:
        regularisation: ``"auto"`` or r > 0, relative to the largest eigenvalue.

    Attributes:
        coef_: (d, K) float32, W.
        intercept_: (K,) float32.
        regularisation_: the r that was used.

    Example:
        >>> from privmix.publication.dataset import RecordTransform
        >>> rng = np.random.default_rng(0)
        >>> y = rng.multinomial(4, [0.5, 0.5], size=400) / 4  # rows of 4 records, two classes
        >>> x = y @ np.array([[1.0, 0.0], [0.0, 1.0]]) + rng.normal(0, 0.1, (400, 2))
        >>> release = ReleasedDataset(
        ...     x=x.astype(np.float32), y=y.astype(np.float32), design="fixed",
        ...     mixup_degree=4, noise_std_x=0.1, noise_std_y=0.0, label_offset=0.0, classes=("cat", "dog"),
        ...     transform=RecordTransform(1.0), extractor={"name": "identity"}, input_shape=(2,), release_id="example")
        >>> NoiseAwareRidgeClassifier().fit(release).predict(np.eye(2)).tolist()
        [0, 1]
    """

    name: ClassVar[str] = "noise-aware-ridge"
    regularisation_: float

    @property
    def summary(self) -> str:
        return f"regularisation {self.regularisation_}"

    @classmethod
    def forecast(cls, plan: Plan, model: DataModel, seed: int) -> LinearRule | None:
        """Return the rule at the best of a few regularisations, as held-out rows find it."""
        return drawn_regression(plan, model, seed, _FEW)

    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        rows = CentredRows.of(release)
        folds = _folds(rows, release.num_classes) if self.regularisation == AUTO else []
        steps = len(folds) + 2
        moments = _Moments(rows, folds)
        progress("steps", 1, steps)
        trials = []
        for done, fold in enumerate(folds, start=2):
            trials.append(_losses(rows, fold, moments.spectrum(without=fold)))
            progress("steps", done, steps)
        spectrum = moments.spectrum()
        mixes_all_classes = release.mixes_all_classes
        if self.regularisation != AUTO:
            self.regularisation_ = float(self.regularisation)
        elif trials:
            self.regularisation_ = _choose(trials, rows, mixes_all_classes)
        else:
            noise_level = rows.dim * rows.noise_variance / spectrum.scale
            self.regularisation_ = float(np.clip(3 * noise_level, 0.1 if mixes_all_classes else 0.3, 1.0))
        self.coef_: NDArray[np.float32] = spectrum.solve(self.regularisation_)
        self.intercept_: NDArray[np.float32] = rows.mean_y - rows.mean_x @ self.coef_ + np.float32(release.label_offset)
        progress("steps", steps, steps)


@dataclass(frozen=True)
class _Spectrum:
    """Noise-corrected eigenvalues (k,) of X'X, eigenvectors (d, k), and X'Y in their basis (k, K)."""

    # Every r is then one product. `scale` is g_max, the largest eigenvalue (1 where there is only noise).

    values: NDArray[np.float32]
    basis: NDArray[np.float32]
    projected: NDArray[np.float32]

    @property
    def scale(self) -> float:
        largest = float(self.values.max(initial=0.0))
        return largest if largest > 0 else 1.0

    def solve(self, r: float) -> NDArray[np.float32]:
        """W for regularisation ``r``, (d, K)."""
        gains = np.float32(1) / (self.values + np.float32(r * self.scale))
        return self.basis @ (gains[:, None] * self.projected)


class _Moments:
    """Spectra of the rows, all of them or without a fold, from one pass over the rows."""

    # The pass sums X'X when there are at least d rows. Fewer rows are decomposed by their own, smaller XX'. ``folds``
    # are contiguous and end with the last row.

    def __init__(self, rows: CentredRows, folds: list[slice]) -> None:
        self._rows = rows
        self._few = rows.count < rows.dim
        if self._few:
            x, _ = rows.centred(slice(0, rows.count))
            self._inner = ssyrk(1.0, x.T, trans=1, lower=1)
            return
        self._xx, self._xy = rows.sums(slice(0, min((fold.start for fold in folds), default=rows.count)))
        self._folds: dict[int, tuple[NDArray[np.float32], NDArray[np.float64]]] = {}
        for fold in folds:
            xx, xy = rows.sums(fold)
            self._xx += xx
            self._xy += xy
            self._folds[fold.start] = (xx.astype(np.float32), xy)

    def spectrum(self, *, without: slice | None = None) -> _Spectrum:
        """Return the spectrum of all rows, or of those outside the fold ``without``."""
        return self._of_inner(without) if self._few else self._of_sums(without)

    def _of_sums(self, without: slice | None) -> _Spectrum:
        xx, xy, count = self._xx, self._xy, self._rows.count
        if without is not None:
            fold_xx, fold_xy = self._folds[without.start]
            xx, xy, count = xx - fold_xx, xy - fold_xy, count - (without.stop - without.start)
        values, basis = eigh_lower(xx.astype(np.float32, order="F"))
        return self._corrected(count, values, basis, basis.T @ xy.astype(np.float32))

    def _of_inner(self, without: slice | None) -> _Spectrum:
        kept = np.arange(self._rows.count)
        if without is not None:
            kept = np.delete(kept, without)
        values, left = eigh_lower(np.asfortranarray(self._inner[np.ix_(kept, kept)]))
        sound = values > values[-1] * len(kept) * np.finfo(np.float32).eps
        lengths, left = np.sqrt(values[sound]), left[:, sound]
        x, y = self._rows.x[kept] - self._rows.mean_x, self._rows.y[kept] - self._rows.mean_y
        return self._corrected(len(kept), values[sound], x.T @ (left / lengths), lengths[:, None] * (left.T @ y))

    def _corrected(
        self, count: int, values: NDArray[np.float32], basis: NDArray[np.float32], projected: NDArray[np.float32]
    ) -> _Spectrum:
        noise = np.float32(count * self._rows.noise_variance)
        return _Spectrum(np.maximum(values - noise, np.float32(0)), basis, projected)


def _losses(rows: CentredRows, fold: slice, spectrum: _Spectrum) -> NDArray[np.float64]:
    """Squared losses (grid + 1, rows) on the rows of one fold, less the expected noise; the last line is W = 0."""
    x, y = rows.centred(fold)
    nothing = np.zeros((rows.dim, y.shape[1]), dtype=np.float32)
    candidates = (*(spectrum.solve(r) for r in _GRID), nothing)
    losses = np.empty((len(candidates), len(y)))
    # Several r in one product read the rows once; about 512 columns bound the memory.
    for group in slices(len(candidates), max(1, 512 // y.shape[1])):
        predicted = x @ np.concatenate(candidates[group], axis=1)
        for line, part in zip(range(group.start, group.stop), slices(predicted.shape[1], y.shape[1]), strict=True):
            losses[line] = _corrected_losses(predicted[:, part], y, candidates[line], rows)
    return losses


def _folds(rows: CentredRows, classes: int) -> list[slice]:
    """Parts of the rows to hold out in turn; none where a tenth of the rows is too little to hold out."""
    # Contiguous parts: class-wise releases cycle through the classes, so each part has all of them.
    size = rows.count // _FOLDS
    if size < max(_MIN_FOLD, classes):
        return []
    if min(rows.count, rows.dim) > _CHEAP:
        return [slice(rows.count // 2, rows.count)]
    return [slice(rows.count - (k + 1) * size, rows.count - k * size) for k in range(_FOLDS)]


def _corrected_losses(
    predicted: NDArray[np.float32], y: NDArray[np.float32], coef: NDArray[np.float32], rows: CentredRows
) -> NDArray[np.float64]:
    """Squared loss of each row, independent of ``coef``, less the expected share of its noise."""
    noise = y.shape[1] * rows.label_noise_variance
    noise += rows.noise_variance * float(np.square(coef, dtype=np.float64).sum())
    return np.asarray(np.square(y - predicted, dtype=np.float64).sum(axis=1) - noise)


def _choose(trials: list[NDArray[np.float64]], rows: CentredRows, mixes_all_classes: bool) -> float:
    """Return the r that the class's steps 1 to 3 describe."""
    losses = np.concatenate(trials, axis=1)
    means = losses.mean(axis=1)
    # The loss of W = 0 varies with the rows' labels alone; the rest of the error separates the grid points.
    errors = (losses - losses[-1]).std(axis=1) / np.sqrt(losses.shape[1])
    rating = np.where(means > 0, means + errors, np.inf)
    best = len(_GRID) - 1
    while best > 0 and rating[best - 1] < rating[best]:
        best -= 1
    fitted = 1 - losses.shape[1] / len(trials) / rows.count
    explained = max(1 - means[best] / means[-1], 0.0) if means[-1] > 0 else 0.0
    factor = 2 * (1 - explained) / explained if mixes_all_classes and explained > 0.5 else 2.0
    return float(_GRID[best] * fitted * max(factor, 0.25))
