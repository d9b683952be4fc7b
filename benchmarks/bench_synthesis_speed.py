"""Drawing images: CPU time beside diffusers' own pipelines, at the same network and the same number of evaluations.

The network is `small` (a million weights; 28 x 28 in colour, which one of the pipelines wants; random weights: drawing
takes the same time whatever they are), on one core. Each pair draws as many images by privmix and by a pipeline of
diffusers, in turns, the first of a pair changing; 35 evaluations of the network an image:

* EDM's sampler by Heun with 18 levels, beside KarrasVePipeline with 18 steps (Heun's as well);
* DDIM with 35 steps, beside DDIMPipeline with 35 steps: the same method.

Memory is the highest resident memory of fresh processes, libraries and all, at two batch sizes and two numbers of
images.

    python benchmarks/bench_synthesis_speed.py [--pairs 6] [--images 16]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import common
from privmix.research.synthesis.ddpm import DdpmConfig
from privmix.research.synthesis.denoising import Denoiser, NoiseProcess, image_generator
from privmix.research.synthesis.edm import EdmConfig
from privmix.research.synthesis.model import DiffusionModel
from privmix.research.synthesis.networks import UNet

SHAPE, CLASSES = (3, 28, 28), 10
# Batches and numbers of images.
SIZES = ((50, 200), (50, 1000), (200, 200), (200, 1000))


def model(process: NoiseProcess, precision: str = "float32") -> DiffusionModel:
    """An untrained one."""
    torch.manual_seed(0)
    network = UNet("small", SHAPE, CLASSES if process.conditional else 1)
    return DiffusionModel(Denoiser(network, process), SHAPE, CLASSES, 0, 1.0, precision)


def ours(process: NoiseProcess, steps: int, precision: str = "float32") -> Callable[[int, int], None]:
    """(images, number of the first) -> draws them."""
    made = model(process, precision)

    def draw(count: int, first: int) -> None:
        labels = np.arange(count) % CLASSES
        for _ in made.draw(labels, seed=0, first=first, batch_size=count, sampler=process.sampler(steps)):
            pass

    return draw


def theirs(pipeline_of: Callable[[Any], Any], steps: int) -> Callable[[int, int], None]:
    """The same by a pipeline, of the same network without classes, which its pipelines don't know."""
    from diffusers import UNet2DModel

    held = model(DdpmConfig()).denoiser.network.unet
    settings = {name: value for name, value in held.config.items() if name != "class_embed_type"}
    pipeline = pipeline_of(UNet2DModel(**{name: value for name, value in settings.items() if name[0] != "_"}))
    pipeline.set_progress_bar_config(disable=True)

    def draw(count: int, first: int) -> None:
        generators = [image_generator(0, first + place) for place in range(count)]
        pipeline(batch_size=count, generator=generators, num_inference_steps=steps, output_type="np")

    return draw


def karras(network: Any) -> Any:
    """diffusers' pipeline by Heun's method."""
    from diffusers import KarrasVePipeline, KarrasVeScheduler

    return KarrasVePipeline(network, KarrasVeScheduler())


def ddim(network: Any) -> Any:
    """diffusers' pipeline by DDIM."""
    from diffusers import DDIMPipeline, DDIMScheduler

    return DDIMPipeline(network, DDIMScheduler())


def pairs(one: Callable[[int, int], None], other: Callable[[int, int], None], count: int, images: int) -> list[Any]:
    """(seconds of one, seconds of the other), pair by pair, in turns."""
    one(2, 0), other(2, 0)
    found = []
    for number in range(count):
        spent = {}
        for which in (one, other) if number % 2 else (other, one):
            begin = time.process_time()
            which(images, number * images)
            spent[which] = time.process_time() - begin
        found.append((spent[one], spent[other]))
        print(found[-1], flush=True)
    return found


def peak(batch: int, images: int) -> float:
    """MiB of a fresh process."""
    told = [sys.executable, __file__, "--peak", f"{batch},{images}"]
    return float(subprocess.run(told, check=True, capture_output=True, text=True).stdout.split()[-1])


def draw_once(batch: int, images: int) -> float:
    """MiB of this process at its highest; two levels are enough to see it."""
    made, labels = model(EdmConfig(), "bfloat16"), np.arange(images) % CLASSES
    for _ in made.draw(labels, seed=0, batch_size=batch, sampler=EdmConfig().sampler(2)):
        pass
    return 1024 * common.peak_memory_gib()


def tables(results: dict[str, Any], images: int) -> list[str]:
    """What stands in results/synthesis_speed.md."""
    rows = []
    for name, seconds in results["seconds"].items():
        found = np.array(seconds)
        ratios = found[:, 1] / found[:, 0]
        speed = [f"{images / middle:.2f}" for middle in np.median(found, axis=0)]
        spread = f"{np.median(ratios):.3f} ({ratios.min():.3f} to {ratios.max():.3f})"
        rows.append([*name.split(" | "), *speed, spread])
    header = ["privmix", "diffusers", "privmix, images a CPU second", "diffusers", "ratio, median (range) of pairs"]
    memory = [[batch, f"{count:,}", f"{most:.0f}"] for batch, count, most in results["memory"]]
    heading = "Memory of the process at its highest:"
    return [common.table(header, rows), heading, common.table(["batch", "images", "MiB"], memory)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.peak:
        print(draw_once(*map(int, asked.peak.split(","))))
        return
    warnings.simplefilter("ignore")
    contests = {
        "EDM, 18 levels | KarrasVePipeline, 18 steps": (ours(EdmConfig(), 18), theirs(karras, 18)),
        "DDIM, 35 steps | DDIMPipeline, 35 steps": (ours(DdpmConfig(), 35), theirs(ddim, 35)),
        "EDM, 18 levels, bfloat16 | KarrasVePipeline, 18 steps": (
            ours(EdmConfig(), 18, "bfloat16"),
            theirs(karras, 18),
        ),
    }
    results: dict[str, Any] = {"seconds": {}}
    for name, (one, other) in contests.items():
        results["seconds"][name] = pairs(one, other, asked.pairs, asked.images)
    results["memory"] = [[batch, images, peak(batch, images)] for batch, images in SIZES]
    settings = {"pairs": asked.pairs, "images a run": asked.images, "network": "small", "threads": 1}
    title = "Drawing images beside diffusers' pipelines"
    common.save("synthesis_speed", title, settings, results, tables(results, asked.images))


if __name__ == "__main__":
    main()
