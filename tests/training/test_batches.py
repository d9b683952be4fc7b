from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from privmix.mechanisms.sampling import RECORD_TILE, ROW_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.training.batches import Batch, PoissonBatches, refuse_foreign_loader
from privmix.training.plan import TrainingPlan
from privmix.training.records import TrainingRecords
from tests.refusals import refuses

# A right sampler fails a comparison with chance 1e-11; no test makes more than 20: false alarms below 1e-9.
P_LIMIT = 1e-11
Z_LIMIT = 7.0
RECORDS, BATCH, STEPS = 60, 12, 3000
RATE = BATCH / RECORDS
PLAN = TrainingPlan(RECORDS, BATCH, STEPS, 1.0, clip_norm=1.0, delta=1e-5)
Joined = NDArray[np.bool_]


def batches(plan: TrainingPlan, records: int | None = None, seed: int = 0, **shard: int) -> PoissonBatches:
    return PoissonBatches(plan, SecretStreams.from_seed(seed), plan.records if records is None else records, **shard)


def joined(plan: TrainingPlan) -> Joined:
    """(steps, records) who was drawn."""
    drawn = np.zeros((plan.steps, plan.records), bool)
    source = batches(plan)
    for step in range(plan.steps):
        drawn[step, source.draw(step).indices] = True
    return drawn


def chi_square(counts: NDArray[np.int64], law: stats.rv_discrete) -> float:
    """p-value of counts under a discrete law, with tails pooled."""
    low, high = int(law.ppf(0.02)), int(law.ppf(0.98))
    clipped = np.clip(counts, low, high)
    observed = np.bincount(clipped - low, minlength=high - low + 1)
    expected = law.pmf(np.arange(low, high + 1))
    expected[0], expected[-1] = law.cdf(low), law.sf(high - 1)
    return float(stats.chisquare(observed, expected * len(counts) / expected.sum()).pvalue)


def is_poisson(drawn: Joined, rate: float) -> bool:
    """Whether batch sizes and records' counts are binomial at ``rate``, and draws independent of one another."""
    steps, records = drawn.shape
    p_values = [chi_square(drawn.sum(1), stats.binom(records, rate))]
    # Too few records for a chi-square of their counts' law: their sum of squared deviations.
    z = (drawn.sum(0) - steps * rate) / np.sqrt(steps * rate * (1 - rate))
    p_values += [2 * min(stats.chi2.sf(z @ z, records), stats.chi2.cdf(z @ z, records))]
    centred = drawn - rate
    variance = rate * (1 - rate)
    # Between records of a step: all pairs at once (this is what a fixed batch size fails), and neighbours.
    pairs = (centred.sum(1) ** 2 - (centred**2).sum(1)).sum() / np.sqrt(2 * steps * records * (records - 1))
    beside = (centred[:, 1:] * centred[:, :-1]).sum() / np.sqrt(steps * (records - 1))
    # Between steps: the same record, one, two and many steps later.
    later = [(centred[gap:] * centred[:-gap]).sum() / np.sqrt((steps - gap) * records) for gap in (1, 2, 5, ROW_TILE)]
    statistics = np.array([pairs, beside, *later]) / variance
    return min(p_values) > P_LIMIT and bool((np.abs(statistics) < Z_LIMIT).all())


def fixed_size(drawn: Joined) -> Joined:
    rng = np.random.default_rng(0)
    return np.argsort(np.argsort(rng.random(drawn.shape), axis=1), axis=1) < BATCH


