"""The recipient's part: mixed rows, their labels, and the public facts needed to learn from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from privmix.certificate.certificate import Certificate
from privmix.errors import InvalidInput
from privmix.fields import Choice, Positive, check_fields
from privmix.mechanisms.clipping import clip_l1, clip_l2
from privmix.plans.registry import design_named
from privmix.publication.second_moments import SecondMoments
from privmix.shown import Bars, Shown

# The transform works in float64, so a batch bounds the memory.
_BATCH: Final = 4096


@dataclass(frozen=True)
class RecordTransform:
    """The public map from an extractor's output to what the release mixed: clip, centre, clip the residual."""

    # The engine applies it to private records and a learner to new ones. All numbers are public, or released under DP
    # (centre, (d,) or None). clip_norm bounds a record's "l2" or "l1" norm before centring, residual_clip_norm after.

    clip_norm: Positive
    norm: Annotated[str, Choice("l1", "l2")] = "l2"
    centre: NDArray[np.float32] | None = field(default=None, compare=False)
    residual_clip_norm: Positive | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.centre is None) != (self.residual_clip_norm is None):
            raise InvalidInput("residual_clip_norm", self.residual_clip_norm, "a bound exactly when a centre is given")

    @property
    def final_clip_norm(self) -> float:
        """The bound that holds for every output row: one record's sensitivity in the sum."""
        return self.clip_norm if self.residual_clip_norm is None else self.residual_clip_norm

    def clip(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """First step alone: rows of (n, d) ``features`` clipped to ``clip_norm``."""
        return _clip(features, self.clip_norm, self.norm)

    def __call__(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """Map (n, d) extractor outputs to the (n, d) vectors whose sums are released."""
        clipped = self.clip(features)
        if self.centre is None or self.residual_clip_norm is None:
            return clipped
        if clipped.shape[1:] != self.centre.shape:
            raise InvalidInput("features", f"{clipped.shape[1]} columns", f"{len(self.centre)}, as the centre has")
        clipped -= self.centre
        return _clip(clipped, self.residual_clip_norm, self.norm, overwrite=True)

    def shares(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """Return transformed records (n, d) as shares of the bound that holds for them: no norm is above 1."""
        found = self(features)
        found /= self.final_clip_norm
        return found

    def rows(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """(n, d) extractor outputs -> (n, d) float32, as learners of the release see records; a batch at a time."""
        found = np.empty(features.shape, np.float32)
        for start in range(0, len(features), _BATCH):
            found[start : start + _BATCH] = self(features[start : start + _BATCH])
        return found


def _clip(x: NDArray[Any], bound: float, norm: str, overwrite: bool = False) -> NDArray[np.float64]:
    return (clip_l2 if norm == "l2" else clip_l1)(x, bound, overwrite=overwrite)


@dataclass(frozen=True, repr=False)
class ReleasedDataset(Shown):
    """A DP release in memory. Everything here is public and may be used without limit.

    Attributes:
        x: (T, d) float32, noisy sums of transformed features divided by ``mixup_degree``.
        y: (T, K) float32, noisy sums of one-hot labels minus ``label_offset``, divided by ``mixup_degree``.
        design: name of the design, see :mod:`privmix.designs`; rows of ``"moments"`` are samples of a model.
        mixup_degree: public divisor m.
        noise_std_x, noise_std_y: standard deviation of the noise in each entry of ``x``, ``y`` (0: public labels).
        label_offset: subtracted from every one-hot label entry before mixing (1/K when centred, else 0).
        transform: apply it to new features before classifying them.
        extractor: description of the feature extractor, enough to rebuild it.
        input_shape: shape of one raw input of that extractor.
        certificate: as stored with the rows; None for rows that no release made.
        beside: released in addition to the rows, such as second moments.
    """

    x: NDArray[np.float32]
    y: NDArray[np.float32]
    design: str
    mixup_degree: float
    noise_std_x: float
    noise_std_y: float
    label_offset: float
    classes: tuple[str, ...]
    transform: RecordTransform
    extractor: Mapping[str, Any]
    input_shape: tuple[int, ...]
    release_id: str
    certificate: Certificate | None = field(default=None, repr=False)
    beside: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.x.ndim != 2 or self.y.ndim != 2 or len(self.x) != len(self.y) or len(self.x) == 0:
            raise InvalidInput("released rows", (self.x.shape, self.y.shape), "x (T, d) and y (T, K) with one T >= 1")
        if self.y.shape[1] != len(self.classes):
            raise InvalidInput("classes", len(self.classes), f"{self.y.shape[1]} names, one a label column")

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Size and noise of the release. Public."""
        return f"Released dataset {self.release_id}", {
            "design": self.design,
            "rows, features, classes": f"{self.rows:,}, {self.dim:,}, {self.num_classes:,}",
            "noise of an entry": f"{self.noise_std_x:.4g} in x, {self.noise_std_y:.4g} in y",
            **({} if self.beside is None else {"beside": type(self.beside).__name__}),
        }

    def picture(self) -> Bars | None:
        """Return the guarantee, if a release made the dataset."""
        return None if self.certificate is None else self.certificate.picture()

    @property
    def moments(self) -> SecondMoments | None:
        """The released second moments, where the design releases some."""
        return self.beside if isinstance(self.beside, SecondMoments) else None

    @property
    def rows(self) -> int:
        return int(self.x.shape[0])

    @property
    def dim(self) -> int:
        return int(self.x.shape[1])

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def mixes_all_classes(self) -> bool:
        """Whether rows mix all classes in the proportions of the records."""
        return design_named(self.design).mixes_all_classes


@runtime_checkable
class HasDataset(Protocol):
    """A release as jobs hand it out."""

    @property
    def dataset(self) -> ReleasedDataset:
        """The released rows and their public facts."""
