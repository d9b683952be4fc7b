"""How far persons' contributions err as samples do: by what engines make of the records that persons have."""

from math import comb

import numpy as np
import pytest

from privmix.learning.holdings import ONE_EACH, Holdings
from privmix.mechanisms.persons import RecordWeights
from tests.refusals import refuses


@pytest.mark.parametrize("counts", [(1,), (5,), (1, 1, 20), (2, 3, 7, 40)])
@pytest.mark.parametrize("most", [1, 3, 50])
def test_error_is_that_of_the_sum_that_engines_make(counts: tuple[int, ...], most: int) -> None:
    """What records weigh is the engine's: their mean's variance is the sum of squares over the square of the sum."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    weights = RecordWeights(starts, np.zeros(starts[-1], np.int64), most).records
    found = Holdings(counts)
    assert found.weight(most) == pytest.approx(weights.sum() / len(counts))
    # Of persons who weigh n together; here n is what these few do.
    assert found.error(most) == pytest.approx((weights**2).sum() / weights.sum() ** 2 * weights.sum())


def test_error_of_one_class_is_the_mean_over_those_of_a_persons_class() -> None:
    counts, share = (1, 4, 9), 0.3
    expected = np.mean(
        [
            sum(comb(k - 1, b) * share**b * (1 - share) ** (k - 1 - b) / (1 + b) for b in range(k))
            for k in counts
        ]
    )  # fmt: skip
    assert Holdings(counts).class_errors(np.array([share, 1 - share]))[0] == pytest.approx(expected)


def test_more_records_never_err_more() -> None:
    errors = [Holdings((count, 2 * count)).error() for count in (1, 2, 5, 50)]
    assert errors == sorted(errors, reverse=True)
    assert ONE_EACH.error() == ONE_EACH.weight() == ONE_EACH.mean == 1.0
    assert ONE_EACH.class_errors(np.array([0.2, 0.8])) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("said", ["", "a", "1,,2", "0", "1.5", "-3", 0, 1.5, True, [], [1, 0], [1] * 101, [2**32]])
def test_what_is_no_number_of_records_is_refused(said: object) -> None:
    with refuses("records_per_person"):
        Holdings.of(said)


def test_quantiles_are_said_in_any_order_and_form() -> None:
    assert Holdings.of(" 20, 1,5").counts == Holdings.of((5, 20, 1)).counts == Holdings.of(np.array([1, 5, 20])).counts
    assert Holdings.of(7) == Holdings.of("7") == Holdings((7,))
