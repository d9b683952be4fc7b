"""Prices for whoever has several records: never below the exact loss of the worst pair that is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from privmix.accounting import Adjacency, Gaussian, Laplace, PoissonSampled, Repeated, epsilon
from privmix.accounting.events import ClusterSampled, Composed, Event, FixedSizeSampled, NormalWeighted
from privmix.accounting.groups import group_epsilon, group_event
from privmix.errors import InvalidInput


def divergence(p: np.ndarray, q: np.ndarray, eps: float, step: float) -> float:
    return float(np.maximum(p - math.exp(eps) * q, 0).sum() * step)


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("noise", [1.0, 5.0])
def test_a_sampled_query_costs_a_group_no_more_than_is_said(rate: float, noise: float, k: int) -> None:
    """The exact law of a query that k records join independently, in both directions, by numerical integration."""
    delta = 1e-4
    said = group_epsilon(PoissonSampled(rate, Gaussian(noise)), delta, k).epsilon
    x = np.linspace(-12 * noise, k + 12 * noise, 400_001)
    without = stats.norm.pdf(x, 0, noise)
    present = sum(stats.binom.pmf(j, k, rate) * stats.norm.pdf(x, j, noise) for j in range(k + 1))
    for p, q in ((present, without), (without, present)):
        assert divergence(p, q, said, x[1] - x[0]) <= delta * (1 + 1e-6)


def test_one_record_costs_what_it_costs() -> None:
    event = Repeated(PoissonSampled(0.01, Gaussian(1.0)), 100)
    assert group_epsilon(event, 1e-5, 1) == epsilon(event, 1e-5)
    assert group_event(event, 1) is not None


def test_gaussian_queries_cost_as_their_shift() -> None:
    assert group_epsilon(Gaussian(10.0), 1e-5, 4).epsilon == epsilon(Gaussian(2.5), 1e-5).epsilon
    assert group_event(Laplace(6.0), 3) == Laplace(2.0)
    parts = Composed((Gaussian(6.0), ClusterSampled(0.5, 0.5, Gaussian(2.0))))
    found = group_event(parts, 2)
    assert isinstance(found, Composed)
    assert found.events[0] == Gaussian(3.0)
    assert isinstance(found.events[1], ClusterSampled)
    assert (found.events[1].cluster_rate, found.events[1].sampling_rate) == pytest.approx((0.75, 0.75))


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (FixedSizeSampled(1000, 10, Gaussian(2.0)), Adjacency.REPLACE_ONE),
        (NormalWeighted(Gaussian(40.0)), Adjacency.ADD_REMOVE),
    ],
)
def test_where_no_event_is_known_the_price_of_one_record_bounds_that_of_several(
    event: Event, adjacency: Adjacency
) -> None:
    """k epsilon at least, and a group of groups costs no less than its parts."""
    assert group_event(event, 3) is None
    one, three = (group_epsilon(event, 1e-5, k, adjacency=adjacency).epsilon for k in (1, 3))
    assert three > 3 * one
    wide = group_epsilon(Gaussian(10.0), 1e-5, 3).epsilon
    assert three < 100 * wide


def test_the_smaller_of_two_bounds_is_said() -> None:
    """Rows of few records with little noise: a row that several of one person are in is rare, and dear if there."""
    event = Repeated(PoissonSampled(64 / 60_000, Gaussian(1.2)), 60_000)
    together = group_event(event, 5)
    assert together is not None
    found = group_epsilon(event, 1e-5, 5).epsilon
    assert 5 * epsilon(event, 1e-5).epsilon < found < epsilon(together, 1e-5).epsilon / 10


def test_without_delta_epsilons_add_up() -> None:
    assert group_epsilon(Laplace(4.0), 0.0, 6, accountant="pure").epsilon == pytest.approx(1.5)


def test_bad_input() -> None:
    with pytest.raises(InvalidInput, match="records_per_person"):
        group_epsilon(Gaussian(1.0), 1e-5, 0)
    with pytest.raises(InvalidInput, match="upper bound"):
        group_epsilon(Gaussian(1.0), 1e-5, 2, accountant="gdp_clt")
