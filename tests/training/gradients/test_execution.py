"""Strategies are chosen by what they can do and how fast, once a run; chunks shrink until they fit."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput
from privmix.training import run
from privmix.training.gradients import execution
from privmix.training.gradients.config import ExecutionConfig
from privmix.training.gradients.execution import STRATEGIES, Chunks, OutOfMemory, choose_strategy, fitting_chunk, whole
from privmix.training.gradients.parameters import Clipping, FlatParameters
from privmix.training.gradients.strategies import GradientStrategy, LoopGradients, VmapGradients
from privmix.training.models.base import build_model
from tests.refusals import refuses
from tests.training.runs import config_of, files, job_of, run_to, weights_of
from tests.training.test_run import kill, same_names  # noqa: F401

CLASSES = 3
CPU = torch.device("cpu")


class Branching(nn.Module):
    """What vmap can't do: Python decides by values."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight if bool(x.sum() > 0) else x @ -self.weight


def choose(model: nn.Module, shape: tuple[int, ...], config: ExecutionConfig | None = None) -> str:
    flat = FlatParameters(model)
    return choose_strategy(config or ExecutionConfig(), model, flat, Clipping(1.0), shape, 2, CLASSES).name


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, CLASSES))


def times(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> list[str]:
    """Trials that take so long; returns the names of those that are tried."""
    tried: list[str] = []

    def trial(strategy: GradientStrategy, x: Tensor, targets: Tensor) -> float:
        tried.append(strategy.name)
        return seconds.get(strategy.name, float("inf"))

    monkeypatch.setattr(execution, "trial_seconds", trial)
    return tried


def test_a_linear_head_has_a_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = times(monkeypatch)
    head = build_model("linear", input_shape=(4,), dim=4, classes=CLASSES, seed=0, norm=2.0)
    assert choose(head, (4,)) == "closed-form"
    assert tried == []


@pytest.mark.parametrize("best", ["loop", "vmap"])
def test_auto_takes_the_fastest(best: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = times(monkeypatch, **{name: 1.0 + (name != best) for name in ("loop", "vmap")})
    assert choose(network(), (4,)) == best
    assert sorted(tried) == ["loop", "vmap"]


def test_a_strategy_that_fails_is_not_chosen() -> None:
    assert choose(Branching(), (4,)) == "loop"


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory"), InvalidInput("a", 1, "b")])
def test_where_all_fail_it_is_the_loop(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Tensor:
        raise error

    for kind in STRATEGIES.all():
        monkeypatch.setattr(kind, "clipped_sum", fail)
    assert choose(network(), (4,)) == "loop"


def test_a_trial_changes_nothing() -> None:
    model = network()
    before, state = FlatParameters(model).get(), torch.get_rng_state()
    choose(model, (4,))
    assert torch.equal(FlatParameters(model).get(), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(tensor.grad is None for tensor in model.parameters())


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_a_named_strategy_is_taken_or_refused(name: str) -> None:
    head = build_model("linear", input_shape=(4,), dim=4, classes=CLASSES, seed=0)
    assert choose(head, (4,), ExecutionConfig(name)) == name
    with nullcontext() if name in ("loop", "vmap") else refuses("strategy"):
        choose(Branching(), (4,), ExecutionConfig(name))


def summed(chunks: Chunks, limit: int, error: Exception, count: int = 37) -> tuple[list[int], list[int]]:
    """Sum squares of 0..count-1 one-hot at themselves, with room for ``limit`` at once: parts asked for, sum."""
    asked: list[int] = []

    def work(part: slice, at_once: int) -> Tensor:
        assert part.stop - part.start <= at_once
        asked.append(part.stop - part.start)
        if part.stop - part.start > limit:
            raise error
        found = torch.zeros(count)
        found[part] = torch.arange(part.start, part.stop, dtype=torch.float32) ** 2
        return found

    total = chunks.sum_over(count, work, count, CPU)
    assert total.dtype == torch.float64
    return asked, total.long().tolist()


OUT_OF_MEMORY = [
    MemoryError(),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 37 bytes"),
    torch.OutOfMemoryError("out of memory"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=["python", "cuda", "cpu", "torch"])
def test_each_record_once_when_chunks_are_halved(error: Exception) -> None:
    chunks = Chunks(16)
    asked, total = summed(chunks, 5, error)
    assert total == [number**2 for number in range(37)]
    assert asked == [16, 8, *[4] * 9, 1]
    assert summed(chunks, 4, error, count=0) == ([], []), "an empty batch is a zero sum"
    assert chunks.size == 4, "the next step begins with what fitted"


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        summed(Chunks(16), 5, RuntimeError("shapes do not fit"))


def test_a_fixed_chunk_that_does_not_fit_says_which_to_try() -> None:
    with pytest.raises(OutOfMemory, match=r"a chunk of 16 records does not fit; try one of 8") as caught:
        summed(Chunks(16, fixed=True), 5, OUT_OF_MEMORY[2])
    assert caught.value.exit_code == 1
    assert "37" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None, "the allocator's message holds sizes of the batch"
    assert Chunks(4, fixed=True).sum_over(3, lambda part, at_once: torch.ones(1), 1, CPU).tolist() == [1.0]


def test_what_does_not_fit_is_halved_from_what_was_asked_for() -> None:
    """A chunk may be far larger than what a call is to have."""
    asked: list[int] = []

    def work(part: slice, at_once: int) -> Tensor:
        asked.append(at_once)
        if at_once > 4:
            raise MemoryError
        return torch.ones(1)

    assert Chunks(4096).sum_over(8, work, 1, CPU, most=8).tolist() == [2.0]
    assert asked == [8, 4, 4]
    with pytest.raises(OutOfMemory, match=r"a chunk of 8 records does not fit; try one of 4"):
        Chunks(4096, fixed=True).sum_over(8, work, 1, CPU, most=8)


@pytest.mark.parametrize("fixed", [True, False])
def test_one_record_that_does_not_fit_says_what_to_do(fixed: bool) -> None:
    with pytest.raises(OutOfMemory, match="not even one record fits; use fewer views or a smaller model"):
        summed(Chunks(1, fixed=fixed), 0, MemoryError())


@pytest.mark.parametrize("free", [0.0, 1.0, 1e6, 1e15])
@pytest.mark.parametrize("kind", [LoopGradients, VmapGradients])
def test_a_fitting_chunk_is_at_least_one(free: float, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "free_memory", lambda device: free)
    model = network()
    strategy = kind(model, FlatParameters(model), Clipping(1.0))
    found = [fitting_chunk(strategy, (4,), views) for views in (1, 16)]
    assert 1 <= found[1] <= found[0] <= 4096
    assert found[0] == (4096 if free == 1e15 else 1 if free < 2 else found[0])


def measured(monkeypatch: pytest.MonkeyPatch, strategy: str, chunk: int) -> None:
    times(monkeypatch, **{strategy: 1.0})
    monkeypatch.setattr(run, "fitting_chunk", lambda *args: chunk)


def test_a_resumed_run_keeps_the_strategy_and_chunk_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of("cnn-relu")
    measured(monkeypatch, "vmap", 5)
    run_to(tmp_path / "whole", job_of(config))
    kill(tmp_path / "out", job_of(config), after=2)
    measured(monkeypatch, "loop", 64)
    other = run_to(tmp_path / "other", job_of(config))
    run_to(tmp_path / "out", job_of(config), resume=True)
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    # What was at stake: the other choice gives the same weights but for their last bits.
    whole = files(tmp_path / "whole")["weights.safetensors"]
    assert files(tmp_path / "other")["weights.safetensors"] != whole
    assert weights_of(other).isfinite().all()


def test_a_resumed_run_keeps_a_chunk_that_was_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privmix.training.run.CHECKPOINT_SECONDS", 0.0)
    config = config_of(execution=ExecutionConfig("vmap"))
    measured(monkeypatch, "vmap", 16)
    sizes: list[int] = []
    room, compute = 4, VmapGradients.clipped_sum

    def cramped(self: VmapGradients, views: Tensor, *given: Any) -> Tensor:
        if len(views) > room:
            raise MemoryError
        sizes.append(len(views))
        return compute(self, views, *given)

    monkeypatch.setattr(VmapGradients, "clipped_sum", cramped)
    kill(tmp_path / "out", job_of(config), after=3)
    assert max(sizes) == 4
    room = 100
    run_to(tmp_path / "out", job_of(config), resume=True)
    assert max(sizes) == 4


def test_a_job_refuses_a_strategy_before_it_runs() -> None:
    with refuses("strategy"):
        job_of(config_of("cnn-relu", execution=ExecutionConfig("closed-form")))


def test_a_microbatch_that_does_not_fit_tells_no_size() -> None:
    def too_large() -> Tensor:
        raise RuntimeError("can't allocate memory: you tried to allocate 123 bytes")

    with pytest.raises(OutOfMemory, match="microbatch") as caught:
        whole(too_large)
    assert "123" not in str(caught.value)
    assert caught.value.__context__ is None
    with pytest.raises(ZeroDivisionError):
        whole(lambda: torch.tensor(1 // 0))


def test_a_strategy_with_another_sum_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    # However fast it is: half of every gradient.
    honest, tried = VmapGradients.clipped_sum, times(monkeypatch, vmap=0.1, loop=3.0)
    assert choose(network(), (4,)) == "vmap"
    monkeypatch.setattr(VmapGradients, "clipped_sum", lambda *given: 0.5 * honest(*given))
    tried.clear()
    assert choose(network(), (4,)) == "loop"
    assert "vmap" not in tried
