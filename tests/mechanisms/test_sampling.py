import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privmix.accounting.events import (
    Adjacency,
    Allocated,
    ClusterSampled,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
)
from privmix.errors import InvalidInput
from privmix.mechanisms.membership import (
    RECORD_TILE,
    ROW_TILE,
    ItemGroups,
    Membership,
    bernoulli_positions,
    draw_blocks,
)
from privmix.mechanisms.sampling import (
    AllocationSampling,
    ClasswiseSampling,
    DirichletWeights,
    FixedSizeSampling,
    HierarchicalSampling,
    PoissonSampling,
    Sampler,
)
from privmix.mechanisms.streams import SecretStreams
from tests.refusals import refuses

from .statistics import P_LIMIT, Z_LIMIT, chi_square_p, draw_matrix, proportion_z

Matrix = NDArray[np.bool_]
QUERY = Gaussian(1.3)
ROWS = 20 * ROW_TILE
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 1])
SAMPLERS: list[Sampler] = [
    PoissonSampling(300, 1500, 0.1),
    AllocationSampling(300, 1500, 1),
    AllocationSampling(300, 1500, 70),
    FixedSizeSampling(300, 1500, 20),
    FixedSizeSampling(300, 1500, 20, DirichletWeights(1.0)),
    HierarchicalSampling(300, 1500, 3, 0.4, 0.2),
    ClasswiseSampling(300, 1500, 3, 0.2),
]
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)


def _streams(seed: int = 1) -> SecretStreams:
    return SecretStreams.from_seed(seed)


def _same(one: Membership, other: Membership) -> bool:
    weights = [part.weights for part in (one, other) if part.weights is not None]
    return (
        np.array_equal(one.offsets, other.offsets)
        and np.array_equal(one.indices, other.indices)
        and (not weights or np.array_equal(*weights))
    )


# One plan: the event is that of the law drawn.


@pytest.mark.parametrize("query", [Gaussian(1.3), Laplace(2.0)])
def test_one_plan_events(query: Event) -> None:
    expected: list[tuple[Sampler, Adjacency, Event]] = [
        (PoissonSampling(50, 9, 0.1), Adjacency.ADD_REMOVE, Repeated(PoissonSampled(0.1, query), 9)),
        (AllocationSampling(50, 9, 3), Adjacency.ADD_REMOVE, Repeated(Allocated(3, query), 3)),
        (
            AllocationSampling(50, 9, 4),
            Adjacency.ADD_REMOVE,
            Composed((Repeated(Allocated(2, query), 3), Repeated(Allocated(3, query), 1))),
        ),
        (FixedSizeSampling(50, 9, 4), Adjacency.REPLACE_ONE, Repeated(FixedSizeSampled(50, 4, query), 9)),
        (HierarchicalSampling(50, 9, 5, 0.3, 0.2), Adjacency.ADD_REMOVE, Repeated(ClusterSampled(0.3, 0.2, query), 9)),
        (ClasswiseSampling(50, 9, 4, 0.2), Adjacency.ADD_REMOVE, Repeated(PoissonSampled(0.2, query), 3)),
        (ClasswiseSampling(50, 8, 4, 0.2), Adjacency.ADD_REMOVE, Repeated(PoissonSampled(0.2, query), 2)),
        (ClasswiseSampling(50, 9, 4, 1.0), Adjacency.ADD_REMOVE, Repeated(query, 3)),
        (ClasswiseSampling(50, 2, 4, 1.0), Adjacency.ADD_REMOVE, Repeated(query, 1)),
    ]
    for sampler, adjacency, event in expected:
        assert sampler.event(query) == event
        assert sampler.adjacency is adjacency


def test_one_plan_classwise_count_is_the_most_rows_a_record_can_be_in() -> None:
    for rows, classes in [(9, 4), (8, 4), (2, 4), (1500, 7)]:
        labels = np.arange(20) % classes
        matrix = draw_matrix(ClasswiseSampling(20, rows, classes, 1.0), _streams(), labels)
        event = ClasswiseSampling(20, rows, classes, 1.0).event(QUERY)
        assert isinstance(event, Repeated)
        assert matrix.sum(axis=0).max() == event.count


