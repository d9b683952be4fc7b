"""Audits that stop at any time: what they say holds whenever they stop, and they do stop."""

import math
import time
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privmix.accounting import Adjacency, Gaussian, gdp_mu
from privmix.audits.audit import FIRST, Stopping, audit_plan, audit_until, judge, share_of_look
from privmix.audits.bounds import AuditVerdict
from privmix.audits.worst_case import AttackScores
from privmix.errors import InvalidInput
from privmix.planning import ReleaseConfig
from privmix.progress import Progress
from privmix.training.plan import TrainingPlan
from privmix.training.worst_case import audit_training

DELTA = 1e-5
CONFIG = ReleaseConfig(records=2000, dim=1, classes=("a", "b"), design="moments", centre="none")


def simulated(
    epsilon: float, claimed: float, enough: float, *, runs: int = 10**6, confidence: float = 0.95, seed: int = 0
) -> AuditVerdict:
    """An audit of scores of GDP of what passes through ``epsilon``, claimed as that through ``claimed``."""
    rng, mu, stopping = np.random.default_rng(seed), gdp_mu(epsilon, DELTA), Stopping(enough=enough)

    def attack(more: int, before: int, until: float, told: Progress | None) -> AttackScores:
        # Log-likelihood ratios of mu-GDP.
        without, present = (rng.normal(centre, mu, more // 2) for centre in (-(mu**2) / 2, mu**2 / 2))
        return AttackScores(without, present, without, present, np.zeros(more // 2), np.zeros(more // 2))

    said: dict[str, Any] = {"claimed_epsilon": claimed, "delta": DELTA}
    plan = {"design": "simulated", "event": Gaussian(1 / gdp_mu(claimed, DELTA)), "adjacency": Adjacency.ADD_REMOVE}

    def judged(scores: AttackScores, level: float, share: float) -> AuditVerdict:
        return judge(scores, confidence=level, share=share, priced_epsilon=claimed, own_price=True, **said, **plan)

    return audit_until(attack, judged, stopping, runs=runs, confidence=confidence, **said)


def test_stopping_at_the_first_refutation_refutes_true_claims_no_more_often() -> None:
    """Peeking at every look for whatever refutes: a claim that is met exactly falls as often as is stated."""
    wrong = sum(simulated(2.0, 2.0, 1.0, runs=8_000, confidence=0.8, seed=seed).violated for seed in range(60))
    assert sum(map(share_of_look, range(1, 10_000))) == pytest.approx(1, abs=2e-4)
    # More have a chance below 1e-10.
    assert wrong <= stats.binom.isf(1e-10, 60, 0.2)


def test_a_false_claim_stops_the_audit_early() -> None:
    found = simulated(8.0, 2.0, 1.0, confidence=0.99)
    assert found.violated
    assert found.runs == FIRST
    assert found.confidence == 0.99
    assert found.to_dict()["looks"] == 1


def test_enough_is_a_share_of_the_claim() -> None:
    found = simulated(8.0, 8.0, 0.4)
    assert not found.violated
    assert found.proven_epsilon >= 3.2
    assert FIRST < found.runs < 10**6
    assert found.looks == 1 + round(math.log2(found.runs / FIRST))


def test_a_time_that_is_over_ends_releases_and_trainings() -> None:
    plan = CONFIG.calibrate(1.0, DELTA)
    begun = time.monotonic()
    found = audit_plan(plan, 1.0, DELTA, runs=10**8, seed=0, stopping=Stopping(seconds=0.2))
    training = TrainingPlan(1000, 200, 3, 2.0, clip_norm=1.0, delta=DELTA)
    trained = audit_training(training, math.inf, runs=10**8, seed=0, stopping=Stopping(seconds=0.2))
    assert time.monotonic() - begun < 60
    for one in (found, trained):
        assert 2 <= one.runs < 10**7
        assert one.confidence == 0.95


def test_runs_go_on_where_they_were() -> None:
    """Looks take no run twice: all scores of a seeded audit differ, and are as many as were asked for."""
    plan = CONFIG.calibrate(1.0, DELTA)
    found = audit_plan(plan, 1.0, DELTA, runs=6000, seed=0, stopping=Stopping(enough=1.0))
    assert (found.runs, found.looks) == (6000, 3)


@pytest.mark.parametrize("bad", [{"seconds": 0.0}, {"seconds": math.nan}, {"enough": 0.0}, {"enough": 1.1}])
def test_bad_stops_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        Stopping(**bad)
