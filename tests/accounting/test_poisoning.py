"""Bounds on poisoning, held against mechanisms whose law is known at every dataset."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from privmix.accounting import (
    Adjacency,
    CertifiedLine,
    Composed,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NeighbourCurve,
    PoissonSampled,
    Repeated,
    epsilon_delta_curve,
    poisoning_cost_bound,
    poisoning_gain_bound,
    poisoning_success_bound,
)
from tests.refusals import refuses

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


@pytest.mark.parametrize(
    ("adjacency", "poisoning", "steps"),
    [(ADD_REMOVE, "changed", 2), (ADD_REMOVE, "inserted", 1), (ADD_REMOVE, "deleted", 1), (REPLACE_ONE, "changed", 1)],
)
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


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 3.0, 600.0, 800.0])
def test_bounds_stay_in_range_and_poisoning_nothing_changes_nothing(epsilon: float) -> None:
    assert poisoning_cost_bound(epsilon, 1e-5, 0, 0.4, 1.0) == 0.4
    assert poisoning_gain_bound(epsilon, 1e-5, 0, 0.4, 1.0) == 0.4
    assert 0 <= poisoning_cost_bound(epsilon, 1e-5, 50, 0.4, 1.0) <= 0.4
    assert 0.4 <= poisoning_gain_bound(epsilon, 1e-5, 50, 0.4, 1.0) <= 1
    assert poisoning_gain_bound(epsilon, 0.0, 50, 0.0, 1.0) == 0
    assert poisoning_cost_bound(epsilon, 1e-3, 2, 0.8, 1.0) <= poisoning_cost_bound(epsilon, 0.0, 2, 0.8, 1.0)


def test_equation_4_as_printed_is_violated() -> None:
    """DP-InstaHide's bound for costs that are never positive, against no poisoning and against the worst mechanism."""

    def printed(cost: float, poisoned: int, epsilon: float, delta: float, most: float) -> float:
        slack = most * delta / math.expm1(epsilon)
        return max(math.exp(-poisoned * epsilon) * (cost + slack) + slack, -most)

    assert printed(-1.0, 3, 0.5, 0.0, 1.0) > -1.0  # nobody did anything, and the cost is -1
    law = worst_mechanism(0.3, 0.01, 0.05, 4)
    assert -law[4] < printed(-law[0], 4, 0.3, 0.01, 1.0)
    assert poisoning_gain_bound(0.3, 0.01, 4, law[0], 1.0, poisoning="inserted") == pytest.approx(law[4])


def test_one_guarantee_bounds_rare_and_likely_success_in_one_go() -> None:
    """The worst mechanism grows by the one line of its trade-off curve first and by the other one then."""
    epsilon, delta, law = 0.5, 0.001, [0.05]
    for _ in range(12):
        one = law[-1]
        law.append(min(math.exp(epsilon) * one + delta, 1 - math.exp(-epsilon) * (1 - delta - one)))
    for steps in (1, 3, 4, 5, 12):
        found = poisoning_success_bound(epsilon, delta, steps, law[0], poisoning="inserted")
        gain = poisoning_gain_bound(epsilon, delta, steps, law[0], 1.0, poisoning="inserted")
        cost = poisoning_cost_bound(epsilon, delta, steps, 1 - law[0], 1.0, poisoning="inserted")
        assert found == pytest.approx(law[steps], rel=1e-12)
        assert found <= min(gain, 1 - cost) * (1 + 1e-12)
    assert found < 0.999 * min(gain, 1 - cost)
    assert NeighbourCurve.of_point(epsilon, delta, ADD_REMOVE).success(0.05, 12, "inserted") == pytest.approx(found)


@pytest.mark.parametrize(("poisoning", "moved"), [("inserted", 1), ("deleted", 1), ("changed", 2)])
@pytest.mark.parametrize("clean", [1e-4, 0.05, 0.6])
def test_a_sum_with_gaussian_noise_attains_the_curves_bound(poisoning: str, moved: int, clean: float) -> None:
    """Records count 1, or from -1 to 1 where they are changed: "more than t" then has exactly this probability."""
    curve, mu = NeighbourCurve.of_event(Gaussian(5.0), ADD_REMOVE), 1 / 5.0
    for poisoned in (1, 4, 12):
        real = float(ndtr(ndtri(clean) + moved * mu * poisoned))
        bound = curve.success(clean, poisoned, poisoning)
        assert real <= bound <= min(1.0, 1.005 * real)
        # One record less is not enough: what would forget one is caught.
        assert curve.success(clean, poisoned - 1, poisoning) < real


