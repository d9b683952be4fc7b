"""The papers' bound as printed, and the simulation beside the dense product."""

import math

import numpy as np
import pytest
from scipy.linalg import toeplitz

from privmix.accounting import gdp_mu, published_noise_multiplier
from privmix.planning.theory import LinearTask, honest_noise_multiplier
from privmix.research.linear_regression import error_bound, simulate_linear_regression
from tests.planning.test_theory import RECORDS, ROWS, TARGET, TASK, simulated


@pytest.mark.parametrize("label_noise_ratio", [0.5, 1.0, 2.0])
def test_the_bound_is_the_paper_s_equation_3_under_the_paper_s_noise(label_noise_ratio: float) -> None:
    n, T, m, lam, eps, delta = 5000, 20_000, 40, label_noise_ratio, 2.0, 1e-5
    spectrum = tuple(np.linalg.eigvalsh(toeplitz(0.3 ** np.arange(10))))
    task = LinearTask(spectrum, 3.0, 0.7, 14.0, 36.0, lam)
    mu, alpha = gdp_mu(eps, delta), n / T
    joint_x, joint_y = 14.0 * math.sqrt(lam**2 + 1) / lam, 36.0 * math.sqrt(lam**2 + 1)
    first = (2 * joint_x * 3.0 + 2 * joint_y) / (math.sqrt(spectrum[0]) * (1 - math.sqrt(alpha)))
    first /= math.sqrt(m * (n - m) / n * math.log(1 + mu**2 * n**2 / (m**2 * T)))
    second = 2 * 0.7 * math.sqrt(10) * math.log(n) / math.sqrt(n)
    second *= (1 + math.sqrt(alpha)) * math.sqrt(spectrum[-1]) / ((1 - math.sqrt(alpha)) * math.sqrt(spectrum[0]))
    noise = published_noise_multiplier(m / n, T, eps, delta)
    assert error_bound(task, n, T, m, noise) == pytest.approx(first + second, rel=1e-9)


def test_the_bound_holds_and_is_loose() -> None:
    """One of DPFMix's claims, at finite sizes: no simulated error comes near the bound."""
    noise = honest_noise_multiplier(RECORDS, ROWS, 32, *TARGET)
    assert simulated(32, noise, 10).max() < error_bound(TASK, RECORDS, ROWS, 32, noise) / 3


def test_the_simulation_is_the_dense_matrix_product() -> None:
    """DPFMix, section 3.1: M has Bernoulli(m/n) / m entries. Means over 60 runs agree within 7 standard errors."""
    task, n, T, m, s = LinearTask.isotropic(3), 120, 400, 10, 0.4
    s_x, s_y = task.noise_multipliers(s)

    def dense(seed: int) -> float:
        rng = np.random.default_rng(10_000 + seed)
        b = rng.standard_normal(3)
        b *= task.coefficient_norm / np.linalg.norm(b)
        x = rng.standard_normal((n, 3)) * math.sqrt(task.spectrum[0])
        y = x @ b + task.residual_std * rng.standard_normal(n)
        x, y = x - x.mean(0), y - y.mean()
        x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True) / task.clip_x)
        y = np.clip(y, -task.clip_y, task.clip_y)
        mixing = (rng.random((T, n)) < m / n) / m
        mixed_x = mixing @ x + rng.normal(0, task.clip_x * s_x / m, (T, 3))
        mixed_y = mixing @ y + rng.normal(0, task.clip_y * s_y / m, T)
        return float(np.linalg.norm(np.linalg.lstsq(mixed_x, mixed_y, rcond=None)[0] - b))

    slow = np.array([dense(seed) for seed in range(60)])
    fast = np.array([simulate_linear_regression(task, n, T, m, s, np.random.default_rng(k)).l2 for k in range(60)])
    # 118 degrees of freedom: false alarm 2e-10.
    assert abs(slow.mean() - fast.mean()) < 7 * math.sqrt((slow.var() + fast.var()) / 60)
    assert abs(slow.mean() - fast.mean()) < 0.2 * slow.mean()
