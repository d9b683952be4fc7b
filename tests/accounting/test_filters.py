"""Privacy filters: every cost covers its event, capacities keep their promise, and nothing unpriceable gets in."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from privmix.accounting import (
    Adjacency,
    Bounded,
    ClusterSampled,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
    UnsupportedEvent,
    epsilon,
    epsilon_delta_curve,
)
from privmix.accounting.filters import (
    Cost,
    Filter,
    GaussianFilter,
    PureFilter,
    RenyiFilter,
    filter_from_dict,
    make_filter,
)
from privmix.errors import InvalidInput

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
EVENTS: dict[str, tuple[Event, Adjacency]] = {
    "poisson": (Repeated(PoissonSampled(64 / 60_000, Gaussian(2.0)), 60_000), ADD),
    "little noise": (Repeated(PoissonSampled(1 / 5_000, Gaussian(0.5)), 5_000), ADD),
    "one sample": (PoissonSampled(0.01, Gaussian(0.8)), ADD),
    "cluster": (Repeated(ClusterSampled(0.3, 0.05, Gaussian(4.0)), 500), ADD),
    "laplace": (Repeated(Laplace(20.0), 3), ADD),
    "fixed size": (Repeated(FixedSizeSampled(5_000, 50, Gaussian(4.0)), 500), REPLACE),
    "poisson, replaced": (Repeated(PoissonSampled(0.01, Gaussian(4.0)), 500), REPLACE),
    "all sorts": (Composed((Laplace(9.0), Gaussian(9.0), Bounded(0.1, 1e-7), PoissonSampled(0.2, Gaussian(3.0)))), ADD),
}


def covering(cost: Cost, epsilons: np.ndarray) -> np.ndarray:
    """Deltas of the experiment that a cost stands for, written anew: reveal, or a Gaussian query."""
    mu, revealed = math.sqrt(cost.amount), 1 - math.exp(-cost.slack)
    gaussian = norm.cdf(-epsilons / mu + mu / 2) - np.exp(epsilons) * norm.cdf(-epsilons / mu - mu / 2)
    return np.asarray(revealed + (1 - revealed) * gaussian)


@pytest.mark.parametrize(("event", "adjacency"), EVENTS.values(), ids=EVENTS)
def test_a_gaussian_cost_covers_the_whole_profile(event: Event, adjacency: Adjacency) -> None:
    cost = GaussianFilter.of(4.0, 1e-5).cost(event, adjacency)
    # Far more points than the cost was found at, and none of them on purpose; a composition's take a while each.
    points = 101 if isinstance(event, Composed) else 251
    at = np.linspace(0, 1.3 * epsilon(event, 1e-6, adjacency=adjacency).epsilon, points)
    profile = epsilon_delta_curve(event, at.tolist(), adjacency=adjacency)
    assert (profile <= covering(cost, at) * (1 + 1e-9)).all()
    # And it is the least of its kind: a tenth less does not cover it. Parts are covered one by one, which is more.
    less = Cost(cost.amount * 0.9, cost.slack * 0.9)
    assert isinstance(event, Composed) or (profile > covering(less, at)).any()


def test_gaussian_queries_cost_exactly_what_they_are() -> None:
    budget = GaussianFilter.of(1.0, 1e-5)
    assert budget.cost(Repeated(Gaussian(4.0), 3), ADD) == Cost(pytest.approx(3 / 16), 0.0)
    assert budget.cost(Gaussian(4.0), REPLACE) == Cost(pytest.approx(4 / 16), 0.0)


@given(bound=st.floats(1e-3, 30), share=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_bounded_mechanisms_are_covered_in_every_corner(bound: float, share: float) -> None:
    delta = 1e-6 * share
    cost = GaussianFilter.of(1.0, 1e-5).cost(Bounded(bound, delta), ADD)
    at = np.linspace(0, 1.1 * bound, 301)
    keep = 1 / (1 + math.exp(-bound))
    response = delta + (1 - delta) * np.where(at < bound, keep - np.exp(at) * (1 - keep), 0.0)
    assert (response <= covering(cost, at) + 1e-13).all()


@pytest.mark.parametrize(("target", "delta"), [(1.0, 1e-5), (8.0, 1e-5), (0.1, 1e-8), (3.0, 1e-10)])
def test_a_full_filter_keeps_its_promise_to_many_digits(target: float, delta: float) -> None:
    gaussian, renyi = GaussianFilter.of(target, delta), RenyiFilter.of(target, delta)
    with mpmath.workdps(60):
        eps, mu = mpmath.mpf(target), mpmath.mpf(gaussian.mu)
        revealed = 1 - mpmath.exp(-mpmath.mpf(gaussian.slack))
        tails = mpmath.ncdf(-eps / mu + mu / 2) - mpmath.exp(eps) * mpmath.ncdf(-eps / mu - mu / 2)
        total = revealed + (1 - revealed) * tails
        assert 0.999 * delta < total <= delta
        order = mpmath.mpf(renyi.order)
        tail = mpmath.exp((order - 1) * (mpmath.mpf(renyi.divergence) - eps)) / order * (1 - 1 / order) ** (order - 1)
        assert 0.999 * delta < tail <= delta
    for made in (gaussian, renyi):
        assert target * (1 - 1e-6) < made.epsilon(made.capacity, delta) <= target


@pytest.mark.parametrize("order", [2, 5, 18, 60])
@pytest.mark.parametrize("rate", [0.003, 0.1, 0.5])
def test_renyi_costs_are_the_divergence_to_many_digits(order: int, rate: float) -> None:
    noise = 1.7
    found = RenyiFilter(order, 1.0).cost(Repeated(PoissonSampled(rate, Gaussian(noise)), 7), ADD)
    with mpmath.workdps(60):
        q, s = mpmath.mpf(rate), mpmath.mpf(noise)
        moments = (
            mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp((k * k - k) / (2 * s**2))
            for k in range(order + 1)
        )
        true = 7 * mpmath.log(mpmath.fsum(moments)) / (order - 1)
        assert true <= found.amount <= true * (1 + 1e-6) + 1e-11
    response = RenyiFilter(order, 1.0).cost(Bounded(0.7, 0.0), ADD).amount
    with mpmath.workdps(60):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(0.7)))
        true = mpmath.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
        assert true <= response <= true * (1 + 1e-6)


@pytest.mark.parametrize("kind", [GaussianFilter, RenyiFilter])
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.thorough), 50])
def test_what_a_filter_accepts_fits_a_planned_budget_too(kind: type[GaussianFilter | RenyiFilter], count: int) -> None:
    """A filter that took more than the best price of fixed plans would be wrong."""
    made = kind.of(1.0, 1e-5)

    def one(noise: float) -> Event:
        return Repeated(PoissonSampled(0.01, Gaussian(noise)), 400)

    low, high = 0.5, 100.0
    for _ in range(10):
        noise = math.sqrt(low * high)
        low, high = (low, noise) if count * made.cost(one(noise), ADD).share(made.capacity) <= 1 else (noise, high)
    planned = epsilon(Repeated(one(high), count), 1e-5).epsilon
    assert (0.95 if kind is GaussianFilter else 0.6) < planned <= 1


def test_pure_epsilons_are_added() -> None:
    made = make_filter("gdp", 1.0, 0.0)
    half = made.cost(Composed((Laplace(4.0), Bounded(0.25, 0.0))), ADD)
    assert half.plus(half).share(made.capacity) == 1
    assert made.cost(Laplace(4.0), REPLACE).amount == 0.5
    assert made.epsilon(half, 0.0) == 0.5


@pytest.mark.parametrize(
    ("made", "event", "adjacency"),
    [
        (RenyiFilter.of(1.0, 1e-5), ClusterSampled(0.3, 0.1, Gaussian(2.0)), ADD),
        (RenyiFilter.of(1.0, 1e-5), Bounded(0.1, 1e-9), ADD),
        (RenyiFilter.of(1.0, 1e-5), Bounded(0.1, 0.0), REPLACE),
        (GaussianFilter.of(1.0, 1e-5), Bounded(0.1, 0.0), REPLACE),
        (GaussianFilter.of(1.0, 1e-5), FixedSizeSampled(100, 5, Gaussian(2.0)), ADD),
        (PureFilter(1.0), Gaussian(2.0), ADD),
        (PureFilter(1.0), Bounded(0.1, 1e-9), ADD),
        (PureFilter(1.0), Bounded(0.1, 0.0), REPLACE),
    ],
)
def test_what_has_no_cost_is_refused(made: Filter, event: Event, adjacency: Adjacency) -> None:
    with pytest.raises(UnsupportedEvent):
        made.cost(event, adjacency)


def test_hopeless_events_cost_everything() -> None:
    gaussian = GaussianFilter.of(1.0, 1e-5)
    for event in (Repeated(PoissonSampled(0.5, Gaussian(1e-2)), 100), Laplace(1e-3), Bounded(500.0, 0.5)):
        assert gaussian.cost(event, ADD).share(gaussian.capacity) > 100
    assert Cost(0.0, 1e-9).share(Cost(1.0)) == math.inf
    assert gaussian.epsilon(Cost(0.01, 2e-5), 1e-5) == math.inf


def test_what_is_no_filter() -> None:
    for bad in ({}, {"name": "zcdp"}, {"name": "gdp", "mu": 1.0}, 7):
        with pytest.raises(InvalidInput):
            filter_from_dict(bad)  # type: ignore[arg-type]
    for told in (("gdp", 0, 1e-5), ("gdp", 1, -1), ("gdp", 1, 1), ("zcdp", 1, 1e-5)):
        with pytest.raises(InvalidInput):
            make_filter(*told)
