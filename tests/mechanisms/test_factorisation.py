"""Noise for cumulative sums: its sensitivity by exact arithmetic, its covariance, and why z is not rounded first."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.mechanisms.noise import MOST_STEPS, SquareRoot, correlated_noise, square_root
from privmix.mechanisms.streams import SecretStreams
from tests.mechanisms.statistics import Z_LIMIT
from tests.refusals import refuses

T = 6


def exact_column(steps: int) -> list[Fraction]:
    """First column of C = B^-1 A for B as float64 has it, by exact arithmetic."""
    b = [Fraction(value) for value in square_root(steps).tolist()]
    column: list[Fraction] = []
    for row in range(steps):
        # (B C)_row = 1, as A's first column.
        column.append((1 - sum(b[row - k] * column[k] for k in range(row))) / b[0])
    return column


@pytest.mark.parametrize("steps", [1, 2, 3, 12, 40])
def test_sensitivity_bounds_the_exact_column_norm(steps: int) -> None:
    root = SquareRoot(steps)
    exact = sum(value * value for value in exact_column(steps))
    bound = Fraction(root.sensitivity) ** 2
    assert exact <= bound <= exact * (1 + Fraction(1, 2**28))
    # Of the real square root the same: both factors of A are one matrix.
    assert [float(value) for value in exact_column(steps)] == pytest.approx(square_root(steps).tolist(), rel=1e-9)


def test_figures_of_the_literature() -> None:
    found = {steps: round(SquareRoot(steps).growth(steps) ** 2, 2) for steps in (12, 52, 365)}
    assert found == {12: 3.43, 52: 5.39, 365: 8.67}
    dearer = {most: (SquareRoot(12, most).sensitivity / SquareRoot(12).sensitivity) ** 2 for most in (2, 3, 12)}
    assert {most: round(value, 2) for most, value in dearer.items()} == {2: 3.28, 3: 6.57, 12: 51.67}
    # Less than fresh noise each time from the second step on, in the last.
    assert all(SquareRoot(steps).growth(steps) ** 2 < steps for steps in (4, 12, 52, 365, MOST_STEPS))


def test_the_first_column_is_the_longest_and_first_columns_the_worst() -> None:
    """For one step, and for any k of them: the docs say so of k > 1, which no plan asks for."""
    columns = np.zeros((T, T))
    for s in range(T):
        columns[s:, s] = square_root(T)[: T - s]
    for k in range(1, T + 1):
        norms = {
            some: np.linalg.norm(columns[:, list(some)].sum(axis=1)) for some in itertools.combinations(range(T), k)
        }
        assert max(norms.values()) == pytest.approx(norms[tuple(range(k))], rel=1e-12)
    assert SquareRoot(T).sensitivity >= np.linalg.norm(columns, axis=0).max()


def drawn(std: float, size: int, seed: int = 0) -> NDArray[np.float64]:
    """(T, size) noise of each step, made step by step, each from a copy of the key."""
    key = SecretStreams.from_seed(seed).derive("series").share()
    found = np.empty((T, size))
    for step in range(1, T + 1):
        now, before = correlated_noise(SecretStreams.of_shared(key), "noise", (3,), size, std, SquareRoot(T), step)
        assert np.array_equal(before, found[step - 2] if step > 1 else np.zeros(size)), "remade to the last bit"
        assert np.array_equal(now, np.rint(now))
        found[step - 1] = now
    return found


def lower(steps: int = T) -> NDArray[np.float64]:
    found = np.zeros((steps, steps))
    for step in range(1, steps + 1):
        found[step - 1, :step] = SquareRoot(steps).weights(step)
    return found


def test_covariance_over_steps_is_that_of_b() -> None:
    """Every entry within Z_LIMIT standard errors, 21 of them; with 2/3 or 3/2 of sigma none of the diagonal is."""
    std, size = 1000.0, 20_000
    noise = drawn(std, size)
    found, wanted = noise @ noise.T / size, std**2 * lower() @ lower().T
    # Of normal numbers: Var(xy) = v_x v_y + c^2.
    error = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / size)
    assert (np.abs(found - wanted) < Z_LIMIT * error).all()
    for scale in (2 / 3, 3 / 2):
        assert (np.abs(np.diag(found) - scale**2 * np.diag(wanted)) > Z_LIMIT * scale**2 * np.diag(error)).all()


def test_what_all_steps_show_is_independent_noise() -> None:
    """B^-1 of the noise is z: uncorrelated from step to step, of the variance that the price is of."""
    std, size = 1000.0, 20_000
    z = np.linalg.solve(lower(), drawn(std, size, seed=1)) / std
    scores = (z @ z.T / size - np.eye(T)) * math.sqrt(size) / (1 + np.eye(T) * (math.sqrt(2) - 1))
    assert (np.abs(scores) < Z_LIMIT).all()


def test_purposes_numbers_and_steps_have_noise_of_their_own() -> None:
    streams = SecretStreams.from_seed(0)
    found = [
        correlated_noise(streams, purpose, number, 50, 100.0, SquareRoot(T), step)[0]
        for purpose in ("a", "b")
        for number in ((), (0,), (1,))
        for step in (1, 2)
    ]
    assert all(not np.array_equal(one, other) for one, other in itertools.combinations(found, 2))


def test_noise_that_is_rounded_before_b_gives_records_away() -> None:
    """What the module must not do: with whole z, B = (1, 0; 1/2, 1) shows the parity of x_1, whatever the noise."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (200, 2))
    z = np.rint(rng.normal(size=(200, 2)) * 1e6)
    y = np.stack([x[:, 0] + z[:, 0], x.sum(axis=1) + z[:, 0] / 2 + z[:, 1]], axis=1)
    guessed = (y[:, 0] - 2 * y[:, 1]) % 2
    assert (guessed == x[:, 0]).all()
    # Rounded after B, the same guess is a coin's.
    streams = SecretStreams.from_seed(0)
    safe = [
        x[:, :step].sum(axis=1) + correlated_noise(streams, "n", (), 200, 1e6, SquareRoot(2), step)[0]
        for step in (1, 2)
    ]
    right = ((safe[0] - 2 * safe[1]) % 2 == x[:, 0]).sum()
    assert abs(right - 100) < Z_LIMIT * math.sqrt(50)


@pytest.mark.parametrize("steps", [0, MOST_STEPS + 1, 2.5, "12"])
def test_numbers_of_steps_that_are_refused(steps: object) -> None:
    with refuses("steps"):
        SquareRoot(steps)  # type: ignore[arg-type]
