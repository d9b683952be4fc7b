"""Gradient matching: gradients of poisons turn to where the target's points, through a known defence as well."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from privmix.research.poisoning import DefenceAugmentation, PoisoningScene, parse_defence
from privmix.research.poisoning.defences.mixup import Mixup
from privmix.research.poisoning.poisons.matching import GradientMatching, Match
from privmix.research.poisoning.targeted import Box
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


@dataclass(frozen=True)
class Erasing(DefenceAugmentation):
    """Leaves nothing of an image."""

    name: ClassVar[str] = "erasing"

    def apply(
        self, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> tuple[Tensor, Tensor]:
        return 0 * pixels, targets


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


def test_the_slope_in_pixels_is_that_of_finite_differences() -> None:
    trial = scene()
    network = trial.victim.fit(trial.train, seed=0).network.double()
    match = Match(network, trial, None, 0)
    x = torch.from_numpy(trial.train.pixels[:3]).double().requires_grad_()
    (slope,) = torch.autograd.grad(match.loss(x), x)
    step = torch.zeros_like(x)
    step[1, 0, 3, 4] = 1e-6
    with torch.no_grad():
        inside = x.detach()
    numbers = [float(match.loss(inside + sign * step).detach()) for sign in (1, -1)]
    assert float(slope[1, 0, 3, 4]) == pytest.approx((numbers[0] - numbers[1]) / 2e-6, rel=1e-3, abs=1e-8)


def test_an_attacker_who_knows_the_defence_trains_and_matches_through_it() -> None:
    trial, defence = scene(), Counted([])
    threat = BRIEF.threat(trial, BUDGET, knows_defence=True)
    made = BRIEF.craft(trial, threat, defence)
    threat.check(trial.train, made)
    batches = [size for size in defence.seen if size == (1 + BRIEF.companions) * BUDGET]
    assert len(batches) >= BRIEF.steps
    # The others are those of the attacker's training.
    assert len(defence.seen) > len(batches)


def test_a_defence_that_erases_images_leaves_the_attacker_without_a_slope() -> None:
    trial = scene()
    network = trial.victim.fit(trial.train, seed=0).network
    x = torch.from_numpy(trial.train.pixels[:BUDGET]).requires_grad_()
    for defence, blind in ((Erasing(), True), (Mixup(2), False)):
        (slope,) = torch.autograd.grad(Match(network, trial, defence, 1).loss(x), x)
        assert bool((slope == 0).all()) == blind
    box = Box(x.detach(), 0.2)
    _, made = BRIEF._from([Match(network, trial, Erasing(), 1)], box)
    start = Match(network, trial, Erasing(), 1)
    noise = torch.randn(x.shape, generator=start.generator)
    torch.testing.assert_close(made, box.nearest(box.bases + box.radius * noise))


def test_where_there_is_nothing_to_go_through_the_attack_is_the_plain_one() -> None:
    trial, brief = scene(), replace(BRIEF, steps=3)
    threat = brief.threat(trial, BUDGET, knows_defence=True)
    plain, same = (brief.craft(trial, threat, one) for one in (None, parse_defence("spectral-signatures")))
    np.testing.assert_array_equal(plain.records.pixels, same.records.pixels)
