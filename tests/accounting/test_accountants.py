"""Bounds bound, comparisons say that they don't, and curves and calibration agree with both."""

import itertools
import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

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
    UnsupportedEvent,
    calibrate,
    delta,
    epsilon,
    event_from_dict,
    gdp_epsilon,
    gdp_mu,
    gdp_tradeoff,
    tradeoff_curve,
)
from privmix.accounting.gdp import gdp_delta
from privmix.accounting.pure import published_instahide_epsilon
from privmix.accounting.renyi import _moments_of
from privmix.errors import InvalidInput
from tests.refusals import refuses

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
POISSON = Repeated(PoissonSampled(64 / 50_000, Gaussian(1.26)), 50_000)
FIXED = Repeated(FixedSizeSampled(50_000, 64, Gaussian(1.26)), 50_000)
MIXUP = Repeated(FixedSizeSampled(50_000, 4, Laplace(3.0)), 100)


@pytest.mark.parametrize(
    ("name", "event", "adjacency"),
    [("rdp", POISSON, ADD_REMOVE), ("moments", POISSON, ADD_REMOVE), ("rdp", FIXED, REPLACE_ONE)],
)
def test_every_bound_is_above_the_pld(name: str, event: Event, adjacency: Adjacency) -> None:
    tight = epsilon(event, 1e-5, adjacency=adjacency).epsilon
    cost = epsilon(event, 1e-5, accountant=name, adjacency=adjacency)
    assert cost.is_upper_bound
    assert tight < cost.epsilon < 2 * tight


