"""Tests of a release's noise from its numbers, in one pass. Proofs: :mod:`privmix.audits.noise_tests`.

Tests against the certified noise: columns, rows, a whole part, sums over classes and directions of least variation.
Centred one-hot labels sum to a public constant: only noise is left. Other tests: values on the public grid; no equal
rows; public labels as they must be.

Not visible: noise too small by less than the data add; another shape; noise known to an attacker; rows made otherwise
but as noisy.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.audits import noise_tests
from privmix.audits.noise_tests import CANCELLED, ULP, NoiseTest, Part, WeakDirections, check_grid
from privmix.errors import InvalidInput
from privmix.plans.parts import SumPlan
from privmix.plans.plan import Plan
from privmix.plans.registry import Deferred, made_by
from privmix.plans.rows import ReleasePlan
from privmix.publication.second_moments import SecondMoments, sampled_std

PRODUCTS: Final = 1e-3
"""Sampled rows come from float32 products: this much of their size is allowed for that."""


@dataclass(frozen=True)
class Law:
    """The noise in each entry of a part: its standard deviation, its grid (0: none), and whether it is Laplace's."""

    std: float
    unit: float
    laplace: bool = False


@dataclass(frozen=True)
class RowLaw:
    """Noise of a plan's rows: in features ``x``, in labels ``y`` (None: public)."""

    # numbered: public labels follow from row numbers. directions: features can be tested where they vary least.

    x: Law
    y: Law | None = None
    numbered: bool = True
    directions: bool = False


ROW_LAW: Final = Deferred[Callable[[Any, Any], RowLaw]]("row_law", "one whose rows can be tested")
BESIDE_TESTS: Final = Deferred[Callable[[Any, Any], list[NoiseTest]]]("beside_tests")


def row_law(plan: Plan, beside: Any) -> RowLaw:
    """Return the law of a plan's rows; raise InvalidInput for a design without one."""
    return ROW_LAW.of(made_by(plan))(plan, beside)


def mixed_row_law(plan: ReleasePlan, beside: Any) -> RowLaw:
    """Noise of features, and of labels that are part of the query."""
    laplace = plan.noise == "laplace"
    labels = None if plan.public_labels else Law(plan.noise_std_y, plan.unit_y, laplace)
    return RowLaw(Law(plan.noise_std_x, plan.unit_x, laplace), labels, directions=plan.noise == "gaussian")


def sampled_row_law(plan: SumPlan, beside: SecondMoments) -> RowLaw:
    """Return the least noise that samples of released second moments have."""
    return RowLaw(Law(sampled_std(beside) * (1 - PRODUCTS), 0.0), numbered=False)


