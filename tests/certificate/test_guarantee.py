"""What a promise leaves to the best attack."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from privmix.accounting import (
    Adjacency,
    Composed,
    Event,
    Gaussian,
    PoissonSampled,
    Repeated,
    epsilon,
    event_to_dict,
    gdp_epsilon,
)
from privmix.accounting import epsilon_delta_curve as profile
from privmix.accounting.gdp import gdp_delta
from privmix.certificate.guarantee import FAITHFUL, Guarantee, as_gdp

ALPHAS = np.array([0.0, 1e-3, 0.05, 0.5, 1.0])


def promise(*, exact: bool, epsilon: float = 2.0, delta: float = 1e-5) -> Guarantee:
    return Guarantee(epsilon, delta, Gaussian(2.0), Adjacency.ADD_REMOVE, exact)


def test_an_exact_promise_is_the_events_own_curve() -> None:
    """Dong, Roth and Su 2022: the trade-off of a Gaussian query of multiplier s is Phi(Phi^-1(1 - a) - 1/s)."""
    found = promise(exact=True)
    np.testing.assert_allclose(found.missed(ALPHAS), norm.cdf(norm.isf(ALPHAS) - 0.5), atol=2e-3)
    assert (found.missed(ALPHAS) <= norm.cdf(norm.isf(ALPHAS) - 0.5) + 1e-12).all(), "a bound on what is caught"
    assert found.right == pytest.approx(norm.cdf(0.25), abs=2e-3)
    assert found.right >= norm.cdf(0.25) - 1e-12


def test_a_single_point_promises_less() -> None:
    point, whole = promise(exact=False), promise(exact=True, epsilon=2.0)
    assert (point.missed(ALPHAS) <= whole.missed(ALPHAS) + 1e-12).all()
    assert point.caught(0.05) == pytest.approx(min(1.0, 1e-5 + math.e**2 * 0.05), rel=1e-12)
    assert point.right == pytest.approx((math.e**2 + 1e-5) / (1 + math.e**2))
    assert point.curves()["epsilon_delta"] is None
    assert set(promise(exact=False, epsilon=math.inf).curves().values()) == {None}
    assert whole.curves()["power"] == {"alpha": 0.05, "caught": whole.caught(0.05), "right": whole.right}


def test_it_is_read_from_a_certificate() -> None:
    stated = {"epsilon": 2.0, "delta": 1e-5, "adjacency": "add_remove", "accountant": "pld"}
    content = {"guarantee": stated, "event": event_to_dict(Gaussian(2.0)), "plan": {}}
    assert Guarantee.of(content) == promise(exact=True)
    assert not Guarantee.of({**content, "plan": {"records_noise_multiplier": 5.0}}).exact
    assert not Guarantee.of({**content, "guarantee": {**stated, "accountant": "pure"}}).exact
    assert Guarantee.of({**content, "guarantee": {**stated, "epsilon": None}}).epsilon == math.inf


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(3.0),
        Repeated(PoissonSampled(0.01, Gaussian(0.8)), 400),
        Composed((Gaussian(6.0), Repeated(PoissonSampled(0.2, Gaussian(4.0)), 50))),
    ],
)
def test_mu_covers_the_curve_and_the_regret_says_how_loosely(event: Event) -> None:
    delta = 1e-5
    promised = Guarantee(epsilon(event, delta).epsilon, delta, event, Adjacency.ADD_REMOVE, exact=True)
    found = as_gdp(promised)
    for at in [0.013, 0.21, 0.77, 1.3, promised.epsilon, promised.epsilon * 1.2]:
        assert float(profile(event, [at])[0]) <= max(gdp_delta(found.mu, at), delta) * (1 + 1e-6)
    assert gdp_epsilon(found.mu, delta) >= promised.epsilon * (1 - 1e-6)
    if isinstance(event, Gaussian):
        assert found.mu == pytest.approx(1 / 3, rel=2e-3)
        assert found.regret < 1e-3
    # A mechanism of few, rare and clear rows is none of Gaussian DP.
    assert found.faithful is (found.regret < FAITHFUL)
    assert isinstance(event, Repeated) is (found.regret > FAITHFUL)


def test_one_point_is_no_curve() -> None:
    assert as_gdp(promise(exact=False)) is None
    assert as_gdp(promise(exact=True, delta=0.0)) is None
    assert as_gdp(promise(exact=True, epsilon=math.inf)) is None
