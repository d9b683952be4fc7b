"""The best mixup degree: formulas as printed, predictions beside the mechanism itself, and the search."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from privmix.accounting import Gaussian, PoissonSampled, Repeated, epsilon, gdp_mu, published_noise_multiplier
from privmix.planning.theory import (
    LinearTask,
    best_mixup_degree,
    expected_error,
    honest_noise_multiplier,
    optimal_degree_order,
    published_optimal_degree,
)
from privmix.research.linear_regression import error_bound, simulate_linear_regression
from tests.refusals import refuses

TASK = LinearTask.isotropic(8)
RECORDS, ROWS, TARGET = 2000, 4000, (8.0, 1e-5)


def simulated(degree: int, noise: float, runs: int, task: LinearTask = TASK) -> np.ndarray:
    generators = map(np.random.default_rng, range(runs))
    return np.array([simulate_linear_regression(task, RECORDS, ROWS, degree, noise, one).l2 for one in generators])


@pytest.mark.parametrize("degree", [4, 16, 64, 256])
def test_the_predicted_size_is_the_simulated_size(degree: int) -> None:
    """Root mean square over 40 releases within 8%; its own standard error is below 1.5%, so beyond 5 of them."""
    noise = honest_noise_multiplier(RECORDS, ROWS, degree, *TARGET)
    measured = math.sqrt((simulated(degree, noise, 40) ** 2).mean())
    assert measured == pytest.approx(expected_error(TASK, RECORDS, ROWS, degree, noise).l2, rel=0.08)


def test_without_shrinkage_the_prediction_is_that_of_least_squares_on_noisy_rows() -> None:
    """Tiny noise: what is left is n records being a sample, sigma^2 d / (n l), and T rows being one."""
    task = dataclasses.replace(TASK, residual_std=0.3)
    error = expected_error(task, 10_000, 40_000, 16, 1e-6)
    level = 0.3**2 * task.dim / task.spectrum[0]
    assert error.shrinkage == pytest.approx(0, abs=1e-6)
    assert error.l2**2 == pytest.approx(level / 10_000 + level / (40_000 - task.dim - 1), rel=1e-6)
    assert expected_error(TASK, 100, TASK.dim + 1, 10, 1.0).l2 == math.inf
    assert error.excess_risk == pytest.approx(error.l2**2 * task.spectrum[0], rel=1e-9)


@pytest.mark.parametrize("gamma", [1.0, 1.25, 1.5])
def test_degrees_grow_at_the_rate_of_corollary_3_2(gamma: float) -> None:
    """log m* against log n has slope (2 - gamma) / 2 under the papers' noise, nearly so under the real noise."""
    pairs = [(n, round(2 * n**gamma)) for n in (2**10, 2**14)]
    published = [published_optimal_degree(n, T, 8.0, 1e-5) for n, T in pairs]
    order = [optimal_degree_order(n, T) for n, T in pairs]
    for values, tolerance in ((published, 0.02), (order, 1e-4)):
        assert math.log2(values[1] / values[0]) / 4 == pytest.approx((2 - gamma) / 2, abs=tolerance)


@pytest.mark.parametrize("target", [(0.5, 1e-6), (2.0, 1e-5)], ids=str)
def test_the_constant_of_the_papers_degree(target: tuple[float, float]) -> None:
    n, T = 10**7, 10**8
    predicted = 0.505 * gdp_mu(*target) * n / math.sqrt(T)
    assert published_optimal_degree(n, T, *target) == pytest.approx(predicted, rel=0.005)


def test_the_search_finds_the_least_error_of_all_degrees() -> None:

    def noise(records: int, rows: int, degree: int, *target: float) -> float:
        return published_noise_multiplier(degree / records, rows, *target)

    choice = best_mixup_degree(500, 1000, 8, 3.0, 1e-5, noise=noise)
    errors = {m: expected_error(TASK, 500, 1000, m, noise(500, 1000, m, 3.0, 1e-5)).l2 for m in range(1, 500)}
    least = min(errors, key=errors.__getitem__)
    assert choice.error.l2 <= errors[least] * 1.0005
    assert 0.9 <= choice.mixup_degree / least <= 1.1
    assert list(choice.candidates) == sorted(choice.candidates, key=lambda item: item.mixup_degree)


def test_the_choice_is_calibrated_and_no_worse_than_the_paper_s() -> None:
    choice = best_mixup_degree(3000, 9000, 8, 2.0, 1e-5)
    event = Repeated(PoissonSampled(choice.mixup_degree / 3000, Gaussian(choice.noise_multiplier)), 9000)
    assert 1.99 <= epsilon(event, 1e-5).epsilon <= 2.0
    assert choice.error.l2 <= choice.published.error.l2
    assert choice.published.mixup_degree == round(choice.published_degree)
    claimed = published_noise_multiplier(choice.published.mixup_degree / 3000, 9000, 2.0, 1e-5)
    assert choice.published.noise_multiplier > claimed


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rows": 100}, "rows"),
        ({"mixup_degree": 2000}, "mixup_degree"),
        ({"mixup_degree": 0.5}, "mixup_degree"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"records": 1}, "records"),
    ],
    ids=str,
)
def test_bad_numbers_are_named(change: dict[str, Any], field: str) -> None:
    with refuses(field):
        error_bound(TASK, **{"records": 2000, "rows": 4000, "mixup_degree": 16, "noise_multiplier": 1.0, **change})


def test_bad_tasks_and_searches_are_named() -> None:
    with refuses("spectrum"):
        LinearTask((1.0, 0.0), 1.0, 1.0)
    with refuses("task dimension"):
        best_mixup_degree(100, 200, 9, 1.0, 1e-5, task=TASK)
    with refuses("rows"):
        best_mixup_degree(100, 9, 8, 1.0, 1e-5)
