"""Public facts for every design, and a design's forecast for the planner."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer
from privmix.fields import Choice, Count, Number, Positive, Share, Whole, check_fields
from privmix.mechanisms.plan import check_classes

CENTRES: Final = ("private", "none")

MOST_SHARES: Final = 400
"""Number of classes whose shares can be declared: each has about ten simulated records."""


@dataclass(frozen=True)
class Setting:
    """Public facts of the records, and choices that all designs share.

    Attributes:
        records: the record count n, taken as public.
        rows: number T of rows released; None leaves it to the design.
        clip_norm: bound C_x on a record's feature norm.
        centre: ``"private"`` releases the mean first; ``"none"`` uses features as they are. With None, the design
            decides.
        residual_clip_norm: bound on a centred record's norm, as a share of ``clip_norm``.
        lattice_bits: features and noise are multiples of 2^-bits of the clipping bound.
        records_noise_multiplier: where ``records`` is a private estimate: the noise of the query that made it.
        records_declared: ``records`` is a public figure instead of the real count, which is not used.
        channels: features lie on two axes, this many channels times positions, in that order; 1 where they do not.
        per_person: with None a record is the unit of privacy, with K a person (:class:`privmix.plans.plan.BasePlan`).
        person_quantile: if K is a private estimate: the share of the persons with at most K records.
    """

    records: Count
    dim: Count
    classes: tuple[str, ...]
    rows: Count | None = None
    clip_norm: Annotated[float, Number(1e-9, 1e9)] = 1.0
    centre: Annotated[str, Choice(*CENTRES)] | None = None
    residual_clip_norm: Annotated[float, Number(0, 2, low_open=True)] = 0.55
    # Records then fit 16-bit integers, and sums of up to 512 are exact in float32; the step is far below the noise.
    lattice_bits: Annotated[int, Whole(8, 24)] = 15
    records_noise_multiplier: Positive | None = None
    records_declared: bool = False
    channels: int = 1
    per_person: Count | None = None
    person_quantile: Share | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_classes(self.classes)
        check_declared(self.records_declared, self.records_noise_multiplier)
        check_quantile(self.person_quantile, self.per_person, self.records_noise_multiplier)
        check_channels(self.channels, self.dim)

    @property
    def residual_bound(self) -> float:
        return float(self.residual_clip_norm * self.clip_norm)

    def shared(self, centre_noise_multiplier: float | None) -> dict[str, Any]:
        """Return the fields of a plan that all designs share; ``centre_noise_multiplier`` is None without a mean."""
        return {
            "records": self.records,
            "dim": self.dim,
            "classes": self.classes,
            "clip_norm": float(self.clip_norm),
            "residual_clip_norm": None if centre_noise_multiplier is None else self.residual_bound,
            "centre_noise_multiplier": centre_noise_multiplier,
            "records_noise_multiplier": self.records_noise_multiplier,
            "records_declared": self.records_declared,
            "per_person": self.per_person,
            "person_quantile": self.person_quantile,
        }


def unlabelled(design: str) -> InvalidInput:
    """Return the error for records without a label and a design that needs labels."""
    return InvalidInput("design", design, "moments (or auto): the other designs need a label")


def check_channels(channels: int, dim: int) -> None:
    """Raise :class:`InvalidInput` unless ``dim`` features can lie on this number of channels."""
    if dim % check_integer("channels", channels, low=1):
        raise InvalidInput("channels", channels, f"a number that divides that of the features, {dim}")


def check_declared(declared: bool, count_noise: float | None) -> None:
    """Raise :class:`InvalidInput` unless ``declared`` is a bool, and False where the count is a private estimate."""
    if not isinstance(declared, bool) or (declared and count_noise is not None):
        allowed = "True or False; False where the count is a private estimate"
        raise InvalidInput("records_declared", declared, allowed)


def check_quantile(quantile: float | None, per_person: int | None, count_noise: float | None) -> None:
    """Raise :class:`InvalidInput` where K is to be estimated and persons are not the unit, or nothing pays for it."""
    if quantile is not None and (per_person is None or count_noise is None):
        raise InvalidInput("person_quantile", quantile, "none but for persons whose number is a private estimate")


@dataclass(frozen=True, eq=False)
class AssumedRecords:
    """The planner's model of records: a mixture of Gaussians along some axes, in units of the clipping bound."""

    # within, between: (k,) variance of a class's records, and of the classes' means, along each axis. dim: d.

    within: NDArray[np.float64]
    between: NDArray[np.float64]
    dim: int

    @property
    def unseen(self) -> float:
        """Noise in d directions has sqrt(d) as its norm; the simulated ones must bear all of it."""
        return math.sqrt(max(1.0, self.dim / len(self.within)))

    @property
    def noise(self) -> NDArray[np.float64]:
        """(k,) noise of standard deviation 1 along each axis."""
        return np.ones(len(self.within)) * self.unseen


@dataclass(frozen=True, eq=False)
class MomentForecast:
    """How a plan changes n times the second moments of the records; learners learn from X'X and X'Y."""

    # second (k,): a_i; entry (i, j) of X'X has noise of standard deviation sqrt(a_i a_j); None: X'X is unknown. cross
    # (k,): the same of X'Y. amplified: how many times larger than in X'X the scatter between classes is. counts: of the
    # noise in a class's number of records; None: not released. taken (k,): a learner's figure for ``cross`` where rows
    # are of one class each and X'X has its errors. one_class: whether a person shows records of one class alone.

    second: NDArray[np.float64] | None
    cross: NDArray[np.float64]
    amplified: float = 1.0
    counts: float | None = None
    taken: NDArray[np.float64] | None = None
    one_class: bool = False
