"""Prices at any scale: tiny deltas, a billion runs; references in 60 digits, and the proofs' own statements."""

import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import fft, stats
from scipy.special import ndtr

from privmix.accounting import Adjacency, ClusterSampled, Composed, Event, Gaussian, PoissonSampled, Repeated, calibrate
from privmix.accounting.compose import _convolve, _on_circle, _tilted, compose
from privmix.accounting.direction import LossDirection
from privmix.accounting.pairs import UNIT, Atoms, GaussianNoise, LaplaceNoise, LossPmf, SampledPair, pair_atoms
from privmix.accounting.pld import PldAccountant
from privmix.accounting.queries import PairQuery, _coarser, _squared
from privmix.accounting.tilting import Cumulants
from privmix.errors import InvalidInput

ADD_REMOVE = Adjacency.ADD_REMOVE
PLD = PldAccountant()
REFERENCES = json.loads(Path(__file__).with_name("references.json").read_text())
SPARSE = json.loads(Path(__file__).with_name("references_sparse.json").read_text())


def poisson(rate: float, s: float, rows: int) -> Event:
    return Repeated(PoissonSampled(rate, Gaussian(s)), rows)


def event_of(reference: dict[str, str]) -> Event:
    cluster, rate, noise = (float(reference.get(name, 1)) for name in ("cluster", "rate", "noise"))
    query = PoissonSampled(rate, Gaussian(noise)) if cluster == 1 else ClusterSampled(cluster, rate, Gaussian(noise))
    return Repeated(query, int(reference["runs"]))


def exact_gaussian(s: float, delta: float) -> float:
    """Epsilon of one Gaussian query, by bisection in 60 digits."""
    with mp.workdps(60):
        mu = 1 / mp.mpf(s)

        def divergence(eps: mp.mpf) -> mp.mpf:
            return mp.ncdf(mu / 2 - eps / mu) - mp.exp(eps) * mp.ncdf(-mu / 2 - eps / mu)

        low, high = mp.mpf(0), mu**2 / 2 + 40 * mu
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if divergence(middle) > delta else (low, middle)
        return float(high)


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda r: f"{r['rate']}-{r['noise']}-{r['runs']}-{r['delta']}")
def test_sampled_queries_against_sixty_digits(reference: dict[str, str]) -> None:
    exact = float(reference["epsilon"])
    found = PLD.epsilon(event_of(reference), float(reference["delta"]), ADD_REMOVE)
    assert exact * (1 - 1e-10) <= found <= 1.01 * exact


@pytest.mark.parametrize("reference", SPARSE, ids=lambda r: f"{r['rate']}-{r['noise']}-{r['runs']}-{r['delta']}")
def test_rarely_drawn_records_against_contour_integrals(reference: dict[str, str]) -> None:
    """Losses of two scales: many tiny ones and rare large ones. The references are good to 8 digits."""
    exact = float(reference["epsilon"])
    found = PLD.epsilon(event_of(reference), float(reference["delta"]), ADD_REMOVE)
    assert exact * (1 - 1e-8) <= found <= 1.01 * exact


def test_a_split_loss_dominates_the_whole_one() -> None:
    """Tiny losses in blocks, and jumps: on a coarse grid no divergence is below that of a fine one."""
    query = PairQuery(SampledPair(GaussianNoise(0.6), 1e-3), 4096)
    step, log_tail = 0.004, math.log(1e-22)
    parts = query.parts(log_tail, step, False, 1e-5)
    assert len(parts) > 1
    split = compose(parts, 1.0, -2000, 2**14, 2.0, 0.0)
    whole = compose([(query.pmf(log_tail, step / 64, False), 4096)], 1.0, -64 * 2000, 2**20, 2.0, 0.0)
    coarse = compose([(query.pmf(log_tail, step, False), 4096)], 1.0, -2000, 2**14, 2.0, 0.0)
    for epsilon in (0.5, 2.0, 5.0):
        exact, allowance = whole.delta(epsilon)
        found = split.delta(epsilon)[0]
        assert exact - 2 * allowance - 1e-4 * exact <= found <= exact * 1.01 < coarse.delta(epsilon)[0]


def test_blocks_stay_above_their_exact_law() -> None:
    """Squaring and doubling the step keep the mean of e^-loss, and never lose mass."""
    law = LossPmf(-2, np.array([0.1, 0.2, 0.3, 0.25, 0.15]), 0.0, 0.01)
    twice = _squared(law, -60.0)
    assert twice.probs == pytest.approx(np.convolve(law.probs, law.probs), rel=1e-13)
    assert (twice.probs >= np.convolve(law.probs, law.probs)).all()
    for block in (law, twice, LossPmf(-3, law.probs, 0.0, 0.01)):
        coarse = _coarser(block)
        assert coarse.step == 0.02
        before, after = (float(one.probs @ np.exp(-one.losses())) for one in (block, coarse))
        assert after == pytest.approx(before, rel=1e-13)
        assert coarse.probs.sum() >= block.probs.sum()
    cut = _squared(law, math.log(0.05))
    assert cut.infinity + cut.probs.sum() >= 1
    assert 0 < cut.infinity <= 0.051


