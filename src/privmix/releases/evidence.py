"""What a release's numbers say about its noise, gathered in one pass. Proofs: :mod:`privmix.releases.noise_tests`.

Tested are, each against the certified noise alone: every column, every row, all of a part together, sums over classes
(one-hot labels sum to a public constant, so that with centring nothing but noise is left of these), and the directions
in which features vary least; that values lie on the public grid, and that no row comes twice. Labels that the plan
makes public are compared with what they must be.

What no test of this kind can see: noise that is too small by less than the data add to it; noise of another shape;
noise that somebody knows; rows that were made in another way but are as noisy.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.designs import BasePlan, EmbeddingPlan, MomentsPlan, Plan, ReleasePlan, ThreeStagePlan, TwoStagePlan
from privmix.designs.embedding import SIZES
from privmix.errors import InvalidInput
from privmix.releases.embedding import ClassEmbeddings
from privmix.releases.feature_maps import feature_map
from privmix.releases.moments import SecondMoments, lower_triangle, sampled_std
from privmix.releases.noise_tests import (
    NoiseTest,
    energy_test,
    equal_chance,
    equal_rows_test,
    grid_indices,
    small_values_test,
)
from privmix.releases.three_stage import ThreeStageMoments
from privmix.releases.two_stage import TwoStageMoments

_ULP: Final = 2.0**-23
# Sums of squares about a mean lose so much of the sum about 0 at most, in float64 and by blocks.
_CANCELLED: Final = 1e-12
# Rows of a moments release come from float32 products; this much of their size is allowed for that.
_PRODUCTS: Final = 1e-3
# Integers of a release's sums are below 2^53 steps, and no draw of noise exceeds 2^6 scales.
_LARGEST_SUM, _LARGEST_DRAW = 2.0**53, 64.0
_BLOCK: Final = 256
_ROWS_AT_ONCE: Final = 1024
_VALUES_AT_ONCE: Final = 2**20


@dataclass(frozen=True)
class Law:
    """The noise in each entry of a part: its standard deviation, its grid (0: none), and whether it is Laplace's."""

    std: float
    unit: float
    laplace: bool = False


@dataclass(frozen=True)
class RowLaw:
    """What a plan says of its rows.

    Attributes:
        x: the noise in features.
        y: that in labels; None where they are public.
        numbered: public labels follow from a row's number; else a row may be of any class.
        directions: the features' noise can be tested in the directions in which they vary least.
    """

    x: Law
    y: Law | None = None
    numbered: bool = True
    directions: bool = False


@singledispatch
def row_law(plan: BasePlan, beside: Any) -> RowLaw:
    """What a plan, and what was released beside its rows, say of these; a function of the plan's class.

    Raises:
        InvalidInput: nobody said what rows of such a plan are.
    """
    raise InvalidInput("design", plan.design, "one whose rows can be tested")


@row_law.register
def _(plan: ReleasePlan, beside: Any) -> RowLaw:
    laplace = plan.noise == "laplace"
    labels = None if plan.public_labels else Law(plan.noise_std_y, plan.unit_y, laplace)
    return RowLaw(Law(plan.noise_std_x, plan.unit_x, laplace), labels, directions=plan.noise == "gaussian")


@row_law.register
def _(plan: MomentsPlan, beside: SecondMoments) -> RowLaw:
    return RowLaw(Law(sampled_std(beside) * (1 - _PRODUCTS), 0.0), numbered=False)


@row_law.register
def _(plan: EmbeddingPlan, beside: ClassEmbeddings) -> RowLaw:
    return RowLaw(Law(plan.blur * (1 - _PRODUCTS), 0.0), numbered=False)


@row_law.register
def _(plan: TwoStagePlan, beside: TwoStageMoments) -> RowLaw:
    return row_law(plan.first, beside)


