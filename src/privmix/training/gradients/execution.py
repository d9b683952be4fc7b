"""How steps are computed: which gradient strategy, in which chunks. Speed and memory only; the results are the same."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput, PrivmixError
from privmix.training.gradients.config import AUTO, ExecutionConfig
from privmix.training.gradients.parameters import Clipping, FlatParameters, SideInformation
from privmix.training.gradients.strategies import STRATEGIES, GradientStrategy
from privmix.training.models.base import is_out_of_memory
from privmix.training.noise import MOST_AT_ONCE

# Share of free memory that one chunk may take.
_SHARE: Final = 0.25
_TRIAL_RECORDS: Final = 16
# Number of timings of each strategy; the best one counts: other work of the machine only delays it.
_REPEATS: Final = 2
# Records of which sums are compared, and how far they may be apart, in clipping bounds a record: bfloat16 rounds more.
_COMPARED: Final = 2
_APART, _APART_AMP = 1e-3, 5e-2


class OutOfMemory(PrivmixError):
    """A chunk does not fit. Exit code 1. Earlier work is kept: the run can be resumed with smaller chunks."""


def choose_strategy(
    config: ExecutionConfig,
    model: nn.Module,
    flat: FlatParameters,
    clipping: Clipping,
    input_shape: tuple[int, ...],
    views: int,
    classes: int,
) -> GradientStrategy:
    """Return the strategy that ``config`` names, or the fastest correct one, measured on public random inputs.

    Formal guarantees:
        * Same sum: a strategy whose clipped sum of random records is not the definition's is not chosen.
    """
    if config.strategy != AUTO:
        return STRATEGIES[config.strategy](model, flat, clipping, amp=config.amp)
    fitting = [kind(model, flat, clipping, amp=config.amp) for kind in STRATEGIES.all() if kind.fits(model)]
    for one in fitting:
        if one.preferred:
            return one
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(_TRIAL_RECORDS, views, *input_shape, generator=generator).to(flat.device)
    targets = torch.full((_TRIAL_RECORDS, views, classes), 1 / classes, device=flat.device)
    exact = next(_sum(one, x[:_COMPARED], targets[:_COMPARED]) for one in fitting if one.definition)
    most = (_APART_AMP if config.amp else _APART) * clipping.clip_norm * _COMPARED

    def seconds(one: GradientStrategy) -> float:
        # Whether it can do this model, and gives the sum that it should.
        found = None if one.definition else _sum(one, x[:_COMPARED], targets[:_COMPARED])
        agrees = found is not None and (exact is None or bool((found - exact).norm() <= most))
        return trial_seconds(one, x, targets) if one.definition or agrees else float("inf")

    return min(fitting, key=lambda one: (seconds(one), not one.definition))


def _sum(strategy: GradientStrategy, x: Tensor, targets: Tensor) -> Tensor | None:
    try:
        return strategy.clipped_sum(x, targets, SideInformation()).double()
    except (MemoryError, RuntimeError, InvalidInput):
        return None


def trial_seconds(strategy: GradientStrategy, x: Tensor, targets: Tensor) -> float:
    """Seconds a record; infinite where the strategy can't do this model."""
    if _sum(strategy, x[:1], targets[:1]) is None:
        return float("inf")
    count, best = min(strategy.trial, len(x)), float("inf")
    for _ in range(_REPEATS):
        _wait(x)
        start = time.perf_counter()
        if _sum(strategy, x[:count], targets[:count]) is None:
            return float("inf")
        _wait(x)
        best = min(best, (time.perf_counter() - start) / count)
    return best


def _wait(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def fitting_chunk(strategy: GradientStrategy, input_shape: tuple[int, ...], views: int) -> int:
    """Return records a chunk that should fit in the memory that is free now, from the size of one record's work."""
    per_record = 4 * views * _activations(strategy, input_shape) * 3
    per_record += strategy.held * 4 * strategy.flat.size
    budget = _SHARE * free_memory(strategy.flat.device)
    if strategy.reused is not None and strategy.flat.device.type == "cpu":
        budget = min(budget, strategy.reused)
    return int(max(1, min(MOST_AT_ONCE, budget // max(1, per_record))))


def _activations(strategy: GradientStrategy, input_shape: tuple[int, ...]) -> int:
    """Numbers that one forward pass of one view makes, its input included."""
    made = 0

    def count(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal made
        if isinstance(output, Tensor):
            made += output.numel()

    handles = [module.register_forward_hook(count) for module in strategy.model.modules()]
    x = torch.zeros(1, *input_shape, device=strategy.flat.device)
    try:
        with torch.no_grad():
            strategy.model(x)
    finally:
        for handle in handles:
            handle.remove()
    return made + x.numel()


def free_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
        return float(kilobytes) * 1024
    except (OSError, StopIteration, ValueError):
        return 2.0**31


@dataclass(eq=False)
class Chunks:
    """Cut a batch into chunks that fit; where memory runs out, chunks are halved and the work continues.

    Formal guarantees:
        * Each once: a part that did not fit is asked for again, in smaller parts, and adds nothing before it is done.
        * Silent: no error reveals how many records a batch has.
        * Small enough: no part has more than 4,096 records, at any requested size.
    """

    size: int
    fixed: bool = False

    def __post_init__(self) -> None:
        self.size = min(self.size, MOST_AT_ONCE)

    def sum_over(
        self,
        count: int,
        work: Callable[[slice, int], Tensor],
        size: int,
        device: torch.device,
        most: int = MOST_AT_ONCE,
    ) -> Tensor:
        """Sum of ``work(part, at_once)`` over parts of ``range(count)``: (size,) float64."""
        # `at_once` is the size of all parts but the last, at most `most`. `work` must be a function of the part: a part
        # that did not fit is repeated in smaller parts.
        total = torch.zeros(size, dtype=torch.float64, device=device)
        start = 0
        while start < count:
            at_once = min(self.size, most)
            part = slice(start, min(start + at_once, count))
            found = _unless_too_large(partial(work, part, at_once))
            if found is None:
                self._shrink(at_once)
                continue
            total += found
            start = part.stop
        return total

    def _shrink(self, size: int) -> None:
        smaller = size // 2
        if smaller == 0:
            raise OutOfMemory("memory: not even one record fits; use fewer views or a smaller model")
        if self.fixed:
            raise OutOfMemory(
                f"memory: a chunk of {size} records does not fit; try one of {smaller}, or leave the chunk out"
            )
        self.size = smaller
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def whole(work: Callable[[], Tensor]) -> Tensor:
    """``work()``, which cannot be cut in parts; its OutOfMemory does not show a size."""
    found = _unless_too_large(work)
    if found is None:
        raise OutOfMemory("memory: a microbatch does not fit; use fewer views, smaller microbatches or a smaller model")
    return found


def _unless_too_large(work: Callable[[], Tensor]) -> Tensor | None:
    # A function of its own: the error, which may hold sizes of the batch and keeps its memory in use, ends here.
    try:
        return work()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    return None
