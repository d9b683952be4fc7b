import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.mechanisms.membership import Membership, dirichlet_weights, offsets_of
from privmix.mechanisms.mixing import LatticeRecords, RowSums, add_rows, sum_rows, sum_type
from privmix.mechanisms.streams import SecretStreams
from tests.refusals import refuses

from .statistics import Z_LIMIT

# Weights are multiples of 2 ** -16 at the finest.
_BITS = 16


def random_membership(
    generator: np.random.Generator, rows: int, records: int, rate: float, weighted: bool = False, grid: int = 2**10
) -> Membership:
    """Each record in each row at the rate; weights are multiples of 1 / ``grid``."""
    matrix = generator.random((rows, records)) < rate
    indices = np.nonzero(matrix)[1]
    weights = generator.integers(0, grid, len(indices)) / grid if weighted else None
    return Membership(offsets_of(matrix.sum(axis=1)), indices, weights)


def naive_sum_rows(lattice_x: NDArray[Any], membership: Membership) -> NDArray[np.float64]:
    """What ``sum_rows`` computes; ``lattice_x`` is what ``LatticeRecords.of`` takes."""
    bits = 0 if membership.weights is None else _BITS
    sums = np.zeros((membership.rows, lattice_x.shape[1]), np.int64)
    for row in range(membership.rows):
        for draw in range(membership.offsets[row], membership.offsets[row + 1]):
            weight = 1.0 if membership.weights is None else membership.weights[draw] * 2.0**bits
            assert weight == int(weight)
            sums[row] += int(weight) * lattice_x[membership.indices[draw]].astype(np.int64)
    return np.asarray(sums * 2.0**-bits, np.float64)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 9),
    records=st.integers(1, 30),
    dim=st.integers(1, 70),
    rate=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    weighted=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64, np.int32, np.int64]),
    magnitude=st.sampled_from([1, 2**10, 2**23]),
)
def test_exact(
    seed: int, rows: int, records: int, dim: int, rate: float, weighted: bool, dtype: type, magnitude: int
) -> None:
    generator = np.random.default_rng(seed)
    x = generator.integers(-magnitude, magnitude + 1, (records, dim)).astype(dtype)
    membership = random_membership(generator, rows, records, rate, weighted)
    np.testing.assert_array_equal(sum_rows(LatticeRecords.of(x), membership), naive_sum_rows(x, membership))


def test_exact_type_switches_where_float32_would_round() -> None:
    three = Membership(np.array([0, 3]), np.array([0, 1, 2]))
    small = np.array([[2.0**22], [2.0**22], [1.0]], np.float32)
    assert sum_rows(LatticeRecords.of(small), three).dtype == np.float32
    large = np.array([[2.0**23 + 1], [2.0**23], [2.0**23]], np.float32)
    assert sum_rows(LatticeRecords.of(large), three).dtype == np.float64
    assert sum_rows(LatticeRecords.of(large), three).item() == 3 * 2**23 + 1
    # Zero rows above the limit in sign only: the bound takes magnitudes.
    assert sum_rows(LatticeRecords.of(-large), three).item() == -(3 * 2**23 + 1)


@pytest.mark.parametrize("bits", [8, 15, 22])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.int32, np.float64])
def test_sums_are_the_same_to_the_bit_with_and_without_torch(
    monkeypatch: pytest.MonkeyPatch, bits: int, weighted: bool, kind: type
) -> None:
    pytest.importorskip("torch")
    generator = np.random.default_rng(bits)
    records = LatticeRecords.of(generator.integers(-(2**bits), 2**bits, (900, 70)))
    members = random_membership(generator, 30, 900, 0.05 if kind is np.float32 else 0.4, weighted)
    sums = {}
    for imported in (True, False):
        sums[imported] = np.full((30, 70), 3, np.float64 if weighted or bits > 15 else kind)
        with monkeypatch.context() as without:
            if not imported:
                without.delitem(sys.modules, "torch")
            add_rows(sums[imported], records, members)
    assert sums[True].tobytes() == sums[False].tobytes()
    assert np.ptp(sums[True]) > 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), rate=st.sampled_from([0.0, 0.05, 0.5, 1.0]), bits=st.integers(15, 22))
def test_exact_where_a_row_is_cut_into_several_bags(seed: int, rate: float, bits: int) -> None:
    generator = np.random.default_rng(seed)
    x = generator.integers(2**bits - 3, 2**bits, (1_200, 3)) * generator.choice([-1, 1], (1_200, 1))
    membership = random_membership(generator, 4, 1_200, rate)
    np.testing.assert_array_equal(sum_rows(LatticeRecords.of(x), membership), naive_sum_rows(x, membership))


