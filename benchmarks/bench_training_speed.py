"""Clipped sums of per-record gradients: privmix.training against Opacus and plain SGD, on the CPU in float32.

What is timed is one logical batch's sum of clipped gradients of the mean loss over K views; noise and optimiser, which
cost all the same, are left out, and plain SGD is the unclipped gradient of the same views. Methods take turns in
one process, after a round that warms up. Memory is of a process a method, and above what it held with model and data.

Opacus has no views: B records with K views are B K samples, whose gradients are averaged over K before Opacus clips. It
is timed with the whole logical batch at once and with smaller physical batches, of which the table names the fastest.
Its linear layers also take views as an axis of the input, which sums over them in the layer ("view axis"); its
convolutions don't. Its ghost clipping takes norms of single samples, so with K > 1 it applies to linear layers alone.

    python benchmarks/bench_training_speed.py [--threads 1] [--rounds 3] [--cases wrn-16,linear-16]
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import common
from privmix.training.gradients.config import AUTO, ExecutionConfig
from privmix.training.gradients.execution import STRATEGIES, choose_strategy, fitting_chunk
from privmix.training.gradients.parameters import Clipping, FlatParameters, SideInformation
from privmix.training.models.base import build_model
from privmix.training.models.networks import StandardisedConv2d

CLIP_NORM, CLASSES, TOLERANCE = 1.0, 10, 1e-4
# Clipped sum (P,) of views (b, K, *input) and targets (b, K, classes).
Work = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """One problem: ``batch`` records are the logical batch of the memory runs, ``timed`` of them are timed."""

    title: str
    model: str
    shape: tuple[int, ...]
    views: int
    batch: int
    timed: int
    methods: tuple[str, ...]
    with_memory: bool = True


_OURS = ("privmix loop", "privmix vmap")
_CHUNKED = tuple(f"Opacus, {views} views at once" for views in (8, 16))
# Record by record, and the logical batch of 16 records as it is.
_WHOLE = tuple(f"Opacus, {views} views at once" for views in (16, 256))
CASES = {
    "wrn-16": Case(
        "WRN-16-4, plain convolutions", "wrn-16-4 plain", (3, 32, 32), 16, 16, 16, (*_OURS, *_WHOLE, "plain SGD")
    ),
    "wrn-16-standardised": Case(
        "WRN-16-4, standardised convolutions",
        "wrn-16-4",
        (3, 32, 32),
        16,
        16,
        2,
        ("privmix loop", *_CHUNKED, "plain SGD"),
    ),
    "wrn-1": Case(
        "WRN-16-4, plain convolutions",
        "wrn-16-4 plain",
        (3, 32, 32),
        1,
        64,
        16,
        (*_OURS, *(f"Opacus, {views} views at once" for views in (4, 16)), "Opacus ghost, chunks of 16", "plain SGD"),
    ),
    "linear-16": Case(
        "linear head, d = 3969",
        "linear",
        (3969,),
        16,
        1024,
        1024,
        (
            "privmix closed-form",
            *(f"Opacus, {views} views at once" for views in (64, 1024, 16384)),
            *(f"Opacus view axis, chunks of {size}" for size in (16, 64)),
            *(f"Opacus ghost, chunks of {size}" for size in (64, 256)),
            "plain SGD",
        ),
    ),
    "linear-1": Case(
        "linear head, d = 3969",
        "linear",
        (3969,),
        1,
        8192,
        8192,
        (
            "privmix closed-form",
            *(f"Opacus, {views} views at once" for views in (16, 64, 1024)),
            *(f"Opacus ghost, chunks of {size}" for size in (1024, 8192)),
            "plain SGD",
        ),
    ),
}
for _name, _shape, _channels in (("cnn", 28, 1), ("resnet-9", 32, 3)):
    for _views in (1, 16):
        _records = {("cnn", 1): 256, ("cnn", 16): 32, ("resnet-9", 1): 8, ("resnet-9", 16): 1}[_name, _views]
        CASES[f"{_name}-{_views}"] = Case(
            f"{_name}",
            _name,
            (_channels, _shape, _shape),
            _views,
            _records,
            _records,
            (*_OURS, f"Opacus, {max(16, _views)} views at once", "plain SGD"),
            with_memory=False,
        )


def make_model(name: str) -> nn.Module:
    name, _, plain = name.partition(" ")
    shape = {"cnn": (28, 28), "linear": (3969,)}.get(name, (32, 32, 3))
    model: nn.Module = build_model(name, input_shape=shape, dim=3969, classes=CLASSES, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            # Heads start at zero, which would leave little to compute.
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return with_plain_convolutions(model) if plain else model


def with_plain_convolutions(model: nn.Module) -> nn.Module:
    """The same function of the input, with the standardised filters as the weights of ``nn.Conv2d``."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, StandardisedConv2d):
                size, stride, padding = layer.kernel_size, layer.stride, layer.padding
                conv = nn.Conv2d(layer.in_channels, layer.out_channels, size, stride, padding, bias=False)
                conv.weight.data.copy_(layer.standardise(layer.weight.data))
                setattr(parent, name, conv)
    return model


