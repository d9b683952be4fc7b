"""Bounds on poisoning, held against mechanisms whose law is known at every dataset."""

from __future__ import annotations

import itertools
import math

import pytest

from privmix.accounting import (
    Adjacency,
    poisoning_cost_bound,
    poisoning_gain_bound,
    poisoning_success_bound,
)
from privmix.errors import InvalidInput

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


def worst_mechanism(epsilon: float, delta: float, start: float, steps: int) -> list[float]:
    """Probabilities that a mechanism says yes at scores 0 to ``steps``, growing as fast as the guarantee allows.

    The score is a sum over records of -1 or +1, so that adding or removing a record moves it by one and changing a
    record by two; under replace-one a record counts 0 or 1.
    """
    law = [start]
    for _ in range(steps):
        law.append(math.exp(epsilon) * law[-1] + delta)
    for one, other in itertools.pairwise(law):
        # Each answer, in each direction: this mechanism has the guarantee, and it is as bad as one can be.
        for a, b in ((one, other), (other, one), (1 - one, 1 - other), (1 - other, 1 - one)):
            assert a <= math.exp(epsilon) * b + delta + 1e-12
    return law


CASES = [
    (ADD_REMOVE, "changed", 2),
    (ADD_REMOVE, "inserted", 1),
    (ADD_REMOVE, "deleted", 1),
    (REPLACE_ONE, "changed", 1),
]


@pytest.mark.parametrize(("adjacency", "poisoning", "steps"), CASES)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.0), (0.2, 0.01), (1e-7, 0.02)])
def test_bounds_are_attained_by_a_mechanism_with_the_guarantee(
    adjacency: Adjacency, poisoning: str, steps: int, epsilon: float, delta: float
) -> None:
    poisoned, most = 3, 5.0
    law = worst_mechanism(epsilon, delta, 0.05, steps * poisoned)
    how = {"adjacency": adjacency, "poisoning": poisoning}
    clean, dirty = most * law[0], most * law[-1]
    assert poisoning_gain_bound(epsilon, delta, poisoned, clean, most, **how) == pytest.approx(dirty, rel=1e-9)  # type: ignore[arg-type]
    assert poisoning_cost_bound(epsilon, delta, poisoned, dirty, most, **how) == pytest.approx(clean, rel=1e-9)  # type: ignore[arg-type]


def test_changing_records_under_add_remove_beats_the_bound_for_inserting_them() -> None:
    """What the bound for l steps claims of l changed records is false."""
    law = worst_mechanism(0.3, 0.0, 0.05, 4)
    claimed = poisoning_cost_bound(0.3, 0.0, 2, law[4], 1.0, poisoning="inserted")
    assert law[0] < claimed
    assert poisoning_cost_bound(0.3, 0.0, 2, law[4], 1.0) <= law[0] + 1e-12


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 3.0, 600.0, 800.0])
def test_bounds_stay_in_range_and_poisoning_nothing_changes_nothing(epsilon: float) -> None:
    assert poisoning_cost_bound(epsilon, 1e-5, 0, 0.4, 1.0) == 0.4
    assert poisoning_gain_bound(epsilon, 1e-5, 0, 0.4, 1.0) == 0.4
    assert 0 <= poisoning_cost_bound(epsilon, 1e-5, 50, 0.4, 1.0) <= 0.4
    assert 0.4 <= poisoning_gain_bound(epsilon, 1e-5, 50, 0.4, 1.0) <= 1
    assert poisoning_gain_bound(epsilon, 0.0, 50, 0.0, 1.0) == 0
    assert poisoning_cost_bound(epsilon, 1e-3, 2, 0.8, 1.0) <= poisoning_cost_bound(epsilon, 0.0, 2, 0.8, 1.0)


def test_success_is_bounded_from_both_sides() -> None:
    """Rare successes are bounded by the gain, likely ones by what is left of the cost."""
    assert poisoning_success_bound(0.5, 0.0, 1, 0.01) == pytest.approx(0.01 * math.exp(1.0))
    assert poisoning_success_bound(0.5, 0.0, 1, 0.9) == pytest.approx(1 - 0.1 * math.exp(-1.0))
    assert poisoning_success_bound(2.0, 0.0, 1, 0.9) < 1


def test_bad_input_is_refused() -> None:
    for field, call in {
        "poisoning": lambda: poisoning_cost_bound(1.0, 0.0, 1, 1.0, 1.0, adjacency=REPLACE_ONE, poisoning="inserted"),
        "epsilon": lambda: poisoning_cost_bound(math.inf, 0.0, 1, 1.0, 1.0),
        "poisoned": lambda: poisoning_gain_bound(1.0, 0.0, -1, 1.0, 1.0),
        "clean_gain": lambda: poisoning_gain_bound(1.0, 0.0, 1, 2.0, 1.0),
        "clean_success": lambda: poisoning_success_bound(1.0, 0.0, 1, 1.5),
    }.items():
        with pytest.raises(InvalidInput, match=field):
            call()
    with pytest.raises(InvalidInput, match="changed, inserted, deleted"):
        poisoning_success_bound(1.0, 0.0, 1, 0.5, poisoning="renamed")
