"""How far one more record moves the clipped gradients of the others that are computed with it.

Libraries choose how they multiply by the shape of what they get, and another way rounds differently; a ReLU whose input
is next to zero then turns over, and its record's gradient moves by a hundredth. Were a call as large as its part of the
batch, which has one record more or less on neighbouring datasets, that would be one record's doing and no part of the
clipping bound. Calls therefore have one public size and are filled up, as ``DpSgd`` does it.

For each network and precision: the largest length over several counts n of

    S(n + 1 records) - S(n records, all but the first) - S(the first record alone),

in clipping bounds, with calls of one size and with calls as large as what they get; the same for one call that is made
twice; and milliseconds a record. Random records. The noise has room for 1 / 1024.

Runs are kept in results/neighbours_runs.json by device, so that the page shows a processor beside a card. Measuring
needs numpy and torch alone; the page is written where privmix is installed.

    python benchmarks/bench_neighbours.py [--device cuda] [--measure | --page]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from privmix.training.gradients.parameters import Clipping, FlatParameters, SideInformation
from privmix.training.gradients.strategies import VmapGradients
from privmix.training.models.networks import ReluCNN, ResNet9, TanhCNN, WideResNet

RUNS: Final = Path(__file__).parent / "results" / "neighbours_runs.json"
ROOM: Final = 2.0**-10
CLASSES: Final = 10
REPEATS: Final = 4


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, CLASSES))


# Network -> how it is made, shape of a view.
NETWORKS: Final[dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]] = {
    "two hidden layers": (perceptron, (512,)),
    "tanh-cnn": (lambda: TanhCNN(channels_in=1, height=28, width=28, classes=CLASSES), (1, 28, 28)),
    "relu-cnn": (lambda: ReluCNN(channels_in=3, height=32, width=32, classes=CLASSES), (3, 32, 32)),
    "resnet9": (lambda: ResNet9(channels_in=3, classes=CLASSES), (3, 32, 32)),
    "wrn-16-4": (lambda: WideResNet(channels_in=3, classes=CLASSES), (3, 32, 32)),
}
# Network, views, size of a call. A processor takes the smaller ones.
CASES: Final = {
    "cuda": [
        ("two hidden layers", 1, 1100), ("two hidden layers", 16, 288), ("tanh-cnn", 1, 1100), ("tanh-cnn", 16, 288),
        ("relu-cnn", 1, 288), ("resnet9", 1, 128), ("wrn-16-4", 1, 128), ("wrn-16-4", 16, 32),
    ],
    "cpu": [("two hidden layers", 1, 70), ("tanh-cnn", 1, 288), ("relu-cnn", 1, 40), ("wrn-16-4", 1, 10)],
}  # fmt: skip


def counts(size: int) -> list[int]:
    """Around powers of two, where libraries change their ways, and the most that a call takes."""
    around = [2**power + more for power in (3, 5, 6, 8, 10) for more in (-1, 0)]
    return sorted({count for count in around if count < size} | {1, size - 1})


def measured(network: str, views: int, size: int, device: torch.device) -> list[dict[str, Any]]:
    make, shape = NETWORKS[network]
    torch.manual_seed(0)
    model = make().to(device)
    flat, generator = FlatParameters(model), torch.Generator().manual_seed(1)
    x = torch.rand(size, views, *shape, generator=generator).to(device)
    classes = torch.randint(0, CLASSES, (size, views), generator=generator)
    targets = nn.functional.one_hot(classes, CLASSES).float().to(device)
    found = []
    for amp in (False, True):
        strategy = VmapGradients(model, flat, Clipping(1.0), amp=amp)

        def in_one(start: int, stop: int, strategy: Any = strategy) -> Tensor:
            own = [*range(start, stop), *[start] * (size - (stop - start))]
            return strategy.clipped_sum(x[own], targets[own], SideInformation(), stop - start).double()

        def as_many(start: int, stop: int, strategy: Any = strategy) -> Tensor:
            return strategy.clipped_sum(x[start:stop], targets[start:stop], SideInformation()).double()

        run: dict[str, Any] = {"network": network, "views": views, "size": size, "strategy": strategy.name, "amp": amp}
        for name, total in (("one", in_one), ("as many", as_many)):
            alone = total(0, 1)
            run[name] = max(float((total(0, n + 1) - total(1, n + 1) - alone).norm()) for n in counts(size))
            run[f"twice, {name}"] = float((total(0, size // 2) - total(0, size // 2)).norm())
            run[f"ms, {name}"] = milliseconds(lambda total=total: total(0, size * 9 // 10), size * 9 // 10, device)
        found.append(run)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return found


def milliseconds(work: Callable[[], Any], records: int, device: torch.device) -> float:
    """A record, the median of several calls after one that warms up."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1000 * (time.perf_counter() - start) / records)
    return sorted(times[1:])[(REPEATS - 1) // 2]


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def page(kept: dict[str, Any]) -> None:
    import common

    header = [
        "network", "K", "call", "strategy", "one size", "as many as there are", "a call twice", "time by one size",
    ]  # fmt: skip
    text = []
    for device, told in kept.items():
        rows = [
            [
                run["network"],
                run["views"],
                run["size"],
                run["strategy"] + (", bfloat16" if run["amp"] else ""),
                f"{run['one']:.0e}",
                f"{run['as many']:.0e}" + (" (above)" if run["as many"] > ROOM else ""),
                f"{run['twice, one']:.0e}",
                f"{run['ms, one'] / run['ms, as many']:.2f}",
            ]
            for run in told["runs"]
        ]
        text += [
            f"On {device} (torch {told['torch']}), in clipping bounds; the noise has room for {ROOM:.0e}. The last "
            "column has calls of one size, nine tenths full, by those as large as what they get:",
            common.table(header, rows),
        ]
    common.save("neighbours", "What one more record moves of the others' gradients", {}, kept, text, again=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--measure", action="store_true", help="no page")
    parser.add_argument("--page", action="store_true", help="of what was measured before")
    parser.add_argument("--runs", type=Path, default=RUNS)
    asked = parser.parse_args()
    device = torch.device(asked.device)
    kept: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    if not asked.page:
        runs = []
        for case in CASES[device.type]:
            runs += measured(*case, device)
            print(*runs[-3:], sep="\n", flush=True)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
        kept[name] = {"torch": torch.__version__, "runs": runs}
        asked.runs.write_text(json.dumps(kept, indent=1) + "\n")
    if not asked.measure:
        page(kept)


if __name__ == "__main__":
    main()
