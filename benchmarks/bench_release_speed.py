"""Time and memory of an MNIST-sized release, against the papers' dense T x n Bernoulli product, and how both grow.

The dense product is timed on 1/40 of the rows and scaled: the whole of it would need 29 GB for its matrix. Pairs run in
turn in one process. Features are synthetic and in memory; noise is drawn from secret streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

import common
from privmix.engine import PrivateRecords, ReleaseEngine
from privmix.engine.records import cores, mapping
from privmix.mechanisms.membership import ROW_TILE
from privmix.mechanisms.noise import gaussian_on_lattice
from privmix.planning import ReleaseConfig
from privmix.releases import SecretStreams
from privmix.reports.style import COLOURS, new_figure, save_figure

CLASSES = tuple("0123456789")
SLICE = 40


def run(x: np.ndarray, y: np.ndarray, degree: int, rows: int, centre: str = "none") -> float:
    config = ReleaseConfig(
        records=len(x), dim=x.shape[1], classes=CLASSES, mixup_degree=degree, rows=rows, centre=centre
    )
    plan = config.with_noise(1.188)
    start = time.perf_counter()
    engine = ReleaseEngine(plan, PrivateRecords(x, y), SecretStreams.from_entropy())
    for block in engine.rows():
        assert block.x.dtype == np.float32
    return time.perf_counter() - start


def warm(work: Callable[[], float]) -> float:
    """Run ``work`` on memory that the process has just used.

    A virtual machine may hand idle memory back to its host, and getting it again can take seconds a gigabyte.
    """
    np.ones(3 * 2**26)
    return work()


def noise_alone(rows: int, dim: int) -> float:
    """The release's noise, drawn as an engine draws it: on every core, a few rows of a tile at a time."""
    streams, at_once = SecretStreams.from_entropy(), 16

    def draw(tile: int) -> None:
        with streams.lent("feature noise", tile) as generator:
            for _ in range(0, min(ROW_TILE, rows - tile * ROW_TILE), at_once):
                gaussian_on_lattice(generator, (at_once, dim), 1e5)

    start = time.perf_counter()
    with mapping(cores()) as each:
        list(each(draw, range(-(-rows // ROW_TILE))))
    return time.perf_counter() - start


def dense_slice(x: np.ndarray, y: np.ndarray, degree: int, rows: int) -> float:
    """The papers' way: a dense Bernoulli matrix, one product, ordinary noise; scaled to all rows."""
    n, part = len(x), rows // SLICE
    generator = torch.Generator().manual_seed(0)
    features, targets = torch.from_numpy(x), torch.nn.functional.one_hot(torch.from_numpy(y), 10).float()
    start = time.perf_counter()
    clipped = features / features.norm(dim=1, keepdim=True).clamp(min=1)
    once = time.perf_counter() - start
    start = time.perf_counter()
    matrix = torch.bernoulli(torch.full((part, n), degree / n), generator=generator)
    mixed = (matrix @ clipped + 1.68 * torch.randn(part, x.shape[1], generator=generator)) / degree
    labels = (matrix @ targets + 1.68 * torch.randn(part, 10, generator=generator)) / degree
    assert mixed.shape[0] == labels.shape[0] == part
    return once + SLICE * (time.perf_counter() - start)


def main() -> None:
    torch.set_num_threads(2)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60_000, 3_969), dtype=np.float32), rng.integers(0, 10, 60_000)
    run(x[:2_000], y[:2_000], 64, 2_000)
    run(x, y, 64, 60_000)
    memory = common.peak_memory_gib()
    pairs, noises = [], []
    for _ in range(5):
        pairs.append((warm(lambda: run(x, y, 64, 60_000)), dense_slice(x, y, 64, 60_000)))
        noises.append(noise_alone(60_000, 3_969))
    cold = []
    for _ in range(3):
        time.sleep(10)
        cold.append(run(x, y, 64, 60_000))
    centred = [warm(lambda: run(x, y, 64, 60_000, "private")) for _ in range(5)]
    ours, dense = (common.median(column) for column in zip(*pairs, strict=True))
    ratios = [other / one for one, other in pairs]
    main_table = common.table(
        ["", "median seconds", "min", "max"],
        [
            ("privmix, lattice and secure noise", f"{ours:.2f}", *_range([a for a, _ in pairs])),
            ("of which its noise", f"{common.median(noises):.2f}", *_range(noises)),
            ("the same with private centring", f"{common.median(centred):.2f}", *_range(centred)),
            ("privmix on memory not touched for 10 s", f"{common.median(cold):.2f}", *_range(cold)),
            ("dense Bernoulli product (1/40 timed, scaled)", f"{dense:.0f}", *_range([b for _, b in pairs])),
            ("ratio, pair by pair", f"{common.median(ratios):.0f}", *_range(ratios)),
        ],
    )
    peak = f"Peak resident memory of one release, 0.95 GB of input features included: {memory:.2f} GiB."
    most = common.median([other / one for (_, other), one in zip(pairs, noises, strict=True)])
    bound = f"A release whose sums and clipping took no time would be {most:.0f} times as fast as the dense product."
    growth = _growth(x, y)
    common.save(
        "release_speed",
        "An MNIST-sized release (T = n = 60,000, m = 64, d = 3,969)",
        {"pairs": 5, "dense slice": f"1/{SLICE}", "torch threads": 2},
        {"pairs": pairs, "centred": centred, "cold": cold, "noise": noises, "peak_gib": memory, "growth": growth},
        [main_table, bound, peak, "Growth: ![cost against T, m and d](release_speed.svg)"],
    )


def _range(values: list[float]) -> tuple[str, str]:
    return f"{min(values):.2f}", f"{max(values):.2f}"


def _growth(x: np.ndarray, y: np.ndarray) -> dict[str, list[tuple[int, float]]]:
    """Median of three runs at each size; the other two sizes stay at T = 20,000, m = 64, d = 1,000."""
    base = np.ascontiguousarray(x[:, :1_000])
    sizes = {
        "rows T": [(t, lambda t=t: run(base, y, 64, t)) for t in (10_000, 20_000, 40_000, 60_000, 80_000)],
        "mixup degree m": [(m, lambda m=m: run(base, y, m, 20_000)) for m in (16, 64, 128, 256, 512)],
        "features d": [
            (d, lambda d=d: run(np.ascontiguousarray(x[:, :d]), y, 64, 20_000)) for d in (250, 500, 1_000, 2_000, 3_969)
        ],
    }
    growth = {
        name: [(size, common.median([work() for _ in range(3)])) for size, work in points]
        for name, points in sizes.items()
    }
    figure = new_figure(10, 3.2)
    for axes, (name, points), colour in zip(figure.subplots(1, 3), growth.items(), COLOURS, strict=False):
        at, took = zip(*points, strict=True)
        slope, offset = np.polyfit(at, took, 1)
        axes.plot(at, took, "o", color=colour)
        axes.plot(at, np.polyval((slope, offset), at), "-", color=colour, alpha=0.6, label="straight line")
        axes.set_xlabel(name)
        axes.set_ylabel("seconds")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8)
    save_figure(figure, common.RESULTS / "release_speed.svg")
    return growth


if __name__ == "__main__":
    main()
