"""Releases of noisy sums, declared array by array: files, noise, tests, audits and texts of each follow from that."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.events import Composed, Event, Gaussian
from privmix.errors import InvalidInput
from privmix.mechanisms.sampling import EveryRecord, Sampler
from privmix.plans.design import Beside, Design
from privmix.plans.plan import BasePlan
from privmix.plans.setting import Setting

# Relative: what float64 may be off by in sums of a few squares.
_ROUNDING: Final = 1e-12


@dataclass(frozen=True, kw_only=True)
class ReleasedArray:
    """A float32 array of a release, in addition to rows. By itself it has no noise: it follows from earlier parts."""

    name: str
    shape: tuple[int, ...]
    meaning: str

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return self.shape

    def stored(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the array as the file has it."""
        return np.ascontiguousarray(values)

    def read(self, stored: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the array as learners take it: the inverse of :meth:`stored`."""
        return stored

    @property
    def line(self) -> str:
        return f"| `{self.name}` | {' x '.join(map(str, self.stored_shape))} | {self.meaning} |"


@dataclass(frozen=True, kw_only=True)
class Part(ReleasedArray):
    """Sums over all records with Gaussian noise.

    Attributes:
        words: what it is, for people.
        bound: the most that one record changes it by, in Euclidean norm.
        noise_std: standard deviation of the noise in an entry; of a symmetric matrix on its diagonal.
        unit: grid: entries are multiples of it, rounded to float32.
        symmetric: whether it is a symmetric matrix, or a stack of them. Files then have the lower triangles by rows.
            Off the diagonal the noise is 1/sqrt(2) of that on it: the triangle with these entries times sqrt(2) is a
            vector of the matrix's norm.
        key: name in the certificate's ``noise_std``, where it has another one.
    """

    words: str
    bound: float
    noise_std: float
    unit: float
    symmetric: bool = False
    key: str = ""

    @property
    def known_as(self) -> str:
        return self.key or self.name

    @property
    def stored_shape(self) -> tuple[int, ...]:
        if not self.symmetric:
            return self.shape
        side = self.shape[-1]
        return *self.shape[:-2], side * (side + 1) // 2

    def stored(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._each(lower_triangle, values, 2) if self.symmetric else super().stored(values)

    def read(self, stored: NDArray[np.float32]) -> NDArray[np.float32]:
        side = self.shape[-1]
        return self._each(lambda one: symmetric(one, side), stored, 1) if self.symmetric else stored

    def _each(self, change: Callable[[Any], Any], values: NDArray[np.float32], axes: int) -> NDArray[np.float32]:
        """Return one matrix changed, or each of a stack."""
        return np.asarray(change(values) if values.ndim == axes else np.stack([change(one) for one in values]))

    def vector(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the entries as a vector of the same norm, in which each has noise of the same size."""
        if not self.symmetric:
            return values.astype(np.float64).ravel()
        side = self.shape[-1]
        each = values.astype(np.float64).reshape(-1, side, side)
        below = math.sqrt(2) * each[:, *np.tril_indices(side, -1)]
        return np.concatenate([np.diagonal(each, axis1=1, axis2=2), below], axis=1).ravel()

    @property
    def line(self) -> str:
        noise = f"noise {self.noise_std:.6g}"
        if self.symmetric:
            noise += f" on, {self.noise_std / 2**0.5:.6g} off the diagonal"
        return super().line.removesuffix(" |") + f"; {noise} |"


def symmetric(triangle: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """Return the (side, side) matrix whose lower triangle, by rows, is ``triangle``."""
    found = np.empty((side, side), np.float32)
    for row in range(side):
        # Row by row: an index of each entry would take four times the matrix.
        part = triangle[row * (row + 1) // 2 :][: row + 1]
        found[row, : row + 1] = part
        # Entry (i, j) above the diagonal is (j, i) below it.
        found[: row + 1, row] = part
    return found


def lower_triangle(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.concatenate([matrix[row, : row + 1] for row in range(len(matrix))])


@dataclass(frozen=True, kw_only=True)
class SumPlan(BasePlan):
    """A plan of noisy sums over all records.

    A subclass states what it releases (``arrays``). One record must change each part by at most its ``bound``. The
    design's engine must draw noise of the part's ``noise_std``. Audits measure both.

    Formal guarantees (of every such plan):
        * every field is a public constant: no value depends on a private row;
        * ``event`` is that of the stated noise: it is refused where the parts together have another noise than its
          queries are priced for. Every part is a sum over all records.
    """

    made_by: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.design != self.made_by:
            raise InvalidInput("design", self.design, self.made_by)

    @property
    def arrays(self) -> tuple[ReleasedArray, ...]:
        """All that is released in addition to rows, in the file's order, parts before what follows from them."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(one for one in self.arrays if isinstance(one, Part))

    def part(self, key: str) -> Part:
        return next(one for one in self.parts if one.known_as == key)

    @property
    def noise_std(self) -> dict[str, float]:
        """By part; those of symmetric matrices are of their diagonal."""
        return {one.known_as: one.noise_std for one in self.parts}

    def sampler_for(self, records: int) -> Sampler:
        return EveryRecord(records, 1)

    @property
    def queries(self) -> tuple[float, ...]:
        """Noise multipliers of the Gaussian queries that release the parts, in order."""
        return (self.noise_multiplier,)

    @property
    def growth(self) -> float:
        """Noise of a released number over that of the query: more than 1 where several releases share the query."""
        return 1.0

    @property
    def main_event(self) -> Event:
        # One record changes all parts together, in units of their noise, by what the queries are priced for.
        for one in self.parts:
            if not (0 < one.bound < math.inf and 0 < one.noise_std < math.inf):
                raise InvalidInput(f"noise of {one.words}", (one.bound, one.noise_std), "a bound and noise above 0")
        moved = sum((one.bound / one.noise_std * self.growth) ** 2 for one in self.parts)
        priced = sum(multiplier**-2 for multiplier in self.queries)
        # Written so that NaN is refused.
        if not abs(moved - priced) <= priced * _ROUNDING:
            raise InvalidInput(
                "noise of parts", f"{moved:.9g}", f"{priced:.9g}, the sum of squares of bound over noise"
            )
        events = tuple(self.sampler.event(Gaussian(multiplier)) for multiplier in self.queries)
        return events[0] if len(events) == 1 else Composed(events)


S = TypeVar("S", bound=SumPlan)


@dataclass(frozen=True)
class SumDesign(Design[S]):
    """A design that releases noisy sums, and rows made from them.

    A subclass needs ``plan``, ``settings``, ``forecast`` and the texts of :class:`Design`. Its attributes: ``name``,
    ``file``, ``plan_type``, ``engines``. For what it releases: ``released``, ``released_as``, ``row_law``. For audits:
    ``worst_case``, ``pure_noises``.
    """

    # A sampled row is of one class.
    mixes_all_classes = False
    file: ClassVar[str]
    moved = "privmix.audits.empty_runs:sums_moved"
    beside_tests = "privmix.audits.empty_runs:sums_tests"

    def check(self, setting: Setting) -> None:
        """There is nothing that the options could contradict."""

    @property
    def rows_follow(self) -> bool:
        return True

    @classmethod
    def beside(cls, plan: S) -> Beside:
        return Beside(cls.file, {one.name: one.stored_shape for one in plan.arrays}, plan.dim)

    @classmethod
    def table(cls, arrays: Sequence[ReleasedArray]) -> str:
        """Return arrays as a table, for the data card."""
        return "\n".join(["| entry | shape | meaning |", "|---|---|---|", *(one.line for one in arrays)])
