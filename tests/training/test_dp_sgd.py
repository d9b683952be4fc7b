"""Whole steps of the engine against their definition, what one record can do to them, and the optimiser."""

import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from privmix.mechanisms.streams import SecretStreams
from privmix.training.batches import Batch, PoissonBatches
from privmix.training.config import SCHEDULES, OptimiserConfig
from privmix.training.dp_sgd import SAMPLING, DpSgd, Optimiser, StepObserver, TrainingRecords
from privmix.training.examples import ImageLayout
from privmix.training.gradients.closed_form import ClosedFormGradients
from privmix.training.gradients.execution import Chunks
from privmix.training.gradients.parameters import Clipping, FlatParameters, SideInformation
from privmix.training.gradients.strategies import GradientStrategy, LoopGradients, VmapGradients
from privmix.training.mechanisms import dp_sgd as mechanism
from privmix.training.models.networks import LinearHead, ReluCNN
from privmix.training.noise import noisy_mean
from privmix.training.plan import TrainingPlan
from privmix.training.public.base import ExtendedMethod
from privmix.training.views.augment import SELF_AUGMENTATIONS
from privmix.training.views.config import ViewConfig
from privmix.training.views.pipeline import MicrobatchMixer, ViewPipeline
from privmix.world import World
from tests.refusals import refuses

from .naive import naive_clipped, naive_gradient, naive_sum

CLASSES, RECORDS = 3, 24
PLAN = TrainingPlan(RECORDS, 6, 8, 0.8, clip_norm=0.4, delta=1e-3)
LAYOUT = ImageLayout(1, 8, 8)
KINDS: dict[str, type[GradientStrategy]] = {
    "loop": LoopGradients,
    "vmap": VmapGradients,
    "closed-form": ClosedFormGradients,
}


def vectors(records: int = RECORDS, dim: int = 5, seed: int = 0) -> TrainingRecords:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(records, dim)).astype(np.float32)
    return TrainingRecords.of(x, rng.integers(CLASSES, size=records), classes=CLASSES)


def images(records: int = RECORDS) -> TrainingRecords:
    rng = np.random.default_rng(0)
    x = rng.random((records, LAYOUT.dim), dtype=np.float32)
    return TrainingRecords.of(x, rng.integers(CLASSES, size=records), classes=CLASSES)


def head(dim: int = 5) -> nn.Module:
    model = LinearHead(dim=dim, classes=CLASSES)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(1))
    return model


def cnn() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return ReluCNN(channels_in=1, height=8, width=8, classes=CLASSES)


@dataclass
class Setting:
    """An engine and all that is in it."""

    plan: TrainingPlan = PLAN
    records: TrainingRecords = field(default_factory=vectors)
    model: nn.Module = field(default_factory=head)
    kind: type[GradientStrategy] = LoopGradients
    views: ViewPipeline = field(default_factory=lambda: ViewPipeline(ViewConfig.plain(), classes=CLASSES))
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    streams: SecretStreams | None = None

    def __post_init__(self) -> None:
        self.flat = FlatParameters(self.model)
        self.clipping = Clipping(self.plan.clip_norm)
        streams = SecretStreams.from_seed(self.seed) if self.options.get("world", World()).is_head else None
        self.streams = streams
        self.optimiser = Optimiser(self.flat, OptimiserConfig(learning_rate=1.0), self.plan.steps)
        gradients = self.kind(self.model, self.flat, self.clipping)
        self.engine = DpSgd(
            plan=self.plan,
            records=self.records,
            views=self.views,
            gradients=gradients,
            optimiser=self.optimiser,
            streams=streams,
            **self.options,
        )

    def batch(self, step: int) -> Batch:
        sampling = SecretStreams.from_seed(self.seed).derive(SAMPLING)
        return PoissonBatches(self.plan, sampling, len(self.records)).draw(step)

    def made(self, batch: Batch) -> tuple[Tensor, Tensor]:
        x, labels = self.records.x[batch.indices], self.records.labels[batch.indices]
        return self.views(torch.from_numpy(x), torch.from_numpy(labels), torch.from_numpy(batch.seeds))

    def clipped_sum(self, batch: Batch) -> Tensor:
        return self.engine._clipped_sum(batch, SideInformation())

    def expected(self, total: Tensor, step: int) -> Tensor:
        """Mean of the step, by a key that is equal and not the same."""
        return noisy_mean(total, self.plan, SecretStreams.from_seed(self.seed), step).double()

    def step_moves_by(self, wanted: Tensor, step: int) -> None:
        """Make the step, and compare what it moves the weights by."""
        before = self.flat.get().double()
        self.engine.step(step)
        assert_close(before - self.flat.get().double(), wanted, 1e-4)

    def changes_by_one_record(self) -> list[float]:
        """How far each record of each batch moves its sum."""
        changes = []
        for step in range(self.plan.steps):
            batch = self.batch(step)
            total = self.clipped_sum(batch)
            for position in range(len(batch.indices)):
                changes.append(float((total - self.clipped_sum(without(batch, position))).norm()))
        return changes


