"""Audits of noisy sums: their noise alone, by releases of empty records, how far a record moves them, and evidence.

The real engines make one array for every kind of noise. An empty record is a vector of zeros, and its label and
subtracted mean are taken off. Features, classes and rows that do not matter are changed for more noise in less time.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import Scores
from privmix.audits.noise_tests import ULP, NoiseTest, check_grid, energy_test, small_values_test
from privmix.audits.sensitivity import Pair, QuerySensitivity, distances
from privmix.audits.worst_case import EngineFactory, real_engine
from privmix.engine.rows import released_mean
from privmix.errors import InvalidInput
from privmix.mechanisms.private_count import RECORD_COUNTS, noisy_count, query_noise, records_of_persons
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.parts import Part, SumPlan, lower_triangle
from privmix.plans.plan import BasePlan, Plan
from privmix.plans.registry import Deferred, made_by
from privmix.progress import Progress

GAUSSIAN: Final = "gaussian"
LAPLACE: Final = "laplace"

# Features and classes of second moments: two groups of matrix rows, which have streams of their own.
SIDE: Final = 192
_MEAN_FEATURES: Final = 4096
# A key's cipher takes as long as thousands of draws, and a count is one draw a key: it gets fewer.
_COUNT_SHARE: Final = 4
# Numbers of one noise that are kept where a run has more of them than are asked for.
KEPT: Final = 2**20


@dataclass(frozen=True, eq=False)
class PureNoise:
    """Draws of one noise, (a, b) independent; axis 0 are rows, steps or keys."""

    # certified: standard deviation in the certificate, under ``source``; expected: with an allowance for rounding on
    # purpose; step: of the grid. beside: (a, c) draws of another noise of the same rows, independent of these, or None.

    name: str
    law: str
    certified: float
    expected: float
    step: float
    values: Scores
    beside: Scores | None = None
    source: str = ""

    def stated(self, source: str, figure: float) -> "PureNoise":
        """Return the draws in the unit in which the certificate states their standard deviation as ``figure``."""
        # Other numbers of features and classes, and sums instead of averages, have other units.
        unit = figure / self.certified
        return replace(
            self,
            certified=figure,
            expected=self.expected * unit,
            step=self.step * unit,
            values=self.values * unit,
            source=source,
        )


NOISES: Final = Deferred[Callable[[Any, int, "FreshStreams", EngineFactory], Iterator[PureNoise]]](
    "pure_noises", "one whose noises are known"
)
"""The noises of what a plan releases after count and mean."""


def release_noises(
    plan: Plan, samples: int, seed: int | None = None, make: EngineFactory = real_engine, tell: Progress | None = None
) -> Iterator[PureNoise]:
    """Yield every noise of a release, with at least ``samples`` draws."""
    keys = FreshStreams(seed, tell or (lambda name, done, total: None))
    if plan.records_noise_multiplier is not None:
        yield from count_noises(plan, samples, keys)
    if plan.centred:
        yield _mean_noise(plan, samples, keys)
    yield from NOISES.of(made_by(plan))(plan, samples, keys, make)


class FreshStreams:
    """Fresh streams for run after run, counted."""

    def __init__(self, seed: int | None, tell: Progress) -> None:
        self._seed, self._tell, self._next = seed, tell, 0

    def run(self, name: str, runs: int, work: Callable[[SecretStreams], NDArray[Any]]) -> list[NDArray[Any]]:
        """Results of ``work`` under ``runs`` keys, which are destroyed."""
        found = []
        for done in range(runs):
            streams = (
                SecretStreams.from_entropy()
                if self._seed is None
                else SecretStreams.from_seed(self._seed * 2**32 + self._next)
            )
            self._next += 1
            try:
                found.append(work(streams))
            finally:
                streams.destroy()
            if done % 64 == 63 or done + 1 == runs:
                self._tell(name, done + 1, runs)
        return found


def count_noises(plan: Any, samples: int, keys: FreshStreams) -> Iterator[PureNoise]:
    """Yield the noises of a private count, of a plan of a release or of a training that was made with one."""
    multiplier, quantile = query_noise(plan), getattr(plan, "person_quantile", None)
    count, samples = 10**6, samples // _COUNT_SHARE

    def one(streams: SecretStreams) -> NDArray[Any]:
        return np.array([noisy_count(count, multiplier, streams) - count], np.float64)

    def histogram(streams: SecretStreams) -> NDArray[Any]:
        return records_of_persons(np.empty(0, np.int64), multiplier, streams).astype(np.float64)

    source = "plan.records_noise_multiplier" + ("" if quantile is None else " x sqrt 2")
    if quantile is not None:
        drawn = np.stack(keys.run("records of persons", math.ceil(samples / len(RECORD_COUNTS)), histogram))
        yield PureNoise("records of persons", GAUSSIAN, multiplier, multiplier, 1.0, drawn).stated(source, multiplier)
    drawn = np.stack(keys.run("count", samples, one))
    yield PureNoise("record count", GAUSSIAN, multiplier, multiplier, 1.0, drawn).stated(source, multiplier)


def _mean_noise(plan: Plan, samples: int, keys: FreshStreams) -> PureNoise:
    assert plan.centre_noise_multiplier is not None
    # A multiple of the plan's own: features may lie on channels.
    wide = replace(plan, dim=plan.dim * math.ceil(_MEAN_FEATURES / plan.dim))
    nothing = np.zeros(wide.dim)

    def one(streams: SecretStreams) -> NDArray[Any]:
        mean = released_mean(wide, nothing.copy, streams)
        assert mean is not None
        return mean.astype(np.float64) * plan.records

    std = plan.clip_norm * plan.centre_noise_multiplier
    drawn = np.stack(keys.run("mean", -(-samples // wide.dim), one))
    noise = PureNoise("mean", GAUSSIAN, std, std, plan.clip_norm * 2.0**-plan.lattice_bits, drawn)
    return noise.stated("plan.centre_noise_multiplier", plan.centre_noise_multiplier)


def of_part(noise: PureNoise, plan: BasePlan, part: str, *, off_diagonal: bool = False) -> PureNoise:
    if off_diagonal:
        return noise.stated(f"noise_std.{part} / sqrt 2", plan.noise_std[part] / math.sqrt(2))
    return noise.stated(f"noise_std.{part}", plan.noise_std[part])


Release = Callable[[SecretStreams], Sequence[NDArray[np.float32]]]


def part_noises(
    plan: SumPlan, wide: SumPlan, parts: Sequence[str], release: Release, samples: int, keys: FreshStreams
) -> Iterator[PureNoise]:
    """Yield the noises of some parts of ``plan``, as ``release`` draws them, of empty sums, for the plan ``wide``."""
    # wide: the plan with other numbers of features, classes or directions, for more noise a run; and so with other
    # units of a part's noise.
    drawn: dict[tuple[str, bool], list[NDArray[np.float64]]] = {}

    def one(streams: SecretStreams) -> NDArray[Any]:
        for key, values in zip(parts, release(streams), strict=True):
            for off_diagonal, numbers in _entries(wide.part(key), values):
                kept = drawn.setdefault((key, off_diagonal), [])
                if len(kept) * numbers.size < max(samples, KEPT):
                    kept.append(numbers.astype(np.float64))
        return np.zeros(0)

    # Numbers that have noise of one size, of the part that has the fewest.
    fewest = min(math.prod(part.shape[:-1] if part.symmetric else part.shape) for part in map(wide.part, parts))
    keys.run(plan.part(parts[0]).words, -(-samples // fewest), one)
    for (key, off_diagonal), numbers in drawn.items():
        part = wide.part(key)
        std = part.noise_std / math.sqrt(2) if off_diagonal else part.noise_std
        name = part.words + (f": {'off ' * off_diagonal}diagonal" if part.symmetric else "")
        noise = PureNoise(name, GAUSSIAN, std, std, part.unit, np.stack(numbers))
        yield of_part(noise, plan, key, off_diagonal=off_diagonal)


def _entries(part: Part, values: NDArray[np.float32]) -> Iterator[tuple[bool, NDArray[np.float32]]]:
    """Yield entries whose noise is of one size, and whether they lie off the diagonal."""
    if not part.symmetric:
        yield False, values.ravel()
        return
    side = values.shape[-1]
    each = values.reshape(-1, side, side)
    yield False, np.diagonal(each, axis1=1, axis2=2).ravel()
    yield True, each[:, *np.tril_indices(side, -1)].ravel()


def sums_moved(plan: SumPlan, pair: Pair) -> list[QuerySensitivity]:
    """Return how far a record moves each part, and all of them in units of the noise of their queries."""
    # Both runs use the maps and bounds that follow from what the first one released.
    engines = pair.replayed()[:2]
    for engine in engines:
        # From the row after the last on: no row is sampled that need not be.
        for _ in engine.rows(first=plan.rows):
            pass
    found, together = [], np.zeros(2)
    for part in plan.parts:
        one, other = (part.vector(engine.beside.arrays[part.name])[None] for engine in engines)
        moved, rounding = (float(value[0]) for value in distances(one, other, 1.0, "l2"))
        found.append(QuerySensitivity(part.words, pair.factor * part.bound, moved, rounding))
        together += np.square([moved, rounding]) / (part.noise_std / plan.growth) ** 2
    moved, rounding = np.sqrt(together)
    whole = QuerySensitivity("all parts", pair.factor / plan.noise_multiplier, float(moved), float(rounding))
    return [*found, whole]


def sums_tests(plan: SumPlan, released: Any) -> list[NoiseTest]:
    """Return the tests of a release of nothing but parts: a design with other arrays must test those."""
    if len(plan.parts) < len(plan.arrays):
        raise InvalidInput("design", plan.design, "one whose beside_tests make again what follows from its parts")
    return part_tests(plan, released)


def part_tests(plan: SumPlan, released: Any) -> list[NoiseTest]:
    """Test the noise in each part; each was released once, so signals hide more than in rows."""
    tests: list[NoiseTest] = []
    for part in plan.parts:
        values = released.arrays[part.name]
        check_grid(f"released {part.words}", values, part.unit, part.noise_std)
        made = _symmetric_tests(part, values) if part.symmetric else _vector_tests(part, values)
        tests += [replace(one, about=f"the {part.words}") if one.name.startswith("noise") else one for one in made]
    return tests


def _vector_tests(part: Part, values: NDArray[np.float32]) -> Iterator[NoiseTest]:
    scaled, half = values.astype(np.float64) / part.noise_std, part.unit / part.noise_std / 2
    yield energy_test(f"noise of the {part.words}", np.square(scaled).sum(), scaled.size, half * math.sqrt(scaled.size))
    if scaled.ndim > 1:
        # The sum over classes shows best what they share. A stack has sums of its own each.
        over_classes = scaled.sum(axis=-1).ravel() / math.sqrt(scaled.shape[-1])
        spread = half * math.sqrt(scaled.size) + ULP * float(np.linalg.norm(scaled))
        name = f"noise of the {part.words} summed over classes"
        yield energy_test(name, np.square(over_classes).sum(), len(over_classes), spread)
    each = scaled if scaled.ndim == 1 else np.swapaxes(scaled, -1, -2).reshape(-1, scaled.shape[-2])
    yield from _small_values_tests(part, each, half)


def _symmetric_tests(part: Part, released: NDArray[np.float32]) -> Iterator[NoiseTest]:
    """Yield tests of symmetric matrices, one or (k, d, d)."""
    dim, half = released.shape[-1], part.unit / part.noise_std / math.sqrt(2)
    energies: list[float] = []
    triangles: list[NDArray[np.float32]] = []
    for matrix in released.reshape(-1, dim, dim):
        # Entries above the diagonal repeat those below.
        scaled = matrix / np.float32(part.noise_std / math.sqrt(2))
        scaled[np.diag_indices(dim)] /= np.float32(math.sqrt(2))
        energies += [float(np.square(row, dtype=np.float64).sum()) for row in scaled]
        triangles.append(lower_triangle(scaled))
    rounding = 2 * half * math.sqrt(dim)
    yield energy_test(f"noise of each row of the {part.words}", np.array(energies), dim, rounding)
    yield from _small_values_tests(part, np.stack(triangles), half)


def _small_values_tests(part: Part, scaled: NDArray[Any], half: float) -> Iterator[NoiseTest]:
    """Yield tests of all entries, and of those of each class: one class alone may lack noise."""
    yield small_values_test(f"small values of the {part.words}", scaled.ravel(), half)
    if scaled.ndim > 1 and len(scaled) > 1:
        yield small_values_test(f"small values of the {part.words} in each class", scaled, half)


# Eigenvectors have no sign and turn among equal eigenvalues: they are compared as spaces and not one by one.

Reals = NDArray[np.float64]

UP_TO_ROUNDING: Final = ", up to rounding"
"""Ends the name of a test that held, but not bit for bit."""

ROUNDING: Final = 1e-4
"""Largest change by another machine's rounding, as a share of the largest number of its kind.