@pytest.mark.parametrize("multiplier", [1e3, 1e5, 1e7])
@pytest.mark.parametrize("sampled", [True, False])
def test_renyi_rounding_never_makes_a_query_free(
    multiplier: float, sampled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # The library returns epsilon 0 as soon as one order's divergence is rounded below 0, with one warning an order.
    inner = Gaussian(multiplier)
    event = Repeated(FixedSizeSampled(50_000, 64, inner) if sampled else inner, 10_000_000)
    tight = epsilon(event, 1e-9, adjacency=REPLACE_ONE).epsilon
    assert epsilon(event, 1e-9, accountant="rdp", adjacency=REPLACE_ONE).epsilon >= tight
    assert caplog.records == []


@pytest.mark.parametrize(("rate", "multiplier"), [(0.001, 1.2), (0.3, 5.0), (1.0, 2.0)])
def test_moments_are_the_papers_sum(rate: float, multiplier: float) -> None:
    # Abadi et al., section 3.2, one order at a time.
    found = _moments_of(rate, multiplier)
    for order in (1, 2, 7, 40):
        k = np.arange(order + 2)
        terms = stats.binom.pmf(k, order + 1, rate) * np.exp((k * k - k) / (2 * multiplier**2))
        assert found[order - 1] == pytest.approx(math.log(math.fsum(terms)), rel=1e-9, abs=1e-12)


def test_rdp_of_a_gaussian_doubles_the_sensitivity_under_replace_one() -> None:
    doubled = epsilon(Gaussian(4.0), 1e-5, accountant="rdp", adjacency=REPLACE_ONE).epsilon
    assert doubled == pytest.approx(epsilon(Gaussian(2.0), 1e-5, accountant="rdp").epsilon)


@pytest.mark.parametrize("name", ["gdp_clt", "as_published"])
def test_comparisons_are_never_bounds_and_say_so(name: str) -> None:
    cost = epsilon(POISSON, 1e-5, accountant=name)
    assert not cost.is_upper_bound
    assert cost.note
    assert cost.to_dict()["is_upper_bound"] is False
    assert cost.epsilon < epsilon(POISSON, 1e-5).epsilon  # the approximation is on the unsafe side here


@given(st.floats(0.05, 8.0), st.sampled_from([1e-3, 1e-5, 1e-8]))
@settings(max_examples=40, deadline=None)
def test_gdp_conversions_are_inverse(mu: float, at: float) -> None:
    eps = gdp_epsilon(mu, at)
    if eps > 1e-6:
        assert gdp_delta(mu, eps) == pytest.approx(at, rel=1e-6)
        assert gdp_mu(eps, at) == pytest.approx(mu, rel=1e-6)


@pytest.mark.parametrize(("k", "s", "expected"), [(1, 4, 2.65e6), (4, 16, 211), (8, 16, 50.6), (16, 32, 10.3)])
def test_the_published_figure_of_instahide_is_theorem_2_at_diameter_1(k: int, s: int, expected: float) -> None:
    """n = T = 50,000 and noise s / 255 as in the paper's Figure 1a; data of diameter 1 have records of norm 1/2."""
    sigma, n, rows = s / 255, 50_000, 50_000
    a = math.log(1 - k / n + math.exp(1 / (k * sigma)) * k / n)
    b = math.log(n / (n - k + k * math.exp(-1 / (k * sigma))))
    event = Repeated(FixedSizeSampled(n, k, Laplace(k * sigma)), rows)
    claimed = epsilon(event, 0.0, accountant="as_published", adjacency=REPLACE_ONE)
    assert claimed.epsilon == pytest.approx(rows * max(a, b), rel=1e-9)
    assert claimed.epsilon == pytest.approx(expected, rel=5e-3)
    assert not claimed.is_upper_bound
    assert claimed.note
    halved = Repeated(FixedSizeSampled(n, k, Laplace(2 * k * sigma)), rows)
    assert epsilon(halved, 0.0, accountant="pure", adjacency=REPLACE_ONE).epsilon == pytest.approx(claimed.epsilon)
    # What a record of norm 1 really costs: its neighbour may lie at the other side.
    assert epsilon(event, 0.0, accountant="pure", adjacency=REPLACE_ONE).epsilon > 1.9 * claimed.epsilon


def test_pure_dp_without_sampling_is_the_ratio() -> None:
    assert epsilon(Laplace(0.02), 0, accountant="pure").epsilon == 50.0
    whole = Repeated(FixedSizeSampled(10, 10, Laplace(0.5)), 3)
    assert epsilon(whole, 0, accountant="pure", adjacency=REPLACE_ONE).epsilon == pytest.approx(12.0)
    assert epsilon(Laplace(1.0), 1e-9).epsilon == pytest.approx(1.0, abs=2e-4)
    assert epsilon(ClusterSampled(0.5, 0.1, Laplace(1.0)), 0, accountant="pure").epsilon > 0


@pytest.mark.parametrize(("records", "size"), [(2, 1), (3, 1), (3, 2)])
@pytest.mark.parametrize("noise", [0.3, 1.0, 4.0])
def test_pure_dp_of_fixed_size_samples_by_brute_force(records: int, size: int, noise: float) -> None:
    """All datasets of records in -1, 0 and 1, all neighbours: no ratio of densities is above, and one is there."""
    grid = (-1.0, 0.0, 1.0)

    def densities(data: tuple[float, ...]) -> np.ndarray:
        # Sums lie in [-2, 2]: beyond 3 the ratio is constant.
        places = np.linspace(-3, 3, 241)
        sums = [sum(drawn) for drawn in itertools.combinations(data, size)]
        return np.mean([np.exp(-np.abs(places - one) / noise) for one in sums], axis=0)

    def largest(smaller: Iterable[tuple[float, ...]], neighbours: Callable[[tuple[float, ...]], list]) -> float:  # type: ignore[type-arg]
        return max(
            float(np.abs(np.log(densities(data) / densities(other))).max())
            for data in smaller
            for other in neighbours(data)
        )

    event = FixedSizeSampled(records, size, Laplace(noise))
    price = epsilon(event, 0, accountant="pure").epsilon
    added = largest(itertools.product(grid, repeat=records - 1), lambda data: [(*data, one) for one in grid])
    again = largest(itertools.product(grid, repeat=records), lambda data: [(*data, one) for one in grid])
    assert again <= added == pytest.approx(price, rel=1e-12)
    # The norm once, as where a record that is added takes nobody's place, would be refuted.
    once = epsilon(PoissonSampled(size / records, Laplace(noise)), 0, accountant="pure").epsilon
    assert once < (1 - 1e-3) * added
    replaced = largest(itertools.product(grid, repeat=records), lambda data: [(*data[:-1], one) for one in grid])
    assert epsilon(event, 0, accountant="pure", adjacency=REPLACE_ONE).epsilon == price
    assert replaced <= price * (1 + 1e-12)


@given(st.integers(2, 10**6), st.floats(0.001, 1), st.floats(1e-3, 100), st.floats(0.1, 1e4), st.integers(1, 10**6))
@settings(deadline=None)
def test_pure_dp_is_never_above_its_linear_bound(
    n: int, share: float, scale: float, diameter: float, rows: int
) -> None:
    """epsilon <= T D / (k sigma): sampling never costs more than a record that is in every row."""
    width = max(1, int(share * n))
    event = Repeated(FixedSizeSampled(n, width, Laplace(2 * width * scale / diameter)), rows)
    found = epsilon(event, 0, accountant="pure", adjacency=REPLACE_ONE).epsilon
    assert found <= rows * diameter / (width * scale) * (1 + 1e-12)
    if diameter == 1:
        assert published_instahide_epsilon(n, width, scale, rows) == pytest.approx(found)


def test_laplace_pld_never_exceeds_pure() -> None:
    pure = epsilon(MIXUP, 0, accountant="pure", adjacency=REPLACE_ONE).epsilon
    assert epsilon(MIXUP, 1e-6, adjacency=REPLACE_ONE).epsilon <= pure * (1 + 1e-6)
    assert delta(MIXUP, pure, accountant="pure", adjacency=REPLACE_ONE).epsilon == pure
    assert delta(MIXUP, pure / 2, accountant="pure", adjacency=REPLACE_ONE).delta == 1.0


@pytest.mark.parametrize(
    ("name", "event", "adjacency", "reason"),
    [
        ("pld", FixedSizeSampled(100, 10, Gaussian(1.0)), ADD_REMOVE, None),
        ("pld", ClusterSampled(0.5, 0.1, Gaussian(1.0)), REPLACE_ONE, None),
        ("pld", PoissonSampled(0.1, PoissonSampled(0.1, Gaussian(1.0))), ADD_REMOVE, None),
        ("rdp", Repeated(ClusterSampled(0.5, 0.1, Gaussian(1.0)), 2), ADD_REMOVE, None),
        ("moments", FIXED, REPLACE_ONE, None),
        ("pure", POISSON, ADD_REMOVE, None),
        ("pure", FixedSizeSampled(9, 2, Gaussian(1.0)), ADD_REMOVE, "pure DP needs Laplace noise"),
        ("pure", FixedSizeSampled(9, 2, Gaussian(1.0)), REPLACE_ONE, "pure DP needs Laplace noise"),
        ("pure", ClusterSampled(0.5, 0.1, Laplace(1.0)), REPLACE_ONE, "priced under add_remove only"),
        ("gdp_clt", MIXUP, REPLACE_ONE, None),
        ("as_published", PoissonSampled(0.1, Laplace(3.0)), ADD_REMOVE, None),
    ],
)
def test_unsupported_pairs_raise(name: str, event: Event, adjacency: Adjacency, reason: str | None) -> None:
    with pytest.raises(UnsupportedEvent, match=reason):
        epsilon(event, 0 if name == "pure" else 1e-5, accountant=name, adjacency=adjacency)


def test_tradeoff_curve_of_a_gaussian_is_exact() -> None:

    alphas = np.array([0.001, 0.01, 0.1, 0.5, 0.9])
    ours = tradeoff_curve(Gaussian(1.0), alphas)
    exact = gdp_tradeoff(1.0, alphas)
    assert (ours <= exact + 1e-9).all()
    assert ours == pytest.approx(exact, abs=2e-3)


@pytest.mark.parametrize(("target", "accountant"), [(0.05, "pld"), (1.0, "pld"), (20.0, "pld"), (1.0, "rdp")])
def test_calibration_is_on_the_safe_side_and_close(target: float, accountant: str) -> None:
    found = calibrate(lambda s: Repeated(PoissonSampled(0.01, Gaussian(s)), 1_000), target, 1e-5, accountant=accountant)
    again = epsilon(found.event, 1e-5, accountant=accountant).epsilon
    assert 0.995 * target <= again <= target


def test_bad_targets_and_deltas() -> None:
    with refuses("epsilon"):
        calibrate(Gaussian, 0, 1e-5)
    with refuses("delta"):
        epsilon(Gaussian(1.0), 1)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)))
@settings(deadline=None)
def test_nonsense_events_are_invalid_input(junk: object) -> None:
    with pytest.raises(InvalidInput):
        event_from_dict(junk)  # type: ignore[arg-type]


def test_impossible_events_are_refused() -> None:
    """What no field refuses alone, as in tests/test_contracts.py."""
    with refuses("sample_size"):
        FixedSizeSampled(10, 11, Gaussian(1.0))
    with refuses("events"):
        Composed(())