def without(batch: Batch, position: int) -> Batch:
    keep = np.arange(len(batch.indices)) != position
    return Batch(batch.indices[keep], batch.seeds[keep], None if batch.groups is None else batch.groups[keep])


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    assert float((found - expected).norm()) <= tolerance * float(expected.norm())


def with_images(kind: type[GradientStrategy]) -> Setting:
    pipeline = ViewPipeline(ViewConfig.dp_mix_self(2, 2, SELF_AUGMENTATIONS), LAYOUT, classes=CLASSES)
    return Setting(records=images(), model=cnn(), kind=kind, views=pipeline, options={"chunks": Chunks(3)})


@pytest.mark.parametrize("name", [*KINDS, "images-loop", "images-vmap"])
def test_a_step_is_its_definition(name: str) -> None:
    """Weights move by the noisy mean of the batch that the plan's sampler draws: sum, divisor, noise and all."""
    kind = KINDS[name.removeprefix("images-")]
    setting = with_images(kind) if name.startswith("images") else Setting(kind=kind)
    sizes = []
    for step in range(4):
        batch = setting.batch(step)
        sizes.append(len(batch.indices))
        total = naive_sum(setting.model, *setting.made(batch), setting.clipping)
        setting.step_moves_by(setting.expected(total, step), step)
    assert len(set(sizes)) > 1


@pytest.mark.parametrize("mixer", [None, MicrobatchMixer(CLASSES, mixes=2)], ids=["plain", "mixed"])
def test_a_step_with_microbatches_is_its_definition(mixer: MicrobatchMixer | None) -> None:
    """A group is one unit: the views of its records, or its mixes, are its views."""
    plan = replace(PLAN, batch_size=12, microbatch_size=3)
    setting = Setting(plan, options={"mixer": mixer})
    for step in range(3):
        batch = setting.batch(step)
        total = torch.zeros(setting.flat.size, dtype=torch.float64)
        for group in range(plan.units):
            own = np.flatnonzero(batch.groups == group)
            if len(own) == 0:
                continue
            if mixer is None:
                views, targets = setting.made(Batch(batch.indices[own], batch.seeds[own]))
                views, targets = views.flatten(0, 1), targets.flatten(0, 1)
            else:
                x, labels = setting.records.take(batch.indices[own], torch.device("cpu"))
                views, targets = mixer(x, labels, int(batch.seeds[own[0]]))
            gradient = naive_gradient(setting.model, views, targets, SideInformation())
            total += naive_clipped(gradient, setting.clipping)
        setting.step_moves_by(setting.expected(total, step), step)


def test_an_empty_batch_is_a_step_like_others() -> None:
    plan = replace(PLAN, batch_size=1, steps=20)
    setting = Setting(plan)
    empty = [step for step in range(20) if len(setting.batch(step).indices) == 0]
    assert empty
    for step in empty:
        before = setting.flat.get().double()
        setting.engine.step(step)
        moved = before - setting.flat.get().double()
        assert_close(moved, setting.expected(torch.zeros(setting.flat.size), step), 1e-4)
        # Chi-square with 18 degrees of freedom: outside with chance below 1e-9 a step.
        assert 0.05 < float(moved.square().mean()) / plan.noise_std**2 < 6


def test_public_methods_are_asked_before_and_after() -> None:
    class Doubling(ExtendedMethod):
        def prepare(self, step: int) -> SideInformation:
            return SideInformation(scale=torch.full((18,), 2.0 + step), centre=torch.full((18,), 0.1))

        def combine(self, mean: Tensor, step: int) -> Tensor:
            return 2 * mean

    setting = Setting(options={"method": Doubling()})
    for step in range(2):
        made, side = setting.made(setting.batch(step)), Doubling().prepare(step)
        total = naive_sum(setting.model, *made, setting.clipping, side)
        setting.step_moves_by(2 * setting.expected(total, step), step)


def test_what_does_not_match_is_refused() -> None:
    """As many records as planned, unless their number was declared; the message does not tell how many there are."""
    with refuses("records") as refused:
        Setting(records=vectors(23))
    assert "23" not in str(refused.value)
    Setting(replace(PLAN, records_declared=True), records=vectors(23)).engine.step(0)
    setting, two = Setting(), World(0, 2)
    with refuses("clip_norm"):
        replace(setting.engine, gradients=LoopGradients(setting.model, setting.flat, Clipping(0.5)))
    with refuses("microbatch_size"):
        Setting(replace(PLAN, microbatch_size=2), options={"world": two})
    with refuses("observers"):
        Setting(options={"world": two, "observers": [StepObserver()]})


