"""The search for the least noise: it ends, on the safe side and close, wherever some noise meets the target."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from privmix.accounting import Adjacency, Composed, Event, Gaussian, PoissonSampled, Repeated, calibrate
from privmix.accounting.api import calibrate_noise
from privmix.accounting.base import Accountant
from tests.refusals import refuses

ADD_REMOVE = Adjacency.ADD_REMOVE


@dataclass(frozen=True)
class Priced:
    """Epsilon is ``level`` over the noise, times ``wave`` that differs from noise to noise as grids do."""

    level: float
    rough_error: float = 0.0
    least: float = 0.0
    wave: float = 0.0
    name: str = "priced"
    is_upper_bound: bool = True
    note: str = ""

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        assert isinstance(event, Gaussian)
        noise = event.noise_multiplier
        return self.least + self.level / noise * (1 + self.wave * math.sin(1e5 * noise))

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        raise NotImplementedError

    def rough(self) -> Accountant:
        return Priced(self.level * (1 + self.rough_error), 0.0, self.least, self.wave)


@pytest.mark.parametrize("rough_error", [-0.2, -0.004, 0.0, 0.004, 0.2, 3.0])
@pytest.mark.parametrize("level", [0.0101, 0.9999, 1.0, 1.0001, 3.0, 9.995, 10.0, 99.99])
@pytest.mark.parametrize("wave", [0.0, 1e-5])
def test_a_rough_price_only_says_where_to_begin(level: float, rough_error: float, wave: float) -> None:
    """Least noises next to powers of ten, between which the search begins, and rough prices off to either side."""
    accountant = Priced(level, rough_error, wave=wave)
    found = calibrate_noise(Gaussian, 1.0, 1e-5, accountant, ADD_REMOVE)
    assert found.epsilon == accountant.epsilon(found.event, 1e-5, ADD_REMOVE)
    assert 0.995 <= found.epsilon <= 1.0
    assert found.noise_multiplier == pytest.approx(level, rel=1e-3)


@dataclass
class Stepped:
    """Epsilon is ``below`` up to a noise of ``at``, and 0.9 from there on; counts what it is asked."""

    at: float
    below: float
    asked: int = 0
    name: str = "stepped"
    is_upper_bound: bool = True
    note: str = ""

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        assert isinstance(event, Gaussian)
        self.asked += 1
        return self.below if event.noise_multiplier < self.at else 0.9

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        raise NotImplementedError

    def rough(self) -> Accountant:
        return Priced(1.0)


@pytest.mark.parametrize("below", [1.1, math.inf])
@pytest.mark.parametrize("at", [2e-3, 0.37, 1.0, 52.0, 9e8])
def test_a_price_that_jumps_is_met_behind_the_jump(at: float, below: float) -> None:
    accountant = Stepped(at, below)
    found = calibrate_noise(Gaussian, 1.0, 1e-5, accountant, ADD_REMOVE)
    assert at <= found.noise_multiplier <= at * 1.001
    assert accountant.asked < 60


@pytest.mark.parametrize("free", [1e-4, 1e-3])
def test_the_least_noise_is_enough_where_nothing_is_at_stake(free: float) -> None:
    accountant = Stepped(free, 1.1)
    assert calibrate_noise(Gaussian, 1.0, 1e-5, accountant, ADD_REMOVE).noise_multiplier == 1e-3


def test_a_target_that_no_noise_meets_is_refused_whatever_the_rough_price() -> None:
    with refuses("epsilon"):
        calibrate_noise(Gaussian, 1.0, 1e-5, Priced(1.0, -0.5, least=1.0), ADD_REMOVE)


@pytest.mark.parametrize("records", [5452, 6920, 7000])
def test_poisson_rows_and_their_mean_near_noise_one(records: int) -> None:
    """At 6,920 records a noise of 1 costs a thousandth less than 1, and by the rough price more than 1."""
    found = calibrate(
        lambda s: Composed((Gaussian(20.0), Repeated(PoissonSampled(16 / records, Gaussian(s)), records))), 1.0, 1e-5
    )
    assert 0.995 <= found.epsilon <= 1.0