Measured on OpenBLAS's kernels for five kinds of processors it is a seventh of that at most, digits of a grid apart."""


def eigenvectors(what: str, rows: Reals, matrix: NDArray[Any], rounding: Reals) -> tuple[Reals, Reals]:
    """Return unit vectors of (r, d) ``rows`` and their eigenvalues; raise InvalidInput unless orthogonal."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = rows / np.maximum(lengths, np.finfo(float).tiny)
    agree(f"{what}: their angles", units @ units.T, np.eye(len(units)), rounding[:, None] + rounding)
    images = units @ matrix
    values = np.einsum("ij,ij->i", images, units)
    left = np.linalg.norm(images - values[:, None] * units, axis=1)
    agree(what, left, 0.0, rounding * _norm(matrix))
    return units, np.asarray(values)


def _norm(matrix: NDArray[Any]) -> float:
    """Return the largest eigenvalue's size, from below and closely."""
    vector, size = np.linspace(1.0, 1.001, len(matrix)) / math.sqrt(len(matrix)), 0.0
    for _ in range(30):
        image = matrix @ vector
        size = float(np.linalg.norm(image))
        if not size > 0:
            return 0.0
        vector = image / size
    return size


def agree(what: str, stated: Any, expected: Any, room: Any) -> None:
    """Raise :class:`InvalidInput` unless numbers differ by the tolerance at most."""
    apart = np.abs(np.asarray(stated, np.float64) - expected)
    # NaN compares false: what can't be compared is refused.
    if not (apart <= room + np.finfo(np.float32).tiny).all():
        raise InvalidInput(what, "other numbers", "those that follow from public numbers, up to rounding")