@pytest.mark.parametrize("kind", KINDS)
def test_bounded_change_by_one_record(kind: str) -> None:
    """Same key, one record removed, or put back: the sum moves by at most the plan's sensitivity, and some by all."""
    x = vectors().x.copy()
    x[::3] *= 1e4
    setting = Setting(records=TrainingRecords.of(x, vectors().labels, classes=CLASSES), kind=KINDS[kind])
    changes = setting.changes_by_one_record()
    # Two sums in float32 of up to 24 records each are compared.
    assert max(changes) <= PLAN.sensitivity * (1 + 1e-5)
    assert max(changes) > 0.999 * PLAN.sensitivity


@pytest.mark.parametrize("mixer", [None, MicrobatchMixer(CLASSES, mixes=3)], ids=["plain", "mixed"])
def test_bounded_change_by_one_record_of_a_microbatch(mixer: MicrobatchMixer | None) -> None:
    """Up to 2C, and more than C: who prices groups like records understates epsilon."""
    plan = replace(PLAN, batch_size=12, microbatch_size=3, clip_norm=0.01)
    changes = Setting(plan, options={"mixer": mixer}).changes_by_one_record()
    assert max(changes) <= plan.sensitivity * (1 + 1e-5) == 2 * plan.clip_norm * (1 + 1e-5)
    assert max(changes) > 1.2 * plan.clip_norm


def test_bounded_for_records_without_a_finite_gradient() -> None:
    """Overflow drops the record that overflows; the step is made, and the weights stay numbers."""
    x = vectors().x.copy()
    x[::2] = 3e38
    records = TrainingRecords.of(x, vectors().labels, classes=CLASSES)
    for kind in KINDS.values():
        setting = Setting(records=records, kind=kind)
        batch = setting.batch(0)
        assert 0 < (batch.indices % 2 == 0).sum() < len(batch.indices)
        total = setting.clipped_sum(batch)
        fine = batch.indices % 2 == 1
        assert_close(total, setting.clipped_sum(Batch(batch.indices[fine], batch.seeds[fine])))
        setting.engine.step(0)
        assert setting.optimiser.finite


@pytest.mark.parametrize("size", [1, 2, 5])
def test_noise_once_a_step_whatever_the_chunks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = Setting(), Setting(options={"chunks": Chunks(size)})
    calls: list[int] = []

    def counted(total: Tensor, plan: TrainingPlan, streams: SecretStreams, step: int) -> Tensor:
        calls.append(step)
        return noisy_mean(total, plan, streams, step)

    monkeypatch.setattr(mechanism, "noisy_mean", counted)
    for step in range(4):
        whole.engine.step(step)
        cut.engine.step(step)
        assert_close(cut.flat.get(), whole.flat.get(), 1e-5)
    assert calls == [0, 0, 1, 1, 2, 2, 3, 3]


def observer(**calls: Callable[[Any, int], Any]) -> StepObserver:
    found = StepObserver()
    vars(found).update(calls)
    return found


def test_an_observer_sees_batch_sum_and_noisy_mean_and_changes_nothing_by_looking() -> None:
    seen: dict[tuple[str, int], Any] = {}
    watcher = observer(
        drawn=lambda batch, step: seen.setdefault(("drawn", step), batch),
        summed=lambda total, step: seen.setdefault(("summed", step), total.clone()),
        noised=lambda mean, step: seen.setdefault(("noised", step), mean.clone()),
    )
    watched, alone = Setting(options={"observers": [watcher]}), Setting()
    for step in range(2):
        watched.engine.step(step)
        alone.engine.step(step)
        assert torch.equal(watched.flat.get(), alone.flat.get())
    assert list(seen) == [(what, step) for step in range(2) for what in ("drawn", "summed", "noised")]
    assert seen["drawn", 1].indices.tolist() == alone.batch(1).indices.tolist()
    assert torch.equal(seen["noised", 1].double(), alone.expected(seen["summed", 1], 1))


