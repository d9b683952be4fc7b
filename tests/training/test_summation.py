"""How clipped gradients are added: what one record moves, at any batch."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from privmix.training import dp_sgd
from privmix.training.batches import Batch
from privmix.training.dp_sgd import DpSgd, TrainingRecords
from privmix.training.gradients import closed_form, execution
from privmix.training.gradients.closed_form import ClosedFormGradients
from privmix.training.gradients.execution import Chunks
from privmix.training.gradients.parameters import SideInformation
from privmix.training.gradients.strategies import GradientStrategy, LoopGradients, VmapGradients
from privmix.training.models.networks import LinearHead
from privmix.training.noise import GroupedSum, call_size, deal, grid_of, noise_scale
from privmix.training.plan import TrainingPlan
from privmix.training.views.config import ViewConfig
from privmix.training.views.pipeline import ViewPipeline
from tests.training.test_dp_sgd import Setting

DIM, CLASSES = 8, 2


def engine_of(kind: type[GradientStrategy], batch: int, chunk: int, seed: int = 0) -> tuple[DpSgd, np.random.Generator]:
    """An engine for a batch of records that all pull one way, and one more."""
    rng = np.random.default_rng(seed)
    records = TrainingRecords.of(rng.random((batch + 1, DIM)), np.zeros(batch + 1, np.int64), classes=CLASSES)
    plan = TrainingPlan(batch + 1, batch, 1, 1.0, clip_norm=0.1, delta=1e-9)
    views = ViewPipeline(ViewConfig.plain(), classes=CLASSES)
    head = LinearHead(dim=DIM, classes=CLASSES)
    return Setting(plan, records, head, kind, views, options={"chunks": Chunks(chunk)}).engine, rng


def moved(
    kind: type[GradientStrategy], batch: int, seed: int = 0, chunk: int | None = None
) -> tuple[float, TrainingPlan]:
    """How far a record more, at the front, moves the sum of ``batch`` that all pull one way; and the plan."""
    engine, rng = engine_of(kind, batch, chunk or (8192 if kind is ClosedFormGradients else 256), seed)
    plan = engine.plan
    seeds = rng.integers(2**63, size=batch + 1)
    everyone = np.arange(batch + 1)
    without, present = (
        engine._clipped_sum(Batch(everyone[start:], seeds[start:]), SideInformation()) for start in (1, 0)
    )
    return float((present - without).norm()), plan


@pytest.mark.parametrize(
    ("kind", "batch"), [(ClosedFormGradients, 2**18), (VmapGradients, 2**13), (LoopGradients, 2**9)]
)
def test_one_record_moves_a_sum_by_no_more_than_the_noise_has_room_for(
    kind: type[GradientStrategy], batch: int
) -> None:
    """A record's own gradient, to a few millionths, though all others have another place."""
    found, plan = moved(kind, batch)
    room = noise_scale(plan) / plan.noise_multiplier
    assert found <= room
    assert plan.sensitivity * (1 - 1e-4) < found < plan.sensitivity * (1 + 2e-5)


@pytest.mark.parametrize("kind", [ClosedFormGradients, VmapGradients])
@pytest.mark.parametrize("chunk", [2**17, 2**40])
def test_no_chunk_makes_rounding_larger_than_its_room(kind: type[GradientStrategy], chunk: int) -> None:
    """Where more than 4,096 records are asked for at once, a strategy may add as many in float32."""
    found, plan = moved(kind, 2**14, chunk=chunk)
    # Either way: that rounding takes away for these records is luck.
    room = noise_scale(plan) / plan.noise_multiplier - plan.sensitivity
    assert abs(found - plan.sensitivity) <= room


def test_no_chunk_is_larger_than_4096() -> None:
    parts: list[int] = []

    def work(part: slice, at_once: int) -> torch.Tensor:
        parts.append(part.stop - part.start)
        return torch.zeros(1)

    Chunks(2**20, fixed=True).sum_over(10_000, work, 1, torch.device("cpu"))
    assert parts == [4096, 4096, 1808]
    seeds = np.random.default_rng(0).integers(2**63, size=20_000)
    assert max(map(len, deal(seeds, len(seeds), 2**20))) <= 4096