def make_data(case: Case, records: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(records, case.views, *case.shape, generator=generator)
    x *= 0.05 if len(case.shape) == 1 else 1.0
    return x, torch.softmax(3 * torch.randn(records, case.views, CLASSES, generator=generator), dim=-1)


def make_work(method: str, model: nn.Module, case: Case) -> Work:
    kind, _, detail = method.partition(", ")
    if kind == "plain SGD":
        return plain_sgd(model, case)
    if kind.startswith("privmix "):
        return privmix(kind.removeprefix("privmix "), model, case)
    size = int(detail.removeprefix("chunks of ").split()[0])
    if kind == "Opacus ghost":
        return opacus_ghost(model, size)
    return opacus_view_axis(model, size) if kind == "Opacus view axis" else opacus(model, size)


def plain_sgd(model: nn.Module, case: Case, at_once: int | None = None) -> Work:
    """Sums of unclipped gradients, ``at_once`` views at a time; where nothing is said, what caches hold."""
    parameters = list(model.parameters())
    step = max(1, (at_once or (4096 if len(case.shape) == 1 else 64)) // case.views)

    def work(x: Tensor, targets: Tensor) -> Tensor:
        total = torch.zeros(sum(parameter.numel() for parameter in parameters), device=x.device)
        for views, wanted in zip(torch.split(x, step), torch.split(targets, step), strict=True):
            loss = cross_entropy(model(views.flatten(0, 1)), wanted.flatten(0, 1), reduction="sum")
            total += joined(torch.autograd.grad(loss / case.views, parameters))
        return total

    return work


def privmix(name: str, model: nn.Module, case: Case) -> Work:
    flat = FlatParameters(model)
    strategy = STRATEGIES[name](model, flat, Clipping(CLIP_NORM))
    # What a training run takes. The agreement in float64 is of few records, and training knows float32 alone.
    double = next(model.parameters()).dtype == torch.float64
    size = case.batch if double else fitting_chunk(strategy, case.shape, case.views)

    def work(x: Tensor, targets: Tensor) -> Tensor:
        total = torch.zeros(flat.size, dtype=torch.float64)
        for views, wanted in zip(torch.split(x, size), torch.split(targets, size), strict=True):
            total += strategy.clipped_sum(views, wanted, SideInformation())
        return total

    return work


def opacus_optimiser(kind: type[Any], module: nn.Module) -> Any:
    plain = torch.optim.SGD(module.parameters(), lr=0.1)
    options = {"noise_multiplier": 0.0, "max_grad_norm": CLIP_NORM, "expected_batch_size": 1, "loss_reduction": "sum"}
    return kind(plain, **options)


def opacus(model: nn.Module, at_once: int) -> Work:
    """Per-sample gradients of ``at_once`` views, averaged over K, then clipped by Opacus' optimiser."""
    module = GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
    optimiser = opacus_optimiser(DPOptimizer, module)

    def backward(views: Tensor, targets: Tensor) -> None:
        cross_entropy(module(views), targets, reduction="sum").backward()

    def part_of_a_record(x: Tensor, targets: Tensor) -> None:
        means: list[Any] = [0.0] * len(optimiser.params)
        for views, wanted in zip(torch.split(x[0], at_once), torch.split(targets[0], at_once), strict=True):
            backward(views, wanted)
            for i, parameter in enumerate(optimiser.params):
                means[i] = means[i] + parameter.grad_sample.sum(0, keepdim=True) / x.shape[1]
                parameter.grad = parameter.grad_sample = None
        for parameter, mean in zip(optimiser.params, means, strict=True):
            parameter.grad_sample = mean

    def whole_records(x: Tensor, targets: Tensor) -> None:
        backward(x.flatten(0, 1), targets.flatten(0, 1))
        if x.shape[1] > 1:
            for parameter in optimiser.params:
                parameter.grad_sample = parameter.grad_sample.unflatten(0, x.shape[:2]).mean(1)

    def work(x: Tensor, targets: Tensor) -> Tensor:
        for parameter in optimiser.params:
            parameter.summed_grad = None
        size = max(1, at_once // x.shape[1])
        fill = part_of_a_record if at_once < x.shape[1] else whole_records
        for views, wanted in zip(torch.split(x, size), torch.split(targets, size), strict=True):
            fill(views, wanted)
            clip(optimiser)
        return joined([parameter.summed_grad for parameter in optimiser.params])

    return work


def opacus_view_axis(model: nn.Module, size: int) -> Work:
    """A linear head on (b, K, d): Opacus' per-sample gradients are then already sums over views."""
    module = GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
    optimiser = opacus_optimiser(DPOptimizer, module)

    def work(x: Tensor, targets: Tensor) -> Tensor:
        for parameter in optimiser.params:
            parameter.summed_grad = None
        for views, wanted in zip(torch.split(x, size), torch.split(targets, size), strict=True):
            loss = cross_entropy(module(views).flatten(0, 1), wanted.flatten(0, 1), reduction="sum")
            (loss / x.shape[1]).backward()
            clip(optimiser)
        return joined([parameter.summed_grad for parameter in optimiser.params])

    return work


def clip(optimiser: Any) -> None:
    optimiser.clip_and_accumulate()
    for parameter in optimiser.params:
        parameter.grad = parameter.grad_sample = None


class _MeanOverViews:
    """(b, K, classes) or (b, classes) logits -> losses (b,); the attribute is what Opacus looks for."""

    reduction = "sum"

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        losses = cross_entropy(logits.flatten(0, -2), targets.flatten(0, -2), reduction="none")
        return losses.view(len(targets), -1).mean(1)


def opacus_ghost(model: nn.Module, size: int) -> Work:
    """Opacus' ghost clipping, which takes convolutions' norms from per-sample gradients of one layer at a time."""
    module = GradSampleModuleFastGradientClipping(
        copy.deepcopy(model), loss_reduction="sum", max_grad_norm=CLIP_NORM, use_ghost_clipping=True
    )
    optimiser = opacus_optimiser(DPOptimizerFastGradientClipping, module)
    criterion = DPLossFastGradientClipping(module, optimiser, _MeanOverViews(), loss_reduction="sum")

    def work(x: Tensor, targets: Tensor) -> Tensor:
        total: list[Tensor] | None = None
        for views, wanted in zip(torch.split(x, size), torch.split(targets, size), strict=True):
            if x.shape[1] == 1:
                views, wanted = views[:, 0], wanted[:, 0]
            for parameter in optimiser.params:
                parameter.grad = None
            criterion(module(views), wanted).backward()
            found = [parameter.grad for parameter in optimiser.params]
            total = found if total is None else [a.add_(b) for a, b in zip(total, found, strict=True)]
        assert total is not None
        return joined(total)

    return work


def joined(tensors: Any) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def check_agreement(case: Case) -> None:
    """All clipped sums agree, in float64: in float32 any two methods differ by up to 1e-3 on the deep networks."""
    records = min(2 if len(case.shape) > 1 else 64, case.timed)
    model, (x, targets) = make_model(case.model).double(), make_data(case, records)
    reference: Tensor | None = None
    for method in case.methods:
        if method != "plain SGD":
            found = make_work(method, model, case)(x.double(), targets.double()).double()
            reference = found if reference is None else reference
            error = float((found - reference).norm() / reference.norm())
            assert error < TOLERANCE, (case, method, error)


def time_case(case: Case, rounds: int) -> dict[str, list[float]]:
    """Seconds a record of each method, round by round."""
    model = make_model(case.model)
    x, targets = make_data(case, case.timed)
    works = {method: make_work(method, model, case) for method in case.methods}
    for work in works.values():
        work(x, targets)
    times: dict[str, list[float]] = {method: [] for method in works}
    for _ in range(rounds):
        for method, work in works.items():
            start = time.perf_counter()
            work(x, targets)
            times[method].append((time.perf_counter() - start) / case.timed)
    return times


def peak_memory(name: str, method: str) -> float:
    """Peak MiB of one logical batch, above what the process held before; to be called in a process of its own."""
    case = CASES[name]
    model = make_model(case.model)
    x, targets = make_data(case, case.batch)
    work = make_work(method, model, case)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    work(x, targets)
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def memory_in_process(name: str, method: str, threads: int) -> float:
    command = [sys.executable, __file__, "--threads", str(threads), "--memory", name, method]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(run.stdout.splitlines()[-1]))


def chosen_strategy(case: Case) -> str:
    """What ``auto`` takes."""
    model = make_model(case.model)
    flat, clipping = FlatParameters(model), Clipping(CLIP_NORM)
    return choose_strategy(ExecutionConfig(AUTO), model, flat, clipping, case.shape, case.views, CLASSES).name


def measure(name: str, rounds: int, threads: int) -> dict[str, Any]:
    case = CASES[name]
    check_agreement(case)
    times = time_case(case, rounds)
    rows = {
        method: {
            "seconds_a_record": values,
            "median": common.median(values),
            "peak_mib": memory_in_process(name, method, threads) if case.with_memory else None,
        }
        for method, values in times.items()
    }
    title = f"{case.title}, K = {case.views}"
    return {"case": name, "title": title, "batch": case.batch, "auto": chosen_strategy(case), "methods": rows}


def summary(found: dict[str, Any]) -> list[Any]:
    """The fastest of each library, and ratios that pair their rounds."""
    methods = found["methods"]
    ours, theirs = (
        min((m for m in methods if m.startswith(prefix)), key=lambda m: methods[m]["median"])
        for prefix in ("privmix", "Opacus")
    )
    speed, sgd = (paired(methods[other], methods[ours]) for other in (theirs, "plain SGD"))
    cells = [f"{speed:.2f}", memory_share(methods[ours], methods[theirs]), f"{1 / sgd:.2f}"]
    # K folded into the batch and the logical batch as it is: what a user of Opacus writes first.
    case = CASES[found["case"]]
    whole = methods.get(f"Opacus, {case.batch * case.views} views at once")
    cells += (
        ["", ""] if whole is None else [f"{paired(whole, methods[ours]):.1f}", memory_share(methods[ours], whole, 3)]
    )
    return [found["title"], ours.removeprefix("privmix "), found["auto"], theirs.removeprefix("Opacus, "), *cells]


def memory_share(ours: dict[str, Any], other: dict[str, Any], digits: int = 2) -> str:
    """Peak memory over that of another method; nothing where it was not measured."""
    return "" if ours["peak_mib"] is None else f"{ours['peak_mib'] / other['peak_mib']:.{digits}f}"


def paired(other: dict[str, Any], ours: dict[str, Any]) -> float:
    rounds = zip(other["seconds_a_record"], ours["seconds_a_record"], strict=True)
    return common.median([a / b for a, b in rounds])


def tables(results: list[dict[str, Any]]) -> list[str]:
    header = ["problem", "fastest of privmix", "`auto` takes", "fastest of Opacus", "speed-up", "memory, of Opacus'"]
    header += ["time, of plain SGD's", "speed-up, whole logical batch", "memory, whole logical batch"]
    parts = [common.table(header, [summary(found) for found in results])]
    for found in results:
        rows = [
            (method, f"{row['median'] * 1e3:.3g}", "" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}")
            for method, row in found["methods"].items()
        ]
        caption = f"{found['title']}, logical batch {found['batch']}"
        parts.append(f"{caption}:\n\n" + common.table(["method", "ms a record", "peak MiB above start"], rows))
    return parts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--memory", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", category=UserWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)
    if options.memory is not None:
        print(json.dumps(peak_memory(*options.memory)))
        return
    names = options.cases.split(",")
    settings = {
        "opacus": version("opacus"),
        "threads": options.threads,
        "rounds": f"{options.rounds}, methods in turn; medians, and medians of the rounds' ratios",
        "clipped sums": f"all equal to {TOLERANCE:g}, relative, in float64",
        "timed": ", ".join(f"{name} {CASES[name].timed}" for name in names) + " records",
    }
    title = "Clipped gradients: privmix, Opacus and plain SGD"
    results = []
    for name in names:
        results.append(measure(name, options.rounds, options.threads))
        # What is done is kept if the rest is stopped.
        common.save("training_speed", title, settings, results, tables(results))


if __name__ == "__main__":
    main()
