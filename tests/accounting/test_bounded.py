"""Mechanisms of which nothing but an (epsilon, delta) is known."""

import math

import numpy as np
import pytest
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism, from_privacy_parameters

from privmix.accounting import (
    Adjacency,
    Bounded,
    Composed,
    Gaussian,
    NeighbourCurve,
    Repeated,
    delta,
    epsilon,
    epsilon_delta_curve,
    tradeoff_curve,
)
from privmix.accounting.base import UnsupportedEvent


def test_alone_it_costs_what_it_states() -> None:
    assert epsilon(Bounded(1.3, 1e-6), 1e-6 * (1 + 1e-9)).epsilon == pytest.approx(1.3, abs=2e-4)
    assert epsilon(Bounded(1.3, 1e-6), 1e-6 * (1 + 1e-9)).epsilon >= 1.3 - 1e-9
    assert epsilon(Bounded(1.3, 1e-6), 0.9e-6).epsilon == math.inf
    assert delta(Bounded(1.3, 0.0), 1.4).delta < 1e-12


def test_what_tells_nothing_leaves_an_attack_to_chance() -> None:
    nothing = Bounded(0.0, 0.0)
    alphas = np.array([0.0, 0.05, 1.0])
    np.testing.assert_allclose(tradeoff_curve(nothing, alphas), 1 - alphas, atol=1e-12)
    assert float(epsilon_delta_curve(nothing, [0.0])[0]) < 1e-300
    assert NeighbourCurve.of_event(nothing, Adjacency.ADD_REMOVE).by_presence.max() < 1e-300


@pytest.mark.parametrize("count", [1, 5])
def test_agrees_with_the_library(count: int) -> None:
    event = Composed((Repeated(Bounded(0.3, 1e-7), count), Gaussian(5.0)))
    theirs = from_privacy_parameters(DifferentialPrivacyParameters(0.3, 1e-7)).self_compose(count)
    theirs = theirs.compose(from_gaussian_mechanism(5.0))
    for at in (1e-5, 1e-4):
        expected = theirs.get_epsilon_for_delta(at)
        assert epsilon(event, at).epsilon == pytest.approx(expected, abs=1e-3 * count)


def test_its_adjacency_is_its_own() -> None:
    with pytest.raises(UnsupportedEvent):
        epsilon(Bounded(1.0, 1e-6), 1e-5, adjacency=Adjacency.REPLACE_ONE)
    stated = Bounded(1.0, 1e-6, Adjacency.REPLACE_ONE.value)
    assert epsilon(stated, 1e-5, adjacency=Adjacency.REPLACE_ONE).epsilon <= 1.0 + 1e-3
    with pytest.raises(UnsupportedEvent):
        epsilon(Bounded(1.0, 1e-6), 1e-5, accountant="rdp")