def shuffled(drawn: Joined) -> Joined:
    """Epochs of shuffled batches, as loaders make them."""
    rng = np.random.default_rng(0)
    orders = np.concatenate([rng.permutation(RECORDS) for _ in range(STEPS * BATCH // RECORDS)])
    made = np.zeros_like(drawn)
    made[np.repeat(np.arange(STEPS), BATCH), orders] = True
    return made


def other_rate(factor: float) -> Callable[[Joined], Joined]:
    return lambda drawn: np.random.default_rng(0).random(drawn.shape) < factor * RATE


def sticky(drawn: Joined) -> Joined:
    """A sampler that repeats every batch once."""
    return np.repeat(drawn[::2], 2, axis=0)


def clustered(drawn: Joined) -> Joined:
    """A sampler that draws records in pairs."""
    return np.repeat(drawn[:, ::2], 2, axis=1)


def without_empty(drawn: Joined) -> Joined:
    """A sampler that draws small batches again."""
    made = drawn.copy()
    small = made.sum(1) < 9
    made[small] = made[~small][: small.sum()]
    return made


def test_poisson() -> None:
    assert is_poisson(joined(PLAN), RATE)


@pytest.mark.parametrize(
    "sampler",
    [fixed_size, shuffled, sticky, clustered, without_empty, other_rate(0.95), other_rate(1.05)],
    ids=["fixed-size", "shuffled", "sticky", "clustered", "redrawn", "fewer", "more"],
)
def test_poisson_other_samplers_are_told_apart(sampler: Callable[[Joined], Joined]) -> None:
    """The very test that the batches pass."""
    assert not is_poisson(sampler(joined(PLAN)), RATE)


def test_poisson_with_a_declared_count_keeps_the_rate() -> None:
    """Who is priced at rate q is sampled at rate q, however many there really are."""
    plan = replace(PLAN, records_declared=True)
    for records in (30, 200):
        source = batches(plan, records)
        drawn = sum(len(source.draw(step).indices) for step in range(STEPS))
        trials = STEPS * records
        assert abs(drawn - trials * RATE) < Z_LIMIT * np.sqrt(trials * RATE * (1 - RATE))
    with refuses("records"):
        batches(PLAN, 59)


LARGE = TrainingPlan(2 * RECORD_TILE + 5000, 300, 1500, 1.0, clip_norm=1.0, delta=1e-5, microbatch_size=4)
WHOLE = {step: batches(LARGE).draw(step) for step in (0, 7, 1100)}
EDGES = st.sampled_from([0, 1, RECORD_TILE - 1, RECORD_TILE, RECORD_TILE + 1, 2 * RECORD_TILE, LARGE.records])


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(EDGES | st.integers(0, LARGE.records), max_size=5), step=st.sampled_from(sorted(WHOLE)))
def test_any_shards_one_batch(cuts: list[int], step: int) -> None:
    """Cut anywhere, also into empty shards, at tiles' edges and beside them."""
    edges = [0, *sorted(cuts), LARGE.records]
    parts = [batches(LARGE, first=a, last=b).draw(step) for a, b in pairwise(edges)]
    whole = WHOLE[step]
    for name in ("indices", "seeds", "groups"):
        joined_parts = np.concatenate([getattr(part, name) for part in parts])
        assert np.array_equal(joined_parts, getattr(whole, name))
        assert joined_parts.dtype == np.int64


def test_repeatable() -> None:
    """Any order of steps, again and again, across row tiles."""
    first = batches(LARGE)
    drawn = {step: first.draw(step) for step in (0, ROW_TILE, 7, ROW_TILE - 1, 7)}
    second = batches(LARGE)
    for step in (ROW_TILE - 1, 7, ROW_TILE, 0):
        assert same(second.draw(step), drawn[step])
    assert not np.array_equal(drawn[0].indices, drawn[7].indices)
    assert not np.array_equal(batches(LARGE, seed=1).draw(0).indices, drawn[0].indices)


def same(one: Batch, other: Batch) -> bool:
    groups = one.groups is None or (other.groups is not None and np.array_equal(one.groups, other.groups))
    return groups and np.array_equal(one.indices, other.indices) and np.array_equal(one.seeds, other.seeds)


@pytest.mark.parametrize("microbatch_size", [1, 3])
def test_own_draw(microbatch_size: int) -> None:
    """A record's seed and group are the same whoever else is sampled: at another rate, others are."""
    few = TrainingPlan(500, 60, 20, 1.0, clip_norm=1.0, delta=1e-5, microbatch_size=microbatch_size)
    many = replace(few, batch_size=240, microbatch_size=4 * microbatch_size if microbatch_size > 1 else 1)
    assert few.units == many.units or microbatch_size == 1
    common = 0
    for step in range(20):
        one, other = batches(few).draw(step), batches(many).draw(step)
        shared, ours, theirs = np.intersect1d(one.indices, other.indices, return_indices=True)
        common += len(shared)
        assert (one.seeds[ours] == other.seeds[theirs]).all()
        if one.groups is not None:
            assert other.groups is not None
            assert (one.groups[ours] == other.groups[theirs]).all()
    assert common > 100


def test_own_draw_seeds_and_groups_follow_their_laws() -> None:
    plan = TrainingPlan(500, 100, 200, 1.0, clip_norm=1.0, delta=1e-5, microbatch_size=10)
    source = batches(plan)
    drawn = [source.draw(step) for step in range(200)]
    seeds = np.concatenate([batch.seeds for batch in drawn])
    assert len(np.unique(seeds)) == len(seeds)
    assert seeds.min() >= 0
    assert stats.kstest(seeds / 2.0**63, "uniform").pvalue > P_LIMIT
    groups = np.concatenate([batch.groups for batch in drawn if batch.groups is not None])
    assert stats.chisquare(np.bincount(groups, minlength=plan.units)).pvalue > P_LIMIT
    assert groups.max() == plan.units - 1 == 9
    # A record that is drawn twice has another group and seed each time, as a rule.
    one = [(batch.groups[batch.indices == 7], batch.seeds[batch.indices == 7]) for batch in drawn]  # type: ignore[index]
    assert len({int(group[0]) for group, _ in one if len(group)}) > 3


def test_batches_name_nobody() -> None:
    batch = batches(PLAN).draw(0)
    assert repr(batch) == "<Batch>"
    assert "streams" not in repr(batch)


def test_foreign_loaders_are_refused() -> None:
    data = torch.utils.data.TensorDataset(torch.rand(20, 3), torch.zeros(20))
    loader = torch.utils.data.DataLoader(data, batch_size=5, shuffle=True)
    with refuses("data"):
        refuse_foreign_loader(loader)
    with refuses("data"):
        TrainingRecords.of(loader, np.zeros(20), classes=2)
    refuse_foreign_loader(data)
    refuse_foreign_loader(np.zeros((3, 2)))
