"""Sums with normal weights: their price against the exact law, and what its numerics assume."""

import math

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from privmix.accounting import Adjacency, Composed, Gaussian, NormalWeighted, PoissonSampled, Repeated, delta, epsilon
from privmix.accounting.base import UnsupportedEvent
from privmix.accounting.pairs import UNIT
from privmix.accounting.spreads import _MOST_ROWS, _OFFSET_UNITS, _SQUARE_UNITS, _TAIL_UNITS, SpreadQuery


def exact_delta(rows: int, noise: float, at: float) -> float:
    """Of N(0, s^2) against N(0, s^2 + 1), ``rows`` times: the larger direction's, by the tails of chi-squared."""
    ratio, found = 1 + noise**-2, 0.0
    threshold = 2 * (at + rows / 2 * math.log(ratio)) / (1 - 1 / ratio)
    found = stats.chi2.sf(threshold / ratio, rows) - math.exp(at) * stats.chi2.sf(threshold, rows)
    threshold = max(0.0, 2 * (rows / 2 * math.log(ratio) - at) / (1 - 1 / ratio))
    return float(max(found, stats.chi2.cdf(threshold, rows) - math.exp(at) * stats.chi2.cdf(threshold / ratio, rows)))


@pytest.mark.parametrize(
    ("rows", "noise", "target"),
    [(1, 1.0, 1e-5), (7, 0.3, 1e-3), (60, 5.0, 1e-5), (1152, 9.7, 1e-5), (9947, 16.3, 1e-8), (10**6, 60.0, 1e-5)],
)
def test_the_price_is_an_upper_bound_and_near(rows: int, noise: float, target: float) -> None:
    event = Repeated(NormalWeighted(Gaussian(noise)), rows)
    found = epsilon(event, target).epsilon
    assert 0.99 * target < exact_delta(rows, noise, found) <= target
    assert delta(event, found).delta >= exact_delta(rows, noise, found)


def test_it_composes_with_other_queries() -> None:
    """Beside a Gaussian query of multiplier 20, by integration over that one's loss."""
    rows, noise, mu = 1152, 12.0, 1 / 20
    found = epsilon(Composed((Gaussian(20.0), Repeated(NormalWeighted(Gaussian(noise)), rows))), 1e-5).epsilon
    losses = mu**2 / 2 + mu * np.linspace(-9, 9, 1201)
    # Before its other part a query's delta is that of every real epsilon.
    ratio = 1 + noise**-2
    threshold = 2 * (found - losses + rows / 2 * math.log(ratio)) / (1 - 1 / ratio)
    tails = stats.chi2.sf(threshold / ratio, rows) - np.exp(found - losses) * stats.chi2.sf(threshold, rows)
    exact = np.trapezoid(np.maximum(tails, 0) * stats.norm.pdf(losses, mu**2 / 2, mu), losses)
    assert 0.99e-5 < exact <= 1e-5 * (1 + 1e-6)


@pytest.mark.parametrize("half", [0.5, 30.0, 450.0, 600.0, 4973.5, _MOST_ROWS / 2])
def test_incomplete_gamma_functions_are_as_good_as_assumed(half: float) -> None:
    """A tenth of the error that the price allows for them, against 40 digits."""
    for place in (-12, -5, -1, -0.1, 0.3, 2, 6, 20):
        at = max(half * 1e-3, half + place * math.sqrt(half))
        upper = at > half
        with mpmath.workdps(40):
            ends = (at, mpmath.inf) if upper else (0, at)
            exact = mpmath.gammainc(mpmath.mpf(half), *ends, regularized=True)
        found = float((special.gammaincc if upper else special.gammainc)(half, at))
        assert abs(found - exact) <= UNIT * _TAIL_UNITS / 10 * exact


@pytest.mark.parametrize(("noise", "rows"), [(1e-3, 3), (0.7, 40), (30.0, 1000), (1e5, _MOST_ROWS)])
def test_points_lie_where_they_are_assumed(noise: float, rows: int) -> None:
    """Half of what the price allows, against 40 digits."""
    query = SpreadQuery(noise, rows, 1)
    for place in (0.01, 0.5, 1.0, 1.3):
        loss = float(place * rows * query._slope - query._offset)
        with mpmath.workdps(40):
            ratio = 1 / mpmath.mpf(noise) ** 2
            slope, offset = ratio / (2 * (1 + ratio)), mpmath.mpf(rows) / 2 * mpmath.log1p(ratio)
            exact = (mpmath.mpf(loss) + offset) / slope
        found = (loss + query._offset) / query._slope
        assert abs(found - exact) <= UNIT / 2 * (_OFFSET_UNITS * query._offset / query._slope + _SQUARE_UNITS * found)


def test_what_is_not_priced_is_refused() -> None:
    with pytest.raises(UnsupportedEvent, match="add_remove only"):
        epsilon(NormalWeighted(Gaussian(1.0)), 1e-5, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(UnsupportedEvent, match="Gaussian noise"):
        epsilon(NormalWeighted(PoissonSampled(0.5, Gaussian(1.0))), 1e-5)
    for accountant in ("rdp", "pure", "gdp_clt", "as_published"):
        with pytest.raises(UnsupportedEvent):
            epsilon(NormalWeighted(Gaussian(1.0)), 1e-5, accountant=accountant)
    # Loss without end: no price.
    assert epsilon(Repeated(NormalWeighted(Gaussian(1e-6)), 1000), 1e-5).epsilon == math.inf
