"""Bounds from one run, against exact laws of correct guesses and references; simulations err with chance below 1e-9."""

import math
from bisect import bisect_left

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog
from scipy.special import ndtr

from privmix.accounting import Adjacency, Event, Gaussian, PoissonSampled, Repeated, epsilon, epsilon_delta_curve
from privmix.attacks.one_run import (
    Least,
    OneRun,
    gaussian_least,
    is_refuted,
    mahloujifar_gaussian_epsilon,
    mahloujifar_mu,
    steinke_epsilon,
    steinke_p_value,
)
from privmix.attacks.one_run_proof import Mechanism, best_guesses, canaries_needed, event_least, prove
from privmix.errors import InvalidInput
from tests.refusals import refuses

ALPHA = 0.05
GAUSSIAN = Mechanism(lambda factor: Gaussian(2.0 * factor))


def naive_p_value(run: OneRun, epsilon: float, delta: float) -> float:
    """Theorem 5.2, term by term."""
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    law = [math.comb(run.guesses, j) * q**j * (1 - q) ** (run.guesses - j) for j in range(run.guesses + 1)]
    slopes = [sum(law[run.correct - i : run.correct]) / i for i in range(1, run.correct + 1)]
    return min(1.0, sum(law[run.correct :]) + 2 * run.canaries * delta * max(slopes, default=0.0))


def pure_least(epsilon: float, delta: float) -> Least:
    """The curve of (epsilon, delta)-DP."""
    return lambda r: max(0.0, (r - delta) * math.exp(-epsilon), 1 - delta - math.exp(epsilon) * (1 - r))


def most_likely(run: OneRun, epsilon: float, delta: float) -> float:
    """The largest P[at least v correct] that Theorem 3.2 allows under (epsilon, delta)-DP, by a linear program."""
    numbers = np.arange(run.guesses + 1)
    correct, wrong = numbers / run.canaries, (run.guesses - numbers) / run.canaries
    above, limits = [], []
    for t in range(run.guesses):
        more, missed = np.where(numbers > t, correct, 0.0), np.where(numbers >= t, wrong, 0.0)
        above += [more * math.exp(-epsilon) - missed, more * math.exp(epsilon) - missed]
        limits += [delta * math.exp(-epsilon), delta - 1 + math.exp(epsilon)]
    goal = -(numbers >= run.correct).astype(float)
    found = linprog(goal, np.array(above), np.array(limits), np.ones((1, run.guesses + 1)), np.ones(1))
    assert found.success
    return float(-found.fun)


@pytest.mark.parametrize("correct", [0, 1, 12, 20])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_steinkes_p_value_is_the_theorems(correct: int, delta: float) -> None:
    run = OneRun(30, 20, correct)
    assert steinke_p_value(run, 0.7, delta) == pytest.approx(naive_p_value(run, 0.7, delta), rel=1e-9)


@pytest.mark.parametrize("correct", [8, 14, 19, 20])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (0.5, 0.01), (1.5, 0.001)])
def test_the_recursion_finds_what_the_theorem_allows_and_no_less(correct: int, epsilon: float, delta: float) -> None:
    """Against a linear program over all laws of the number of correct guesses."""
    run = OneRun(25, 20, correct)
    most = most_likely(run, epsilon, delta)
    assert is_refuted(run, pure_least(epsilon, delta), min(most * 1.0001, 0.99999)) or most > 0.9998
    assert not is_refuted(run, pure_least(epsilon, delta), most * 0.9999)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("canaries", [20, 200, 2000])
def test_proofs_about_randomised_response_hold_and_come_close(epsilon: float, canaries: int) -> None:
    """Correct guesses are binomial: the chance of a false proof is exact, and so is the median proof."""
    law = stats.binom(canaries, 1 / (1 + math.exp(-epsilon)))
    false = [v for v in range(canaries + 1) if steinke_p_value(OneRun(canaries, canaries, v), epsilon, 0.0) <= ALPHA]
    assert law.sf(min(false) - 1) <= ALPHA if false else True
    middle = OneRun(canaries, canaries, int(law.median()))
    assert steinke_epsilon(middle, 0.0, 1 - ALPHA) <= epsilon
    if canaries == 2000:
        assert steinke_epsilon(middle, 0.0, 1 - ALPHA) > 0.7 * epsilon