# Tiles: membership depends on key, design and tile only.


@every_sampler
def test_tiles_are_the_same_in_any_order_and_differ_from_each_other(sampler: Sampler) -> None:
    labels = np.arange(300) % 3
    first, second = (sampler.draw(_streams(), tile, 0, labels) for tile in (0, 1))
    other = _streams()
    assert _same(sampler.draw(other, 1, 0, labels), second)
    assert _same(sampler.draw(other, 0, 0, labels), first)
    assert _same(sampler.draw(other, 1, 0, labels), second)
    assert (first.rows, second.rows) == (ROW_TILE, 1500 - ROW_TILE)
    assert not np.array_equal(first.indices[:100], second.indices[:100])
    assert not np.array_equal(sampler.draw(_streams(2), 0, 0, labels).indices[:100], first.indices[:100])


@every_sampler
def test_tiles_outside_are_refused(sampler: Sampler) -> None:
    assert sampler.row_tiles == 2
    for tiles in [(2, 0), (-1, 0), (0, 1), (0, -1)]:
        with pytest.raises(IndexError, match="outside"):
            sampler.draw(_streams(), *tiles, np.arange(300) % 3)


@pytest.mark.parametrize(
    "sampler",
    [
        PoissonSampling(2 * RECORD_TILE + 5, 40, 0.001),
        AllocationSampling(2 * RECORD_TILE + 5, 40, 3),
        FixedSizeSampling(2 * RECORD_TILE + 5, 40, 64),
        HierarchicalSampling(2 * RECORD_TILE + 5, 40, 2, 0.5, 0.001),
        ClasswiseSampling(2 * RECORD_TILE + 5, 40, 2, 0.001),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_tiles_of_records_are_distinct_and_in_range(sampler: Sampler) -> None:
    sizes = (RECORD_TILE, RECORD_TILE, 5)
    parts = [sampler.draw(_streams(), 0, tile, np.arange(size) % 2) for tile, size in enumerate(sizes)]
    for part, size in zip(parts, sizes, strict=True):
        assert part.rows == 40
        if len(part.indices):
            assert 0 <= part.indices.min() <= part.indices.max() < size
        row = np.repeat(np.arange(40), part.counts)
        assert (np.diff(row * RECORD_TILE + part.indices) > 0).all()
    assert not np.array_equal(parts[0].indices[:50], parts[1].indices[:50])


@every_sampler
def test_no_stream_serves_two_purposes(sampler: Sampler) -> None:
    asked: list[tuple[object, ...]] = []

    class Recording(SecretStreams):
        def _key_of(self, purpose: str, indices: tuple[int, ...]) -> bytes:
            asked.append((purpose, *indices))
            return super()._key_of(purpose, indices)

    sampler.draw(Recording(bytearray(32), insecure_seed=True), 1, 0, np.arange(300) % 3)
    assert len(asked) == len(set(asked)) >= 1


@every_sampler
def test_only_designs_with_classes_look_at_labels(sampler: Sampler) -> None:
    one, other = np.arange(300) % 3, np.arange(300)[::-1] // 100
    alike = _same(sampler.draw(_streams(), 0, 0, one), sampler.draw(_streams(), 0, 0, other))
    assert alike == (not isinstance(sampler, HierarchicalSampling | ClasswiseSampling))


# Poisson.


def _poisson(records: int, rate: float) -> Matrix:
    return draw_matrix(PoissonSampling(records, ROWS, rate), _streams())


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
@pytest.mark.parametrize("rate", [0.004, 0.25])
def test_poisson_rate(rate: float, factor: float, accepted: bool) -> None:
    matrix = _poisson(12, rate * factor)
    assert (abs(proportion_z(matrix.sum(), matrix.size, rate)) < Z_LIMIT) == accepted
    if accepted:
        # Every record by itself: twelve z, each beyond 7 with chance 3e-12.
        assert max(abs(proportion_z(count, ROWS, rate)) for count in matrix.sum(axis=0)) < Z_LIMIT


def test_poisson_inclusions_are_independent() -> None:
    rate = 0.3
    centred = (_poisson(12, rate) - rate) / np.sqrt(rate * (1 - rate))
    covariance = centred.T @ centred / np.sqrt(ROWS)
    # 66 pairs of records, and 12 x 12 pairs from neighbouring rows: z beyond 6 has chance 2e-9 each.
    assert np.abs(covariance[~np.eye(12, dtype=bool)]).max() < 6
    assert np.abs(centred[1:].T @ centred[:-1] / np.sqrt(ROWS)).max() < 6


def test_poisson_row_sizes_are_binomial() -> None:
    sizes = np.bincount(_poisson(12, 0.3).sum(axis=1), minlength=13)
    assert chi_square_p(sizes, stats.binom(12, 0.3).pmf(np.arange(13))) > P_LIMIT


def test_poisson_rate_one_is_everyone_and_rows_may_be_empty() -> None:
    assert draw_matrix(PoissonSampling(7, 5, 1.0), _streams()).all()
    membership = PoissonSampling(3, 100, 0.01).draw(_streams(), 0, 0)
    assert membership.rows == 100
    assert (membership.counts == 0).any()


# Allocation.


def _places(matrix: Matrix, sampler: AllocationSampling) -> NDArray[np.int64]:
    """(blocks, records) in which row of each block a record is; fails unless it is in exactly one."""
    starts = [sampler.block_start(block) for block in range(sampler.rows_each + 1)]
    assert (np.add.reduceat(matrix.astype(np.int64), starts[:-1], axis=0) == 1).all()
    rows = np.nonzero(matrix.T)[1].reshape(sampler.records, sampler.rows_each).T
    return np.asarray(rows - np.array(starts[:-1])[:, None])


def _is_uniform(places: NDArray[np.int64], size: int) -> bool:
    return chi_square_p(np.bincount(places.ravel(), minlength=size), np.full(size, 1 / size)) > P_LIMIT


def test_allocation_is_to_one_row_of_every_block_uniformly_and_independently() -> None:
    sampler = AllocationSampling(600, 4 * ROW_TILE, 512)
    places = _places(draw_matrix(sampler, _streams()), sampler)
    assert _is_uniform(places, 8)
    # Pairs of records in one block, and of blocks of one record.
    assert _is_uniform(places[:, ::2] * 8 + places[:, 1::2], 64)
    assert _is_uniform(places[::2] * 8 + places[1::2], 64)


def test_allocation_to_unequal_blocks_and_across_row_tiles() -> None:
    for rows, rows_each in ((5000, 3), (3000, 1), (1500, 1499), (1100, 1100)):
        sampler = AllocationSampling(40, rows, rows_each)
        sizes = np.diff([sampler.block_start(block) for block in range(rows_each + 1)])
        assert sizes.sum() == rows
        assert sizes.max() - sizes.min() <= 1
        places = _places(draw_matrix(sampler, _streams()), sampler)
        assert (places < sizes[:, None]).all()


def test_allocation_bugs_are_caught() -> None:
    sampler = AllocationSampling(600, 2 * ROW_TILE, 256)
    honest = draw_matrix(sampler, _streams())
    # In two rows of a block; in none; and not uniformly: a generator's numbers modulo the size are not.
    for value in (True, False):
        wrong = honest.copy()
        wrong[np.flatnonzero(honest[:8, 0] != value)[0], 0] = value
        with pytest.raises(AssertionError):
            _places(wrong, sampler)
    generator = np.random.default_rng(0)
    assert _is_uniform(generator.integers(8, size=153_600), 8)
    assert not _is_uniform(generator.integers(2**5 + 3, size=153_600) % 8, 8)


# Fixed size.


def _subset_counts(matrix: Matrix, size: int) -> NDArray[np.int64]:
    codes = matrix @ (1 << np.arange(matrix.shape[1]))
    subsets = [sum(1 << i for i in chosen) for chosen in itertools.combinations(range(matrix.shape[1]), size)]
    counts = np.array([(codes == code).sum() for code in subsets])
    assert counts.sum() == len(matrix)
    return counts


@pytest.mark.parametrize(("records", "size"), [(5, 1), (5, 2), (6, 3), (5, 3), (5, 4)])
def test_fixed_size_is_uniform_over_subsets(records: int, size: int) -> None:
    counts = _subset_counts(draw_matrix(FixedSizeSampling(records, ROWS, size), _streams()), size)
    assert chi_square_p(counts, np.full(len(counts), 1 / len(counts))) > P_LIMIT


def test_fixed_size_subset_test_rejects_a_skewed_sampler() -> None:
    # Drawing with replacement and filling repeats up with the lowest free record is the tempting wrong way.
    generator, matrix = np.random.default_rng(0), np.zeros((ROWS, 5), bool)
    for row in matrix:
        row[generator.integers(5, size=2)] = True
        row[np.flatnonzero(~row)[: 2 - row.sum()]] = True
    assert chi_square_p(_subset_counts(matrix, 2), np.full(10, 0.1)) < P_LIMIT


@pytest.mark.parametrize("size", [1, 64, 150, 151, 299, 300])
def test_fixed_size_rows_have_that_size(size: int) -> None:
    assert (draw_matrix(FixedSizeSampling(300, 1100, size), _streams()).sum(axis=1) == size).all()


def test_fixed_size_rows_are_cut_to_the_record_tiles() -> None:
    records = RECORD_TILE + 30_000
    sampler = FixedSizeSampling(records, 600, 50, DirichletWeights(1.0, bits=20))
    first, second = (sampler.draw(_streams(), 0, tile) for tile in (0, 1))
    assert (first.counts + second.counts == 50).all()
    assert abs(proportion_z(len(second.indices), 600 * 50, 30_000 / records)) < Z_LIMIT
    assert first.weights is not None
    assert second.weights is not None
    row_totals = sum(
        np.bincount(np.repeat(np.arange(600), part.counts), weights=part.weights, minlength=600)
        for part in (first, second)
    )
    # The weights of a row, over all its tiles, are those of one Dirichlet draw: they sum to 1 less rounding.
    assert np.all((row_totals <= 1) & (row_totals > 1 - 50 * 2.0**-20))


# Hierarchical.


def _hierarchical(class_rate: float, record_rate: float) -> Matrix:
    sampler = HierarchicalSampling(len(LABELS), ROWS, 3, class_rate, record_rate)
    return draw_matrix(sampler, _streams(), LABELS)


@pytest.mark.parametrize(
    ("class_factor", "record_factor", "accepted"),
    [(1.0, 1.0, True), (2 / 3, 1.0, False), (3 / 2, 1.0, False), (2 / 3, 3 / 2, False), (3 / 2, 2 / 3, False)],
)
def test_hierarchical_single_and_joint_inclusion(class_factor: float, record_factor: float, accepted: bool) -> None:
    # The last two wrong samplers have the right rate of each record and only the wrong dependence.
    p1, p2 = 0.4, 0.5
    matrix = _hierarchical(p1 * class_factor, p2 * record_factor).astype(np.float64)
    joint = matrix.T @ matrix
    expected = np.where(LABELS[:, None] == LABELS, p1 * p2**2, (p1 * p2) ** 2)
    np.fill_diagonal(expected, p1 * p2)
    # 78 statistics: each beyond 6 with chance 2e-9.
    z = (joint - ROWS * expected) / np.sqrt(ROWS * expected * (1 - expected))
    assert (np.abs(z).max() < 6) == accepted


def test_hierarchical_patterns_within_a_class() -> None:
    # All 2^4 patterns of class 1's four records, by chi-square at 1e-11.
    patterns = _hierarchical(0.6, 0.4)[:, LABELS == 1] @ (1 << np.arange(4))
    sizes = np.array([bin(pattern).count("1") for pattern in range(16)])
    masses = 0.6 * 0.4**sizes * 0.6 ** (4 - sizes) + 0.4 * (sizes == 0)
    assert chi_square_p(np.bincount(patterns, minlength=16), masses) > P_LIMIT


def test_hierarchical_class_bits_hold_in_all_record_tiles() -> None:
    sampler = HierarchicalSampling(RECORD_TILE + 9, 60, 3, 0.5, 1.0)
    far = sampler.draw(_streams(), 0, 1, np.arange(9) % 3)
    near = sampler.draw(_streams(), 0, 0, np.where(np.arange(RECORD_TILE) < 9, np.arange(RECORD_TILE) % 3, 2))
    far_rows = [set(row.tolist()) for row in np.split(far.indices, far.offsets[1:-1])]
    near_rows = [set(row[:9][row[:9] < 9].tolist()) for row in np.split(near.indices, near.offsets[1:-1])]
    assert far_rows == near_rows
    assert len({frozenset(row) for row in far_rows}) == 8


# Class-wise.


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_classwise_rows_hold_their_own_class_at_the_rate(factor: float, accepted: bool) -> None:
    rows = 5 * ROW_TILE
    matrix = draw_matrix(ClasswiseSampling(len(LABELS), rows, 3, 0.3 * factor), _streams(), LABELS)
    own = (np.arange(rows) % 3)[:, None] == LABELS
    assert not matrix[~own].any()
    assert (abs(proportion_z(matrix.sum(), own.sum(), 0.3)) < Z_LIMIT) == accepted
    if accepted:
        sizes = np.bincount(matrix[2::3].sum(axis=1), minlength=4)
        assert chi_square_p(sizes, stats.binom(3, 0.3).pmf(np.arange(4))) > P_LIMIT


def test_classwise_full_batch_is_the_whole_class_and_a_missing_class_an_empty_row() -> None:
    labels = np.array([3, 0, 0, 3])
    membership = ClasswiseSampling(4, 5, 4, 1.0).draw(_streams(), 0, 0, labels)
    rows = [row.tolist() for row in np.split(membership.indices, membership.offsets[1:-1])]
    assert rows == [[1, 2], [], [], [0, 3], [1, 2]]


# Bad input.


def test_impossible_sizes_are_refused() -> None:
    for field, make in [
        ("records", lambda: PoissonSampling(0, 9, 0.5)),
        ("rows", lambda: PoissonSampling(9, 0, 0.5)),
        ("rows_each", lambda: AllocationSampling(9, 9, 10)),
        ("rows_each", lambda: AllocationSampling(9, 9, 0)),
        ("sample_size", lambda: FixedSizeSampling(9, 9, 10)),
        ("sample_size", lambda: FixedSizeSampling(9, 9, 0)),
        ("classes", lambda: HierarchicalSampling(9, 9, 0, 0.5, 0.5)),
        ("classes", lambda: ClasswiseSampling(9, 9, 0, 0.5)),
        ("alpha", lambda: DirichletWeights(0.0)),
    ]:
        with pytest.raises(InvalidInput, match=field):
            make()


@pytest.mark.parametrize("sampler", [HierarchicalSampling(4, 9, 3, 0.5, 0.5), ClasswiseSampling(4, 9, 3, 0.5)])
def test_bad_labels_are_refused_and_not_shown(sampler: Sampler) -> None:
    for labels in (None, np.arange(3), np.array([0.0, 1.0, 2.0, 0.0])):
        with refuses("labels"):
            sampler.draw(_streams(), 0, 0, labels)  # type: ignore[arg-type]
    for private in (77, -77):
        with refuses("labels") as caught:
            sampler.draw(_streams(), 0, 0, np.array([0, 1, private, 2]))
        assert "77" not in str(caught.value)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, np.nan, np.inf])
