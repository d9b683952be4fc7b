"""The search for the least noise: it ends, on the safe side and close, wherever some noise meets the target."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from privmix.accounting import Adjacency, Composed, Event, Gaussian, PoissonSampled, Repeated, calibrate
from privmix.accounting.api import calibrate_noise
from privmix.accounting.base import Accountant
from tests.refusals import refuses

ADD_REMOVE = Adjacency.ADD_REMOVE


@dataclass
class Priced:
    """Epsilon is ``price`` of the noise, roughly ``near`` of it; counts what it is asked."""

    price: Callable[[float], float]
    near: Callable[[float], float]
    asked: int = 0
    name: str = "priced"
    is_upper_bound: bool = True
    note: str = ""

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        self.asked += 1
        return self.price(event.noise_multiplier)

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        raise NotImplementedError

    def rough(self) -> Accountant:
        return Priced(self.near, self.near)


def falling(level: float, rough_error: float, wave: float = 0.0, least: float = 0.0) -> Priced:
    """Epsilon is ``level`` over the noise, times ``wave`` that differs from noise to noise as grids do."""

    def at(level: float) -> Callable[[float], float]:
        return lambda noise: least + level / noise * (1 + wave * math.sin(1e5 * noise))

    return Priced(at(level), at(level * (1 + rough_error)))


def stepped(at: float, below: float) -> Priced:
    """Epsilon is ``below`` up to a noise of ``at``, and 0.9 from there on."""
    return Priced(lambda noise: below if noise < at else 0.9, lambda noise: 1 / noise)


@pytest.mark.parametrize("rough_error", [-0.2, -0.004, 0.0, 0.004, 0.2, 3.0])
@pytest.mark.parametrize("level", [0.0101, 0.9999, 1.0, 1.0001, 3.0, 9.995, 10.0, 99.99])
@pytest.mark.parametrize("wave", [0.0, 1e-5])
def test_a_rough_price_only_says_where_to_begin(level: float, rough_error: float, wave: float) -> None:
    """Least noises next to powers of ten, between which the search begins, and rough prices off to either side."""
    accountant = falling(level, rough_error, wave)
    found = calibrate_noise(Gaussian, 1.0, 1e-5, accountant, ADD_REMOVE)
    assert found.epsilon == accountant.epsilon(found.event, 1e-5, ADD_REMOVE)
    assert 0.995 <= found.epsilon <= 1.0
    assert found.noise_multiplier == pytest.approx(level, rel=1e-3)


@pytest.mark.parametrize("below", [1.1, math.inf])
@pytest.mark.parametrize("at", [2e-3, 0.37, 1.0, 52.0, 9e8])
def test_a_price_that_jumps_is_met_behind_the_jump(at: float, below: float) -> None:
    accountant = stepped(at, below)
    found = calibrate_noise(Gaussian, 1.0, 1e-5, accountant, ADD_REMOVE)
    assert at <= found.noise_multiplier <= at * 1.001
    assert accountant.asked < 60


def test_the_least_noise_is_enough_and_none_may_be() -> None:
    """Where nothing is at stake, and where no noise meets the target, whatever the rough price."""
    for free in (1e-4, 1e-3):
        assert calibrate_noise(Gaussian, 1.0, 1e-5, stepped(free, 1.1), ADD_REMOVE).noise_multiplier == 1e-3
    with refuses("epsilon"):
        calibrate_noise(Gaussian, 1.0, 1e-5, falling(1.0, -0.5, least=1.0), ADD_REMOVE)


@pytest.mark.parametrize("records", [5452, 6920, 7000])
def test_poisson_rows_and_their_mean_near_noise_one(records: int) -> None:
    """At 6,920 records a noise of 1 costs a thousandth less than 1, and by the rough price more than 1."""
    found = calibrate(
        lambda s: Composed((Gaussian(20.0), Repeated(PoissonSampled(16 / records, Gaussian(s)), records))), 1.0, 1e-5
    )
    assert 0.995 <= found.epsilon <= 1.0
