"""The last model of a release of corrected moments."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.designs.corrected.plan import CONSTANT
from privmix.designs.corrected.released import CorrectedSecondMoments
from privmix.errors import InvalidInput
from privmix.learning.base import LEARNERS, LinearLearner
from privmix.learning.data_model import DataModel, Measures
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.forecast import LinearRule
from privmix.plans.plan import Plan
from privmix.progress import Progress
from privmix.publication.dataset import ReleasedDataset

# Corrections gain the least of three parts: of the first model's errors, of its distance from the best linear rule,
# and of that from a guess. The parts are those of public tables and texts.
_OF_ERRORS: Final = 0.2
_OF_DISTANCE: Final = 0.6
_OF_REACHED: Final = 0.5


@LEARNERS.register
class CorrectedClassifier(LinearLearner):
    """Logistic regression by noisy Newton steps, for releases of design ``corrected-moments``.

    The release has, for each of its models, the sum of its errors. The last errors lead to one more model, as earlier
    ones did to those of the release (:class:`privmix.designs.corrected.released.Corrections`): this one.

    Attributes:
        coef_: (d, K) float32.
        intercept_: (K,) float32.

    Example:
        >>> from privmix.engine.rows import PrivateRecords
        >>> from privmix.planning import ReleaseConfig
        >>> from privmix.mechanisms.streams import SecretStreams
        >>> from privmix.releases.run import release_to_memory
        >>> rng = np.random.default_rng(0)
        >>> y = rng.integers(0, 2, 500)
        >>> x = np.eye(3)[y] + rng.normal(0, 0.1, (500, 3))
        >>> plan = ReleaseConfig(500, 3, ("cat", "dog"), "corrected-moments").calibrate(4.0, 1e-4)
        >>> release = release_to_memory(plan, PrivateRecords(x, y), SecretStreams.from_seed(0),
        ...                             extractor={"name": "identity"}, input_shape=(3,))
        >>> CorrectedClassifier().fit(release).predict(np.eye(3)[:2]).tolist()
        [0, 1]
    """

    name: ClassVar[str] = "corrected"
    takes_records: ClassVar[bool] = False
    reads_rows: ClassVar[bool] = False

    @property
    def summary(self) -> str:
        return "log odds corrected by released errors"

    @classmethod
    def forecast(cls, plan: Plan, model: DataModel, seed: int) -> LinearRule | None:
        """Return that of the first model."""
        return DiscriminantClassifier.forecast(plan, model, seed)

    @classmethod
    def improved(cls, found: Measures, plan: Plan, model: DataModel) -> Measures:
        """More records are right; the area under the curve hardly changes."""
        reached, guess = found.accuracy, 1 / len(model.shares)
        gains = _OF_ERRORS * (1 - reached), _OF_DISTANCE * (model.attainable - reached), _OF_REACHED * (reached - guess)
        return found._replace(accuracy=reached + max(0.0, min(gains)))

    def _check_params(self) -> None:
        """There are none."""

    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        moments = release.beside
        if not isinstance(moments, CorrectedSecondMoments):
            raise InvalidInput("release", f"design {release.design}", "design corrected-moments for this learner")
        moments.check_finite()
        last = moments.following[-1]
        self.coef_: NDArray[np.float32] = (last[:-1] / moments.bound).astype(np.float32)
        self.intercept_: NDArray[np.float32] = (CONSTANT * last[-1]).astype(np.float32)
        self._temperature = 1.0
        progress("steps", 1, 1)
