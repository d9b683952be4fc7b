"""Quality of synthetic images: FID, inception score, precision, recall, classification accuracy, near-copies.

Figures depend on the features, which the caller names; figures of different features do not compare.
"""

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
    """Precision and recall of Kynkäänniemi et al. 2019: shares of images within the other set's neighbourhoods."""

    precision: float
    recall: float


@dataclass(frozen=True)
class Copies:
    """Synthetic images nearer to a training image than real ones are; `distance`, `threshold` are squared."""

    rate: float
    threshold: float
    nearest: NDArray[np.int64]
    distance: NDArray[np.float64]


@dataclass(frozen=True)
class SynthesisQuality:
    """Figures of a synthetic set in named features; None where other images, or the model's own, are missing."""

    features: str
    fid: float | None = None
    precision: float | None = None
    recall: float | None = None
    copies: float | None = None
    inception_score: float | None = None
    accuracy: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def frechet_distance(real: ArrayLike, synthetic: ArrayLike) -> float:
    """FID (Heusel et al. 2017): |mean difference|^2 + tr(A + B - 2 (A B)^(1/2)) of two sets of features."""
    # The figure falls with more images: compare at the same numbers.
    ours, theirs = _pair(real, synthetic)
    measure = _torchmetrics_fid()(feature=_AsItIs(), input_img_size=(ours.shape[1],))
    measure.set_dtype(torch.float64)
    measure.update(torch.from_numpy(ours).double(), real=True)
    measure.update(torch.from_numpy(theirs).double(), real=False)
    return max(0.0, float(measure.compute()))


def inception_score(logits: ArrayLike) -> float:
    """Inception score (Salimans et al. 2016) of logits (n, K): exp mean KL of p(class | image) from p(class)."""
    found = np.asarray(logits, dtype=np.float64)
    if found.ndim != 2 or not len(found):
        raise InvalidInput("logits", found.shape, "(n, classes), n at least 1")
    each = log_softmax(found, axis=1)
    whole = logsumexp(each, axis=0) - np.log(len(each))
    return float(np.exp((np.exp(each) * (each - whole)).sum(axis=1).mean()))


def precision_recall(real: ArrayLike, synthetic: ArrayLike, *, neighbours: int = 3) -> Manifold:
    """Precision and recall by k-nearest-neighbour manifolds (Kynkäänniemi et al. 2019, equation 1)."""
    # A set covers the balls around its images that reach to their k-th nearest neighbour in the set.
    ours, theirs = _pair(real, synthetic)
    check_integer("neighbours", neighbours, low=1, high=min(len(ours), len(theirs)) - 1)
    return Manifold(_covered(theirs, by=ours, neighbours=neighbours), _covered(ours, by=theirs, neighbours=neighbours))


def near_copies(training: ArrayLike, synthetic: ArrayLike, *, share: float = 0.001) -> Copies:
    """Synthetic images nearer to a training image than training images are to one another."""
    # The threshold is a quantile of the training images' distances to their nearest other one, so that about
    # `share` of fresh real images would be called copies too.
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
    """Logistic regression on standardised features: small, and the same on every machine."""

    pipeline: Any

    @classmethod
    def of(cls, features: ArrayLike, labels: ArrayLike) -> "LinearClassifier":
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))
        return cls(pipeline.fit(np.asarray(features, dtype=np.float64), np.asarray(labels)))

    def logits(self, features: ArrayLike) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.pipeline.predict_log_proba(np.asarray(features, dtype=np.float64))
        return found

    def labels(self, features: ArrayLike) -> NDArray[np.int64]:
        return np.asarray(self.pipeline.predict(np.asarray(features, dtype=np.float64)), dtype=np.int64)

    def accuracy(self, features: ArrayLike, labels: ArrayLike) -> float:
        return float(self.pipeline.score(np.asarray(features, dtype=np.float64), np.asarray(labels)))


def classification_accuracy(synthetic: ArrayLike, labels: ArrayLike, test: ArrayLike, test_labels: ArrayLike) -> float:
    """CAS (Ravuri and Vinyals 2019): accuracy on real images of a linear classifier of the synthetic ones' features.

    Example:
        >>> points = np.random.default_rng(0).normal(size=(100, 2))
        >>> classification_accuracy(points, points[:, 0] > 0, points, points[:, 0] > 0) > 0.9
        True
    """
    return LinearClassifier.of(synthetic, labels).accuracy(test, test_labels)


class _AsItIs(nn.Module):
    """A stand-in for a feature network: features were computed before."""

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
