"""Ridge regression on released second moments."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.learning.base import LEARNERS
from privmix.learning.data_model import DataModel
from privmix.learning.forecast import LinearRule, drawn_regression
from privmix.learning.ridge import RidgeLearner
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by
from privmix.progress import Progress
from privmix.publication.dataset import ReleasedDataset
from privmix.publication.second_moments import regression


@LEARNERS.register
class SecondMomentsClassifier(RidgeLearner):
    """Regression of labels on features from X'X and X'Y alone, for releases of design ``moments``.

    W ~ (U (L + a) U' + S)^-1 X'Y. U are the eigenvectors of the released X'X, L its eigenvalues with the noise shrunk
    out (``SecondMoments.spectrum``). a is the regularisation and S the scatter between classes that X'Y shows
    (``second_moments.regression``). AdaSSP (Wang 2018) also regularises by the size of the noise, but keeps the noisy
    eigenvalues. The score of a record f is f W, plus the classes' shares if the release is centred.

    Args:
        regularisation: ``"auto"`` for ``Spectrum.ridge``, in proportion to the largest eigenvalue of noise alone; or a
            as a share of the largest eigenvalue, > 0.

    Attributes:
        coef_: (d, K) float32, W.
        intercept_: (K,) float32.

    Example:
        >>> from privmix.publication.dataset import RecordTransform
        >>> from privmix.publication.second_moments import SecondMoments
        >>> x, y = np.eye(2, dtype=np.float32)[[0, 1, 1]], np.eye(2, dtype=np.float32)[[0, 1, 1]]
        >>> moments = SecondMoments(x.T @ x, x.T @ y, y.sum(axis=0), records=3, noise_std_second=0.0,
        ...                         noise_std_cross=0.0, noise_std_counts=0.0)
        >>> release = ReleasedDataset(
        ...     x=x, y=y, design="moments", mixup_degree=1, noise_std_x=0.0, noise_std_y=0.0, label_offset=0.0,
        ...     classes=("cat", "dog"), transform=RecordTransform(1.0), extractor={"name": "identity"},
        ...     input_shape=(2,), release_id="example", beside=moments)
        >>> SecondMomentsClassifier().fit(release).predict(np.eye(2)).tolist()
        [0, 1]
    """

    name: ClassVar[str] = "second-moments"
    reads_rows: ClassVar[bool] = False

    @property
    def summary(self) -> str:
        return f"regularisation {self.regularisation}"

    @classmethod
    def forecast(cls, plan: Plan, model: DataModel, seed: int) -> LinearRule | None:
        """Return the rule at the regularisation that noise alone asks for."""
        return None if not made_by(plan).released else drawn_regression(plan, model, seed)

    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        if release.moments is None:
            raise InvalidInput("release", f"design {release.design}", "design moments for this learner")
        moments = release.moments
        moments.check_finite()
        spectrum = moments.spectrum()
        progress("steps", 1, 2)
        added = None
        if not isinstance(self.regularisation, str):
            added = float(self.regularisation) * float(spectrum.values.max(initial=0.0))
        self.coef_: NDArray[np.float32] = regression(spectrum, moments.cross, moments.records, added)
        # Without centring X'X holds the mean too, and W predicts labels as they are.
        shares = moments.class_shares(release.label_offset).astype(np.float32)
        self.intercept_: NDArray[np.float32] = shares if release.transform.centre is not None else np.zeros_like(shares)
        progress("steps", 2, 2)
