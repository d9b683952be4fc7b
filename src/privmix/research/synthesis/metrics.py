"""How good synthetic images are: FID, inception score, precision, recall, classification accuracy, near-copies.

Figures depend on the features, which the caller names; none is comparable with one in others. FID is torchmetrics',
of features that were computed before.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, logsumexp
from torch import Tensor, nn

from privmix.errors import InvalidInput, MissingExtra, check_integer, check_number

Features = NDArray[np.float32]

_BLOCK: Final = 2048


@dataclass(frozen=True)
class Manifold:
    """Precision and recall of Kynkäänniemi et al. 2019.

    Attributes:
        precision: share of synthetic images within the real ones' neighbourhoods.
        recall: share of real images within the synthetic ones' neighbourhoods.
    """

    precision: float
    recall: float


@dataclass(frozen=True)
class Copies:
    """Synthetic images that lie as near to a training image as no real one does.

    Attributes:
        rate: share of synthetic images that are near-copies.
        threshold: squared distance below which an image counts as one.
        nearest: (n,) index of each synthetic image's nearest training image.
        distance: (n,) squared distance to it.
    """

    rate: float
    threshold: float
    nearest: NDArray[np.int64]
    distance: NDArray[np.float64]


@dataclass(frozen=True)
class Quality:
    """What is said of a synthetic set; see the functions below.

    Attributes:
        features: what the figures are computed in.
        fid, precision, recall: beside other images; None where there were none.
        copies: rate of near-copies; None where the model's own images are not known.
        inception_score: by a linear classifier of the public images; None where they are of one class.
        accuracy: CAS; None where it was not asked for.
    """

    features: str
    fid: float | None = None
    precision: float | None = None
    recall: float | None = None
    copies: float | None = None
    inception_score: float | None = None
    accuracy: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def frechet_distance(real: ArrayLike, synthetic: ArrayLike) -> float:
    """FID (Heusel et al. 2017): |mean difference|^2 + tr(A + B - 2 (A B)^(1/2)) of two sets of features.

    Args:
        real: (n, d), n >= 2.
        synthetic: (m, d), m >= 2. The figure falls with more images: compare at the same numbers.

    Raises:
        InvalidInput: shapes don't fit.
        MissingExtra: torchmetrics is not installed.

    Example:
        >>> points = np.random.default_rng(0).normal(size=(500, 3))
        >>> round(frechet_distance(points, points + 2.0), 3)
        12.0
    """
    ours, theirs = _pair(real, synthetic)
    measure = _torchmetrics_fid()(feature=_AsItIs(), input_img_size=(ours.shape[1],))
    measure.set_dtype(torch.float64)
    measure.update(torch.from_numpy(ours).double(), real=True)
    measure.update(torch.from_numpy(theirs).double(), real=False)
    return max(0.0, float(measure.compute()))


def inception_score(logits: ArrayLike) -> float:
    """Inception score (Salimans et al. 2016): exp of the mean divergence of p(class | image) from p(class); 1 to K.

    Args:
        logits: (n, K) of a classifier of real images.

    Example:
        >>> round(inception_score(100 * np.eye(4)), 3)
        4.0
    """
    found = np.asarray(logits, dtype=np.float64)
    if found.ndim != 2 or not len(found):
        raise InvalidInput("logits", found.shape, "(n, classes), n at least 1")
    each = log_softmax(found, axis=1)
    whole = logsumexp(each, axis=0) - np.log(len(each))
    return float(np.exp((np.exp(each) * (each - whole)).sum(axis=1).mean()))


def precision_recall(real: ArrayLike, synthetic: ArrayLike, *, neighbours: int = 3) -> Manifold:
    """Precision and recall by k-nearest-neighbour manifolds (Kynkäänniemi et al. 2019, equation 1).

    A set covers the balls around its images that reach to their k-th nearest neighbour in the set.

    Args:
        real, synthetic: (n, d) and (m, d), more than ``neighbours`` each.
        neighbours: k.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> same = precision_recall(rng.normal(size=(300, 2)), rng.normal(size=(300, 2)))
        >>> one = precision_recall(rng.normal(size=(300, 2)), 0.01 * rng.normal(size=(300, 2)))
        >>> same.precision > 0.8, same.recall > 0.8, one.recall < 0.1
        (True, True, True)
    """
    ours, theirs = _pair(real, synthetic)
    check_integer("neighbours", neighbours, low=1, high=min(len(ours), len(theirs)) - 1)
    return Manifold(_covered(theirs, by=ours, neighbours=neighbours), _covered(ours, by=theirs, neighbours=neighbours))


def near_copies(training: ArrayLike, synthetic: ArrayLike, *, share: float = 0.001) -> Copies:
    """Synthetic images nearer to a training image than training images are to one another.

    The threshold is a quantile of the training images' distances to their nearest other one, so that about ``share``
    of fresh real images would be called copies too.

    Args:
        training: (n, d) features of the images that the model was trained on, n >= 2.
        synthetic: (m, d).
        share: of the quantile.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real = rng.normal(size=(200, 8))
        >>> near_copies(real, real[:50]).rate, near_copies(real, rng.normal(size=(50, 8))).rate < 0.1
        (1.0, True)
    """
    ours, theirs = _pair(training, synthetic)
    check_number("share", share, low=0, high=1, low_open=True, high_open=True)
    own = np.concatenate([_smallest(block, ours, 2)[0][:, 1] for block in _blocks(ours)])
    found = [_smallest(block, ours, 1) for block in _blocks(theirs)]
    distance = np.concatenate([values[:, 0] for values, _ in found])
    nearest = np.concatenate([places[:, 0] for _, places in found])
    threshold = float(np.quantile(own, share))
    return Copies(float((distance <= threshold).mean()), threshold, nearest, distance)


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """Logistic regression on standardised features: small, and the same on every machine.

    Attributes:
        pipeline: of scikit-learn.
    """

    pipeline: Any

    @classmethod
    def of(cls, features: ArrayLike, labels: ArrayLike) -> LinearClassifier:
        """Fit to (n, d) features and (n,) labels."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))
        return cls(pipeline.fit(np.asarray(features, dtype=np.float64), np.asarray(labels)))

    def logits(self, features: ArrayLike) -> NDArray[np.float64]:
        """(n, d) -> (n, K)."""
        found: NDArray[np.float64] = self.pipeline.predict_log_proba(np.asarray(features, dtype=np.float64))
        return found

    def labels(self, features: ArrayLike) -> NDArray[np.int64]:
        """(n, d) -> (n,)."""
        return np.asarray(self.pipeline.predict(np.asarray(features, dtype=np.float64)), dtype=np.int64)

    def accuracy(self, features: ArrayLike, labels: ArrayLike) -> float:
        """Share of (n, d) features that get their label (n,)."""
        return float(self.pipeline.score(np.asarray(features, dtype=np.float64), np.asarray(labels)))


