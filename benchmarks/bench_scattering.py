"""Scattering against kymatio 0.3 on MNIST: same process, pair by pair, medians.

Each round times one slice of 10,000 images with either library, in alternating order; the figure is the median over
rounds, scaled to MNIST's 70,000 images. kymatio runs at the batch size that is fastest for it. Writes
results/scattering.json and results/scattering.md beside this script.

Run: python benchmarks/bench_scattering.py [--data DIR] [--rounds 5] [--images 10000] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special
import torch

from privmix.data import open_dataset
from privmix.features.dense_scattering import TILE
from privmix.features.scattering import Scattering, scatter

HERE = Path(__file__).resolve().parent
DEFAULT_DATA = os.environ.get("PRIVMIX_DATA", HERE.parents[1] / "shared" / "data")
MNIST_IMAGES = 70_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(DEFAULT_DATA))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=10_000, help="images a slice")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    raw = open_dataset(options.data / "mnist").read().x
    images = torch.from_numpy(raw).float() / 255
    peer = load_kymatio()
    batch = fastest_batch(peer, images)
    error = float((scatter(images[:500]) - peer(images[:500])).abs().max())

    ours: list[float] = []
    theirs: list[float] = []
    whole: list[float] = []
    for turn in range(options.rounds):
        start = turn * options.images % len(images)
        part = images[start : start + options.images]
        pair: list[tuple[list[float], Callable[[], Any]]] = [
            (ours, lambda part=part: scatter(part)),  # type: ignore[misc]
            (theirs, lambda part=part: in_batches(peer, part, batch)),  # type: ignore[misc]
        ]
        for times, run in pair if turn % 2 == 0 else reversed(pair):
            times.append(seconds(run) / len(part))
        raw_part = raw[start : start + options.images]
        whole.append(seconds(lambda raw_part=raw_part: Scattering().extract(raw_part)) / len(raw_part))  # type: ignore[misc]
        print(f"round {turn + 1}: {1e6 * ours[-1]:.0f} us an image, kymatio {1e6 * theirs[-1]:.0f} us", flush=True)

    ratios = [their / our for our, their in zip(ours, theirs, strict=True)]
    result = {
        "images_per_slice": options.images,
        "rounds": options.rounds,
        "threads": options.threads,
        "tile": TILE,
        "kymatio_batch": batch,
        "max_abs_difference": error,
        "microseconds_per_image": {name: [1e6 * t for t in times] for name, times in timed(ours, theirs, whole)},
        "seconds_for_mnist": {name: MNIST_IMAGES * statistics.median(t) for name, t in timed(ours, theirs, whole)},
        "median_speedup": statistics.median(ratios),
        "machine": machine(),
    }
    write(result)


def timed(ours: list[float], theirs: list[float], whole: list[float]) -> list[tuple[str, list[float]]]:
    return [("privmix", ours), ("kymatio", theirs), ("privmix_with_normalisation", whole)]


def load_kymatio() -> Callable[[torch.Tensor], torch.Tensor]:
    # kymatio 0.3 imports a function that SciPy 1.17 took away; scattering in two dimensions does not use it.
    scipy.special.sph_harm = getattr(scipy.special, "sph_harm", None)
    from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

    scattering: Callable[[torch.Tensor], torch.Tensor] = ScatteringTorch2D(J=2, shape=(28, 28), L=8, max_order=2)
    return scattering


def fastest_batch(peer: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor) -> int:
    """The batch size at which kymatio is fastest here; warms both libraries up."""
    part = images[:1000]
    scatter(part)
    in_batches(peer, part[:200], 100)
    return min((32, 100, 250, 1000), key=lambda batch: seconds(lambda: in_batches(peer, part, batch)))


def in_batches(peer: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, batch: int) -> torch.Tensor:
    output = torch.empty(len(images), 81, 7, 7)
    with torch.inference_mode():
        for start in range(0, len(images), batch):
            output[start : start + batch] = peer(images[start : start + batch])
    return output


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load_average_at_end": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "kymatio": "0.3.0",
    }


def write(result: dict[str, Any]) -> None:
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    (folder / "scattering.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    total, about = result["seconds_for_mnist"], result["machine"]
    text = f"""# Scattering on MNIST: privmix against kymatio

J=2, 8 angles, order 2, 28 x 28. Median of {result["rounds"]} rounds of {result["images_per_slice"]:,} images, libraries
alternating in one process, scaled to {MNIST_IMAGES:,} images.

| | seconds for MNIST | against kymatio |
|---|---|---|
| kymatio {about["kymatio"]} (batch {result["kymatio_batch"]}, its fastest) | {total["kymatio"]:.1f} | 1.0 x |
| privmix | {total["privmix"]:.1f} | {result["median_speedup"]:.1f} x |
| privmix from bytes to normalised features | {total["privmix_with_normalisation"]:.1f} | |

Largest absolute difference of a coefficient: {result["max_abs_difference"]:.1e}.

{about["cpu"]}, {about["cores"]} cores, {result["threads"]} threads; Python {about["python"]},
torch {about["torch"]}, NumPy {about["numpy"]};
load average at the end {about["load_average_at_end"][0]}. Script: benchmarks/bench_scattering.py.
"""
    (folder / "scattering.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