def test_inserting_and_deleting_have_bounds_of_their_own() -> None:
    """One row that a record seldom joins: its presence shows more than its absence."""
    rate, noise = 0.1, 0.7
    curve = NeighbourCurve.of_event(PoissonSampled(rate, Gaussian(noise)), ADD_REMOVE)
    swapped = NeighbourCurve(ADD_REMOVE, curve.epsilons, curve.by_absence, curve.by_presence)
    caught = 0
    for threshold in np.linspace(-1.0, 2.5, 8):
        absent = float(ndtr(-threshold / noise))
        present = (1 - rate) * absent + rate * float(ndtr((1 - threshold) / noise))
        for how, clean, real in (("inserted", absent, present), ("deleted", 1 - present, 1 - absent)):
            assert real <= curve.success(clean, 1, how) <= min(1.0, 1.01 * real)
            caught += real > swapped.success(clean, 1, how)
    assert caught >= 4


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (Repeated(PoissonSampled(0.01, Gaussian(0.8)), 500), ADD_REMOVE),
        (Composed((Gaussian(8.0), Repeated(PoissonSampled(0.02, Laplace(4.0)), 50))), ADD_REMOVE),
        (Repeated(FixedSizeSampled(1000, 4, Laplace(3.0)), 300), REPLACE_ONE),
    ],
)
def test_the_curve_is_never_worse_than_any_of_its_points(event: object, adjacency: Adjacency) -> None:
    curve = NeighbourCurve.of_event(event, adjacency)  # type: ignore[arg-type]
    for poisoned, clean in ((1, 1e-3), (5, 0.02), (10, 0.3)):
        whole, points = curve.success(clean, poisoned), curve.success_by_points(clean, poisoned)
        assert clean < whole <= points * (1 + 1e-9)
        for epsilon in (0.1, 0.5, 2.0):
            delta = float(epsilon_delta_curve(event, [epsilon], adjacency=adjacency)[0])  # type: ignore[arg-type]
            one = poisoning_success_bound(epsilon, delta, poisoned, clean, adjacency=adjacency)
            assert whole <= one * (1 + 1e-4)
            assert NeighbourCurve.of_point(epsilon, delta, adjacency).success(clean, poisoned) == pytest.approx(one)


def test_bounds_of_curves_are_increasing_and_concave() -> None:
    """Averages over targets are bounded by the bound at the average."""
    curve = NeighbourCurve.of_event(Repeated(PoissonSampled(0.01, Gaussian(0.8)), 500), ADD_REMOVE)
    clean = np.linspace(0, 1, 41)
    found = np.array([curve.success(float(one), 3) for one in clean])
    assert (np.diff(found) >= 0).all()
    assert (np.diff(found, 2) <= 1e-9).all()
    assert (found >= clean).all()


def test_a_line_says_what_it_rests_on_and_rounds_up() -> None:
    curve = NeighbourCurve.of_point(0.5, 0.0, ADD_REMOVE)
    known, measured = (CertifiedLine.of(curve, 0.013, 2, confidence=told) for told in (None, 0.95))
    assert known.success == measured.success == pytest.approx(0.013 * math.exp(2.0))
    assert "2 records changed" in str(known)
    assert "at most 0.09606 (0.013 without)" in str(known)  # 0.096057..., rounded up
    assert "(at most 0.013 without, measured at 95% confidence)" in str(measured)
    assert measured.to_dict()["confidence"] == 0.95
    assert CertifiedLine.of(curve, 0.013, 1, poisoning="inserted").success < known.success


def test_bad_input_is_refused() -> None:
    curve, swapped = NeighbourCurve.of_point(1.0, 0.0, REPLACE_ONE), {"adjacency": REPLACE_ONE, "poisoning": "inserted"}
    calls: list[tuple[str, Callable[[], object]]] = [
        ("poisoning", lambda: curve.success(0.1, 1, "inserted")),
        ("poisoned", lambda: curve.success(0.1, -1)),
        ("clean_success", lambda: curve.success_by_points(1.1, 1)),
        ("delta", lambda: NeighbourCurve.of_point(1.0, 2.0, REPLACE_ONE)),
        ("confidence", lambda: CertifiedLine.of(curve, 0.1, 1, confidence=1.0)),
        ("poisoning", lambda: poisoning_cost_bound(1.0, 0.0, 1, 1.0, 1.0, **swapped)),  # type: ignore[arg-type]
        ("epsilon", lambda: poisoning_cost_bound(math.inf, 0.0, 1, 1.0, 1.0)),
        ("poisoned", lambda: poisoning_gain_bound(1.0, 0.0, -1, 1.0, 1.0)),
        ("clean_gain", lambda: poisoning_gain_bound(1.0, 0.0, 1, 2.0, 1.0)),
        ("clean_success", lambda: poisoning_success_bound(1.0, 0.0, 1, 1.5)),
        ("poisoning", lambda: poisoning_success_bound(1.0, 0.0, 1, 0.5, poisoning="renamed")),
    ]
    for field, call in calls:
        with refuses(field):
            call()
