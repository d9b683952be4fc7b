"""Scattering against kymatio 0.3 on MNIST: one process, pair by pair, medians.

Each round times one slice of images with either library, in alternating order; the figure is the median over rounds,
scaled to MNIST's 70,000 images. kymatio runs at the batch size that is fastest for it.
"""

from __future__ import annotations

from collections.abc import Callable

import scipy.special
import torch

import common
from privmix.data import open_dataset
from privmix.features.scattering import Scattering, scatter

ROUNDS, SLICE, MNIST_IMAGES = 5, 10_000, 70_000
Transform = Callable[[torch.Tensor], torch.Tensor]


def load_kymatio() -> Transform:
    # kymatio 0.3 imports a function that SciPy 1.17 took away; scattering in two dimensions does not use it.
    scipy.special.sph_harm = getattr(scipy.special, "sph_harm", None)
    from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

    scattering: Transform = ScatteringTorch2D(J=2, shape=(28, 28), L=8, max_order=2)
    return scattering


def in_batches(peer: Transform, images: torch.Tensor, batch: int) -> torch.Tensor:
    output = torch.empty(len(images), 81, 7, 7)
    with torch.inference_mode():
        for start in range(0, len(images), batch):
            output[start : start + batch] = peer(images[start : start + batch])
    return output


def main() -> None:
    torch.set_num_threads(2)
    raw = open_dataset(common.data_root() / "mnist").read().x
    images = torch.from_numpy(raw).float() / 255
    peer = load_kymatio()
    warm = images[:1_000]
    scatter(warm)
    in_batches(peer, warm[:200], 100)
    batches = {
        size: common.seconds(lambda size=size: in_batches(peer, warm, size), 1)[0] for size in (32, 100, 250, 1000)
    }
    batch = min(batches, key=lambda size: batches[size])
    error = float((scatter(images[:500]) - peer(images[:500])).abs().max())

    times: dict[str, list[float]] = {"privmix": [], "kymatio": [], "from bytes": []}
    for turn in range(ROUNDS):
        start = turn * SLICE % len(images)
        part, raw_part = images[start : start + SLICE], raw[start : start + SLICE]
        pair = [
            ("privmix", lambda part=part: scatter(part)),
            ("kymatio", lambda part=part: in_batches(peer, part, batch)),
        ]
        for name, run in pair if turn % 2 == 0 else reversed(pair):
            times[name] += common.seconds(run, 1)
        times["from bytes"] += common.seconds(lambda raw_part=raw_part: Scattering().extract(raw_part), 1)
    ratios = [theirs / ours for ours, theirs in zip(times["privmix"], times["kymatio"], strict=True)]

    def for_mnist(name: str) -> str:
        return f"{MNIST_IMAGES / SLICE * common.median(times[name]):.1f}"

    rows = [
        (f"kymatio 0.3.0, batch {batch}, its fastest", for_mnist("kymatio"), "1.0"),
        ("privmix", for_mnist("privmix"), f"{common.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"),
        ("privmix, from bytes to normalised features", for_mnist("from bytes"), ""),
    ]
    common.save(
        "scattering",
        "Scattering on MNIST (J = 2, 8 angles, order 2, 28 x 28)",
        {"rounds": ROUNDS, "images a round": SLICE, "torch threads": 2},
        {"seconds": times, "ratios": ratios, "largest difference": error, "kymatio batch": batch},
        [
            common.table(["", "seconds for 70,000 images", "times faster, pair by pair"], rows),
            f"Largest absolute difference of a coefficient: {error:.1e}.",
        ],
    )


if __name__ == "__main__":
    main()
