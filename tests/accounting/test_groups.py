"""Prices for whoever has several records: never below the exact loss of the worst pair that is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privmix.accounting import Adjacency, Gaussian, Laplace, PoissonSampled, Repeated, epsilon
from privmix.accounting.events import ClusterSampled, Composed, Event, FixedSizeSampled, NormalWeighted
from privmix.accounting.pricing import group_epsilon, group_event
from privmix.audits.worst_case import attack, real_engine, worst_case_of
from privmix.engine.rows import Engine, PrivateRecords
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.plan import Plan
from tests.refusals import refuses


def divergence(p: np.ndarray, q: np.ndarray, eps: float, step: float) -> float:
    """The larger of both directions'."""
    return max(float(np.maximum(a - math.exp(eps) * b, 0).sum() * step) for a, b in ((p, q), (q, p)))


def row_of(records: int, rate: float, x: np.ndarray, noise: float = 1.0) -> np.ndarray:
    """Density of a row that so many records join, each by itself."""
    return sum(stats.binom.pmf(j, records, rate) * stats.norm.pdf(x, j, noise) for j in range(records + 1))


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("noise", [1.0, 5.0])
def test_a_sampled_query_costs_a_group_no_more_than_is_said(rate: float, noise: float, k: int) -> None:
    """The exact law of a query that k records join independently, in both directions, by numerical integration."""
    delta = 1e-4
    said = group_epsilon(PoissonSampled(rate, Gaussian(noise)), delta, k).epsilon
    x = np.linspace(-12 * noise, k + 12 * noise, 400_001)
    without = stats.norm.pdf(x, 0, noise)
    present = row_of(k, rate, x, noise)
    assert divergence(present, without, said, x[1] - x[0]) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    ("count", "rows"), [(1, (1, 1, 1)), (2, (2, 2, 2)), (2, (3, 2, 1))], ids=["classes", "pairs", "mixed"]
)
def test_records_in_rows_of_their_own_cost_no_more(count: int, rows: tuple[int, ...], rate: float) -> None:
    """Three records, each in ``count`` of three rows: how many may be in a row. The exact law, in both directions."""
    together = group_event(Repeated(PoissonSampled(rate, Gaussian(1.0)), count), 3)
    x = np.linspace(-7, 10, 171)
    present, without = (
        np.einsum("i,j,k->ijk", *(row_of(records * there, rate, x) for records in rows)) for there in (1, 0)
    )
    for delta in (1e-3, 0.05, 0.3):
        said = epsilon(together, delta).epsilon
        assert divergence(present, without, said, (x[1] - x[0]) ** 3) <= delta * (1 + 1e-3)


@pytest.mark.parametrize("design", ["moments", "poisson"])
def test_copies_of_a_record_show_more_than_one_and_no_more_than_a_group_may(design: str) -> None:
    """The real engine, five records that come together: what they prove is beyond the price of one, and within theirs.

    Shares of 4,000 trials are off by 0.055 at most, at every threshold at once, but for a chance below 1e-10
    (Massart 1990).
    """
    config = ReleaseConfig(records=1000, dim=9, classes=("a", "b"), design=design, rows=20, centre="none")
    plan = (config if design == "moments" else replace(config, mixup_degree=500)).calibrate(1.0, 1e-3)

    def five(plan: Plan, records: PrivateRecords, streams: SecretStreams) -> Engine:
        own = np.repeat(np.arange(len(records.labels)), 5)
        return real_engine(plan, PrivateRecords(records.features[own], records.labels[own]), streams)

    scores = attack(worst_case_of(plan), 8000, seed=1, make=five)
    at = np.quantile(np.concatenate([scores.present, scores.without]), np.linspace(0.01, 0.99, 99))
    present, without = ((found[:, None] > at).mean(axis=0) for found in (scores.present, scores.without))
    one, together = (group_epsilon(plan.event, 1e-3, k).epsilon for k in (1, 5))
    off = math.sqrt(math.log(2 / 1e-10) / (2 * 4000))
    assert (present - off - math.exp(one) * (without + off)).max() > 1e-3
    for p, q in ((present, without), (1 - without, 1 - present)):
        assert (p - off - math.exp(together) * (q + off)).max() <= 1e-3


def test_queries_cost_as_their_shift_and_rates() -> None:
    assert group_epsilon(Gaussian(10.0), 1e-5, 4).epsilon == epsilon(Gaussian(2.5), 1e-5).epsilon
    assert group_event(Laplace(6.0), 3) == Laplace(2.0)
    assert group_epsilon(Laplace(4.0), 0.0, 6, accountant="pure").epsilon == pytest.approx(1.5)
    parts = Composed((Gaussian(6.0), ClusterSampled(0.5, 0.5, Gaussian(2.0))))
    found = group_event(parts, 2)
    first, second = found.events
    assert first == Gaussian(3.0)
    assert (second.cluster_rate, second.sampling_rate) == pytest.approx((0.75, 0.75))


@pytest.mark.parametrize("event", [FixedSizeSampled(1000, 10, Gaussian(2.0)), NormalWeighted(Gaussian(40.0))])
def test_where_no_event_is_known_the_price_of_one_record_bounds_that_of_several(event: Event) -> None:
    """k epsilon at least, and a group of groups costs no less than its parts."""
    adjacency = Adjacency.REPLACE_ONE if isinstance(event, FixedSizeSampled) else Adjacency.ADD_REMOVE
    assert group_event(event, 3) is None
    one, three = (group_epsilon(event, 1e-5, k, adjacency=adjacency).epsilon for k in (1, 3))
    assert 3 * one < three < 100 * group_epsilon(Gaussian(10.0), 1e-5, 3).epsilon


def test_the_smaller_of_two_bounds_is_said() -> None:
    """Rows of few records with little noise: a row that several of one person are in is rare, and dear if there."""
    event = Repeated(PoissonSampled(64 / 60_000, Gaussian(1.2)), 60_000)
    together = group_event(event, 5)
    found = group_epsilon(event, 1e-5, 5).epsilon
    assert 5 * epsilon(event, 1e-5).epsilon < found < epsilon(together, 1e-5).epsilon / 10


def test_bad_input() -> None:
    with refuses("records_per_person"):
        group_epsilon(Gaussian(1.0), 1e-5, 0)
    with refuses("accountant"):
        group_epsilon(Gaussian(1.0), 1e-5, 2, accountant="gdp_clt")