class RowEvidence:
    """Tests of released rows, given a page at a time, columns and shards in order.

    Formal guarantees:
        * False alarms: each family of tests refuses a release that has the certified noise with probability 5e-11 at
          most, for any records.
        * Bounded: memory is 24 bytes a row and at most 8 values a row and column of what was shown.
    """

    def __init__(self, plan: Plan, law: RowLaw) -> None:
        self._plan, self._numbered = plan, law.numbered
        self._parts = {"x": Part(plan.dim, law.x.std, law.x.unit, law.x.laplace)}
        if law.y is not None:
            self._parts["y"] = Part(plan.num_classes, law.y.std, law.y.unit, law.y.laplace)
        self._rows = np.zeros(plan.rows)
        self._digests = bytearray()
        self._class_sums = np.zeros(3)
        self._weak = WeakDirections(plan.rows, self._parts["x"]) if law.directions and plan.rows >= 16 else None

    def add(self, column: str, start: int, values: NDArray[np.float32]) -> None:
        """Take (rows, width) values of a column from row ``start``; raise InvalidInput for a value off the grid."""
        part = self._parts.get(column)
        if part is None:
            self._check_labels(start, values)
            return
        part.check_grid(column, values)
        exact = values.astype(np.float64)
        if column == "x":
            # All rows are compared with each other at the end, and digests take less memory than rows.
            self._digests += b"".join(hashlib.blake2b(row, digest_size=16).digest() for row in values)
            if self._weak is not None:
                self._weak.add(start, values, exact)
        elif not part.laplace:
            sums = exact.sum(axis=1)
            self._class_sums += len(sums), sums.sum(), np.square(sums).sum()
        own = self._rows[start : start + len(values)]
        own += part.add(exact)
        # A value that is not finite makes the energy of its row so, too: one check a row is enough.
        if not np.isfinite(own).all():
            raise InvalidInput(f"rows: {column}", "values that are not finite", "finite values")

    def finish(self) -> list[NoiseTest]:
        """Return the tests after all rows; raise InvalidInput where one refuses the release."""
        rows, parts = self._plan.rows, self._parts
        law = "laplace" if parts["x"].laplace else "gaussian"
        rounding = [part.rounding(part.width) for part in parts.values()]
        x = parts["x"]
        # Large values lie further apart in float32 than on the grid, so that unequal sums may become equal.
        step = x.unit + 2 * ULP * x.largest
        chance = noise_tests.equal_chance(x.std / step if step > 0 else math.inf, x.width, law=law)
        found = [
            NoiseTest(noise_tests.ON_THE_GRID, sum(p.width * rows for p in parts.values() if p.unit), 0.0),
            noise_tests.equal_rows_test("equal rows", bytes(self._digests), chance),
            noise_tests.energy_test(
                "noise of each row",
                self._rows,
                sum(part.width for part in parts.values()),
                # The parts are one vector: L1 norms of its parts add up, Euclidean norms add up squared.
                sum(rounding) if law == "laplace" else math.hypot(*rounding),
                law=law,
            ),
        ]
        for name, part in parts.items():
            found += part.tests(name, rows)
        if "y" in parts and law == "gaussian":
            found.append(self._class_sums_test())
        if self._weak is not None:
            found.append(self._weak.test())
        return found

    def _check_labels(self, start: int, values: NDArray[np.float32]) -> None:
        """Labels that are no part of the private query: those of the row's number, or of a sampled class."""
        classes = self._plan.num_classes
        one_hot = np.eye(classes, dtype=np.float32) - np.float32(self._plan.label_offset)
        wanted = one_hot[(start + np.arange(len(values))) % classes if self._numbered else values.argmax(axis=1)]
        if not np.array_equal(wanted, values):
            raise InvalidInput("rows: y", "other labels", "the public labels that follow from the plan")

    def _class_sums_test(self) -> NoiseTest:
        part, classes = self._parts["y"], self._plan.num_classes
        count, total, squares = self._class_sums
        variance = classes * part.std**2
        energy = (squares - total**2 / count + CANCELLED * squares) / variance
        # Each sum is off by K half steps at most; float32's part is of the entries that were summed.
        rounding = math.sqrt(count * classes) * part.unit / (2 * part.std) + ULP * part.norm
        return noise_tests.energy_test("noise of label sums over classes", energy, count - 1, rounding)


def beside_tests(plan: Plan, beside: Any) -> list[NoiseTest]:
    return BESIDE_TESTS.of(made_by(plan))(plan, beside) if BESIDE_TESTS.is_in(made_by(plan)) else []


def centre_tests(centre: NDArray[np.float32], plan: Plan) -> list[NoiseTest]:
    """Test the released mean; raise InvalidInput for numbers off the grid or missing noise."""
    std, unit = plan.noise_std_centre, plan.unit_centre
    assert std is not None
    check_grid("centre", centre, unit, std)
    values = centre.astype(np.float64) / std
    # Rounding to the grid moves an entry by half a step at most.
    half = unit / std / 2
    return [
        noise_tests.energy_test("noise of the mean", np.square(values).sum(), plan.dim, half * math.sqrt(plan.dim)),
        noise_tests.small_values_test("small values of the mean", values, half),
    ]