def test_sums_beyond_exact_integers_raise_and_show_nothing() -> None:
    two = Membership(np.array([0, 2]), np.array([0, 1]))
    x = np.full((2, 1), 2.0**52)
    with pytest.raises(InvalidInput, match="hidden"):
        sum_rows(LatticeRecords.of(x), two)
    fine_weights = Membership(np.array([0, 1]), np.array([0]), np.array([2.0**-30]))
    with pytest.raises(InvalidInput, match="hidden"):
        sum_rows(LatticeRecords.of(np.full((1, 1), 2.0**53)), fine_weights)
    with pytest.raises(InvalidInput, match="hidden"):
        sum_rows(LatticeRecords.of(np.full((1, 1), np.nan)), fine_weights)


def test_exact_at_the_ends_of_a_small_integer_type() -> None:
    # -32768 has no positive counterpart in int16: magnitudes must not be taken in that type.
    ends = np.array([[-(2**15)], [2**15 - 1]], np.int16)
    many = Membership(np.array([0, 600, 601]), np.array([0] * 600 + [1]))
    assert sum_rows(LatticeRecords.of(ends), many).tolist() == [[-600 * 2**15], [2**15 - 1]]
    assert sum_rows(LatticeRecords.of(ends), many).dtype == np.float64


@pytest.mark.parametrize("entry", [8, -8, np.nan, np.inf])
def test_records_beyond_their_bound_are_refused_unseen(entry: float) -> None:
    records = LatticeRecords.empty(2, 3, largest=7)
    with pytest.raises(InvalidInput, match="hidden"):
        records.fill(0, np.array([[0.0, entry, 1.0]]))
    assert not records.blocks.any()
    assert "8" not in repr(records)


@pytest.mark.parametrize("dim", [1, 63, 64, 65, 130])
def test_records_filled_in_pieces_are_the_records(dim: int) -> None:
    x = np.random.default_rng(0).integers(-7, 8, (9, dim)).astype(np.float64)
    records = LatticeRecords.empty(9, dim, largest=7)
    for start in (4, 0, 8):
        records.fill(start, x[start : start + 4])
    one_each = Membership(np.arange(4), np.arange(3))
    np.testing.assert_array_equal(sum_rows(records.part(slice(3, 9)), one_each), x[3:6])


def test_empty_rows_are_rows() -> None:
    x, membership = np.arange(6.0).reshape(3, 2), Membership(np.array([0, 0, 2, 2]), np.array([0, 2]))
    assert sum_rows(LatticeRecords.of(x), membership).tolist() == [[0, 0], [4, 6], [0, 0]]
    assert repr(membership) == "<Membership of 3 rows>", "it does not show its members"
    none = Membership(np.zeros(4, np.int64), np.zeros(0, np.int64))
    assert sum_rows(LatticeRecords.of(x), none).tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside_the_records_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match="outside the array"):
        sum_rows(LatticeRecords.of(np.ones((3, 2))), Membership(np.array([0, 1]), np.array([index])))


@pytest.mark.parametrize("x", [np.ones(3), np.ones((3, 2), complex), np.array([["a"]])])
def test_other_arrays_are_refused(x: NDArray[Any]) -> None:
    with refuses("lattice records"):
        sum_rows(LatticeRecords.of(x), Membership(np.array([0, 1]), np.array([0])))


@pytest.mark.parametrize(("alpha", "max_weight"), [(0.05, 1.0), (1.0, 0.3), (50.0, 1.0)])
def test_weights_are_bounded_and_on_the_grid(alpha: float, max_weight: float) -> None:
    weights = dirichlet_weights(np.random.default_rng(0), 500, 6, alpha, max_weight, bits=12)
    assert weights.shape == (500, 6)
    assert weights.min() >= 0
    assert weights.max() <= max_weight
    assert weights.sum(axis=1).max() <= 1
    np.testing.assert_array_equal(weights * 2**12, np.floor(weights * 2**12))


