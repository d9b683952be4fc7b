"""What noisy eigenvectors are said to know, against matrices whose covariance is known."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.learning.spectrum import AdditiveNoise, KnownVariance, NoiseLaw, SamplingNoise, known_variance, with_trace

DIM = 150
VARIANCES = (np.arange(DIM) + 2.0) ** -1.3
VARIANCES /= VARIANCES.sum()


def additive(deviation: float) -> tuple[NDArray[np.float64], NoiseLaw]:
    noise = np.random.default_rng(0).normal(0, deviation, (DIM, DIM))
    return np.diag(VARIANCES) + (noise + noise.T) / np.sqrt(2), AdditiveNoise(DIM, deviation)


def sampled(rows: int, floor: float) -> tuple[NDArray[np.float64], NoiseLaw]:
    x = np.random.default_rng(0).normal(size=(rows, DIM)) * np.sqrt(VARIANCES + floor)
    return x.T @ x / rows, SamplingNoise(DIM, rows)


@pytest.mark.parametrize(
    ("released", "floor"),
    [(additive(3e-4), 0.0), (additive(2e-3), 0.0), (sampled(1500, 0.0), 0.0), (sampled(600, 5e-3), 5e-3)],
    ids=["little noise", "much noise", "samples", "noisy samples"],
)
def test_it_knows_what_noisy_eigenvectors_know(released: tuple[NDArray[np.float64], NoiseLaw], floor: float) -> None:
    values, basis = np.linalg.eigh(released[0])
    known = known_variance(values, released[1], floor)
    true = VARIANCES @ basis**2
    spread = np.square(VARIANCES) @ basis**2 - true**2
    # Taken over tenths: what single directions differ by is chance.
    for found, expected in ((known.variance, true), (np.sqrt(known.spread), np.sqrt(spread))):
        ratio = found.reshape(10, -1).sum(axis=1) / expected.reshape(10, -1).sum(axis=1)
        assert ratio.min() > 0.4
        assert ratio.max() < 1.7
        assert ratio[-1] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("released", [additive(2e-3), sampled(600, 5e-3)], ids=["additive", "samples"])
def test_a_lone_eigenvalue_is_not_given_the_variance_of_next_to_none(
    released: tuple[NDArray[np.float64], NoiseLaw], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On MNIST one direction between bulk and spikes was given a fortieth of its variance: 92% where 97 were there."""
    values, law = np.linalg.eigvalsh(released[0]), released[1]
    expected = known_variance(values, law)
    assert (np.diff(expected.variance) >= 0).all()
    honest = type(law).along

    def dipped(self: NoiseLaw, values: Any, trace: Any, mean: float) -> Any:
        variance, spread = honest(self, values, trace, mean)
        variance[-12] = 1e-9
        return variance, spread

    monkeypatch.setattr(type(law), "along", dipped)
    found = known_variance(values, law)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=0.15)
    assert (np.diff(found.variance) >= 0).all()


def test_without_noise_it_knows_everything() -> None:
    known = known_variance(VARIANCES[::-1], AdditiveNoise(DIM, 0.0))
    np.testing.assert_array_equal(known.variance, VARIANCES[::-1])
    assert not known.spread.any()
    # Many samples are as good as none missing.
    known = known_variance(VARIANCES[::-1], SamplingNoise(DIM, 10**9))
    np.testing.assert_allclose(known.variance, VARIANCES[::-1], rtol=0.01)
    assert (np.sqrt(known.spread) < 0.03 * known.variance[-1]).all()


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_it_scales_with_the_matrix(scale: float) -> None:
    values = np.linalg.eigvalsh(additive(2e-3)[0])
    expected, found = (known_variance(values * by, AdditiveNoise(DIM, 2e-3 * by)) for by in (1.0, scale))
    np.testing.assert_allclose(found.variance, expected.variance * scale, rtol=1e-6)
    np.testing.assert_allclose(found.spread, expected.spread * scale**2, rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "law"),
    [
        (np.full(4, -3.0), AdditiveNoise(4, 1.0)),
        (np.zeros(4), AdditiveNoise(4, 0.0)),
        (np.array([-1e9, 1e9]), AdditiveNoise(2, 1e9)),
        (np.array([2.0]), AdditiveNoise(1, 0.1)),
        (np.array([1e-3, 2.0]), SamplingNoise(500, 2)),
        (np.ones(3), SamplingNoise(3, 3)),
    ],
    ids=str,
)
def test_any_eigenvalues_give_usable_numbers(values: NDArray[np.float64], law: NoiseLaw) -> None:
    known = known_variance(values, law)
    assert np.isfinite([known.variance, known.spread]).all()
    assert (known.variance > 0).all() or not values.any()
    assert (known.spread >= 0).all()


@pytest.mark.parametrize("seen", [-3.0, -0.2, 0.4, 2.0])
@pytest.mark.parametrize("least", [0.0, 0.3])
def test_a_trace_that_noise_hides_is_the_mean_of_those_above_the_least(seen: float, least: float) -> None:
    traces = np.linspace(least, least + 12, 200_001)
    weights = np.exp(-0.5 * np.square((traces - seen) / 0.7))
    expected = float(weights @ traces / weights.sum())
    known = KnownVariance(np.array([1e-4, 1e-3, 2e-3]), np.array([1.0, 2.0, 3.0]))
    found = with_trace(known, seen, 0.7, least)
    assert found.variance.sum() == pytest.approx(expected, rel=1e-3)
    np.testing.assert_allclose(np.diff(found.variance), np.diff(known.variance))
    assert found.spread is known.spread


@pytest.mark.parametrize("deviation", [0.0, 1e-300, 1e-3])
def test_a_trace_is_never_lowered_and_kept_where_noise_hides_nothing(deviation: float) -> None:
    known = KnownVariance(np.array([0.5, 1.5]), np.zeros(2))
    for seen in (1.0, 2.0):
        np.testing.assert_allclose(with_trace(known, seen, deviation).variance, known.variance)
    # The least trace is kept.
    assert with_trace(known, -1e6, deviation, 3.0).variance.sum() == pytest.approx(3.0)
