"""Tests of the certified noise: never a false alarm, whatever the data; and what is missing is seen."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, gamma, norm

from privmix.audits import noise_tests
from privmix.audits.empty_runs import part_tests
from privmix.audits.evidence import RowEvidence, row_law
from privmix.audits.noise_tests import (
    FALSE_ALARM,
    energy_test,
    equal_chance,
    equal_rows_test,
    grid_indices,
    small_values_test,
)
from privmix.errors import InvalidInput
from privmix.planning import ReleaseConfig
from privmix.plans.parts import Part
from tests.refusals import refuses


def refused(test: Callable[..., Any], *given: Any, **more: Any) -> bool:
    try:
        test("rows", *given, **more)
    except InvalidInput:
        return True
    return False


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("signal", ["none", "mean", "rows", "large"])
def test_signals_of_any_kind_raise_no_more_alarms_than_noise(
    law: str, signal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a rate of 5% a vector, 20,000 vectors: at most 1,202 alarms but with probability 1e-10 (binomial)."""
    monkeypatch.setattr(noise_tests, "FALSE_ALARM", 0.05)
    rng = np.random.default_rng(3)
    shape = (20_000, 12)
    noise = rng.normal(size=shape) if law == "gaussian" else rng.laplace(size=shape)
    shifts = {
        "none": 0.0,
        "mean": np.full(12, 0.4),
        "rows": 0.5 * rng.normal(size=shape),
        "large": 9.0 * np.eye(12)[rng.integers(0, 12, 20_000)],
    }
    values = noise + shifts[signal]
    if law == "gaussian":
        energies, degrees = np.square(values - values.mean(axis=1, keepdims=True)).sum(axis=1), 11
    else:
        energies, degrees = np.abs(values).sum(axis=1), 12
    alarms = sum(refused(energy_test, energy, degrees, law=law) for energy in energies)
    assert alarms <= 1202
    # Without a signal the test is exact: it does refuse.
    assert signal != "none" or alarms >= 810


@pytest.mark.parametrize("degrees", [1, 30, 4_000, 5_000_000, 3_000_000_000])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_threshold_is_the_quantile(degrees: int, law: str) -> None:
    """Just above it passes, just below is refused; beyond a million the bound is Chernoff's, a little below."""
    reference = chi2(degrees) if law == "gaussian" else gamma(degrees)
    if degrees <= 4_000:
        quantile = reference.ppf(FALSE_ALARM)
        above, below = 1.001 * quantile, 0.999 * quantile
    else:
        deviation = math.sqrt(2 * degrees if law == "gaussian" else degrees)
        above, below = degrees + norm.ppf(FALSE_ALARM) * deviation, degrees - 7.2 * deviation
    energy_test("x", above, degrees, law=law)
    with refuses("x"):
        energy_test("x", below, degrees, law=law)


@pytest.mark.parametrize("rows", [40, 2_000])
def test_what_is_said_to_be_caught_is_caught(rows: int) -> None:
    """400 draws at the stated share: 99% are refused, so 380 or more but with probability 1e-9."""
    rng = np.random.default_rng(0)
    caught = energy_test("x", [rows + 0.0] * 50, rows).caught
    energies = np.square(caught * rng.normal(size=(400, rows))).sum(axis=1)
    assert sum(refused(energy_test, [energy, *[rows + 0.0] * 49], rows) for energy in energies) >= 380


def test_the_share_caught_is_continuous_where_the_bound_changes() -> None:
    degrees = [1_999_998, 2_000_002]
    one, other = (energy_test("x", 1.01 * count, count).caught for count in degrees)
    assert one is not None
    assert one == pytest.approx(other, abs=5e-4)


def test_rounding_to_a_coarse_grid_makes_no_alarm() -> None:
    """Noise far below a grid step is rounded away; that is no fault of the release."""
    assert refused(energy_test, np.zeros(200), 50)
    assert energy_test("rows", np.zeros(200), 50, 0.5 / 0.05 * math.sqrt(50)).tests == 200
    assert refused(energy_test, [np.nan, 50.0], 50)


def test_small_values_see_what_large_ones_would_hide() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([1e3 * rng.normal(size=500), np.zeros(500)])
    energy_test("entries", np.square(values).sum(), 1000)
    with refuses("entries"):
        small_values_test("entries", values)
    small_values_test("entries", values + rng.normal(size=1000))