@pytest.mark.parametrize(("alpha", "right"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_weights_follow_the_dirichlet_law(alpha: float, right: bool) -> None:
    # Mean 1/k and variance (1/k)(1 - 1/k)/(k + 1) at alpha = 1; z below 7 (3e-12) for the right alpha.
    k, rows = 4, 40_000
    generator = SecretStreams.from_seed(3).generator("weights test")
    weights = dirichlet_weights(generator, rows, k, alpha, 1.0, bits=30)
    mean_z = (weights.mean(axis=0) - 1 / k) / (weights.std(axis=0) / np.sqrt(rows))
    assert np.abs(mean_z).max() < Z_LIMIT
    squares = (weights[:, 0] - 1 / k) ** 2
    expected = (1 / k) * (1 - 1 / k) / (k + 1)
    z = (squares.mean() - expected) / (squares.std() / np.sqrt(rows))
    assert (abs(z) < Z_LIMIT) == right


def test_stacking_puts_rows_below_one_another() -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(-9, 9, (12, 3)).astype(np.float64)
    for weighted in (False, True):
        parts = [random_membership(generator, rows, 12, 0.4, weighted) for rows in (3, 1, 4)]
        stacked = Membership.stack(parts)
        assert stacked.rows == 8
        np.testing.assert_array_equal(
            sum_rows(LatticeRecords.of(x), stacked),
            np.concatenate([sum_rows(LatticeRecords.of(x), part) for part in parts]),
        )
    with pytest.raises(ValueError, match="weighted"):
        Membership.stack([random_membership(generator, 2, 12, 0.4, weighted) for weighted in (False, True)])


@pytest.mark.parametrize(
    ("alpha", "max_weight", "bits", "field"),
    [
        (0, 1, 8, "alpha"),
        (np.inf, 1, 8, "alpha"),
        (1, 0, 8, "max_weight"),
        (1, 1.1, 8, "max_weight"),
        (1, 2.0**-9, 8, "max_weight"),
        (1, 1, 0, "weight bits"),
        (1, 1, 31, "weight bits"),
    ],
)
def test_bad_weight_arguments_are_refused(alpha: float, max_weight: float, bits: int, field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        dirichlet_weights(np.random.default_rng(0), 2, 3, alpha, max_weight, bits)


# Running sums.


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    bits=st.sampled_from([8, 15, 23, 24, 30]),
    weighted=st.booleans(),
    merged=st.booleans(),
)
def test_sums_over_tiles_are_those_of_integers(
    seed: int, sizes: list[int], bits: int, weighted: bool, merged: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows, dim, classes, largest = 5, 3, 4, 2**bits - 1

    def empty() -> RowSums:
        return RowSums(rows, dim, classes, largest=largest, weight_step=1 / 16 if weighted else None)

    total, x, counts = empty(), np.zeros((rows, dim)), np.zeros((rows, classes))
    for size in sizes:
        features = rng.choice([-largest, largest, 1], (size, dim))
        labels, members = rng.integers(0, classes, size), random_membership(rng, rows, size, 0.5, weighted, grid=16)
        x += naive_sum_rows(features, members) * (16 if weighted else 1)
        counts += naive_sum_rows(np.eye(classes)[labels], members) * (16 if weighted else 1)
        records = LatticeRecords.of(np.concatenate([features, np.full((1, dim), largest)]))
        if merged:
            part = empty()
            part.add(0, records, labels, members)
            total.merge(part)
        else:
            total.add(0, records, labels, members)
    np.testing.assert_array_equal(total.x, x)
    np.testing.assert_array_equal(total.counts, counts)
    np.testing.assert_array_equal(total.totals, counts.sum(axis=1))
    assert np.abs(x).max() < {4: 2**31, 8: 2**53}[total.x.itemsize]


def test_types_grow_just_before_they_would_round() -> None:
    """Sums pass 2**24 and 2**31 by one odd unit, which float32 and int32 would lose."""
    largest = 2**23 + 1
    records, labels = LatticeRecords.of(np.full((1, 1), largest)), np.zeros(1, np.int64)
    once = Membership(np.array([0, 1]), np.array([0]))
    sums = RowSums(1, 1, 2, largest=largest)
    kinds = []
    for number in range(1, 301):
        sums.add(0, records, labels, once)
        assert sums.x.item() == number * largest
        kinds.append(sums.x.dtype.type)
    assert list(dict.fromkeys(kinds)) == [np.float32, np.int32, np.float64]
    assert sums.counts.tolist() == [[300, 0]]
    assert repr(sums) == "<RowSums of 1 rows>", "private sums do not print"


def test_a_guess_sets_the_type_and_changes_no_value() -> None:
    assert RowSums(1, 1, 2, largest=2**15, draws_expected=100).x.dtype == np.float32
    assert RowSums(1, 1, 2, largest=2**15, draws_expected=1_000).x.dtype == np.int32
    assert RowSums(1, 1, 2, largest=2**15, draws_expected=100_000).x.dtype == np.float64


def test_sums_beyond_every_type_are_refused() -> None:
    kinds = [sum_type(most, False) for most in (2**24 - 1, 2**24, 2**31, 2**53 - 1)]
    assert kinds == [np.float32, np.int32, np.float64, np.float64]
    with refuses("lattice sums"):
        sum_type(2**53, False)
