"""Linear discriminant analysis of a release, each of its numbers trusted as far as the known noise allows."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.learning.base import LEARNERS, LinearLearner
from privmix.learning.calibration import temperature_of_discriminant
from privmix.learning.class_statistics import class_statistics
from privmix.learning.data_model import DataModel
from privmix.learning.forecast import LinearRule, drawn_statistics
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by
from privmix.progress import Progress
from privmix.publication.dataset import ReleasedDataset

Reals = NDArray[np.float64]


@LEARNERS.register
class DiscriminantClassifier(LinearLearner):
    """Empirical-Bayes linear discriminant analysis from noisy second moments and noisy class means.

    A release gives the second moments S of its records and the sum of each class, with Gaussian noise of known size.
    They stand on their own (design ``moments``) or are sample moments of its rows. With U the eigenvectors of S and z_k
    the noisy mean of class k in their basis, each direction is treated alone:

    1. *Variances* (:mod:`privmix.learning.spectrum`). With T the covariance without noise, t_i = (U'TU)_ii is the
       variance along direction i. T shares spread_i = (U'T^2U)_ii - t_i^2 between i and other directions. Coefficients
       proportional to z_ki are divided by r_i = t_i + spread_i / t_i, not by t_i. This has the least expected squared
       error over class means whose covariance is proportional to T. T is known along i to a share of t_i / r_i. If
       noise hides their sum, all t_i are raised alike to what it is in the mean (``spectrum.with_trace``).
    2. *Class means* are draws from N(0, b_i t_i), so z_ki ~ N(0, b_i t_i + v_ki), with v_ki the noise and a sampling
       error of t_i / n_k. The shares are b_i = b c t_i^(q - 1), at most 1, with c such that b is the share of the whole
       variance. Each b_i is its posterior mean, with all b from 0 to 1 and a grid of powers q equally likely. The
       squared relative error of a noisy number of records, times b_i t_i, is a part of v_ki
       (:func:`~privmix.publication.second_moments.estimated_shares`). Given b_i, the mean of class k is m_ki = z_ki b_i
       t_i / (b_i t_i + v_ki). The regression's coefficients are z_ki b_i / (b_i r_i + v_ki): a ridge regression with
       ridge v_ki / b_i (compare Balle and Wang 2018).
    3. *Discriminants.* The factor (I - E)^-1 on the classes' side makes the regression a discriminant analysis (Hastie,
       Buja and Tibshirani 1995). Here E = P^1/2 M T^-1 M' P^1/2, with P the classes' shares: it takes the scatter
       between classes out of T. A term of E counts by the shares to which matrix and mean are known. Class k has the
       score w_k'x - w_k'm_k / 2 + log p_k.

    A ``ClassPrior`` gives step 2 public points p_k, counted from their mean. Class
    means are then draws from N(a p_k, b_i t_i), with a ~ N(0, 1) inferred from the released means. Steps 2 and 3 hold
    for z_ki - a p_ki, to which a p_ki is added again (a p_ki / r_i in the coefficients). With class sums, which have no
    T, points are another measurement of the means (:func:`~privmix.learning.class_statistics.measured_twice`).

    Without noise this is linear discriminant analysis, up to the sampling error in step 2. No constant is chosen by
    accuracy: b, q and the spectrum of T maximise the likelihood of the released numbers. Rows of a single class each
    have no counts of the classes: class means are then made equally long in units of T. With class sums alone, the
    clipping bound sets the scatter within classes.

    Attributes:
        coef_: (d, K) float32.
        intercept_: (K,) float32.
        between_share_: b, of the whole variance; with a class prior that of what its points leave, and
            ``told_["weight"]`` is a.

    Example:
        >>> from privmix.publication.dataset import RecordTransform
        >>> from privmix.publication.second_moments import SecondMoments
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 2, 500)
        >>> x, y = np.eye(2)[labels] + rng.normal(0, 0.1, (500, 2)), np.eye(2)[labels]
        >>> moments = SecondMoments(
        ...     *(part.astype(np.float32) for part in (x.T @ x, x.T @ y, y.sum(axis=0))),
        ...     records=500, noise_std_second=1.0, noise_std_cross=1.0, noise_std_counts=1.0)
        >>> release = ReleasedDataset(
        ...     x=np.float32(x[:1]), y=np.float32(y[:1]), design="moments", mixup_degree=1, noise_std_x=0.0,
        ...     noise_std_y=0.0, label_offset=0.0, classes=("cat", "dog"), transform=RecordTransform(2.0),
        ...     extractor={"name": "identity"}, input_shape=(2,), release_id="example", beside=moments)
        >>> DiscriminantClassifier().fit(release).predict(np.eye(2)).tolist()
        [0, 1]
    """

    name: ClassVar[str] = "discriminant"
    reads_moments: ClassVar[bool] = True
    takes_prior: ClassVar[bool] = True
    between_share_: float

    @property
    def summary(self) -> str:
        told = "" if self.told_ is None else f", class texts count {100 * self.told_['weight']:.0f}%"
        return f"{100 * self.between_share_:.1f}% of the variance between classes{told}"

    def _check_params(self) -> None:
        """There are none."""

    @classmethod
    def forecast(cls, plan: Plan, model: DataModel, seed: int) -> LinearRule | None:
        """Return the rule, from statistics that are drawn with the plan's noise.

        Variances along the noisy eigenvectors are taken as known. Released moments also have theirs estimated, as in
        :mod:`privmix.learning.spectrum`, and the worse rule is the forecast.
        """
        rules = []
        for found_out in (False, True) if made_by(plan).released else (False,):
            found = drawn_statistics(plan, model, seed, found=found_out)
            weights, offsets = found.discriminants(found.between())
            rules.append((weights, offsets - found.origin @ weights))
        return min(rules, key=lambda rule: model.accuracy(rule[0], rule[1], seed))

    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        found = class_statistics(release)
        if self._prior is not None:
            found = found.expecting(self._prior)
        progress("steps", 1, 2)
        between = found.between()
        self.between_share_ = between.share
        if self.told_ is not None:
            self.told_["weight"] = between.weight
        weights, offsets = found.discriminants(between)
        self._temperature = temperature_of_discriminant(found)
        self.coef_: NDArray[np.float32] = weights.astype(np.float32)
        # Discriminants count records from the origin of the statistics, scores count them from 0.
        self.intercept_: NDArray[np.float32] = (offsets - found.origin @ weights).astype(np.float32)
        progress("steps", 2, 2)
