"""All releases of a series as one: weights beside a dense reference, and the noise that is left is the noise stated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from privmix.designs import SeriesPlan
from privmix.designs.series import released
from privmix.designs.series.released import Together, together
from privmix.plans.parts import symmetric
from privmix.publication.second_moments import SecondMoments
from tests.designs.test_series import plan_of

DIM, CLASSES = 60, 3
ALARM = 1e-10


def planned(counts: tuple[int, ...], steps: int) -> SeriesPlan:
    plan = plan_of(counts[0], DIM, steps=steps)
    for count in counts[1:]:
        plan = plan.after(count)
    return plan


def made(plan: SeriesPlan, sums: NDArray[np.float64], rng: np.random.Generator) -> list[SecondMoments]:
    """Releases whose sums are (t, entries) of X'X, X'Y and label sums one after another, with the noise of the plan."""
    lower = DIM * (DIM + 1) // 2
    rows = np.zeros((plan.step, plan.step))
    for step in range(plan.step):
        rows[step, : step + 1] = plan.factor.weights(step + 1)
    noise = rows @ rng.normal(size=sums.shape)
    single = plan.factor.row_norm(plan.step)
    diagonal = np.zeros((DIM, DIM), bool)
    np.fill_diagonal(diagonal, True)
    steps = []
    for step in range(plan.step):
        second, cross, counts = np.split(noise[step], [lower, lower + DIM * CLASSES])
        second = symmetric((second * plan.noise_std["second"] / single / np.sqrt(2)).astype(np.float32), DIM).copy()
        second[diagonal] *= np.sqrt(2)
        told = np.split(sums[step], [lower, lower + DIM * CLASSES])
        parts = (
            symmetric(told[0].astype(np.float32), DIM) + second,
            (told[1] + cross * plan.noise_std["cross"] / single).reshape(DIM, CLASSES),
            told[2] + counts * plan.noise_std["counts"] / single,
        )
        steps.append(SecondMoments(*(part.astype(np.float32) for part in parts), sum(plan.counts[: step + 1]), 1, 1, 1))
    steps[-1] = SecondMoments(
        steps[-1].second, steps[-1].cross, steps[-1].label_sums, plan.records,
        plan.noise_std["second"], plan.noise_std["cross"], plan.noise_std["counts"],
    )  # fmt: skip
    return steps


ENTRIES = DIM * (DIM + 1) // 2 + DIM * CLASSES + CLASSES


def alike(plan: SeriesPlan, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(entries,) sums of all records, and (t, entries) those of the records so far, which are in proportion to them."""
    total = rng.normal(size=ENTRIES) * 50 * plan.noise_std["cross"]
    return total, np.cumsum(plan.counts)[:, None] / plan.records * total


def errors(found: Together, total: NDArray[np.float64]) -> NDArray[np.float64]:
    """In standard deviations, as stated, but for a diagonal, where noise is larger."""
    moments, lower = found.moments, DIM * (DIM + 1) // 2
    second, cross, counts = np.split(total, [lower, lower + DIM * CLASSES])
    apart = (moments.second - symmetric(second.astype(np.float32), DIM))[np.tril_indices(DIM, -1)]
    return np.concatenate(
        [
            apart * np.sqrt(2) / moments.noise_std_second,
            (moments.cross.reshape(-1) - cross) / moments.noise_std_cross,
            (moments.label_sums - counts) / moments.noise_std_counts,
        ]
    )