class RowEvidence:
    """Tests of released rows, which are shown a page at a time, columns and shards in order.

    Formal guarantees:
        * False alarms: each family of tests refuses a release that has the certified noise with probability 5e-11 at
          most, whatever the records are.
        * Bounded: memory is 24 bytes a row and at most 8 values a row and column of what was shown.

    Args:
        plan: the release's plan.
        law: of its rows.
    """

    def __init__(self, plan: Plan, law: RowLaw) -> None:
        self._plan, self._numbered = plan, law.numbered
        self._parts = {"x": _Part(plan.dim, law.x.std, law.x.unit, law.x.laplace)}
        if law.y is not None:
            self._parts["y"] = _Part(plan.num_classes, law.y.std, law.y.unit, law.y.laplace)
        self._rows = np.zeros(plan.rows)
        self._digests = bytearray()
        self._class_sums = np.zeros(3)
        self._weak = _WeakDirections(plan.rows, self._parts["x"]) if law.directions and plan.rows >= 16 else None

    def add(self, column: str, start: int, values: NDArray[np.float32]) -> None:
        """Take rows ``start`` and on of a column: values (rows, width).

        Raises:
            InvalidInput: a value is not finite, off the grid, or no public label.
        """
        part = self._parts.get(column)
        if part is None:
            self._check_labels(start, values)
            return
        part.check_grid(column, values)
        exact = values.astype(np.float64)
        if column == "x":
            self._digests += b"".join(hashlib.blake2b(row, digest_size=16).digest() for row in values)
            if self._weak is not None:
                self._weak.add(start, values, exact)
        elif not part.laplace:
            sums = exact.sum(axis=1)
            self._class_sums += len(sums), sums.sum(), np.square(sums).sum()
        own = self._rows[start : start + len(values)]
        own += part.add(exact)
        if not np.isfinite(own).all():
            raise InvalidInput(f"rows: {column}", "values that are not finite", "finite values")

    def finish(self) -> list[NoiseTest]:
        """The tests, all rows seen.

        Raises:
            InvalidInput: one of them refuses the release.
        """
        rows, parts = self._plan.rows, self._parts
        law = "laplace" if parts["x"].laplace else "gaussian"
        found = [
            NoiseTest("values on the public grid", sum(p.width * rows for p in parts.values() if p.unit), 0.0),
            equal_rows_test("equal rows", bytes(self._digests), self._equal_chance(law)),
            energy_test(
                "noise of each row",
                self._rows,
                sum(part.width for part in parts.values()),
                _norm([part.rounding(part.width) for part in parts.values()], law),
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
        energy = (squares - total**2 / count + _CANCELLED * squares) / variance
        # Each sum is off by K half steps at most; float32's part is of the entries that were summed.
        rounding = math.sqrt(count * classes) * part.unit / (2 * part.std) + _ULP * part.norm
        return energy_test("noise of label sums over classes", energy, count - 1, rounding)

    def _equal_chance(self, law: str) -> float:
        part = self._parts["x"]
        step = part.unit + 2 * _ULP * part.largest
        return equal_chance(part.std / step if step > 0 else math.inf, part.width, law=law)


@singledispatch
def beside_tests(plan: BasePlan, beside: Any) -> list[NoiseTest]:
    """Tests of what was released beside the rows; a function of the plan's class."""
    return []


@beside_tests.register
def _(plan: MomentsPlan, moments: SecondMoments) -> list[NoiseTest]:
    """Test released second moments. Each was released once, so that signals hide more than they do in rows.

    Raises:
        InvalidInput: a number is off the grid, or noise is missing.
    """
    units, std = plan.units, plan.noise_std
    for name, values in (("second", moments.second), ("cross", moments.cross), ("counts", moments.label_sums)):
        _check_grid(f"moments: {name}", values, units[name], std[name])
    cross = moments.cross.astype(np.float64) / std["cross"]
    counts = moments.label_sums.astype(np.float64) / std["counts"]
    half = {name: units[name] / std[name] / 2 for name in ("cross", "counts")}
    dim, classes = plan.dim, plan.num_classes
    over_classes = cross.sum(axis=1) / math.sqrt(classes)
    spread = half["cross"] * math.sqrt(dim * classes) + _ULP * float(np.linalg.norm(cross))
    return [
        *_symmetric_tests("X'X", moments.second, std["second"], units["second"]),
        energy_test("noise of X'Y", np.square(cross).sum(), cross.size, half["cross"] * math.sqrt(cross.size)),
        energy_test("noise of X'Y summed over classes", np.square(over_classes).sum(), dim, spread),
        small_values_test("small values of X'Y", cross, half["cross"]),
        energy_test("noise of the label sums", np.square(counts).sum(), classes, half["counts"] * math.sqrt(classes)),
    ]


@beside_tests.register
def _(plan: EmbeddingPlan, found: ClassEmbeddings) -> list[NoiseTest]:
    """Test released class embeddings. Each was released once, so that signals hide more than they do in rows.

    Raises:
        InvalidInput: a number is off the grid, noise is missing, or the map is not the one of the plan's seed.
    """
    for name, values in feature_map(plan).arrays().items():
        # Numbers without noise: there is room for a record in them, and for what was learnt from all.
        if not np.array_equal(values, found.map.arrays()[name]):
            raise InvalidInput(f"class embeddings: {name}", "other numbers", "those that follow from map_seed")
    std, norms, tests = plan.noise_std, found.map.norms(plan.lattice_bits), []
    for name, values in (*found.sums.items(), (SIZES, found.sizes)):
        unit = 1 / norms[name] if name in norms else plan.lattice.step
        _check_grid(f"class embeddings: {name}", values, unit, std[name])
        scaled = values.astype(np.float64) / std[name]
        half = unit / std[name] / 2
        rounding = half * math.sqrt(scaled.size)
        tests.append(energy_test(f"noise of {name}", np.square(scaled).sum(), scaled.size, rounding))
        tests.append(small_values_test(f"small values of {name}", scaled, half))
    return tests


@beside_tests.register
def _(plan: TwoStagePlan, moments: TwoStageMoments) -> list[NoiseTest]:
    """Those of the first stage, and the same of what the second one released.

    Raises:
        InvalidInput: a number is off the grid, or noise is missing.
    """
    std = plan.noise_std
    _check_grid("moments: norms", moments.norms, 1.0, std["norms"])
    _check_grid("moments: within", moments.within, plan.unit_within, std["within"])
    counts, half = moments.norms.astype(np.float64) / std["norms"], 0.5 / std["norms"]
    return [
        *beside_tests(plan.first, moments),
        energy_test("noise of the norms", np.square(counts).sum(), counts.size, half * math.sqrt(counts.size)),
        *_symmetric_tests("the scatter within classes", moments.within, std["within"], plan.unit_within),
    ]


@beside_tests.register
def _(plan: ThreeStagePlan, moments: ThreeStageMoments) -> list[NoiseTest]:
    """Those of the first two stages, and the same of each class's scatter.

    Raises:
        InvalidInput: a number is off the grid, or noise is missing.
    """
    std, unit = plan.noise_std["class_within"], plan.unit_within
    _check_grid("moments: class_within", moments.class_within, unit, std)
    own = _symmetric_tests("the scatter of each class", moments.class_within, std, unit)
    return [*beside_tests.dispatch(TwoStagePlan)(plan, moments), *own]


def _symmetric_tests(what: str, released: NDArray[np.float32], std: float, unit: float) -> list[NoiseTest]:
    """Tests of symmetric matrices, one or (k, d, d): noise of ``std`` on the diagonal, 1/sqrt(2) of it elsewhere."""
    dim, half = released.shape[-1], unit / std / math.sqrt(2)
    energies: list[float] = []
    triangles: list[NDArray[np.float32]] = []
    for matrix in released.reshape(-1, dim, dim):
        # Entries above the diagonal repeat those below.
        scaled = matrix / np.float32(std / math.sqrt(2))
        scaled[np.diag_indices(dim)] /= np.float32(math.sqrt(2))
        energies += [float(np.square(row, dtype=np.float64).sum()) for row in scaled]
        triangles.append(lower_triangle(scaled))
    below = triangles[0] if len(triangles) == 1 else np.concatenate(triangles)
    return [
        energy_test(f"noise of each row of {what}", np.array(energies), dim, 2 * half * math.sqrt(dim)),
        small_values_test(f"small values of {what}", below, half),
    ]


def centre_tests(centre: NDArray[np.float32], plan: Plan) -> list[NoiseTest]:
    """Test the released mean, which was released once.

    Raises:
        InvalidInput: a number is off the grid, or noise is missing.
    """
    std, unit = plan.noise_std_centre, plan.unit_centre
    assert std is not None
    _check_grid("centre", centre, unit, std)
    values = centre.astype(np.float64) / std
    half = unit / std / 2
    return [
        energy_test("noise of the mean", np.square(values).sum(), plan.dim, half * math.sqrt(plan.dim)),
        small_values_test("small values of the mean", values, half),
    ]


class _Part:
    """Sums over the rows of ``x`` or ``y``, in units of its noise."""

    def __init__(self, width: int, std: float, unit: float, laplace: bool = False) -> None:
        self.width, self.std, self.unit, self.laplace = width, std, unit, laplace
        self.scale = std / math.sqrt(2) if laplace else std
        self._sums, self._energies = np.zeros(width), np.zeros(width)
        self.largest = 0.0

    @property
    def norm(self) -> float:
        """Euclidean norm of all values (with Laplace noise the L1 norm), in units of the noise."""
        total = float(self._energies.sum())
        return total if self.laplace else math.sqrt(total)

    def check_grid(self, name: str, values: NDArray[np.float32]) -> None:
        if self.unit:
            _check_grid(f"rows: {name}", values, self.unit, self.std)
        self.largest = max(self.largest, float(np.abs(values).max()))

    def add(self, exact: NDArray[np.float64]) -> NDArray[np.float64]:
        """Count values (rows, width), which are overwritten; returns the energy of each row."""
        exact /= self.scale
        self._sums += exact.sum(axis=0)
        energies = np.abs(exact, out=exact) if self.laplace else np.square(exact, out=exact)
        self._energies += energies.sum(axis=0)
        return np.asarray(energies.sum(axis=1))

    def rounding(self, entries: int) -> float:
        """Norm of half a grid step in each of so many entries, in units of the noise."""
        return self.unit / (2 * self.scale) * (entries if self.laplace else math.sqrt(entries))

    def tests(self, name: str, rows: int) -> list[NoiseTest]:
        """Every column, and all together."""
        if self.laplace:
            whole = self._energies.sum(), rows * self.width, self.rounding(rows * self.width)
            return [
                energy_test(
                    f"noise of each column of {name}", self._energies, rows, self.rounding(rows), law="laplace"
                ),
                energy_test(f"noise of {name}", *whole, law="laplace"),
            ]
        about_mean = self._energies - np.square(self._sums) / rows + _CANCELLED * self._energies
        columns = self.rounding(rows) + _ULP * np.sqrt(self._energies)
        whole = about_mean.sum(), (rows - 1) * self.width, self.rounding(rows * self.width) + _ULP * self.norm
        return [
            energy_test(f"noise of each column of {name}", about_mean, rows - 1, columns),
            energy_test(f"noise of {name}", *whole),
        ]


class _WeakDirections:
    """Noise of features in directions in which they vary little: there it shows even where signals are strong.

    Directions, an eighth as many as there are columns, are taken from the first half of the rows, and the noise is
    tested in the second half. The noise of one half is independent of the other's, so the directions are fixed as far
    as the second half's noise is concerned, and what holds for fixed ones holds.
    """

    def __init__(self, rows: int, part: _Part) -> None:
        self._rows, self._half, self._part = rows, rows // 2, part
        width = max(1, min(_BLOCK, rows // 8))
        self._blocks = [slice(first, min(first + width, part.width)) for first in range(0, part.width, width)]
        self._grams = [np.zeros((b.stop - b.start,) * 2) for b in self._blocks]
        self._sums = np.zeros(part.width)
        self._buffer = np.empty((min(_ROWS_AT_ONCE, self._half), part.width), np.float32)
        self._filled = 0
        self._bases: list[NDArray[np.float64]] = []
        self._totals = self._squares = np.zeros(0)
        self._norm = 0.0

    def add(self, start: int, values: NDArray[np.float32], exact: NDArray[np.float64]) -> None:
        """Take rows, in order."""
        early = min(max(self._half - start, 0), len(values))
        done = 0
        while done < early:
            more = min(early - done, len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + more] = values[done : done + more]
            self._filled, done = self._filled + more, done + more
            if self._filled == len(self._buffer):
                self._fold()
        if early < len(values):
            if not self._bases:
                self._choose()
            self._project(exact[early:])

    def _fold(self) -> None:
        rows = self._buffer[: self._filled]
        self._sums += rows.sum(axis=0, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            for gram, block in zip(self._grams, self._blocks, strict=True):
                gram += rows[:, block].T @ rows[:, block]
        self._filled = 0

    def _choose(self) -> None:
        self._fold()
        for gram, block in zip(self._grams, self._blocks, strict=True):
            mean = self._sums[block] / self._half
            scatter = gram / self._half - np.outer(mean, mean)
            # Squares beyond float32 say nothing. Any directions will do that the second half has no part in.
            _, vectors = np.linalg.eigh(scatter if np.isfinite(scatter).all() else np.eye(len(gram)))
            self._bases.append(vectors[:, : max(1, len(gram) // 8)] / self._part.std)
        self._totals = np.zeros(sum(basis.shape[1] for basis in self._bases))
        self._squares = np.zeros_like(self._totals)
        self._grams = []

    def _project(self, exact: NDArray[np.float64]) -> None:
        along = np.hstack([exact[:, block] @ basis for block, basis in zip(self._blocks, self._bases, strict=True)])
        self._totals += along.sum(axis=0)
        self._squares += np.square(along).sum(axis=0)
        self._norm += float(np.einsum("ij,ij->", exact, exact)) / self._part.std**2

    def test(self) -> NoiseTest:
        """Of all directions together, each about its mean."""
        rows = self._rows - self._half
        energy = (self._squares - np.square(self._totals) / rows + _CANCELLED * self._squares).sum()
        rounding = self._part.rounding(rows * self._part.width) + _ULP * math.sqrt(self._norm)
        name = "noise of x where it varies least"
        return energy_test(name, energy, (rows - 1) * len(self._totals), rounding)


def _norm(parts: list[float], law: str) -> float:
    return sum(parts) if law == "laplace" else math.hypot(*parts)


def _check_grid(name: str, values: NDArray[np.float32], unit: float, std: float) -> None:
    largest = np.float32(min(_LARGEST_SUM * unit + _LARGEST_DRAW * std, float(np.finfo(np.float32).max)))
    flat: Any = values.reshape(-1)
    for first in range(0, len(flat), _VALUES_AT_ONCE):
        part = flat[first : first + _VALUES_AT_ONCE]
        if not (np.abs(part) <= largest).all():
            raise InvalidInput(name, "values that no sum with noise has", f"finite values of at most {largest:.3g}")
        if not grid_indices(part, unit).all():
            raise InvalidInput(name, "values off the public grid", f"float32 roundings of multiples of {unit:.6g}")
