"""Random allocation: its price against quadrature, simulated attacks and Poisson sampling."""

import math
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privmix.accounting import (
    Adjacency,
    Allocated,
    Composed,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
    UnsupportedEvent,
    calibrate,
    delta,
    epsilon,
)
from privmix.accounting.allocation import AllocationQuery, _Row, _sum_of
from privmix.accounting.base import flatten
from privmix.accounting.direction import LossDirection
from privmix.accounting.pairs import GaussianNoise, SampledPair
from privmix.accounting.pld import PldAccountant, ReplacedLoss
from privmix.accounting.queries import PairQuery

Real = NDArray[np.float64]
REPLACED = Adjacency.REPLACE_ONE
# Two-sided normal tail beyond 7 is 3e-12; a module of ten such statistics stays below 1e-9.
Z_LIMIT = 7.0
DRAWS = 400_000


def allocated(rows: int, noise: float, blocks: int = 1) -> Repeated:
    return Repeated(Allocated(rows, Gaussian(noise)), blocks)


def directed(rows: int, noise: float, at: float, *, add: bool, blocks: int = 1) -> float:
    """The divergence in one direction."""
    return LossDirection([AllocationQuery(noise, rows, blocks)], add, 1e-4).delta(at)


def simulated(rows: int, noise: float, blocks: int, shift: float, other: float, generator: np.random.Generator) -> Real:
    """log of (rows that hold ``shift``) over (rows that hold ``other``), where they hold ``shift``, from the rows."""
    losses = np.zeros(DRAWS)
    for _ in range(blocks):
        y = noise * generator.standard_normal((DRAWS, rows))
        y[np.arange(DRAWS), generator.integers(rows, size=DRAWS)] += shift
        for sign, value in ((1, shift), (-1, other)):
            ratios = (value * y - value**2 / 2) / noise**2
            top = ratios.max(axis=1, keepdims=True)
            losses += sign * (top[:, 0] + np.log(np.exp(ratios - top).mean(axis=1)))
    return losses


def measured(losses: Real, at: float) -> tuple[float, float]:
    """Mean of (1 - e^(at - loss))+, which is the divergence, and its standard error."""
    shares = np.maximum(-np.expm1(at - losses), 0.0)
    return float(shares.mean()), float(shares.std() / math.sqrt(len(shares)))


def test_one_row_is_a_gaussian_query() -> None:
    assert flatten(allocated(1, 1.5, 4)) == flatten(Gaussian(0.75))
    for at in (0.1, 2.0, 5.0):
        exact = delta(Gaussian(1.2), at).delta
        for add in (False, True):
            assert exact * (1 - 1e-9) < directed(1, 1.2, at, add=add) < exact * 1.01


@pytest.mark.parametrize(("noise", "at"), [(0.6, 2.0), (1.0, 1.0), (2.5, 0.3)])
def test_two_rows_are_bounded_closely_in_both_directions(noise: float, at: float) -> None:
    """By integration over both rows."""
    grid, step = np.linspace(-9, 9 + 1 / noise, 3001, retstep=True)
    density = stats.norm.pdf(grid) * step
    ratio = np.exp(grid / noise - 1 / (2 * noise**2))
    mean = (ratio[:, None] + ratio) / 2
    for add, gain in ((False, mean - math.exp(at)), (True, 1 - math.exp(at) * mean)):
        exact = float(density @ np.maximum(gain, 0) @ density)
        assert exact * (1 - 1e-6) < directed(2, noise, at, add=add) < exact * 1.01


@pytest.mark.parametrize(("rows", "noise", "blocks", "at"), [(30, 0.5, 1, 2.0), (12, 1.2, 4, 0.8)])
@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_best_attack_reaches_the_price_and_no_more(
    rows: int, noise: float, blocks: int, at: float, factor: float, holds: bool
) -> None:
    """Where the record is there; at two thirds of the noise the price is too small for what is seen, and so on."""
    losses = simulated(rows, noise * factor, blocks, 1.0, 0.0, np.random.default_rng(5))
    seen, error = measured(losses, at)
    price = directed(rows, noise, at, add=False, blocks=blocks)
    assert (seen - Z_LIMIT * error <= price <= 1.01 * seen + Z_LIMIT * error) == holds