@pytest.mark.parametrize("delta", [1e-5, 1e-10, 1e-15])
@pytest.mark.parametrize(("noise", "runs"), [(1.0, 1), (0.2, 1), (300.0, 10_000), (1e5, 10**9)])
def test_plain_queries_against_sixty_digits(noise: float, runs: int, delta: float) -> None:
    exact = exact_gaussian(noise / math.sqrt(runs), delta)
    assert exact * (1 - 1e-10) <= PLD.epsilon(Repeated(Gaussian(noise), runs), delta, ADD_REMOVE) <= 1.002 * exact


def test_binomial_divergence_is_bounded_from_above_and_closely() -> None:
    """Coin flips have an exact composition: every delta read off is at least the binomial one, rounding included."""
    for rate, count, tilt in ((0.5, 1_000, 0.3), (1e-3, 100_000, 1.0), (0.2, 1, 2.0)):
        pmf = LossPmf(0, np.array([1 - rate, rate]), 0.0, 1.0)
        mean = count * rate * math.exp(tilt) / (1 - rate + rate * math.exp(tilt))
        size = 4096
        lower = max(0, int(mean) - size // 2)
        composed = compose([(pmf, count)], tilt, lower, size, tilt + 1, lower)
        for epsilon in (mean - 0.5, mean, mean + 3.3):
            points = np.arange(math.floor(epsilon) + 1, count + 1)
            exact = float(stats.binom.pmf(points, count, rate) @ -np.expm1(epsilon - points))
            value, allowance = composed.delta(epsilon)
            # SciPy's binomial is good to about 1e-11.
            assert exact * (1 - 1e-10) <= value <= exact * (1 + 1e-7) + 1e-15
            assert 0 <= allowance <= 1e-7 * value + 1e-15


def test_two_kinds_of_query_multiply_their_transforms() -> None:
    first = LossPmf(-2, np.array([0.1, 0.2, 0.3, 0.4]), 0.0, 0.5)
    second = LossPmf(0, np.array([0.6, 0.3, 0.1]), 0.0, 0.5)
    direct = np.convolve(np.convolve(first.probs, first.probs), second.probs)
    losses = (-4 + np.arange(direct.size)) * 0.5
    composed = compose([(first, 2), (second, 1)], 0.7, -8, 64, 2.0, -4.0)
    for epsilon in (-1.9, 0.0, 0.25, 1.0):
        exact = float(direct @ np.maximum(0, -np.expm1(epsilon - losses)))
        assert exact <= composed.delta(epsilon)[0] <= exact * (1 + 1e-10)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(2, 60),
    step=st.sampled_from([1e-4, 0.1, 1.0]),
    tilt=st.sampled_from([1e-3, 1.0, 30.0]),
    infinity=st.sampled_from([0.0, 1e-12, 0.1]),
    delta=st.sampled_from([1e-12, 1e-5, 0.1, 0.5]),
)
def test_epsilon_inverts_the_divergence(
    seed: int, size: int, step: float, tilt: float, infinity: float, delta: float
) -> None:
    weights = np.random.default_rng(seed).exponential(size=size) ** 4
    pmf = LossPmf(0, (1 - infinity) * weights / weights.sum(), infinity, step)
    composed = compose([(pmf, 1)], tilt, 0, 64, tilt, 0.0)
    found = composed.epsilon(delta)
    losses = pmf.losses()

    def divergence(epsilon: float) -> float:
        return float(infinity + pmf.probs @ np.maximum(0, -np.expm1(epsilon - losses)))

    if infinity > delta:
        assert found == math.inf
        return
    if found < math.inf:
        assert divergence(found) <= delta * (1 + 1e-12)
        # The error grows as e^(tilt epsilon): what epsilon is rounded to shows in it.
        least = delta * (1 - 1e-9) - composed.delta(found)[1] - 1e-15
        assert found <= 1e-9 or divergence(found * (1 - 1e-6)) >= least


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(
    "pair",
    [SampledPair(GaussianNoise(0.6), 0.01), SampledPair(GaussianNoise(1e4), 1e-9), SampledPair(LaplaceNoise(0.8), 0.3)],
)
def test_atoms_keep_both_masses_and_dominate(pair: SampledPair, add: bool) -> None:
    atoms = pair_atoms(pair, pair.points(math.log(1e-20), 2_000, add), add)
    assert atoms.probs.min() >= 0
    assert atoms.probs.sum() + atoms.missing == pytest.approx(1.0, abs=1e-13)
    # Mass under the other distribution is e^-loss times as much: never more than 1 in all, and hardly less.
    assert 1 - 1e-8 <= float(atoms.probs @ np.exp(-atoms.losses)) <= 1 + 1e-12


def test_error_function_is_as_accurate_as_the_proof_assumes() -> None:
    z = np.linspace(0, 37, 500)
    with mp.workdps(40):
        exact = np.array([float(abs(mp.mpf(float(ndtr(-x))) / mp.ncdf(-mp.mpf(float(x))) - 1)) for x in z])
    assert (exact <= UNIT * (16 + 2 * z**2)).all()


