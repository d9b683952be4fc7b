"""What plans cost, and the estimate of a private record count that they may be made with."""

import math
from dataclasses import replace

import pytest

from privmix.accounting import Bounded, Composed, Gaussian, epsilon
from privmix.accounting.pricing import COUNT_SHARE, budget_after_count, count_noise
from privmix.planning import ReleaseConfig
from tests.refusals import refuses

CONFIG = ReleaseConfig(records=5000, dim=8, classes=("no", "yes"))
DELTA = 1e-5


def counted(**changes: object) -> ReleaseConfig:
    return replace(CONFIG, records_noise_multiplier=count_noise(1.0, DELTA), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("design", ["poisson", "moments", "hierarchical"])
def test_a_private_count_is_added_to_the_price_of_the_rest(design: str) -> None:
    """Valid whatever the rest was made from; composing losses as if it had been fixed beforehand would be cheaper."""
    changes = {"design": design, "expected_classes": 1.0} if design == "hierarchical" else {"design": design}
    plan = counted(**changes).calibrate(1.0, DELTA)
    count = epsilon(Gaussian(plan.records_noise_multiplier), COUNT_SHARE * DELTA).epsilon
    rest = epsilon(plan.event_after_count, (1 - COUNT_SHARE) * DELTA).epsilon
    cost = plan.cost(DELTA).epsilon
    assert cost == pytest.approx(count + rest, rel=1e-12)
    assert 0.99 < cost <= 1.0
    assert count == pytest.approx(COUNT_SHARE, rel=0.01)
    assert epsilon(plan.event, DELTA).epsilon < cost


def test_the_price_of_the_rest_does_not_depend_on_the_estimate() -> None:
    """Whatever the count query answers, what follows has the same (epsilon, delta): that is what makes adding valid."""
    for records in (100, 5000, 10**6):
        plan = counted(records=records).calibrate(1.0, DELTA)
        assert plan.cost(DELTA).epsilon <= 1.0
        assert epsilon(plan.event_after_count, (1 - COUNT_SHARE) * DELTA).epsilon <= 1 - 0.99 * COUNT_SHARE


def test_with_a_private_count_the_curve_is_the_guarantee_alone() -> None:
    """Other answers lead to other plans, which share one point only."""
    plan = counted().calibrate(1.0, DELTA)
    assert plan.curve([0.01, 0.99, 1.0, 2.0], (1.0, DELTA)) == [1.0, 1.0, DELTA, DELTA]
    free = CONFIG.calibrate(1.0, DELTA)
    assert free.curve([1.0], (1.0, DELTA))[0] <= DELTA * (1 + 1e-6)


def test_what_the_ledger_is_charged_covers_whatever_was_planned() -> None:
    noise = count_noise(1.0, DELTA)
    rest = Bounded(*budget_after_count(noise, 1.0, DELTA))
    together = epsilon(Composed((Gaussian(noise), rest)), DELTA).epsilon
    assert 0.9 < together <= 1.0 + 1e-3
    for records in (100, 10**5):
        plan = counted(records=records).calibrate(1.0, DELTA)
        for delta in (1e-6, DELTA, 1e-3):
            assert epsilon(plan.event_after_count, delta).epsilon <= max(
                epsilon(rest, delta).epsilon, rest.epsilon if delta >= rest.delta else math.inf
            )


def test_what_takes_no_estimate_is_refused() -> None:
    """Designs that need the count, and a count that costs all."""
    for design in ("fixed", "random-weight"):
        with refuses("design"):
            counted(design=design)
    with refuses("epsilon"):
        replace(CONFIG, records_noise_multiplier=1.0).calibrate(0.5, DELTA)
