from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from privmix.mechanisms.membership import ItemGroups, bernoulli_positions, draw_blocks
from privmix.mechanisms.streams import SecretStreams

from .statistics import P_LIMIT, Z_LIMIT, chi_square_p, proportion_z


def _generator() -> np.random.Generator:
    return SecretStreams.from_seed(5).generator("bernoulli test")


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.3, 0.7, 0.999])
def test_number_of_heads_and_gaps(rate: float) -> None:
    cells = int(50_000 / rate)
    heads = bernoulli_positions(_generator(), cells, rate)
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
    generator, counts, sizes = _generator(), np.zeros(10), np.zeros(11, np.int64)
    for _ in range(20_000):
        heads = bernoulli_positions(generator, 10, 0.4)
        counts[heads] += 1
        sizes[len(heads)] += 1
    assert max(abs(proportion_z(count, 20_000, 0.4)) for count in counts) < Z_LIMIT
    assert chi_square_p(sizes, stats.binom(10, 0.4).pmf(np.arange(11))) > P_LIMIT


def test_cost_is_that_of_the_heads() -> None:
    # 2^50 cells would never finish, nor fit, if each cost anything. 32 heads are expected: outside 5..80 with
    # chance < 1e-7.
    assert 5 <= len(bernoulli_positions(_generator(), 2**50, 2.0**-45)) <= 80


@pytest.mark.parametrize("cells", [0, 1, 5])
def test_rate_one_takes_all_and_no_cells_give_none(cells: int) -> None:
    assert bernoulli_positions(_generator(), cells, 1.0).tolist() == list(range(cells))
    assert len(bernoulli_positions(_generator(), cells, 1e-300)) == 0


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
    membership = draw_blocks(_generator(), 4, row_groups, ItemGroups.from_labels(labels, 4), 1.0)
    expected = [[0, 1, 2, 4, 5], [], [3], []]
    assert [row.tolist() for row in np.split(membership.indices, membership.offsets[1:-1])] == expected
