from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privmix.mechanisms.sampling import RECORD_TILE, ROW_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.training.batches import PoissonBatches, refuse_foreign_loader
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.plan import TrainingPlan
from tests.refusals import refuses

# A right sampler fails a comparison with chance 1e-11; no test makes more than 20: false alarms below 1e-9.
P_LIMIT = 1e-11
Z_LIMIT = 7.0
RECORDS, BATCH, STEPS = 60, 12, 3000
PLAN = TrainingPlan(RECORDS, BATCH, STEPS, 1.0, clip_norm=1.0, delta=1e-5)


def batches(plan: TrainingPlan, records: int | None = None, seed: int = 0, **shard: int) -> PoissonBatches:
    return PoissonBatches(plan, SecretStreams.from_seed(seed), plan.records if records is None else records, **shard)


def test_poisson() -> None:
    """The rows of the plan's sampler, whose law is in tests/mechanisms/test_sampling.py, at the plan's rate."""
    source, sampler = batches(PLAN), PLAN.sampler
    drawn = [source.draw(step).indices for step in range(STEPS)]
    for step in (0, ROW_TILE - 1, ROW_TILE, STEPS - 1):
        row_tile, row = divmod(step, ROW_TILE)
        wanted = sampler.draw(SecretStreams.from_seed(0), row_tile, 0)
        assert drawn[step].tolist() == wanted.indices[wanted.offsets[row] : wanted.offsets[row + 1]].tolist()
    assert stats.binomtest(sum(map(len, drawn)), STEPS * RECORDS, BATCH / RECORDS).pvalue > P_LIMIT
    # A declared count keeps the rate, however many records there are.
    declared = batches(replace(PLAN, records_declared=True), 200)
    count = sum(len(declared.draw(step).indices) for step in range(STEPS))
    assert stats.binomtest(count, STEPS * 200, BATCH / RECORDS).pvalue > P_LIMIT


PARTS = ("indices", "seeds", "groups")
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
    for name in PARTS:
        joined_parts = np.concatenate([getattr(part, name) for part in parts])
        assert np.array_equal(joined_parts, getattr(whole, name))
        assert joined_parts.dtype == np.int64


def test_repeatable() -> None:
    first = batches(LARGE)
    drawn = {step: first.draw(step) for step in (0, ROW_TILE, 7, ROW_TILE - 1, 7)}
    second = batches(LARGE)
    for step in (ROW_TILE - 1, 7, ROW_TILE, 0):
        found = second.draw(step)
        assert all(np.array_equal(getattr(found, name), getattr(drawn[step], name)) for name in PARTS)
    assert repr(found) == "<Batch>"
    assert not np.array_equal(drawn[0].indices, drawn[7].indices)
    assert not np.array_equal(batches(LARGE, seed=1).draw(0).indices, drawn[0].indices)


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
        assert one.groups is None or (one.groups[ours] == other.groups[theirs]).all()
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


def test_foreign_loaders_are_refused() -> None:
    data = torch.utils.data.TensorDataset(torch.rand(20, 3), torch.zeros(20))
    loader = torch.utils.data.DataLoader(data, batch_size=5, shuffle=True)
    with refuses("data"):
        refuse_foreign_loader(loader)
    with refuses("data"):
        TrainingRecords.of(loader, np.zeros(20), classes=2)
    refuse_foreign_loader(data)
    refuse_foreign_loader(np.zeros((3, 2)))
