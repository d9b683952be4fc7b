"""What every design is told, and what it tells the planner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer
from privmix.fields import Choice, Count, Number, Positive, Share, Switch, Whole, check_fields

CENTRES: Final = ("private", "none")


@dataclass(frozen=True)
class Setting:
    """Public facts of the records, and what is chosen whatever the design; no option of one design is here.

    Attributes:
        records: the record count n, taken as public.
        dim: feature dimension d.
        classes: K class names.
        rows: number T of rows released; None leaves it to the design.
        clip_norm: bound C_x on a record's feature norm.
        centre: ``"private"`` releases the mean first; ``"none"`` takes features as they are. None leaves it to the
            design.
        residual_clip_norm: bound on a centred record's norm, as a share of ``clip_norm``.
        lattice_bits: features and noise are multiples of 2^-bits of the clipping bound.
        records_noise_multiplier: where ``records`` is a private estimate: the noise of the query that made it.
        records_declared: ``records`` is a public figure in place of the real count, which is not used.
        channels: features lie on two axes, this many channels times positions, in that order; 1 where they do not.
        whitened: public data have made features vary about equally within classes.
        per_person: None where a record is the unit of privacy; K where a person is, see
            :class:`privmix.plans.plan.BasePlan`.
        person_quantile: where K is a private estimate: which share of the persons have at most so many records.
    """

    records: Count
    dim: Count
    classes: tuple[str, ...]
    rows: Count | None = None
    clip_norm: Annotated[float, Number(1e-9, 1e9)] = 1.0
    centre: Annotated[str, Choice(*CENTRES)] | None = None
    residual_clip_norm: Annotated[float, Number(0, 2, low_open=True)] = 0.55
    lattice_bits: Annotated[int, Whole(8, 24)] = 15
    records_noise_multiplier: Positive | None = None
    records_declared: bool = False
    channels: int = 1
    whitened: Switch = False
    per_person: Count | None = None
    person_quantile: Share | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise InvalidInput("classes", len(self.classes), "at least two class names, all different")
        check_declared(self.records_declared, self.records_noise_multiplier)
        check_quantile(self.person_quantile, self.per_person, self.records_noise_multiplier)
        check_channels(self.channels, self.dim)

    @property
    def residual_bound(self) -> float:
        """Bound on a centred record's norm."""
        return float(self.residual_clip_norm * self.clip_norm)

    def shared(self, centre_noise_multiplier: float | None) -> dict[str, Any]:
        """The fields of a plan that are the same for every design.

        Args:
            centre_noise_multiplier: of the mean query, or None where no mean is released.
        """
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


def check_channels(channels: int, dim: int) -> None:
    """Raise :class:`InvalidInput` unless ``dim`` features can lie on so many channels."""
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
class Assumed:
    """Records as a planner assumes them: a mixture of Gaussians along some axes, in units of the clipping bound.

    Attributes:
        within: (k,) variance of the records of a class along each axis.
        between: (k,) variance of the classes' means along each axis.
        dim: d, the real number of features.
    """

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
class Forecast:
    """What a plan does to n times the second moments of the records; X'X and X'Y are what learners learn from.

    Attributes:
        second: (k,) a_i; entry (i, j) of X'X has noise of standard deviation sqrt(a_i a_j), or None: X'X is unknown.
        cross: (k,) standard deviation of the noise in X'Y along each axis.
        amplified: how many times larger than in X'X the scatter between classes is.
        counts: standard deviation of the noise in the number of records of a class; None: it is not told.
        taken: where rows are of one class each, so that X'X holds the same errors of class means as X'Y: (k,) what a
            learner takes ``cross`` for; else None.
        one_class: whether a person with many records shows those of one class alone.
    """

    second: NDArray[np.float64] | None
    cross: NDArray[np.float64]
    amplified: float = 1.0
    counts: float | None = None
    taken: NDArray[np.float64] | None = None
    one_class: bool = False
