"""The identity behind Park et al. 2024, Theorem 4.1; D: KL divergence from the records' distribution to the model's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import rel_entr


def divergence(of: NDArray[np.float64], model: NDArray[np.float64]) -> float:
    return float(rel_entr(of, model).sum())


def empirical(counts: list[int] | NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(counts, dtype=np.float64) / np.sum(counts)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(0.01, 10)), min_size=2, max_size=12),
    st.data(),
)
@settings(deadline=None)
def test_divergences_of_disjoint_parts_add_up_but_for_the_entropy_of_their_shares(
    points: list[tuple[int, float]], data: st.DataObject
) -> None:
    """D(data) = r1 D(pub) + r2 D(pr) + r1 log r1 + r2 log r2, repeated records or none."""
    counts, weights = (np.array(part) for part in zip(*points, strict=True))
    # The model may give some of its mass to what is in no part.
    model = weights / (weights.sum() + data.draw(st.floats(0, 10)))
    public = np.array(data.draw(st.lists(st.booleans(), min_size=len(points), max_size=len(points))))
    mine, rest = counts * public, counts * ~public
    if not mine.any() or not rest.any():
        return
    share = mine.sum() / counts.sum()
    entropy = share * np.log(share) + (1 - share) * np.log1p(-share)
    whole, ours, theirs = (divergence(empirical(part), model) for part in (counts, mine, rest))
    assert whole == pytest.approx(share * ours + (1 - share) * theirs + entropy, abs=1e-9)
    # So the theorem's two sides hold for D(data) - r1 D(pub), for records that are all different.
    if (counts <= 1).all():
        most = np.log(1 / (rest.sum() * model[rest > 0].min()))
        assert entropy - 1e-9 <= whole - share * ours <= entropy + (1 - share) * most + 1e-9


@given(st.data())
@settings(deadline=None)
def test_parts_that_share_records_lose_their_divergence_to_the_whole(data: st.DataObject) -> None:
    """In general D(data) = r1 D(pub) + r2 D(pr) - (r1 D(pub from data) + r2 D(pr from data))."""
    size = data.draw(st.integers(1, 8))
    ours, theirs = (
        np.array(data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))) for _ in ("public", "private")
    )
    if not ours.any() or not theirs.any():
        return
    model = empirical(data.draw(st.lists(st.integers(1, 9), min_size=size, max_size=size)))
    share = ours.sum() / (ours.sum() + theirs.sum())
    parts = [(share, empirical(ours)), (1 - share, empirical(theirs))]
    whole = empirical(ours + theirs)
    apart = sum(rate * divergence(part, whole) for rate, part in parts)
    found = sum(rate * divergence(part, model) for rate, part in parts) - apart
    assert divergence(whole, model) == pytest.approx(found, abs=1e-9)


def test_the_theorem_as_printed_is_refuted() -> None:
    """It has D(pub) in place of r1 D(pub): one public and one private record, with a tenth and nine of the mass."""
    model = np.array([0.1, 0.9])
    gap = divergence(np.array([0.5, 0.5]), model) - divergence(np.array([1.0, 0.0]), model)
    assert gap == pytest.approx(-1.7918, abs=1e-4)
    assert gap < 2 * 0.5 * np.log(0.5) - 1


def test_a_model_that_has_the_public_share_alone_knows_nothing_of_the_rest() -> None:
    for mass in (1e-3, 1e-6, 1e-9):
        model = np.array([1 - mass, mass])
        assert divergence(np.array([1.0, 0.0]), model) < 2 * mass
        assert divergence(np.array([0.5, 0.5]), model) > 0.5 * np.log(1 / mass) - 1