def test_rates_outside_the_unit_interval_are_refused(rate: float) -> None:
    for field, make in [
        ("sampling_rate", lambda: PoissonSampling(9, 9, rate)),
        ("class_rate", lambda: HierarchicalSampling(9, 9, 3, rate, 0.5)),
        ("record_rate", lambda: HierarchicalSampling(9, 9, 3, 0.5, rate)),
        ("sampling_rate", lambda: ClasswiseSampling(9, 9, 3, rate)),
    ]:
        with pytest.raises(InvalidInput, match=field):
            make()


# What samplers draw with.


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.3, 0.7, 0.999])
def test_number_of_heads_and_gaps(rate: float) -> None:
    cells = int(50_000 / rate)
    heads = bernoulli_positions(_streams(5).generator("bernoulli test"), cells, rate)
    assert abs(proportion_z(len(heads), cells, rate)) < Z_LIMIT
    gaps = np.diff(heads, prepend=-1)
    assert gaps.min() >= 1
    assert heads[-1] < cells
    # Chi-square at 1e-11 of the gaps against the geometric law, in cells of about equal probability.
    edges = np.unique(stats.geom(rate).ppf(np.linspace(0, 1, 12)[1:-1]))
    observed = np.diff(np.searchsorted(np.sort(gaps), edges, side="right"), prepend=0, append=len(gaps))
    if len(edges) > 1:
        masses = np.diff(stats.geom(rate).cdf(edges), prepend=0, append=1)
        assert chi_square_p(observed, masses) > P_LIMIT


