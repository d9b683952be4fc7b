"""Answers depend on the question alone."""

import random
import tracemalloc
from typing import Any

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
EPSILONS = (0.0, 1e-4, 0.01, 0.3, 0.31, 0.32, 1.0, 2.5, 7.0)


def fresh_loss(event: Event) -> Any:
    return _uncached_loss(event, Adjacency.ADD_REMOVE, _TOLERANCE, "pld")


# The last one's answers take many times as long as those of the others: it is asked every third question.
@pytest.mark.parametrize(
    ("event", "every"),
    [*((event, 1) for event in EVENTS[:-1]), pytest.param(EVENTS[-1], 3, marks=pytest.mark.thorough)],
    ids=range(len(EVENTS)),
)
def test_no_answer_depends_on_what_was_asked_before(event: Event, every: int) -> None:
    """To the last bit: certificates are recomputed by whoever verifies, in another order."""
    questions = [("epsilon", delta) for delta in (1e-3, 1e-5, 1e-9)[::every]] + [
        ("delta", at) for at in EPSILONS[::every]
    ]
    fresh = {(kind, at): getattr(fresh_loss(event), kind)(at) for kind, at in questions}
    random.Random(0).shuffle(questions)
    loss = fresh_loss(event)
    for kind, at in questions:
        assert getattr(loss, kind)(at) == fresh[kind, at]
    curve = epsilon_delta_curve(event, EPSILONS[::every]).tolist()
    assert curve == sorted(curve, reverse=True)


@pytest.mark.parametrize("runs", [1, 4])
@pytest.mark.parametrize("rate", [1e-6, 1e-4])
def test_a_price_takes_little_memory_also_where_tiny_and_large_losses_meet(rate: float, runs: int) -> None:
    """A grid fine enough for the tiny losses would have billions of points up to the large ones."""
    event = Repeated(PoissonSampled(rate, Gaussian(0.2)), runs)
    tracemalloc.start()
    loss = fresh_loss(event)
    found = loss.delta(0.0), loss.epsilon(rate / 10)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 400 * 2**20
    # Whether the record was drawn is nearly told, and nothing else is.
    assert 0.95 * runs * rate < found[0] <= runs * rate
    assert 3 < found[1] < 40


def test_an_epsilon_of_next_to_nothing_is_a_price_too() -> None:
    one = Repeated(PoissonSampled(2.7780152991343803e-08, Gaussian(0.33686306159324536)), 100135585)
    other = Repeated(PoissonSampled(8.887636083183261e-07, Gaussian(5.951016389845568)), 16519)
    assert 0 <= fresh_loss(Composed((one, other))).epsilon(0.009864262400961128) < 1e-100
