"""Prices against exact values, over every design; a search of 20,000 settings: benchmarks/results/ended.md."""

import math

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import ndtr

from privmix.accounting import (
    Adjacency,
    ClusterSampled,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    NormalWeighted,
    PoissonSampled,
    Repeated,
    epsilon,
)
from privmix.accounting.pld import LeastLoss, PldAccountant
from privmix.planning import ReleaseConfig
from privmix.plans.registry import all_designs
from privmix.training.plan import plan_training
from tests.accounting.exact import NoReference, deltas
from tests.accounting.test_scale import REFERENCES, SPARSE, event_of, poisson
from tests.accounting.test_spreads import exact_delta

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


def check(event: Event, adjacency: Adjacency, delta: float, priced: float) -> None:
    """Epsilon is not below the exact one, and at most a per cent above, or its delta is.

    Under replace-one Poisson sampling has two bounds, of which the reference knows that by pairs.
    """
    loss = PldAccountant().loss(event, adjacency)
    if isinstance(loss, LeastLoss):
        by_steps, by_pairs = (bound.epsilon(delta) for bound in loss.bounds)
        assert priced == min(by_steps, by_pairs)
        priced = by_pairs
    here, there = deltas(event, adjacency, (priced, priced / 1.01), delta)
    # References leave out a millionth.
    assert here <= delta * (1 + 5e-6)
    assert there >= delta or here >= 0.99 * delta


def test_references_agree_with_sixty_digits() -> None:
    """The fast reference against the slow ones; where few of many records are drawn it says that it has none."""
    known = 0
    for case in REFERENCES + SPARSE:
        rate, delta, exact = (float(case[name]) for name in ("rate", "delta", "epsilon"))
        if rate * float(case.get("cluster", 1)) * int(case["runs"]) < 3:
            continue
        try:
            (found,) = deltas(event_of(case), ADD_REMOVE, (exact,), delta)
        except NoReference:
            continue
        assert found == pytest.approx(delta, rel=1e-5)
        known += 1
    assert known >= 20


def test_references_agree_with_one_query_in_closed_form() -> None:
    """A sample of a fixed size under replace-one, beside a Gaussian query: one integral over that one's loss."""
    rate, noise, side, shift = 0.2, 2.0, 6.0, 2.0
    event = Composed((Gaussian(side), FixedSizeSampled(10, 2, Gaussian(noise))))

    def one(at: float) -> float:
        """Divergence of the sampled query at any epsilon: below 0 it follows from the other direction's."""
        if at < 0:
            return 1 - math.exp(at) + math.exp(at) * one(-at)
        x = noise**2 / shift * math.log((math.expm1(at) + rate) / rate) + shift / 2
        return float(rate * ndtr((shift - x) / noise) - (math.expm1(at) + rate) * ndtr(-x / noise))

    mu = shift / side
    for at in (0.3, 1.0, 2.0):
        exact, _ = integrate.quad(
            lambda loss, at=at: stats.norm.pdf(loss, mu**2 / 2, mu) * one(at - loss), -4, 5, points=[at], epsabs=1e-13
        )
        assert deltas(event, REPLACE_ONE, (at,), exact) == pytest.approx((exact,), rel=1e-6)


def test_references_agree_with_chi_squared() -> None:
    found = deltas(Repeated(NormalWeighted(Gaussian(5.0)), 60), ADD_REMOVE, (1.0,), 1e-5)
    assert found == pytest.approx((exact_delta(60, 5.0, 1.0),), rel=1e-6)


def test_references_agree_with_a_count_of_the_samples_with_the_record() -> None:
    """So few samples have the record that one or two of their losses, and the mean of all others, are the sum."""
    rate, noise, runs, epsilon, above = 8.055604576856578e-08, 0.12770083538680965, 9930, 2.018911711893282, 3e-3
    x = np.linspace(-8 * noise, 1 + 9 * noise, 200_001)
    mass = ((1 - rate) * stats.norm.pdf(x, 0, noise) + rate * stats.norm.pdf(x, 1, noise)) * (x[1] - x[0])
    losses = np.log1p(rate * np.expm1((x - 0.5) / noise**2))
    big = losses > above
    seldom = float(mass[big].sum())
    others = runs * float(mass[~big] @ losses[~big]) / (1 - seldom)
    one = float(mass[big] @ np.maximum(-np.expm1(epsilon - others - losses[big]), 0))
    edges = np.linspace(0, 60, 12_001)
    shares, step = np.histogram(losses[big], edges, weights=mass[big])[0], edges[1]
    pairs = np.convolve(shares, shares)
    two = float(pairs @ np.maximum(-np.expm1(epsilon - others - step * (1 + np.arange(pairs.size))), 0))
    none = math.exp(runs * math.log1p(-seldom))
    expected = none * (runs * one / (1 - seldom) + runs * (runs - 1) / 2 * two / (1 - seldom) ** 2)
    event = Repeated(PoissonSampled(rate, Gaussian(noise)), runs)
    assert deltas(event, ADD_REMOVE, (epsilon,), expected) == pytest.approx((expected,), rel=5e-6)


