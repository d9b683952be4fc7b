"""Clipped gradients of whole pretrained image models, by strategy: CPU time a record, in turn, and their agreement.

The architectures are those of transformers at small sizes with random weights: speed does not depend on the weights.
Ghost clipping needs norms of class tokens, tables of positions and scales of layers (Bu et al. 2022 train ViTs so).

    python benchmarks/bench_pretrained_speed.py [ROUNDS]
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import torch
import transformers
from torch import Tensor

import common
from privmix.training.gradients.clipping import Clipping
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.gradients.side_information import SideInformation
from privmix.training.gradients.strategies import STRATEGIES
from privmix.training.models.hf import PretrainedClassifier

CLASSES, SIDE, RECORDS, CLIP_NORM = 10, 64, 8, 0.05
STRATEGIES_TRIED = ("loop", "vmap", "ghost")
CONFIGS: dict[str, Any] = {
    "ViT, 6 layers of 192, patches of 8": transformers.ViTConfig(
        hidden_size=192,
        num_hidden_layers=6,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=SIDE,
        patch_size=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    "ConvNeXt, widths 48 to 192": transformers.ConvNextConfig(
        hidden_sizes=[48, 96, 192], depths=[2, 2, 2], num_stages=3, patch_size=4
    ),
}


def model_of(config: Any) -> PretrainedClassifier:
    model = PretrainedClassifier(
        config=config.to_dict(),
        channels_in=3,
        height=32,
        width=32,
        classes=CLASSES,
        side=SIDE,
        mean=[0.5] * 3,
        std=[0.5] * 3,
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            # Heads start at zero, which would leave little to compute.
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return model


def measure(config: Any, rounds: int) -> dict[str, Any]:
    model = model_of(config)
    flat = FlatParameters(model)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(RECORDS, 1, 3, 32, 32, generator=generator)
    targets = torch.softmax(torch.randn(RECORDS, 1, CLASSES, generator=generator), -1)
    made = {name: STRATEGIES[name](model, flat, Clipping(CLIP_NORM)) for name in STRATEGIES_TRIED}
    sums: dict[str, Tensor] = {}
    seconds: dict[str, list[float]] = {name: [] for name in made}
    # The first round warms up, and pays for the checks of each model, once.
    for turn in range(rounds + 1):
        for name, strategy in made.items():
            began = time.process_time()
            sums[name] = strategy.clipped_sum(x, targets, SideInformation())
            if turn:
                seconds[name].append((time.process_time() - began) / RECORDS)
    reference = sums["loop"].double()
    return {
        "parameters": flat.size,
        "milliseconds": {name: [1e3 * one for one in values] for name, values in seconds.items()},
        "difference": {
            name: float((total.double() - reference).norm() / reference.norm()) for name, total in sums.items()
        },
    }


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    found = {name: measure(config, rounds) for name, config in CONFIGS.items()}
    rows = []
    for name, one in found.items():
        times = one["milliseconds"]
        ratios = {
            other: common.median([a / b for a, b in zip(times[other], times["ghost"], strict=True)])
            for other in ("loop", "vmap")
        }
        middle = [f"{common.median(times[strategy]):.1f}" for strategy in STRATEGIES_TRIED]
        cells = [f"{ratios['loop']:.2f}", f"{ratios['vmap']:.2f}", f"{one['difference']['ghost']:.1e}"]
        rows.append([name, f"{one['parameters']:,}", *middle, *cells])
    header = ["model", "parameters", *(f"{name}, ms a record" for name in STRATEGIES_TRIED)]
    header += ["loop over ghost", "vmap over ghost", "ghost's sum against the loop's, relative"]
    settings = {"records": RECORDS, "rounds": rounds, "clip norm": CLIP_NORM, "threads": 1, "time": "CPU, in turn"}
    title = "Clipped gradients of whole pretrained models"
    common.save("pretrained_speed", title, settings, found, [common.table(header, rows)])


if __name__ == "__main__":
    main()
