"""The default accountant against published tables, the library, exact integrals and simulated attacks."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library
from scipy import integrate, stats

from privmix.accounting import (
    Adjacency,
    ClusterSampled,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
    epsilon,
    gdp_epsilon,
    gdp_mu,
    gdp_tradeoff,
    published_noise_multiplier,
    tradeoff_curve,
)
from privmix.accounting.events import Bounded
from privmix.accounting.pld import ComposedLoss, PldAccountant
from privmix.accounting.poisoning import NeighbourCurve

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
PLD = PldAccountant()


def poisson(s: float, m: int) -> Event:
    return Repeated(PoissonSampled(m / 50_000, Gaussian(s)), 50_000)


def hierarchical(s: float, classes: int, expected: float) -> Event:
    class_rate = expected / classes
    return Repeated(ClusterSampled(class_rate, 64 / 50_000 / class_rate, Gaussian(s)), 50_000)


# The two tables of the design: noise by the papers' formula for a claimed epsilon, and what it really costs.
@pytest.mark.parametrize(
    ("m", "classes", "claimed", "multiplier", "honest"),
    [
        (1, None, 1, "0.349", "4.95"),
        (16, None, 1, "0.607", "1.42"),
        (64, None, 1, "1.260", "1.010"),
        (16, None, 8, "0.398", "10.5"),
        (64, None, 8, "0.531", "9.23"),
        (256, None, 8, "0.938", "8.12"),
        (64, 100, 1, "1.260", "7.62"),
        (64, 10, 1, "1.260", "1.98"),
        (64, 100, 8, "0.531", "54.8"),
        (64, 10, 8, "0.531", "17.4"),
    ],
)
def test_published_claims_priced_honestly(
    m: int, classes: int | None, claimed: float, multiplier: str, honest: str
) -> None:
    s = published_noise_multiplier(m / 50_000, 50_000, claimed, 1e-5)
    assert f"{s:.3f}" == multiplier
    event = hierarchical(s, classes, 3) if classes else poisson(s, m)
    assert epsilon(event, 1e-5, accountant="as_published").epsilon == pytest.approx(claimed, rel=1e-9)
    digits = len(honest.split(".")[1])
    assert f"{epsilon(event, 1e-5).epsilon:.{digits}f}" == honest


def test_laplace_agrees_with_the_library() -> None:
    one = library.from_laplace_mechanism(1.5, sampling_prob=0.2, value_discretization_interval=1e-4)
    ours = PLD.epsilon(Repeated(PoissonSampled(0.2, Laplace(1.5)), 30), 1e-5, ADD_REMOVE)
    assert ours == pytest.approx(one.self_compose(30).get_epsilon_for_delta(1e-5), rel=2e-3)


# One run: hockey-stick divergence by numerical integration.

Density = Callable[[float], float]


# Written out: those of SciPy take most of the time that thousands of points do.
def normal(s: float) -> Density:
    return lambda x: math.exp(-((x / s) ** 2) / 2) / (s * math.sqrt(2 * math.pi))


def laplace(s: float) -> Density:
    return lambda x: math.exp(-abs(x) / s) / (2 * s)


def hockey_stick(upper: Density, lower: Density, eps: float, points: list[float]) -> float:
    def gap(x: float) -> float:
        return max(0.0, upper(x) - math.exp(eps) * lower(x))

    return float(integrate.quad(gap, -60, 60, points=points, limit=2000, epsabs=1e-13)[0])


def exact_delta(noise: Density, rate: float, shift: float, eps: float) -> float:
    def mixture(x: float) -> float:
        return (1 - rate) * noise(x) + rate * noise(x - shift)

    points = [float(p) for p in np.linspace(-12, 14, 105)]
    return max(hockey_stick(mixture, noise, eps, points), hockey_stick(noise, mixture, eps, points))


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.8])
@pytest.mark.parametrize(
    ("event", "exact"),
    [
        *(
            (PoissonSampled(rate, Gaussian(s)), lambda eps, s=s, rate=rate: exact_delta(normal(s), rate, 1.0, eps))
            for s, rate in ((1.0, 0.1), (0.7, 0.5), (2.0, 1.0))
        ),
        (PoissonSampled(0.4, Laplace(1.3)), lambda eps: exact_delta(laplace(1.3), 0.4, 1.0, eps)),
        # The bit is shown: nothing leaks without it.
        (ClusterSampled(0.3, 0.6, Gaussian(0.9)), lambda eps: 0.3 * exact_delta(normal(0.9), 0.6, 1.0, eps)),
        # Twice the bound.
        (FixedSizeSampled(100, 25, Gaussian(1.5)), lambda eps: exact_delta(normal(1.5), 0.25, 2.0, eps)),
    ],
    ids=["rare", "half", "all", "laplace", "cluster", "fixed"],
)
def test_one_query_matches_the_integral(event: Event, exact: Callable[[float], float], eps: float) -> None:
    delta = exact(eps)
    ours = PLD.delta(event, eps, REPLACE_ONE if isinstance(event, FixedSizeSampled) else ADD_REMOVE)
    assert delta - 1e-9 <= ours <= delta * 1.005 + 1e-9


@pytest.mark.parametrize(
    ("event", "true"),
    [
        (Repeated(PoissonSampled(0.9999, Gaussian(0.05)), 5), 1189.87),
        (Repeated(Laplace(1 / 400), 3), 1200.0),
        (poisson(0.01, 64), math.inf),
    ],
)
def test_huge_losses_are_not_understated(event: Event, true: float) -> None:
    assert PLD.epsilon(event, 1e-5, ADD_REMOVE) >= true - 0.1


def test_vector_laplace_is_no_worse_than_one_coordinate() -> None:
    """The pair prices an L1 bound as if one coordinate moved by all of it; splitting the move never helps."""
    together = PLD.loss(Laplace(1.0), ADD_REMOVE)
    for share in (0.1, 0.3, 0.5):
        split = PLD.loss(Composed((Laplace(1 / share), Laplace(1 / (1 - share)))), ADD_REMOVE)
        for eps in np.linspace(0, 0.99, 12):
            assert split.delta(eps) <= together.delta(eps) + 1e-4 * share


# Small T: Monte Carlo of the exact log-likelihood ratio.


def simulated_delta(rate: float, s: float, rows: int, eps: float, cluster_rate: float) -> tuple[float, float]:
    """Unbiased estimate of the "remove" divergence and its standard error: E_P[(1 - e^(eps - loss))^+]."""
    rng, runs = np.random.default_rng(7), 200_000
    shown = rng.random((runs, rows)) < cluster_rate
    present = rng.random((runs, rows)) < rate
    z = present + s * rng.standard_normal((runs, rows))
    loss = np.log1p(rate * np.expm1((2 * z - 1) / (2 * s**2)))
    total = (loss * shown).sum(axis=1)
    value = np.maximum(0.0, -np.expm1(eps - total))
    return float(value.mean()), float(value.std() / math.sqrt(runs))


@pytest.mark.parametrize("cluster_rate", [1.0, 0.4])
@pytest.mark.parametrize(("rate", "s", "rows"), [(0.2, 1.0, 10), (0.05, 0.6, 20)])
def test_composition_matches_simulated_likelihood_ratios(rate: float, s: float, rows: int, cluster_rate: float) -> None:
    event = Repeated(ClusterSampled(cluster_rate, rate, Gaussian(s)), rows)
    for eps in (0.5, 1.5):
        mean, error = simulated_delta(rate, s, rows, eps, cluster_rate)
        ours = PLD.delta(event, eps, ADD_REMOVE)
        # Seven standard errors: false-alarm rate 3e-12 for each of the 8 comparisons.
        assert mean - 7 * error <= ours <= mean + 7 * error + 0.005 * ours


def test_simulation_would_notice_a_wrong_sigma() -> None:
    mean, error = simulated_delta(0.2, 1.0, 10, 0.5, 1.0)
    for wrong in (2 / 3, 3 / 2):
        assert abs(PLD.delta(Repeated(PoissonSampled(0.2, Gaussian(wrong)), 10), 0.5, ADD_REMOVE) - mean) > 20 * error


def test_optimal_attack_breaks_the_published_hierarchical_bound_and_not_ours() -> None:
    """The worst-case pair: one record of a class whose other records show, in every row, whether it was drawn.

    The attacker reads the class bit and sums exact log-likelihood ratios over the rows that drew the class.
    """
    classes, expected, m, n, rows = 100, 3, 64, 50_000, 50_000
    s = published_noise_multiplier(m / n, rows, 1.0, 1e-5)
    class_rate = expected / classes
    record_rate = m / n / class_rate
    runs, rng = 4_000, np.random.default_rng(3)

    def scores(present: bool) -> np.ndarray:
        out = np.empty(runs)
        for run, drawn in enumerate(rng.binomial(rows, class_rate, runs)):
            z = s * rng.standard_normal(drawn) + (present & (rng.random(drawn) < record_rate))
            out[run] = np.log1p(record_rate * np.expm1((2 * z - 1) / (2 * s**2))).sum()
        return out

    absent, with_record = np.sort(scores(False)), scores(True)
    threshold = absent[int(0.9 * runs)]
    type_1, type_2 = float((absent > threshold).mean()), float((with_record <= threshold).mean())
    # Hoeffding at 1e-10 for each error rate: false-alarm rate below 1e-9 in all.
    slack = math.sqrt(math.log(2e10) / (2 * runs))
    published = float(gdp_tradeoff(gdp_mu(1.0, 1e-5), np.array([type_1 + slack]))[0])
    assert type_2 + slack < published  # no test may do this if the published claim held
    ours = tradeoff_curve(hierarchical(s, classes, expected), [min(1.0, type_1 + slack)])[0]
    assert type_2 + slack >= ours


def test_finer_grids_only_lower_the_figure() -> None:
    event = poisson(1.26, 64)
    rough, default, fine = (
        PldAccountant(tolerance).epsilon(event, 1e-5, ADD_REMOVE) for tolerance in (1.0, 1e-2, 1e-4)
    )
    assert rough >= default >= fine
    assert default <= fine * 1.002


def test_gaussian_queries_merge_exactly() -> None:
    many = PLD.epsilon(Repeated(Gaussian(10.0), 25), 1e-5, ADD_REMOVE)
    assert many == PLD.epsilon(Gaussian(2.0), 1e-5, ADD_REMOVE) == PLD.epsilon(Gaussian(4.0), 1e-5, REPLACE_ONE)
    exact = gdp_epsilon(1 / 2.0, 1e-5)  # one Gaussian query is exactly mu-GDP with mu = 1/s
    assert exact <= many <= 1.005 * exact


@pytest.mark.parametrize("at", [0.01, 0.1, 1.0])
def test_events_that_next_to_never_touch_a_record_have_a_delta(at: float) -> None:
    """Tilted variances of 1e-220 come up on the way, whose powers underflow."""
    cluster, rate, s = 0.2, 2.4745579000230136e-06, 0.8
    inside = math.log1p(math.expm1(at) / rate)
    kept, lost = stats.norm.sf(inside * s - 0.5 / s), stats.norm.sf(inside * s + 0.5 / s)
    true = cluster * rate * (kept - math.exp(inside) * lost)
    assert true <= PLD.delta(ClusterSampled(cluster, rate, Gaussian(s)), at, ADD_REMOVE) < 1e-8


@pytest.mark.parametrize(("rate", "noise", "runs"), [(0.01, 1.0, 1000), (0.1, 2.0, 100), (0.2, 0.8, 5)])
def test_replaced_records_of_poisson_samples(rate: float, noise: float, runs: int) -> None:
    """Opposite records, by the library's composition of both laws: the price holds; the fixed pair's is far above."""
    edges = np.linspace(-1 - 9 * noise, 1 + 9 * noise, 40_001)

    def law(shift: float) -> np.ndarray:
        masses = [np.diff(stats.norm.cdf(edges, centre, noise)) for centre in (0.0, shift)]
        return (1 - rate) * masses[0] + rate * masses[1]

    one, other = ({place: math.log(mass) for place, mass in enumerate(law(shift)) if mass > 0} for shift in (1.0, -1.0))
    pair = library.from_two_probability_mass_functions(one, other, value_discretization_interval=1e-4)
    exact = pair.self_compose(runs).get_epsilon_for_delta(1e-5)
    event = Repeated(PoissonSampled(rate, Gaussian(noise)), runs)
    found = PLD.epsilon(event, 1e-5, REPLACE_ONE)
    assert exact <= found * 1.01
    assert found <= 1.3 * exact
    assert found < 0.8 * PLD.epsilon(
        Repeated(FixedSizeSampled(1000, round(1000 * rate), Gaussian(noise)), runs), 1e-5, REPLACE_ONE
    )
    steps = [bound.delta(found) for bound in PLD.loss(event, REPLACE_ONE).bounds]  # type: ignore[union-attr]
    assert PLD.delta(event, found, REPLACE_ONE) == min(steps)
    curve = NeighbourCurve.of_event(event, REPLACE_ONE, points=5)
    assert np.allclose(curve.by_presence, [PLD.delta(event, at, REPLACE_ONE) for at in curve.epsilons])
    # A query whose bound is stated for replaced records has no two steps.
    stated = Composed((Bounded(0.1, 0.0, REPLACE_ONE.value), event))
    assert isinstance(PLD.loss(stated, REPLACE_ONE), ComposedLoss)
