"""Rows of all records with normal weights: their law, their exactness, and that cuts change nothing."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from privmix.accounting import Composed, Gaussian, Repeated, epsilon
from privmix.engine.engines import make_engine
from privmix.engine.rows import PrivateRecords
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.research.rivals.gaussian_mixing import engine as gaussian_mixing_engine
from privmix.research.rivals.gaussian_mixing.engine import GaussianMixingEngine
from privmix.research.rivals.gaussian_mixing.plan import RECORD_BLOCK, WEIGHT_BITS, GaussianMixingPlan, NormalWeights
from tests.refusals import refuses
from tests.releases.helpers import CLASSES, make_records

# Of each test of a law: a right one fails with this chance.
ALARM = 1e-10


def plan_of(records: int, dim: int, **changes: Any) -> GaussianMixingPlan:
    config = ReleaseConfig(records, dim, CLASSES, design="gaussian-mixing", **{"centre": "none", **changes})
    plan = config.with_noise(0.8)
    assert isinstance(plan, GaussianMixingPlan)
    return plan


def rows_of(plan: GaussianMixingPlan, records: PrivateRecords) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(GaussianMixingEngine(plan, records, SecretStreams.from_seed(5), workers=1).rows())
    x, y = (np.concatenate([getattr(block, part) for block in blocks]) for part in "xy")
    return x * plan.divisor, y * plan.divisor


def test_rows_have_the_covariance_of_the_plan() -> None:
    """The right variance is accepted; two thirds and three halves of it are not."""
    plan = plan_of(2, 2, rows=4000)
    # Long records of one class: both are clipped to norm 1.
    records = PrivateRecords(np.array([[5.0, 0.0], [3.0, 4.0]]), np.array([1, 1]))
    x, y = rows_of(plan, records)
    noise_x, noise_y = plan.noise_std_x * plan.divisor, plan.noise_std_y * plan.divisor
    # Directions: along the first record, across it, their class, and another one.
    for seen, variance in (
        (x[:, 0], 1 + 0.6**2 + noise_x**2),
        (x[:, 1], 0.8**2 + noise_x**2),
        (y[:, 1], 2 + noise_y**2),
        (y[:, 0], noise_y**2),
        # Weights of features and labels are the same ones.
        (x[:, 0] + y[:, 1], 2**2 + 1.6**2 + noise_x**2 + noise_y**2),
    ):
        total = float(np.square(seen).sum())
        low, high = stats.chi2.ppf(ALARM / 2, len(seen)), stats.chi2.isf(ALARM / 2, len(seen))
        assert low < total / variance < high
        assert not low < total / (variance * 2 / 3) < high
        assert not low < total / (variance * 3 / 2) < high


def test_weights_are_normal_and_on_their_grid() -> None:
    sampler = NormalWeights(records=RECORD_BLOCK + 10, rows=30)
    streams = SecretStreams.from_seed(1)
    drawn = sampler.block(streams, 0, 0)
    assert (drawn == np.rint(drawn)).all()
    values = drawn.ravel() * 2.0**-WEIGHT_BITS
    # Cells of 2^-16 are nothing to this test: its p-value moves by less than a thousandth.
    assert stats.kstest(values, stats.norm.cdf).pvalue > ALARM
    assert stats.kstest(values * 1.05, stats.norm.cdf).pvalue < ALARM
    assert sampler.block(streams, 0, 1).shape == (30, 10)
    whole = sampler.draw(streams, 0, 0)
    assert whole.weights is not None
    assert np.array_equal(whole.weights.reshape(30, -1)[:, :RECORD_BLOCK] * 2.0**WEIGHT_BITS, drawn)


def test_rounding_of_weights_is_paid_for_and_costs_next_to_nothing() -> None:
    event = plan_of(600, 7, rows=1000).main_event
    assert isinstance(event, Composed)
    spread, rounding = event.events
    assert isinstance(rounding, Repeated)
    # Half a step of the grid, over the share of the noise that pays for it.
    half, noise = 2.0 ** -(WEIGHT_BITS + 1), 0.8 * 2.0**-5
    assert isinstance(rounding.event, Gaussian)
    assert rounding.event.noise_multiplier == pytest.approx(noise / half)
    assert epsilon(event, 1e-5).epsilon < 1.001 * epsilon(spread, 1e-5).epsilon


def test_sums_in_parts_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    records = make_records(RECORD_BLOCK + 50, 3)
    plan = plan_of(len(records.labels), 3, rows=2100, centre="private")
    whole = rows_of(plan, records)
    monkeypatch.setattr(gaussian_mixing_engine, "SUM_BYTES", 1)
    for one, other in zip(whole, rows_of(plan, records), strict=True):
        assert np.array_equal(one, other)
    monkeypatch.undo()
    small = make_engine(plan, records, SecretStreams.from_seed(5), memory_gb=1e-6, workers=1)
    blocks = list(small.rows())
    assert [len(block.x) for block in blocks] == [1024, 1024, 52]
    assert np.array_equal(np.concatenate([block.x for block in blocks]) * plan.divisor, whole[0])


def test_rows_that_could_be_inexact_are_refused() -> None:
    assert plan_of(60_000, 5).lattice_bits == 15
    assert plan_of(2**20, 5).lattice_bits == 11
    with refuses("records"):
        plan_of(2**25, 5)
    with refuses("plan lattice_bits"):
        GaussianMixingPlan.from_dict({**plan_of(2**20, 5).to_dict(), "lattice_bits": 20})
    # Plans leave a bit: of neighbours, both or none are refused, where a declared or estimated count is near.
    plan = plan_of(2**18 - 1, 1, records_declared=True)
    assert plan.lattice_bits == 14
    records = PrivateRecords(np.zeros((2**18, 1), np.float32), np.zeros(2**18, np.int64))
    GaussianMixingEngine(plan, records, SecretStreams.from_seed(5), workers=1)