def test_the_other_direction_is_bounded() -> None:
    generator, rows, noise, at = np.random.default_rng(6), 12, 1.2, 0.4
    y = generator.standard_normal((DRAWS, rows)) / noise - 1 / (2 * noise**2)
    seen, error = measured(-np.log(np.exp(y).mean(axis=1)), at)
    price = directed(rows, noise, at, add=True)
    assert seen - Z_LIMIT * error <= price <= 1.01 * seen + Z_LIMIT * error


def test_replaced_records_are_bounded() -> None:
    """The attack on a record against its opposite: the price is a bound, and no more than a tenth of epsilon above."""
    rows, noise, blocks = 12, 2.0, 4
    losses = simulated(rows, noise, blocks, 1.0, -1.0, np.random.default_rng(7))
    event = allocated(rows, noise, blocks)
    for target in (1e-2, 1e-3):
        price = epsilon(event, target, adjacency=REPLACED).epsilon
        seen, error = measured(losses, price)
        assert seen - Z_LIMIT * error <= target
        seen, error = measured(losses, 0.85 * price)
        assert seen - Z_LIMIT * error > target
        assert target * 0.95 <= delta(event, price, adjacency=REPLACED).delta <= target * 1.2


def two_steps(noise: float) -> ReplacedLoss:
    queries = [PairQuery(SampledPair(GaussianNoise(noise), 1.0), 1)]
    return ReplacedLoss(*(LossDirection(queries, add, 1e-4) for add in (False, True)))


@pytest.mark.parametrize("noise", [0.7, 2.0, 8.0])
def test_two_steps_are_exact_for_gaussian_queries(noise: float) -> None:
    both = two_steps(noise)
    exact = PldAccountant().epsilon(Gaussian(noise), 1e-5, REPLACED)
    assert exact * (1 - 1e-9) <= both.epsilon(1e-5) <= exact * 1.005
    assert 1e-5 * (1 - 1e-6) <= both.delta(exact) <= 1.2e-5
    assert both.guess_epsilon(1e-5) == pytest.approx(exact, rel=0.05)
    assert both.guess_log_delta(exact) == pytest.approx(math.log(1e-5), abs=0.4)


def test_two_steps_say_nothing_where_their_factor_is_no_number() -> None:
    """A delta that underflows, times e to the 900: no bound may come of it."""
    both = two_steps(0.02)
    with patch.object(ReplacedLoss, "_best_share", lambda *_: 0.5):
        assert both.delta(1800.0) == 1.0
        assert both.delta(1300.0) <= 1.0


@pytest.mark.parametrize("noise", [0.1, 0.5, 2.0, 1e4])
@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_mass_and_mean_stay_on_the_way(rows: int, noise: float) -> None:
    law = _sum_of(rows, _Row(noise, 40, 28.0, 0.05))
    assert math.fsum(law.masses) == pytest.approx(1, abs=1e-9)
    assert (law.masses @ law.values + law.lost) / rows == pytest.approx(1, abs=1e-9)
    assert (np.diff(law.values) > 0).all()
    assert (law.masses >= 0).all()
    assert law.masses[0] + law.lost / rows < 2 * math.exp(-39)
    assert law.moved < 1e-10
    assert law.raised < 1e-5


def test_blocks_and_other_queries_compose() -> None:
    together = Composed((Gaussian(20.0), allocated(20, 2.0, 3), Repeated(PoissonSampled(0.01, Gaussian(1.0)), 9)))
    parts = [epsilon(part, 1e-5).epsilon for part in together.events]
    assert max(parts) < epsilon(together, 1e-5).epsilon
    assert epsilon(together, 3e-5).epsilon < sum(parts)
    assert epsilon(together, 1e-5, adjacency=REPLACED).epsilon > epsilon(together, 1e-5).epsilon


def test_calibration_is_on_the_safe_side() -> None:
    for adjacency in (Adjacency.ADD_REMOVE, REPLACED):
        found = calibrate(lambda noise: allocated(25, noise, 4), 2.0, 1e-5, adjacency=adjacency)
        assert 0.995 * 2 < found.epsilon <= 2
        assert epsilon(found.event, 1e-5, adjacency=adjacency).epsilon == found.epsilon


def test_what_has_no_price_is_refused() -> None:
    with pytest.raises(UnsupportedEvent, match="Gaussian noise only"):
        epsilon(Allocated(3, Laplace(1.0)), 1e-5)
    for accountant in ("rdp", "moments", "pure", "gdp_clt", "as_published"):
        with pytest.raises(UnsupportedEvent):
            epsilon(allocated(7, 1.5, 2), 1e-5, accountant=accountant)
