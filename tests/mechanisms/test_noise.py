from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy import stats

from privmix.mechanisms.noise import Lattice, gaussian_on_lattice, laplace_on_lattice
from privmix.mechanisms.streams import SecretStreams
from tests.refusals import refuses

from .statistics import P_LIMIT, Z_LIMIT, chi_square_p

Draw = Callable[[np.random.Generator, int, float], NDArray[np.float64]]
both_laws = pytest.mark.parametrize(
    ("draw", "law"), [(gaussian_on_lattice, stats.norm), (laplace_on_lattice, stats.laplace)]
)
DRAWS = 200_000


def _sample(draw: Draw, scale: float) -> NDArray[np.float64]:
    return draw(SecretStreams.from_seed(11).generator("noise test"), DRAWS, scale)


@both_laws
@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_right_law(draw: Draw, law: stats.rv_continuous, factor: float, accepted: bool) -> None:
    # Kolmogorov-Smirnov at 1e-11. With 1e6 steps to the scale, rounding is far below its resolution.
    p_value = stats.kstest(_sample(draw, 1e6 * factor), law(scale=1e6).cdf).pvalue
    assert (p_value > P_LIMIT) == accepted


@both_laws
def test_right_law_point_by_point(draw: Draw, law: stats.rv_continuous) -> None:
    # Chi-square at 1e-11: rounding gives integer z the law's mass between z - 1/2 and z + 1/2.
    points = np.arange(-20, 21)
    mass = law(scale=2.5).cdf(points + 0.5) - law(scale=2.5).cdf(points - 0.5)
    noise = _sample(draw, 2.5)
    observed = np.array([(noise == point).sum() for point in points])
    observed = np.append(observed, DRAWS - observed.sum())
    assert chi_square_p(observed, np.append(mass, 1 - mass.sum())) > P_LIMIT


@both_laws
def test_right_law_entries_are_uncorrelated(draw: Draw, law: stats.rv_continuous) -> None:
    noise = _sample(draw, 1e3) / (1e3 * law.std())
    for lag in (1, 2, 128):
        assert abs((noise[lag:] * noise[:-lag]).sum() / np.sqrt(DRAWS)) < Z_LIMIT
    half = DRAWS // 2
    assert abs((noise[:half] * noise[::-1][:half]).sum() / np.sqrt(half)) < Z_LIMIT


@both_laws
def test_right_law_standard_deviation_to_a_percent(draw: Draw, law: stats.rv_continuous) -> None:
    # 10 x DRAWS squares: a z of 5.5 is 0.3% of the standard deviation for Gaussian, 0.5% for Laplace noise.
    noise = draw(SecretStreams.from_seed(12).generator("noise test"), 10 * DRAWS, 1e6) / (1e6 * law.std())
    squares = noise**2
    z = (squares.mean() - 1) / (squares.std() / np.sqrt(squares.size))
    assert abs(z) < Z_LIMIT
    assert abs(squares.mean() - 1) < 0.02


@both_laws
@pytest.mark.parametrize("scale", [0.3, 7.0, 2.0**20, 2.0**46])
def test_integers(draw: Draw, law: stats.rv_continuous, scale: float) -> None:
    noise = _sample(draw, scale)
    assert noise.dtype == np.float64
    assert (noise == np.rint(noise)).all()
    assert np.abs(noise).max() < 2**53


@both_laws
@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, 2.0**47])
def test_bad_scales_are_refused(draw: Draw, law: stats.rv_continuous, scale: float) -> None:
    with refuses("noise in lattice steps"):
        draw(np.random.default_rng(0), 3, scale)


@given(x=arrays(np.float64, st.integers(0, 10), elements=st.floats(-100, 100)), bits=st.integers(0, 40))
def test_quantise_gives_integers_and_never_grows_the_norm(x: NDArray[np.float64], bits: int) -> None:
    lattice = Lattice(bits)
    steps = lattice.quantise(x)
    assert (steps == np.trunc(steps)).all()
    for value, step in zip(x, steps, strict=True):
        exact, grid_point = Fraction(float(value)), Fraction(float(step)) * Fraction(lattice.step)
        # Toward zero, and by less than one step: so each coordinate, hence every norm, can only shrink.
        assert abs(grid_point) <= abs(exact)
        assert grid_point * exact >= 0
        assert abs(exact - grid_point) < Fraction(lattice.step)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 2.0**45, -(2.0**45), 1e308])
def test_quantise_refuses_what_does_not_fit_and_does_not_show_it(bad: float) -> None:
    with refuses("features"):
        Lattice(8).quantise(np.array([0.5, bad]))