@pytest.mark.parametrize("symmetric", [False, True])
def test_one_class_alone_with_two_thirds_of_its_noise_is_refused(symmetric: bool) -> None:
    """Among a hundred classes that have all of it."""
    shape = (100, 45, 45) if symmetric else (1000, 100)
    part = Part(
        name="a", words="sums", meaning="", shape=shape, bound=1.0, noise_std=1.0, unit=2.0**-20, symmetric=symmetric
    )
    rng, plan = np.random.default_rng(3), SimpleNamespace(parts=[part])
    values = np.rint(rng.normal(size=shape) * 2**20) / 2**20
    if symmetric:
        below = np.tril(values, -1) / math.sqrt(2)
        values = np.rint((below + below.swapaxes(1, 2)) * 2**20) / 2**20 + values * np.eye(45)
    assert all(test.tests for test in part_tests(plan, SimpleNamespace(arrays={"a": values.astype(np.float32)})))
    # Off the diagonal, and spread, so that no row's sum of squares shows it.
    one = values[7] if symmetric else values[:, 7]
    one[...] = np.rint(one * 2**21 / 3) / 2**20
    with refuses("small values of the sums in each class"):
        part_tests(plan, SimpleNamespace(arrays={"a": values.astype(np.float32)}))


def test_small_values_alarm_no_more_often_than_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a rate of 5%, 2,000 sets: at most 170 alarms but with probability below 1e-9; signals lower it."""
    monkeypatch.setattr(noise_tests, "FALSE_ALARM", 0.05)
    rng = np.random.default_rng(2)
    for scale in (0.0, 0.3):
        sets = rng.normal(size=(2000, 64)) + scale * rng.normal(size=(2000, 64))
        assert sum(refused(small_values_test, values) for values in sets) <= 170


def test_the_grid_is_seen_through_float32() -> None:
    rng = np.random.default_rng(0)
    for unit in (2.0**-16, 0.1 / 20, 1 / 3, 1e-9):
        for size in (2**10, 2**23, 2**24, 2**25, 2**40):
            steps = rng.integers(-size, size, 50_000).astype(np.float64)
            # Powers of two have narrower neighbours below them.
            steps[:100] = np.rint(2.0 ** rng.integers(0, 30, 100) / unit)
            assert grid_indices((steps * unit).astype(np.float32), unit).all()
    values = rng.normal(size=20_000).astype(np.float32)
    on_grid = (np.rint(values.astype(np.float64) / 2e-5) * 2e-5).astype(np.float32)
    assert grid_indices(on_grid, 2e-5).all()
    # One in about 170 of all float32 near 1 is on this grid.
    assert grid_indices(values, 2e-5).mean() < 0.05
    assert not grid_indices(np.array([np.nan], np.float32), 1.0).any()


def test_equal_rows_are_found_wherever_they_are_unless_chance_makes_them() -> None:
    rng = np.random.default_rng(0)
    digests = [rng.bytes(16) for _ in range(3000)]
    assert equal_rows_test("rows", b"".join(digests), 1e-30).tests == 3000 * 2999 // 2
    digests[2345] = digests[17]
    with refuses("rows"):
        equal_rows_test("rows", b"".join(digests), 1e-30)
    assert equal_rows_test("rows", b"".join(digests), 1e-9).tests == 0


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_rows_are_equal_by_chance_as_often_as_is_said_at_most(law: str) -> None:
    """A million pairs: fewer than the bound's count plus eight standard deviations."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 10**6, 2)) if law == "gaussian" else rng.laplace(size=(2, 10**6, 2)) / math.sqrt(2)
    steps = np.rint(5 * noise)
    equal = int((steps[0] == steps[1]).all(axis=1).sum())
    most = 1e6 * equal_chance(5.0, 2, law=law)
    assert equal <= most + 8 * math.sqrt(most)
    assert equal > most / 10


@pytest.mark.parametrize("offset", [0.0, 2.0**52])
def test_numbers_whose_squares_overflow_are_judged_like_others(offset: float) -> None:
    """Noise of 1e21 is honest; sums of 2^52 steps are a stranger's, and within what a sum may be."""
    config = ReleaseConfig(records=64, dim=8, classes=("a", "b"), mixup_degree=1, clip_norm=1e9, centre="none")
    plan = config.with_noise(1.0 if offset else 1e12)
    rng, evidence = np.random.default_rng(0), RowEvidence(plan, row_law(plan, None))
    for name, width, std, unit in (("x", 8, plan.noise_std_x, plan.unit_x), ("y", 2, plan.noise_std_y, plan.unit_y)):
        steps = np.rint(rng.normal(size=(64, width)) * std / unit) + (offset if name == "x" else 0.0)
        evidence.add(name, 0, (steps * unit).astype(np.float32))
    assert evidence.finish()[-1].name == "noise of x where it varies least"