# Random allocation is held against attacks and quadrature, in test_allocation.py.
REFERRED = [design for design in all_designs() if design.name != "allocation"]


@pytest.mark.parametrize("design", REFERRED, ids=lambda design: design.name)
@pytest.mark.parametrize(("records", "target", "delta"), [(700, 8.0, 1e-4), (30_000, 0.3, 1e-9)])
def test_every_design_costs_what_it_says(design: type, records: int, target: float, delta: float) -> None:
    config = ReleaseConfig(
        records, 4, ("no", "yes"), design(**({"expected_classes": 1.0} if design.name == "hierarchical" else {}))
    )
    plan = config.calibrate(target, delta)
    priced = plan.cost().epsilon
    assert 0.995 * target <= priced <= target
    check(plan.event, plan.adjacency, delta, priced)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("batch", "epochs", "target"), [(100, 1, 1.0), (500, 20, 3.0), (50_000, 3, 0.1)])
def test_training_costs_what_it_says(adjacency: Adjacency, batch: int, epochs: float, target: float) -> None:
    plan = plan_training(50_000, epsilon=target, delta=1e-6, batch_size=batch, epochs=epochs, adjacency=adjacency)
    priced = plan.cost().epsilon
    assert 0.995 * target <= priced <= target
    check(plan.event, adjacency, 1e-6, priced)


@pytest.mark.parametrize("number", range(24))
def test_random_events_cost_what_they_do(number: int) -> None:
    """Noise is drawn, not sought: prices take a tenth of the time."""
    rng = np.random.default_rng([7, number])
    rows = round(math.exp(rng.uniform(math.log(6), math.log(1e6))))
    rate = math.exp(rng.uniform(math.log(max(1e-5, 5 / rows)), 0))
    noise = max(0.45, rate * math.sqrt(rows) * math.exp(rng.uniform(-1, 2)))
    delta, query = 10 ** rng.uniform(-12, -3), Gaussian(noise)
    kind = number % 4
    poisson = PoissonSampled(rate, query)
    cluster = ClusterSampled(math.sqrt(rate), math.sqrt(rate), query)
    fixed = FixedSizeSampled(10**6, max(1, round(1e6 * rate)), query)
    adjacency = REPLACE_ONE if kind >= 2 else ADD_REMOVE
    event: Event = Repeated((poisson, cluster, fixed, poisson)[kind], rows)
    if rng.random() < 0.5:
        event = Composed((Gaussian(20.0), event))
    priced = epsilon(event, delta, adjacency=adjacency).epsilon
    if priced > 1e-3:
        check(event, adjacency, delta, priced)


def fixed(population: int, size: int, noise: float, rows: int) -> Event:
    return Repeated(FixedSizeSampled(population, size, Gaussian(noise)), rows)


def beside(noise: float, event: Event) -> Event:
    return Composed((Gaussian(noise), event))


@pytest.mark.parametrize(
    ("event", "adjacency", "delta"),
    [
        # Jumps of both signs: was 1.6% too high.
        (fixed(47_757_094, 24, 1.0655, 47_757_094), REPLACE_ONE, 1.151e-8),
        # A Gaussian query beside rare rows: its transform's small entries were thought to be wrong by 1e-8; 47% and
        # 120% too high.
        (beside(75.988, poisson(4.158e-8, 0.34646, 2338)), ADD_REMOVE, 2.462e-9),
        (beside(80.128, fixed(31_349_837, 1, 0.42791, 11)), REPLACE_ONE, 5.939e-8),
        # The guess is far too high, and the window ended above the answer or took what came around for it: 5% and 4%.
        (poisson(2e-3, 1.0, 2), ADD_REMOVE, 1e-9),
        (poisson(0.001705595, 1.65, 2), REPLACE_ONE, 4.968e-9),
        # Few large losses rule the tilted law: what came around the circle was 3.5% of the answer.
        (beside(145.243, poisson(8.189847e-9, 0.3603576, 2904)), ADD_REMOVE, 1.657e-11),
        # Masses next to the least loss were lifted at 3,001 points until they passed 1: 7% too high.
        (Repeated(ClusterSampled(0.685875, 4.763056e-9, Gaussian(0.19321422)), 612_208_500), ADD_REMOVE, 5.38e-4),
        # Sums with normal weights: what a point's place may move was counted 14 times; 2% too high.
        (
            Repeated(Composed((NormalWeighted(Gaussian(1925.0)), Gaussian(7.88856e6))), 203_357_794),
            ADD_REMOVE,
            3.496e-11,
        ),
        # One run of a wide law: frequencies at which it was 1e-8 were left out, unpaid. 0.01% too low.
        (beside(30.52969, poisson(4.517479e-8, 0.3055441, 4)), ADD_REMOVE, 2.223e-11),
        # Noise is 4 million times a record: rounding up at 3,001 points moved the mean of so many losses; 10% too high.
        (fixed(272, 107, 4.48469e6, 859_603_205), REPLACE_ONE, 8.287e-6),
    ],
)
def test_what_the_search_found(event: Event, adjacency: Adjacency, delta: float) -> None:
    check(event, adjacency, delta, epsilon(event, delta, adjacency=adjacency).epsilon)
