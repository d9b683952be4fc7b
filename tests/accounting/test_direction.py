"""Answers depend on the question alone."""

from __future__ import annotations

import random

import pytest

from privmix.accounting import Adjacency, epsilon_delta_curve
from privmix.accounting.events import ClusterSampled, Composed, Event, Gaussian, Laplace, PoissonSampled, Repeated
from privmix.accounting.pld import _TOLERANCE, _uncached_loss

EVENTS: list[Event] = [
    Repeated(PoissonSampled(0.01, Gaussian(1.0)), 1000),
    Composed((Gaussian(20.0), Repeated(PoissonSampled(64 / 600, Gaussian(2.0)), 600))),
    Repeated(ClusterSampled(0.3, 0.05, Gaussian(1.5)), 200),
    Repeated(Laplace(5.0), 10),
    Repeated(PoissonSampled(1e-6, Gaussian(0.8)), 10**6),
]
DELTAS = (1e-3, 1e-5, 1e-9)
EPSILONS = (0.0, 1e-4, 0.01, 0.3, 0.31, 0.32, 1.0, 2.5, 7.0)


@pytest.mark.parametrize("event", EVENTS, ids=range(len(EVENTS)))
def test_no_answer_depends_on_what_was_asked_before(event: Event) -> None:
    """To the last bit: certificates are recomputed by whoever verifies, in another order."""
    fresh = {}
    for delta in DELTAS:
        fresh["epsilon", delta] = _uncached_loss(event, Adjacency.ADD_REMOVE, _TOLERANCE, "pld").epsilon(delta)
    for epsilon in EPSILONS:
        fresh["delta", epsilon] = _uncached_loss(event, Adjacency.ADD_REMOVE, _TOLERANCE, "pld").delta(epsilon)
    for seed in range(2):
        questions = list(fresh)
        random.Random(seed).shuffle(questions)
        loss = _uncached_loss(event, Adjacency.ADD_REMOVE, _TOLERANCE, "pld")
        for kind, at in questions:
            assert getattr(loss, kind)(at) == fresh[kind, at]
    curve = epsilon_delta_curve(event, EPSILONS).tolist()
    assert curve == sorted(curve, reverse=True)