@pytest.mark.parametrize("counts", [(200,) * 6, (50, 400, 20, 20, 500)], ids=["equal", "unequal"])
def test_of_records_that_are_alike_less_noise_is_left_and_that_is_what_is_stated(counts: tuple[int, ...]) -> None:
    plan, rng = planned(counts, 12), np.random.default_rng(1)
    total, sums = alike(plan, rng)
    steps = made(plan, sums, rng)
    found = together(plan, lambda: steps)
    assert (found.noise[:2] < 0.93).all()
    assert found.noise[2] < 1 + 1e-9
    off = np.square(errors(found, total))
    assert chi2.ppf(ALARM, len(off)) < off.sum() < chi2.isf(ALARM, len(off))
    # Two thirds of the noise would show.
    assert off.sum() * 1.5**2 > chi2.isf(ALARM, len(off))
    # The newest's is what it says, too; it is the larger one.
    newest = np.square(errors(Together(steps[-1], found.weights, found.noise), total)).sum()
    assert chi2.ppf(ALARM, len(off)) < newest < chi2.isf(ALARM, len(off))
    assert found.moments.noise_std_second < steps[-1].noise_std_second


def test_of_records_that_drift_the_newest_release_is_left_alone() -> None:
    plan, rng = planned((200,) * 6, 6), np.random.default_rng(2)
    each = rng.normal(size=(6, ENTRIES)) * 50 * plan.noise_std["counts"]
    steps = made(plan, np.cumsum(each, axis=0), rng)
    found = together(plan, lambda: steps)
    np.testing.assert_allclose(found.weights[:, -1], 1, atol=0.02)
    np.testing.assert_allclose(found.noise, 1, atol=0.02)


def test_weights_are_those_of_least_squares() -> None:
    """Beside the formula with its inverse matrices, and every q that they could have come of."""
    plan, rng = planned((200, 100, 300, 100), 4), np.random.default_rng(3)
    _, sums = alike(plan, rng)
    sampled = (
        np.cumsum(rng.normal(size=(4, ENTRIES)) * np.sqrt(plan.counts)[:, None], axis=0) * plan.noise_std["cross"] / 9
    )
    steps = made(plan, sums + sampled, rng)
    found = together(plan, lambda: steps)
    rows = np.zeros((4, 4))
    for step in range(4):
        rows[step, : step + 1] = plan.factor.weights(step + 1)
    counts = np.cumsum(plan.counts).astype(float)
    shared = np.minimum(counts[:, None], counts) / counts[-1]
    dense = []
    for ratio in (0.0, *np.logspace(-4, 8, 121)):
        inverse = np.linalg.inv(rows @ rows.T + ratio * shared)
        dense.append(inverse @ counts / (counts @ inverse @ counts) * counts[-1])
    for weights in found.weights:
        assert np.abs(np.array(dense) - weights).max(axis=1).min() < 1e-9
    # Records that differ by chance are between the two.
    assert found.noise[:2].max() < 0.99
    assert found.noise[1] > 0.85


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), counts=st.lists(st.integers(1, 1000), min_size=1, max_size=5))
def test_whatever_is_released_a_total_that_grows_evenly_stays(seed: int, counts: list[int]) -> None:
    plan, rng = planned(tuple(counts), 5), np.random.default_rng(seed)
    steps = made(plan, rng.normal(size=(len(counts), ENTRIES)) * 100, rng)
    found = together(plan, lambda: steps)
    np.testing.assert_allclose(found.weights @ np.cumsum(counts), plan.records, rtol=1e-6)
    assert (found.noise < 1 + 1e-6).all()
    if len(counts) == 1:
        np.testing.assert_allclose(found.moments.second, steps[0].second, rtol=1e-6)


def test_some_entries_tell_as_much_as_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large release an even share is looked at, so that many steps take little memory."""
    plan, rng = planned((200,) * 6, 6), np.random.default_rng(5)
    steps = made(plan, alike(plan, rng)[1], rng)
    whole = together(plan, lambda: steps)
    monkeypatch.setattr(released, "_TELLING", 100)
    assert max(part.size for part in released._telling(steps[0])) <= 100
    some = together(plan, lambda: steps)
    np.testing.assert_allclose(some.noise[:2], whole.noise[:2], atol=0.05)
    assert some.moments.noise_std_cross < steps[-1].noise_std_cross
