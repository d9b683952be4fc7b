"""Shares of classes from noisy counts: exact without noise, drawn together under it, their errors stated."""

import numpy as np
import pytest

from privmix.publication.second_moments import estimated_shares


def plainly_drawn(told: np.ndarray, deviation: float) -> np.ndarray:
    """By the likeliest spread alone (James and Stein 1961): the naive reference."""
    apart = told - 1 / len(told)
    kept = max(0.0, 1 - len(told) * deviation**2 / float(np.square(apart).sum()))
    shares: np.ndarray = np.maximum(1 / len(told) + kept * apart, 0.1 / len(told))
    return shares / shares.sum()


@pytest.mark.parametrize("told", [[0.6, 0.4], [0.97, 0.02, 0.01], [0.25] * 4])
def test_without_noise_shares_are_what_was_told(told: list[float]) -> None:
    shares, errors = estimated_shares(np.array(told), 0.0)
    # Nobody has less than a tenth of an equal share.
    kept = np.maximum(told, 0.1 / len(told))
    np.testing.assert_allclose(shares, kept / kept.sum(), rtol=1e-9)
    np.testing.assert_allclose(errors, 0, atol=1e-9)


@pytest.mark.parametrize("classes", [2, 10, 77])
@pytest.mark.parametrize(("spread", "most"), [(0.05, 0.8), (0.3, 1.1)])
def test_under_noise_they_are_nearer_than_by_the_likeliest_spread(classes: int, spread: float, most: float) -> None:
    """Squared errors of 400 draws, added up, where noise is six tenths of a class: never much more, and less where
    classes differ by less than the noise.
    """
    rng, mine, plainly, longest = np.random.default_rng(0), 0.0, 0.0, []
    for _ in range(400):
        true = np.maximum((1 + spread * rng.standard_normal(classes)) / classes, 0.05 / classes)
        true /= true.sum()
        told = true + 0.6 / classes * rng.standard_normal(classes)
        shares, plain = estimated_shares(told, 0.6 / classes)[0], plainly_drawn(told, 0.6 / classes)
        mine += float(np.square(shares - true).sum())
        plainly += float(np.square(plain - true).sum())
        longest.append((float((true / shares).max()), float((true / plain).max())))
    assert mine < most * plainly
    # A class that is taken for a third of itself seems to have a mean three times as long.
    assert np.less(*np.quantile(longest, 0.99, axis=0))


@pytest.mark.parametrize(("spread", "noise", "gain"), [(0.1, 0.4, None), (0.5, 0.4, None), (0.8, 0.6, 4)])
def test_errors_are_as_large_as_stated_and_no_class_is_tiny(spread: float, noise: float, gain: float | None) -> None:
    """Records of a class over those it is taken to have, 400 draws: squared errors are as large as stated, within
    twice; of classes that differ widely, a quarter of those of shares that are cut off at a tenth of an equal one.
    """
    rng, off, said, cut_off = np.random.default_rng(2), 0.0, 0.0, 0.0
    for _ in range(400):
        true = np.maximum(np.exp(spread * rng.standard_normal(20)), 0.15)
        true /= true.sum()
        told = true + noise / 20 * rng.standard_normal(20)
        shares, errors = estimated_shares(told, noise / 20)
        off += float(np.square(true / shares - 1).sum())
        said += float(errors.sum())
        cut_off += float(np.square(true / plainly_drawn(told, noise / 20) - 1).sum())
    assert 0.5 < off / said < 2
    assert gain is None or off < cut_off / gain


@pytest.mark.parametrize("deviation", [0.0, 1e-12, 1e-3, 1e6])
def test_whatever_is_told_shares_and_errors_are_finite(deviation: float) -> None:
    for told in ([0.5, 0.5], [1e20, -1e20], [0.0] * 5, [-3.0, 2.0, 2.0]):
        shares, errors = estimated_shares(np.array(told), deviation)
        # NaN is not above anything, and nothing below infinity is infinite.
        assert ((shares > 0) & (errors >= 0) & (errors < np.inf)).all()
        assert shares.sum() == pytest.approx(1)