def test_what_an_observer_puts_into_a_step_is_noised_with_the_rest() -> None:
    intruder = observer(
        drawn=lambda batch, step: Batch(batch.indices[:0], batch.seeds[:0]),
        summed=lambda total, step: total[0].add_(0.5),
    )
    setting = Setting(options={"observers": [intruder]})
    planted = torch.where(torch.arange(setting.flat.size) == 0, 0.5, 0.0).double()
    setting.step_moves_by(setting.expected(planted, 0), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_silent(kind: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """No output, log or warning, whatever the records hold; a step returns nothing, and keeps no figure of a batch."""
    x = vectors().x.copy()
    x[::2] = 3e38
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        setting = Setting(records=TrainingRecords.of(x, vectors().labels, classes=CLASSES), kind=KINDS[kind])
        kept = set(vars(setting.engine)), set(vars(setting.engine.gradients))
        assert [setting.engine.step(step) for step in range(4)] == [None] * 4  # type: ignore[func-returns-value]
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert not [str(warning.message) for warning in warned]
    assert (set(vars(setting.engine)), set(vars(setting.engine.gradients))) == kept
    assert all(parameter.grad is None for parameter in setting.model.parameters())


def test_sampling_key_is_not_the_noise_key() -> None:
    """Who holds what workers hold can draw the batches and not the noise."""
    streams = SecretStreams.from_seed(0)
    sampling = SecretStreams.of_shared(streams.derive(SAMPLING).share())
    noise = noisy_mean(torch.zeros(50), PLAN, streams, 0)
    guess = noisy_mean(torch.zeros(50), PLAN, sampling, 0)
    assert float(torch.corrcoef(torch.stack([noise, guess]))[0, 1].abs()) < 0.9
    assert not bool((noise == guess).any())


UPDATES = 12
OPTIMISERS = {
    "sgd": OptimiserConfig(learning_rate=0.3),
    "momentum": OptimiserConfig(learning_rate=0.3, momentum=0.9, schedule="cosine", weight_decay=0.01),
    "adam": OptimiserConfig("adam", learning_rate=0.05, schedule="linear", warm_up_steps=3),
    "average": OptimiserConfig(learning_rate=0.3, momentum=0.5, ema_decay=0.9),
}


def small() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def directions() -> Tensor:
    return torch.randn(UPDATES, 26, generator=torch.Generator().manual_seed(1))


def steps_of(config: OptimiserConfig) -> tuple[FlatParameters, Optimiser]:
    flat = FlatParameters(small())
    optimiser = Optimiser(flat, config, UPDATES)
    for step, direction in enumerate(directions()):
        optimiser.step(direction, step)
    return flat, optimiser


def test_sgd_by_hand() -> None:
    config = OPTIMISERS["momentum"]
    weights, velocity = FlatParameters(small()).get().double(), torch.zeros(26, dtype=torch.float64)
    for step, direction in enumerate(directions().double()):
        velocity = 0.9 * velocity + direction + 0.01 * weights
        weights = weights - config.rate(step, UPDATES) * velocity
    flat, optimiser = steps_of(config)
    assert torch.allclose(flat.get().double(), weights, atol=1e-5)
    assert torch.equal(optimiser.evaluated, flat.get())


def test_average_by_hand() -> None:
    """Its decay starts low: min(0.9, (1 + t) / (10 + t)), so that early weights are forgotten."""
    flat = FlatParameters(small())
    optimiser = Optimiser(flat, OPTIMISERS["average"], UPDATES)
    average = flat.get().double()
    for step, direction in enumerate(directions()):
        optimiser.step(direction, step)
        decay = min(0.9, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * flat.get().double()
        assert torch.allclose(optimiser.evaluated.double(), average, atol=1e-5)
    assert not torch.allclose(optimiser.evaluated, flat.get(), atol=1e-3)
    assert optimiser.finite
    optimiser.step(torch.where(torch.arange(26) == 3, torch.inf, 0.0), 0)
    assert not optimiser.finite


@pytest.mark.parametrize("name", OPTIMISERS)
def test_resumed_run_has_the_same_bits(name: str) -> None:
    flat, whole = steps_of(OPTIMISERS[name])
    for stop in (0, 1, 5):
        before = Optimiser(FlatParameters(small()), OPTIMISERS[name], UPDATES)
        for step in range(stop):
            before.step(directions()[step], step)
        other = FlatParameters(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)))
        after = Optimiser(other, OPTIMISERS[name], UPDATES)
        after.load(before.state())
        for step in range(stop, UPDATES):
            after.step(directions()[step], step)
        assert torch.equal(other.get(), flat.get())
        assert torch.equal(after.evaluated, whole.evaluated)
        states = [{key: value.tolist() for key, value in one.state().items()} for one in (after, whole)]
        assert states[0] == states[1]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rates(schedule: str) -> None:
    """A linear rise, then never more than the rate that was asked for, never below 0, and never up again."""
    config = OptimiserConfig(learning_rate=2.0, schedule=schedule, warm_up_steps=4)
    rates = [config.rate(step, 20) for step in range(20)]
    assert rates[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert all(after <= before for before, after in pairwise(rates[4:]))
    later = {"constant": (2.0, 2.0), "linear": (1.0, 2 / 16), "cosine": (1.0, 1 + math.cos(math.pi * 15 / 16))}
    assert (rates[12], rates[-1]) == pytest.approx(later[schedule])
    # A warm-up that is longer than the run.
    assert [config.rate(step, 2) for step in range(2)] == [0.5, 1.0]