def test_every_cell_is_as_likely_including_the_first_and_last() -> None:
    # 10 cells, 20,000 rounds: ten binomial z below 7, and the law of every one of the 2^10 patterns' sizes.
    generator, counts, sizes = _streams(5).generator("bernoulli test"), np.zeros(10), np.zeros(11, np.int64)
    for _ in range(20_000):
        heads = bernoulli_positions(generator, 10, 0.4)
        counts[heads] += 1
        sizes[len(heads)] += 1
    assert max(abs(proportion_z(count, 20_000, 0.4)) for count in counts) < Z_LIMIT
    assert chi_square_p(sizes, stats.binom(10, 0.4).pmf(np.arange(11))) > P_LIMIT


def test_cost_is_that_of_the_heads() -> None:
    # 2^50 cells would never finish, nor fit, if each cost anything. 32 heads are expected: outside 5..80 with
    # chance < 1e-7.
    assert 5 <= len(bernoulli_positions(_streams(5).generator("bernoulli test"), 2**50, 2.0**-45)) <= 80


@pytest.mark.parametrize("cells", [0, 1, 5])
def test_rate_one_takes_all_and_no_cells_give_none(cells: int) -> None:
    assert bernoulli_positions(_streams(5).generator("bernoulli test"), cells, 1.0).tolist() == list(range(cells))
    assert len(bernoulli_positions(_streams(5).generator("bernoulli test"), cells, 1e-300)) == 0


def test_a_short_first_guess_is_continued() -> None:
    class Stingy(np.random.Generator):
        """Gives exponentials 1000 times too small: the first batch of gaps then ends far before the last cell."""

        def standard_exponential(self, size: int) -> np.ndarray:  # type: ignore[override]
            return super().standard_exponential(size) / 1000

    heads = bernoulli_positions(Stingy(np.random.PCG64(0)), 20_000, 0.05)
    assert heads[-1] > 19_900
    assert (np.diff(heads) >= 1).all()


def test_blocks_fill_exactly_the_cells_of_matching_groups() -> None:
    labels = np.array([2, 0, 2, 1, 0, 2])
    # Row 0 is in groups 0 and 2, row 1 in none, row 2 in group 1 and row 3 in an extra group without records.
    row_groups = ItemGroups(np.array([0, 2, 0, 3]), np.array([0, 1, 2, 3, 4]))
    generator, groups = _streams(5).generator("blocks"), ItemGroups.from_labels(labels, 4)
    membership = draw_blocks(generator, 4, row_groups, groups, 1.0)
    expected = [[0, 1, 2, 4, 5], [], [3], []]
    assert [row.tolist() for row in np.split(membership.indices, membership.offsets[1:-1])] == expected
