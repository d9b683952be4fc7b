"""Running sums equal integer arithmetic, whatever the cuts, and their type grows before it would round."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from privmix.mechanisms.membership import Membership
from privmix.mechanisms.mixing import LatticeRecords, RowSums, sum_type
from tests.refusals import refuses

from .naive import naive_sum_rows


def some_members(rng: np.random.Generator, rows: int, records: int, weighted: bool) -> Membership:
    counts = rng.integers(0, records + 1, rows)
    indices = [np.sort(rng.choice(records, count, replace=False)) for count in counts]
    weights = rng.integers(0, 5, counts.sum()) / 16 if weighted else None
    return Membership(
        np.concatenate([[0], np.cumsum(counts)]), np.concatenate([np.zeros(0, np.int64), *indices]), weights
    )


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
        labels, members = rng.integers(0, classes, size), some_members(rng, rows, size, weighted)
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


def test_a_guess_sets_the_type_and_changes_no_value() -> None:
    assert RowSums(1, 1, 2, largest=2**15, draws_expected=100).x.dtype == np.float32
    assert RowSums(1, 1, 2, largest=2**15, draws_expected=1_000).x.dtype == np.int32
    assert RowSums(1, 1, 2, largest=2**15, draws_expected=100_000).x.dtype == np.float64


def test_sums_beyond_every_type_are_refused() -> None:
    assert [sum_type(most, False) for most in (2**24 - 1, 2**24, 2**31, 2**53 - 1)] == [
        np.float32,
        np.int32,
        np.float64,
        np.float64,
    ]
    with refuses("lattice sums"):
        sum_type(2**53, False)


def test_private_sums_do_not_print() -> None:
    assert repr(RowSums(2, 1, 2, largest=3)) == "<RowSums of 2 rows>"