def classification_accuracy(synthetic: ArrayLike, labels: ArrayLike, test: ArrayLike, test_labels: ArrayLike) -> float:
    """CAS (Ravuri and Vinyals 2019): accuracy on real images of a linear classifier of the synthetic ones' features.

    Args:
        synthetic, labels: (m, d) and (m,).
        test, test_labels: (n, d) and (n,), real images that no model was made of.

    Example:
        >>> points = np.random.default_rng(0).normal(size=(100, 2))
        >>> classification_accuracy(points, points[:, 0] > 0, points, points[:, 0] > 0) > 0.9
        True
    """
    return LinearClassifier.of(synthetic, labels).accuracy(test, test_labels)


class _AsItIs(nn.Module):
    """In place of a feature network: features were computed before."""

    def forward(self, features: Tensor) -> Tensor:
        return features.double()


def _torchmetrics_fid() -> Any:
    try:
        from torchmetrics.image import fid
    except ImportError:
        raise MissingExtra("torchmetrics", "synthesis") from None
    return fid.FrechetInceptionDistance


def _pair(real: ArrayLike, synthetic: ArrayLike) -> tuple[Features, Features]:
    ours, theirs = (np.ascontiguousarray(one, dtype=np.float32) for one in (real, synthetic))
    if ours.ndim != 2 or theirs.ndim != 2 or ours.shape[1] != theirs.shape[1] or min(len(ours), len(theirs)) < 2:
        raise InvalidInput("features", (ours.shape, theirs.shape), "(n, d) and (m, d), two or more of each")
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise InvalidInput("features", "values that are infinite or not numbers", "finite numbers")
    return ours, theirs


def _blocks(points: Features) -> list[Features]:
    return [points[at : at + _BLOCK] for at in range(0, len(points), _BLOCK)]


def _smallest(block: Features, points: Features, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(b, count) smallest squared distances of a block's points to ``points``, rising, and whose they are."""
    values, places = torch.cdist(torch.from_numpy(block).double(), torch.from_numpy(points).double()).topk(
        count, dim=1, largest=False
    )
    return values.square().numpy(), places.numpy()


def _covered(points: Features, *, by: Features, neighbours: int) -> float:
    radius = np.concatenate([_smallest(block, by, neighbours + 1)[0][:, -1] for block in _blocks(by)])
    inside = 0
    for block in _blocks(points):
        distance = torch.cdist(torch.from_numpy(block).double(), torch.from_numpy(by).double()).square().numpy()
        inside += int((distance <= radius).any(axis=1).sum())
    return inside / len(points)
