"""Feature collision and polytopes: poisons come near the target in features and stay near their images in pixels."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from privmix.research.poisoning.base import Attack
from privmix.research.poisoning.images import Poisoned
from privmix.research.poisoning.poisons.bullseye import BullseyePolytope
from privmix.research.poisoning.poisons.collision import FeatureCollision
from privmix.research.poisoning.poisons.convex import ConvexPolytope, nearest_weights
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.victims.ordinary import VictimConfig
from tests.research.poisoning.scenes import scene

BUDGET = 15


def crafted(attack: Attack, trial: PoisoningScene) -> tuple[Poisoned, np.ndarray, np.ndarray, np.ndarray]:
    """What it made, and the features of the poisons before and after, and of the target."""
    made = attack.craft(trial, attack.threat(trial, BUDGET, knows_defence=False), None)
    extractor = trial.victim.extractor
    assert extractor is not None
    pixels = trial.train.pixels[made.indices], made.records.pixels[made.indices], trial.targets.pixels
    return made, *(extractor.features(part) for part in pixels)


def test_the_targets_features_are_a_mean_of_the_poisons_in_a_polytope_and_the_plain_mean_in_a_bullseye() -> None:
    trial = scene(transfer=True)
    found = {}
    for attack in (ConvexPolytope(radius=128), BullseyePolytope(radius=128)):
        _, before, after, target = crafted(attack, trial)
        start = torch.full((BUDGET,), 1 / BUDGET)
        weights = nearest_weights(torch.from_numpy(after), torch.from_numpy(target[0]), start).numpy()
        far = np.linalg.norm(before.mean(0) - target)
        found[attack.name] = [np.linalg.norm(c @ after - target) / far for c in (weights, start.numpy())]
    assert found["convex-polytope"][0] < 0.25
    assert found["bullseye-polytope"][1] < 0.25
    # The polytope asks for one mean only, the bullseye for this one.
    assert found["bullseye-polytope"][1] < found["convex-polytope"][1]


@pytest.mark.parametrize("attack", [FeatureCollision(128), ConvexPolytope(128), BullseyePolytope(128)], ids=str)
def test_the_target_joins_its_poisons(attack: Attack) -> None:
    wins = {"clean": 0, "poisoned": 0}
    for number in range(4):
        trial = scene(transfer=True, number=number)
        victim = replace(trial.victim, config=VictimConfig(epochs=20, batch=32, learning_rate=0.1))
        made, *_ = crafted(attack, trial)
        attack.threat(trial, BUDGET, knows_defence=False).check(trial.train, made)
        for name, records in (("clean", trial.train), ("poisoned", made.records)):
            got = victim.fit(records, seed=trial.number_for("training")).predict(made.goals.pixels)
            wins[name] += int(got[0] == trial.wanted)
    assert wins["clean"] == 0
    assert wins["poisoned"] >= 2
