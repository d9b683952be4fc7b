"""What a promise leaves to the best attack."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from privmix.accounting import Adjacency, Gaussian, event_to_dict
from privmix.certificate.guarantee import Guarantee

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
    assert whole.curves()["power"] == {"alpha": 0.05, "caught": whole.caught(0.05), "right": whole.right}


def test_nothing_promised_is_nothing_left() -> None:
    assert set(promise(exact=False, epsilon=math.inf).curves().values()) == {None}


def test_it_is_read_from_a_certificate() -> None:
    stated = {"epsilon": 2.0, "delta": 1e-5, "adjacency": "add_remove", "accountant": "pld"}
    content = {"guarantee": stated, "event": event_to_dict(Gaussian(2.0)), "plan": {}}
    assert Guarantee.of(content) == promise(exact=True)
    assert not Guarantee.of({**content, "plan": {"records_noise_multiplier": 5.0}}).exact
    assert not Guarantee.of({**content, "guarantee": {**stated, "accountant": "pure"}}).exact
    assert Guarantee.of({**content, "guarantee": {**stated, "epsilon": None}}).epsilon == math.inf