def test_transform_is_as_accurate_as_the_proof_assumes() -> None:
    rng = np.random.default_rng(0)
    for levels in (6, 12, 18):
        x = rng.standard_normal(2**levels)
        exact = fft.rfft(x.astype(np.longdouble))
        error = float(np.linalg.norm((fft.rfft(x) - exact).astype(np.complex128)))
        # A sixteenth of the bound: the constant is far from what the transform does.
        assert error <= UNIT * levels * float(np.linalg.norm(exact.astype(np.complex128)))


def test_normal_law_bounds_a_gaussian_loss() -> None:
    pair = SampledPair(GaussianNoise(100.0), 1.0)
    cumulants = Cumulants([(pair_atoms(pair, pair.points(-60, 3_001, False), False), 10_000)])
    tilted = cumulants.at(cumulants.tilt_for(4.0))
    with mp.workdps(40):
        exact = float(mp.log(mp.ncdf(mp.mpf(-3.5)) - mp.exp(4) * mp.ncdf(mp.mpf(-4.5))))
    assert cumulants.normal_log_bound(tilted, 4.0, -1) < exact <= cumulants.normal_log_bound(tilted, 4.0) < exact + 0.2
    assert exact <= cumulants.log_bound(tilted, 4.0)


def test_a_cheap_bound_never_undercuts_the_price() -> None:
    query = PairQuery(SampledPair(GaussianNoise(1.0), 0.01), 1_000)
    for add in (False, True):
        direction = LossDirection([query], add, 1e-4)
        epsilon = direction.epsilon(1e-8)
        assert not direction.surely_within(epsilon * 0.98, 1e-8)
        assert direction.surely_within(epsilon * 2, 1e-8)


@pytest.mark.parametrize("delta", [1e-300, 1e-40, 0.5, 0.999999])
@pytest.mark.parametrize(("rate", "s", "runs"), [(1.0, 1.0, 1), (0.01, 1.0, 1_000), (1e-9, 5.0, 10**9)])
def test_extreme_deltas_are_on_the_safe_side(rate: float, s: float, runs: int, delta: float) -> None:
    found = PLD.epsilon(poisson(rate, s, runs), delta, ADD_REMOVE)
    assert found >= 0
    if rate == 1:
        assert found >= exact_gaussian(s, delta) * (1 - 1e-9) - 1e-12
    if found < math.inf:
        assert PLD.delta(poisson(rate, s, runs), found * (1 + 1e-9), ADD_REMOVE) <= delta * 1.01


def test_calibration_at_absurd_scales_ends_or_refuses() -> None:
    found = calibrate(lambda s: poisson(1.28e-3, s, 10**9), 1.0, 1e-5)
    assert 0.995 <= found.epsilon <= 1
    try:
        huge = calibrate(lambda s: poisson(1.28e-3, s, 10**15), 1.0, 1e-5)
    except InvalidInput as refusal:
        assert "fewer rows" in str(refusal)  # noqa: PT017
    else:
        assert huge.epsilon <= 1


@pytest.mark.parametrize("runs", [1, 2, 15, 16, 40])
@pytest.mark.parametrize("width", [0.5, 8.0, 20.0])
def test_the_transforms_error_is_within_its_bound(runs: int, width: float) -> None:
    """Of few runs of a wide law small frequencies count: they were left out once, and 1e-10 of all masses with them."""
    size, lower = 1024, -250
    place = np.arange(-200, 201) / width
    wide = LossPmf(-200, np.exp(-0.5 * place**2) / np.exp(-0.5 * place**2).sum(), 0.0, 0.01)
    rare = LossPmf(0, np.array([1 - 3e-9, *np.full(300, 1e-11)]), 0.0, 0.01)
    parts = [_tilted(wide, runs, 0.1), _tilted(rare, 4, 0.1)]
    masses, error = _convolve(parts, lower, size)
    circles = []
    for part in parts:
        circle = _on_circle(part, size).astype(np.longdouble)
        circle[0] += 1
        circles += [circle] * part.count
    exact, offset = circles[0], sum(part.count * part.peak for part in parts)
    for circle in circles[1:]:
        folded = np.convolve(exact, circle)
        exact = folded[:size] + np.append(folded[size:], 0)
    found = float(np.linalg.norm(masses - np.roll(exact, (offset - lower) % size)))
    assert found <= error < 1e-10


def test_side_queries_compose_on_one_grid() -> None:
    event = Composed((poisson(1e-3, 1.0, 10_000), Gaussian(20.0), Gaussian(30.0)))
    alone = PLD.epsilon(poisson(1e-3, 1.0, 10_000), 1e-10, ADD_REMOVE)
    side = exact_gaussian(1 / math.sqrt(1 / 400 + 1 / 900), 1e-10)
    assert max(alone, side) < PLD.epsilon(event, 1e-10, ADD_REMOVE) < alone + side


def test_atoms_of_nothing_are_free() -> None:
    atoms = Atoms(np.array([-1.0, 0.0, 1.0]), np.array([0.2, 0.3, 0.5]), 0.0, 0.0).mixed_with_nothing(0.1)
    assert atoms.probs.tolist() == pytest.approx([0.02, 0.93, 0.05])