@pytest.mark.parametrize("mu", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("canaries", [20, 200, 2000])
def test_proofs_about_independent_gaussians_hold(mu: float, canaries: int) -> None:
    """Guessing every coin of k independent mu-GDP answers: binomial of success Phi(mu / 2), so the chance is exact."""
    least = gaussian_least(mu)
    first = bisect_left(
        range(canaries + 1), True, key=lambda right: is_refuted(OneRun(canaries, canaries, right), least, ALPHA)
    )
    assert stats.binom(canaries, ndtr(mu / 2)).sf(first - 1) <= ALPHA


@pytest.mark.parametrize(("mu", "guesses", "least"), [(1.6, 200, 0.5), (0.5, 350, 0.3), (1.6, 1000, 0.3)])
def test_proofs_about_gaussians_with_abstention(mu: float, guesses: int, least: float) -> None:
    """False proofs in 400 runs are at most as many as confidence allows; the median proof is a decent share of mu."""
    rng = np.random.default_rng(0)
    runs = []
    for _ in range(400):
        coins = rng.random(1000) < 0.5
        runs.append(OneRun.of(mu * coins + rng.standard_normal(1000), coins, guesses))
    false = sum(is_refuted(run, gaussian_least(mu), ALPHA) for run in runs)
    # More than this has chance below 1e-10 if each is false with chance 0.05.
    assert false <= stats.binom.isf(1e-10, len(runs), ALPHA)
    middle = sorted(runs, key=lambda run: run.correct)[200]
    assert least * mu < mahloujifar_mu(middle, 0.95) < mu
    assert steinke_epsilon(middle, 1e-5, 0.95) < mahloujifar_gaussian_epsilon(middle, 1e-5, 0.95)


@pytest.mark.parametrize("together", [True, False], ids=["all-at-once", "one-by-one"])
def test_delta_is_allowed_for(together: bool) -> None:
    """Randomised response that gives coins away with chance delta: all of them at once, or each on its own."""
    rng, epsilon, delta, canaries = np.random.default_rng(1), 0.5, 0.02, 100
    q, false, runs = 1 / (1 + math.exp(-epsilon)), 0, 3000
    for _ in range(runs):
        given = rng.random(1 if together else canaries) < delta
        correct = int(np.broadcast_to(given | (rng.random(canaries) < q), canaries).sum())
        run = OneRun(canaries, canaries, correct)
        false += steinke_p_value(run, epsilon, delta) <= ALPHA
        # The recursion is held to the same claim.
        with_delta, without = (is_refuted(run, pure_least(epsilon, one), ALPHA) for one in (delta, 0.0))
        assert without or not with_delta
    assert false <= stats.binom.isf(1e-10, runs, ALPHA)


def test_canaries_that_influence_one_another_prove_nothing_false() -> None:
    """One Gaussian answer to 60 canaries in 20 dimensions: each is mu-GDP, and guesses hang together."""
    rng, mu, runs = np.random.default_rng(2), 1.0, 1000
    vectors = rng.standard_normal((60, 20)) + 1.0
    vectors *= mu / np.linalg.norm(vectors, axis=1, keepdims=True)
    false = {"gaussian": 0, "steinke": 0}
    for _ in range(runs):
        coins = rng.random(60) < 0.5
        seen = vectors.T @ (coins - 0.5) + rng.standard_normal(20)
        run = OneRun.of(vectors @ seen, coins, 60)
        false["gaussian"] += is_refuted(run, gaussian_least(mu), ALPHA)
        # Of 1-GDP, delta at epsilon 0.5 is Phi(0) - e^0.5 Phi(-1) = 0.24.
        false["steinke"] += steinke_p_value(run, 0.5, 0.3) <= ALPHA
    assert max(false.values()) <= stats.binom.isf(1e-10, runs, ALPHA)


def test_the_claim_is_violated_exactly_where_its_curve_is_refuted() -> None:
    for correct in range(540, 900, 80):
        run = OneRun(1000, 1000, correct)
        proof = prove(run, GAUSSIAN, 1e-5, 0.95)
        # Each bound has half of the chance of error.
        curve = GAUSSIAN.is_refuted(run, 0.025)
        assert (proof.mahloujifar > proof.claimed_epsilon) == curve
        assert proof.violated == (curve or proof.steinke > proof.claimed_epsilon)


def test_too_few_canaries_are_refused_with_the_number_needed() -> None:
    needed = canaries_needed(1 - 1e-6)
    with pytest.raises(InvalidInput, match=f"canaries: got {needed - 1}; allowed: at least {needed} for confidence"):
        prove(OneRun(needed - 1, needed - 1, 1), GAUSSIAN, 1e-5, 1 - 1e-6)
    with refuses("canaries"):
        best_guesses(5, 1.0, 1e-5, 0.95)
    assert mahloujifar_mu(OneRun(100, 100, 50), 0.95) == 0 == steinke_epsilon(OneRun(100, 100, 50), 0.0, 0.95)
    # The number is right: one more than it takes to prove nothing, with all guesses correct.
    alpha = 1e-6 / 2
    assert is_refuted(OneRun(needed, needed, needed), gaussian_least(0.0), alpha)
    assert not is_refuted(OneRun(needed - 1, needed - 1, needed - 1), gaussian_least(0.0), alpha)
    assert steinke_epsilon(OneRun(needed, needed, needed), 0.0, 1 - alpha) > 0


def test_guesses_are_the_highest_and_the_lowest_scores() -> None:
    rng = np.random.default_rng(0)
    scores, coins = rng.standard_normal(50), rng.random(50) < 0.5
    order = np.argsort(scores)
    for guesses in (1, 2, 7, 50):
        ins, outs = (guesses + 1) // 2, guesses // 2
        correct = coins[order[50 - ins :]].sum() + (~coins[order[:outs]]).sum()
        assert OneRun.of(scores, coins, guesses) == OneRun(50, guesses, int(correct))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OneRun(10, 11, 1), "guesses"),
        (lambda: OneRun(10, 5, 6), "correct guesses"),
        (lambda: OneRun(0, 0, 0), "canaries"),
        (lambda: OneRun.of([1.0, math.nan], [True, False], 1), "scores"),
        (lambda: OneRun.of([1.0], [True, False], 1), "scores"),
        (lambda: steinke_p_value(OneRun(10, 5, 5), -1.0, 0.0), "epsilon"),
        (lambda: steinke_epsilon(OneRun(10, 5, 5), 0.0, 1.0), "confidence"),
    ],
    ids=["guesses", "correct", "none", "nan", "shapes", "epsilon", "confidence"],
)
def test_impossible_figures_are_refused(make: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("event", [Gaussian(0.3), Repeated(PoissonSampled(0.01, Gaussian(0.6)), 200)])
def test_the_highest_of_all_lines_is_found(event: Event) -> None:
    """Against all of them, in an order that leaves the search none of what it has found before."""
    most = epsilon(event, 1e-12).epsilon
    epsilons = np.concatenate([[0.0], np.geomspace(most / 500, most, 256)])
    deltas = epsilon_delta_curve(event, epsilons.tolist())
    for r in (1e-9, 1e-4, 0.03, 0.5, 0.97, 1 - 1e-6):
        lines = np.maximum((r - deltas) * np.exp(-epsilons), 1 - deltas - np.exp(epsilons) * (1 - r))
        found = event_least(event, Adjacency.ADD_REMOVE)(r)
        assert found == pytest.approx(max(0.0, float(lines.max())), rel=1e-4, abs=1e-15)
