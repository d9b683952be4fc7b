"""DP-SGD on a graphics card: clipped sums as on the processor, how fast they are, and a network trained from scratch.

Three parts. ``agreement``: clipped sums of every strategy on the card, in float64 and float32, beside the definition
(record by record, float64) on the processor. ``speed``: milliseconds a record of one batch's clipped sum beside Opacus
and plain SGD, methods in turns after a round that warms up; noise and optimiser, which cost all the same, are left out
(the problems of bench_training_speed.py, with more records). ``training``: WRN-16-4 from scratch on CIFAR-10 (De et al.
2022; Bao et al. 2023, Table 2, which trains for far longer), by DP-SGD with augmentations and by DP-MIX_SELF, for as
many epochs as are asked for, paired by seed.

Runs are kept in results/gpu_runs.json. Products of matrices are in full float32 unless --tf32 is given.

    python benchmarks/bench_gpu.py [--only agreement,speed,training] [--epochs 10] [--seeds 1]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import common
import privmix as pm
from bench_photographs import CLASSES, DATA
from bench_training_speed import CASES, CLIP_NORM, Case, Work, make_data, make_model, opacus, plain_sgd
from privmix.data import open_dataset
from privmix.errors import PrivmixError
from privmix.training.gradients.execution import STRATEGIES, fitting_chunk
from privmix.training.gradients.parameters import Clipping, FlatParameters, SideInformation

RUNS: Final = common.RESULTS / "gpu_runs.json"
DELTA: Final = 1e-5
# Problem -> records that are timed at once on a card.
TIMED: Final = {"linear-1": 8192, "linear-16": 1024, "cnn-1": 2048, "cnn-16": 256, "wrn-1": 512, "wrn-16": 64}
VIEWS_AT_ONCE: Final = {"linear-1": 8192, "linear-16": 4096, "cnn-1": 2048, "cnn-16": 2048, "wrn-1": 128, "wrn-16": 128}
FEW: Final = 8
KEY: Final = ("method", "model", "batch", "epochs")
METHODS: Final[dict[str, dict[str, Any]]] = {
    "DP-SGD, 16 augmentations": {"views": "self-aug:k_base=16"},
    "DP-MIX_SELF": {"views": "dp-mix-self:k_base=16"},
}


def waited(device: torch.device) -> float:
    """The time, once the card is done with what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def summed(name: str, model: nn.Module, case: Case, records: int) -> Work:
    """A strategy's clipped sum, in chunks as a training takes them."""
    flat = FlatParameters(model)
    strategy = STRATEGIES[name](model, flat, Clipping(CLIP_NORM))
    double = next(model.parameters()).dtype == torch.float64
    size = records if double else fitting_chunk(strategy, case.shape, case.views)

    def work(x: Tensor, targets: Tensor) -> Tensor:
        total = torch.zeros(flat.size, dtype=torch.float64, device=x.device)
        for views, wanted in zip(torch.split(x, size), torch.split(targets, size), strict=True):
            total += strategy.clipped_sum(views, wanted, SideInformation())
        return total

    return work


def strategies_of(case: Case) -> list[str]:
    return ["closed-form"] if case.model == "linear" else [name for name in STRATEGIES if name != "closed-form"]


def agreement(name: str, device: torch.device) -> list[dict[str, Any]]:
    """How far each strategy on the card is from the definition on the processor, relative to its length."""
    case, rows = CASES[name], []
    x, targets = make_data(case, FEW)
    # The closed form is a head's alone; what it is compared with is the loop.
    exact = summed("loop", make_model(case.model).double(), case, FEW)(x.double(), targets.double())
    for strategy in strategies_of(case):
        for dtype in (torch.float64, torch.float32):
            model = make_model(case.model).to(device, dtype)
            try:
                found = summed(strategy, model, case, FEW)(x.to(device, dtype), targets.to(device, dtype)).cpu()
            except (PrivmixError, RuntimeError) as error:
                rows.append({"case": name, "strategy": strategy, "dtype": str(dtype), "refused": type(error).__name__})
                continue
            error = float((found - exact).norm() / exact.norm())
            rows.append({"case": name, "strategy": strategy, "dtype": str(dtype), "error": error})
    return rows


