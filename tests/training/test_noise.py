import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from privmix.mechanisms.streams import SecretStreams
from privmix.training.noise import MOST_PROCESSES, check_processes, grid_of, noise_scale, noisy_mean
from privmix.training.plan import TrainingPlan
from tests.refusals import refuses

# Two-sided: a right noise fails a comparison with chance 1e-11, all of them here with less than 1e-9.
P_LIMIT = 1e-11
SIZE = 20_000
PLAN = TrainingPlan(1000, 100, 50, 1.3, clip_norm=0.7, delta=1e-5)


def noise_of(plan: TrainingPlan, step: int = 0, seed: int = 0, size: int = SIZE) -> NDArray[np.float64]:
    mean = noisy_mean(torch.zeros(size), plan, SecretStreams.from_seed(seed), step)
    return mean.double().numpy() * plan.units


@pytest.mark.parametrize("microbatch_size", [1, 4])
@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_right_noise(factor: float, accepted: bool, microbatch_size: int) -> None:
    """Multiplier times what a record can move the sum by, C or 2C; two thirds and one and a half are rejected."""
    plan = replace(PLAN, noise_multiplier=1.3 * factor, microbatch_size=microbatch_size)
    noise = noise_of(plan) / (1.3 * 0.7 * (1 if microbatch_size == 1 else 2))
    # Two-sided, of the sum of squares.
    p_value = 2 * min(law(float(noise @ noise), len(noise)) for law in (stats.chi2.cdf, stats.chi2.sf))
    assert (p_value > P_LIMIT) == accepted


def test_right_noise_is_normal_and_independent() -> None:
    noise = noise_of(PLAN) / PLAN.noise_std
    assert stats.kstest(noise, "norm").pvalue > P_LIMIT
    for lag in (1, 2, 64):
        assert abs(noise[lag:] @ noise[:-lag]) / math.sqrt(SIZE) < 7


def test_as_many_processes_share_a_run_as_the_noise_has_room_for() -> None:
    """One record moves the rounding of 2 W - 1 groups, each by 2^-17 of the bound and 1e-5 in float64."""
    room = noise_scale(PLAN) / PLAN.noise_std - 1
    assert room >= (2 * MOST_PROCESSES - 1) * (2**-17 + 1e-5)
    check_processes(PLAN, MOST_PROCESSES)
    with refuses("processes"):
        check_processes(PLAN, MOST_PROCESSES + 1)


def test_once_a_step() -> None:
    """A step that is done again has the same noise; other steps and other keys have other noise."""
    assert (noise_of(PLAN, 3) == noise_of(PLAN, 3)).all()
    for other in (noise_of(PLAN, 4), noise_of(PLAN, 3, seed=1)):
        assert abs(other @ noise_of(PLAN, 3)) / PLAN.noise_std**2 / math.sqrt(SIZE) < 7
        assert not (other == noise_of(PLAN, 3)).any() or (other == noise_of(PLAN, 3)).mean() < 1e-2
    streams = SecretStreams.from_seed(0)
    first = noisy_mean(torch.zeros(9), PLAN, streams, 0)
    noisy_mean(torch.zeros(9), PLAN, streams, 1)
    assert torch.equal(noisy_mean(torch.zeros(9), PLAN, streams, 0), first)


@pytest.mark.parametrize(("microbatch_size", "divisor"), [(1, 100), (4, 25), (3, 33)])
def test_public_divisor(microbatch_size: int, divisor: int) -> None:
    plan = replace(PLAN, microbatch_size=microbatch_size)
    total = torch.linspace(-40, 40, 500, dtype=torch.float64)
    mean = noisy_mean(total, plan, SecretStreams.from_seed(0), 2)
    expected = (total.numpy() + noise_of(plan, 2, size=500)) / divisor
    assert np.allclose(mean.numpy(), expected, rtol=1e-6, atol=1e-6)
    assert mean.dtype == torch.float32


@pytest.mark.parametrize("clip_norm", [1e-6, 0.7, 1e5])
def test_no_fine_digits(clip_norm: float) -> None:
    """Sums times the divisor are on the grid that totals are on, far finer than the noise and than the bound."""
    plan = replace(PLAN, clip_norm=clip_norm, batch_size=64)
    total = torch.rand(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1e-3 * clip_norm
    noisy = noisy_mean(total, plan, SecretStreams.from_seed(0), 0).double().numpy() * 64
    grid = grid_of(2000, clip_norm)
    assert clip_norm * 2**-18 < grid * math.sqrt(2000) <= clip_norm * 2**-17
    # Dividing by 64 is exact: what is not on the grid are the few long ones that float32 rounds.
    short = np.abs(noisy) < 2**24 * grid
    assert short.mean() > 0.8
    assert (noisy[short] / grid == np.rint(noisy[short] / grid)).all()
    # Totals that differ by less than the grid give the same output, but for the few on an edge.
    near = noisy_mean(total + 1e-6 * grid, plan, SecretStreams.from_seed(0), 0).double().numpy() * 64
    assert (near == noisy).mean() > 0.99
