"""Gradient matching: gradients of poisons turn to where the target's points, through a known defence as well."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from privmix.research.poisoning.base import DefenceAugmentation
from privmix.research.poisoning.poisons.matching import GradientMatching
from privmix.research.poisoning.scene import PoisoningScene
from tests.research.poisoning.scenes import scene

BUDGET = 12
BRIEF = GradientMatching(radius=64, steps=20, networks=1, companions=2)


@dataclass(frozen=True)
class Counted(DefenceAugmentation):
    """Changes nothing, and counts the batches that it sees."""

    seen: list[int]
    name: ClassVar[str] = "counted"

    def apply(
        self, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> tuple[Tensor, Tensor]:
        self.seen.append(len(pixels))
        return pixels, targets


def cosine(trial: PoisoningScene, chosen: np.ndarray, pixels: np.ndarray) -> float:
    """Of both gradients on the attacker's network, as plainly as it can be computed."""
    network = trial.victim.fit(trial.train, seed=trial.number_for("surrogate 0")).network

    def gradient(images: np.ndarray) -> Tensor:
        network.zero_grad()
        labels = torch.full((len(images),), trial.wanted)
        functional.cross_entropy(network(torch.from_numpy(images)), labels).backward()
        return torch.cat([one.grad.flatten() for one in network.parameters() if one.grad is not None])

    return float(functional.cosine_similarity(gradient(pixels), gradient(trial.targets.pixels), dim=0))


def test_poisons_gradients_point_where_the_targets_does_more_with_more_steps() -> None:
    trial = scene()
    threat = BRIEF.threat(trial, BUDGET, knows_defence=False)
    found = []
    for steps in (1, 20):
        made = replace(BRIEF, steps=steps).craft(trial, threat, None)
        threat.check(trial.train, made)
        found.append(cosine(trial, made.indices, made.records.pixels[made.indices]))
    before = cosine(trial, made.indices, trial.train.pixels[made.indices])
    assert before < found[0] < found[1]
    assert found[1] > 0.5


def test_an_attacker_who_knows_the_defence_trains_and_matches_through_it() -> None:
    trial, defence = scene(), Counted([])
    threat = BRIEF.threat(trial, BUDGET, knows_defence=True)
    made = BRIEF.craft(trial, threat, defence)
    threat.check(trial.train, made)
    batches = [size for size in defence.seen if size == (1 + BRIEF.companions) * BUDGET]
    assert len(batches) >= BRIEF.steps
    # The others are those of the attacker's training.
    assert len(defence.seen) > len(batches)