def speed(name: str, device: torch.device, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds a record, round by round."""
    case = replace(CASES[name], timed=TIMED[name] if device.type == "cuda" else 4)
    x, targets = (part.to(device) for part in make_data(case, case.timed))
    works: dict[str, Callable[[], Tensor]] = {}
    for strategy in strategies_of(case):
        ours = summed(strategy, make_model(case.model).to(device), case, case.timed)
        works[f"privmix {strategy}"] = lambda ours=ours: ours(x, targets)
    theirs = opacus(make_model(case.model).to(device), VIEWS_AT_ONCE[name])
    plain = plain_sgd(make_model(case.model).to(device), case, VIEWS_AT_ONCE[name])
    works |= {"Opacus": lambda: theirs(x, targets), "plain SGD": lambda: plain(x, targets)}
    times: dict[str, list[float]] = {method: [] for method in works}
    for turn in range(rounds + 1):
        for method in list(times):
            start = waited(device)
            try:
                works[method]()
            except RuntimeError as error:
                del times[method]
                print(name, method, type(error).__name__, flush=True)
                continue
            if turn:
                times[method].append(1000 * (waited(device) - start) / case.timed)
    return [{"case": name, "method": method, "ms": values} for method, values in times.items()]


@cache
def photographs(split: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(n, 32, 32, 3) in [0, 1], and classes."""
    source = open_dataset(
        common.data_root() / "cifar10", split=split, classes=CLASSES, input_shape=DATA["cifar10"].shape
    )
    batches = list(source.batches(2000))
    x = np.concatenate([np.asarray(batch.x, np.float32) for batch in batches]).reshape(-1, *DATA["cifar10"].shape)
    return x / 255 if x.max() > 1 else x, np.concatenate([batch.y for batch in batches]).astype(np.int64)


def training(
    method: str, model_name: str, epochs: float, batch: int, epsilon: float, seed: int, device: torch.device
) -> dict[str, Any]:
    """One network from scratch, on the training part of CIFAR-10, and its accuracy on the test part."""
    start, steps = time.perf_counter(), [0.0]

    def progress(stage: str, done: int, total: int) -> None:
        if done == 1:
            steps[0] = waited(device)

    model = pm.train(
        photographs("train"),
        epsilon=epsilon,
        delta=DELTA,
        classes=list(CLASSES),
        model=model_name,
        features="pixels",
        epochs=epochs,
        batch_size=batch,
        seed=seed,
        device=str(device),
        progress=progress,
        **METHODS[method],
    )
    ended = waited(device)
    x, y = photographs("test")
    right = [np.asarray(model.predict(x[i : i + 1000])) == y[i : i + 1000] for i in range(0, len(x), 1000)]
    plan = model.certificate["plan"]
    return {
        "method": method,
        "model": model_name,
        "epochs": epochs,
        "batch": batch,
        "epsilon": model.certificate["guarantee"]["epsilon"],
        "seed": seed,
        "accuracy": float(np.concatenate(right).mean()),
        "steps": plan["steps"],
        "noise_multiplier": plan["noise_multiplier"],
        "seconds": round(ended - start, 1),
        "seconds_a_step": round((ended - steps[0]) / max(1, plan["steps"] - 1), 3),
        "views": METHODS[method],
    }


def report(runs: Sequence[dict[str, Any]], settings: dict[str, Any], *, again: bool) -> None:
    text = []
    agreed = [run for run in runs if "strategy" in run]
    if agreed:
        rows = [
            [
                run["case"],
                run["strategy"],
                run["dtype"].removeprefix("torch."),
                run.get("refused") or f"{run['error']:.1e}",
            ]
            for run in agreed
        ]
        text.append("Clipped sums on the card, away from the definition on the processor in float64:")
        text.append(common.table(["problem", "strategy", "numbers", "relative difference"], rows))
    timed = [run for run in runs if "ms" in run]
    if timed:
        rows = []
        for name in dict.fromkeys(run["case"] for run in timed):
            own = {run["method"]: common.median(run["ms"]) for run in timed if run["case"] == name}
            best = min((value, method) for method, value in own.items() if method.startswith("privmix"))
            rows.append(
                [
                    f"{CASES[name].title}, K = {CASES[name].views}",
                    f"{best[1].removeprefix('privmix ')}, {best[0]:.3g}",
                    f"{own['Opacus']:.3g}" if "Opacus" in own else "-",
                    f"{own['plain SGD']:.3g}",
                    f"{own['Opacus'] / best[0]:.2f}" if "Opacus" in own else "-",
                    f"{best[0] / own['plain SGD']:.2f}",
                ]
            )
        text.append("Milliseconds a record, medians:")
        header = ["problem", "privmix, fastest", "Opacus", "plain SGD", "Opacus by privmix", "privmix by plain SGD"]
        text.append(common.table(header, rows))
    trained = [run for run in runs if "steps" in run]
    if trained:
        rows = []
        for key in dict.fromkeys(tuple(run[name] for name in KEY) for run in trained):
            own = [run for run in trained if tuple(run[name] for name in KEY) == key]
            rows.append(
                [
                    *map(str, key),
                    str(own[0]["steps"]),
                    f"{own[0]['epsilon']:.2f}",
                    common.told([100 * run["accuracy"] for run in own]) if own[0]["epochs"] >= 1 else "too few steps",
                    f"{common.median([run['seconds_a_step'] for run in own]):.3g}",
                ]
            )
        text.append("Networks from scratch on CIFAR-10:")
        text.append(
            common.table(
                ["method", "network", "batch", "epochs", "steps", "eps", "test accuracy, %", "seconds a step"], rows
            )
        )
    common.save("gpu", "DP-SGD on a graphics card", settings, list(runs), text, again=again)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="agreement,speed,training", help="parts; none: the page alone")
    parser.add_argument("--cases", default=",".join(TIMED))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="wrn-16-4")
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--methods", default=";".join(METHODS))
    parser.add_argument("--tf32", action="store_true")
    asked = parser.parse_args()
    torch.set_float32_matmul_precision("high" if asked.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = asked.tf32
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    wanted = asked.only.split(",")
    for name in asked.cases.split(","):
        if "agreement" in wanted:
            runs += (found := agreement(name, device))
            print(*found, sep="\n", flush=True)
        if "speed" in wanted:
            runs += (found := speed(name, device, asked.rounds))
            print(*found, sep="\n", flush=True)
        RUNS.write_text(json.dumps(runs, indent=0) + "\n")
    if "training" in wanted:
        for seed in range(asked.seeds):
            for method in asked.methods.split(";"):
                runs.append(training(method, asked.model, asked.epochs, asked.batch, asked.epsilon, seed, device))
                print(runs[-1], flush=True)
                RUNS.write_text(json.dumps(runs, indent=0) + "\n")
    again, place = asked.only == "none", RUNS.with_name("gpu.json")
    settings = {
        "card": torch.cuda.get_device_name() if device.type == "cuda" else "none",
        "tf32": asked.tf32,
        "accounting": "PLD, add or remove one record",
        "delta": DELTA,
    }
    report(runs, json.loads(place.read_text())["settings"] if again else settings, again=again)


if __name__ == "__main__":
    main()