@pytest.mark.parametrize(("chunk", "most"), [(256, 256), (4096, 753), (30, 30)])
def test_calls_have_one_size_however_many_records_there_are(
    chunk: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How a library multiplies follows from the shape: no record may change it for the others."""
    sizes, own = list[tuple[int, int | None]](), VmapGradients.clipped_sum

    def watched(self: GradientStrategy, views: torch.Tensor, *given: Any) -> torch.Tensor:
        sizes.append((len(views), given[2] if len(given) > 2 else None))
        return own(self, views, *given)

    monkeypatch.setattr(VmapGradients, "clipped_sum", watched)
    engine, _ = engine_of(VmapGradients, 700, chunk)
    for present in (0, 1, 2, 255, 256, 500, 700):
        engine._clipped_sum(Batch(np.arange(present), np.arange(present) * 7 + 3), SideInformation())
    assert {size for size, _ in sizes} == {call_size(700, chunk)} == {most}
    assert sum(size if count is None else count for size, count in sizes) == 0 + 1 + 2 + 255 + 256 + 500 + 700


def test_own_draw_each_once() -> None:
    """One record more joins one group, and all others stay where they are."""
    seeds = np.random.default_rng(0).integers(2**63, size=5000)
    groups = deal(seeds, 5000, 512)
    assert len(groups) == math.ceil(5000 / (0.9 * 512))
    assert np.array_equal(np.sort(np.concatenate(groups)), np.arange(5000))
    assert all((np.diff(group) > 0).all() for group in groups)
    more = deal(np.concatenate([[7], seeds]), 5000, 512)
    for number, (now, then) in enumerate(zip(more, groups, strict=True)):
        assert np.array_equal(now[now > 0] - 1, then)
        assert (0 in now) == (number == 7 % len(groups))
    assert [len(group) for group in deal(seeds[:0], 5000, 512)] == [0] * len(groups)
    assert len(deal(seeds, 100, 1)) == 1


def test_exact_and_local() -> None:
    """Any order gives the same bits; one group's change comes through, give or take the grid."""
    generator = torch.Generator().manual_seed(0)
    parts = torch.randn(300, 40, generator=generator, dtype=torch.float64) * 50

    def total_of(rows: torch.Tensor) -> torch.Tensor:
        total = GroupedSum(40, 0.7, rows.device)
        for row in rows:
            total.add(row)
        return total.total

    total = total_of(parts)
    assert torch.equal(total, total_of(parts[torch.randperm(300, generator=generator)]))
    assert float((total - parts.sum(0)).norm()) <= 300 * 0.7 * 2**-17
    assert torch.equal(total / grid_of(40, 0.7), (total / grid_of(40, 0.7)).round())
    changed = parts.clone()
    changed[150] += torch.linspace(0, 1e-3, 40)
    wanted = changed[150] - parts[150]
    assert float((total_of(changed) - total - wanted).norm()) <= 0.7 * 2**-17
    assert "GroupedSum>" in repr(GroupedSum(3, 1.0, total.device))


def test_slices_of_consecutive_records_in_float32_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums as they are made where nobody thinks of rounding: one record at the front moves all slices."""

    def consecutive(seeds: NDArray[np.int64], expected: float, at_once: int) -> list[NDArray[np.int64]]:
        return np.split(np.arange(len(seeds)), range(at_once, len(seeds), at_once))

    def single(self: ClosedFormGradients, features: torch.Tensor, errors: torch.Tensor) -> torch.Tensor:
        norms, _ = closed_form._norms(features.double(), errors.double())
        weighted = (errors.float() * self.clipping.factors(norms).float()[:, None, None])[:, 0]
        one_by_one = torch.cat([(weighted[:, :, None] * features.float()[:, :1]).flatten(1), weighted], dim=1)
        # In the order of the records: how a processor's library orders a product differs between processors.
        return torch.from_numpy(np.add.accumulate(one_by_one.numpy(), axis=0)[-1])

    monkeypatch.setattr(execution, "MOST_AT_ONCE", 8192)
    monkeypatch.setattr(dp_sgd, "deal", consecutive)
    monkeypatch.setattr(ClosedFormGradients, "sum_by_pairs", single)
    found, plan = moved(ClosedFormGradients, 2**18, seed=1)
    # More or less than its own gradient, as rounding will have it.
    assert abs(found - plan.sensitivity) > noise_scale(plan) / plan.noise_multiplier - plan.sensitivity
