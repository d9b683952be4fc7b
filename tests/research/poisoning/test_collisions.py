"""Feature collision and polytopes: poisons come near the target in features and stay near their images in pixels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from privmix.research.poisoning import Attack, Poisoned, PoisoningScene, VictimConfig
from privmix.research.poisoning.poisons.bullseye import BullseyePolytope
from privmix.research.poisoning.poisons.collision import FeatureCollision
from privmix.research.poisoning.poisons.convex import ConvexPolytope, nearest_weights, onto_simplex
from privmix.research.poisoning.targeted import Box
from tests.research.poisoning.scenes import scene

BUDGET = 15


def crafted(attack: Attack, trial: PoisoningScene) -> tuple[Poisoned, np.ndarray, np.ndarray, np.ndarray]:
    """What it made, and the features of the poisons before and after, and of the target."""
    made = attack.craft(trial, attack.threat(trial, BUDGET, knows_defence=False), None)
    extractor = trial.victim.extractor
    assert extractor is not None
    pixels = trial.train.pixels[made.indices], made.records.pixels[made.indices], trial.targets.pixels
    return made, *(extractor.features(part) for part in pixels)


def far(first: np.ndarray, second: np.ndarray) -> float:
    """Mean distance."""
    return float(np.linalg.norm(first - second, axis=-1).mean())


def test_each_poison_of_a_collision_comes_nearer_with_every_further_step_that_is_taken() -> None:
    trial = scene(transfer=True)
    ratios = []
    for steps in (1, 10, 60):
        _, before, after, target = crafted(FeatureCollision(radius=128, steps=steps), trial)
        ratios.append(far(after, target) / far(before, target))
    assert ratios[0] > ratios[1] > ratios[2]
    assert ratios[2] < 0.4


def test_likeness_in_pixels_is_what_similarity_buys() -> None:
    trial = scene(transfer=True)
    moved = []
    for similarity in (0.0, 0.1):
        made, *_ = crafted(FeatureCollision(radius=255, similarity=similarity), trial)
        moved.append(far(*(one.pixels[made.indices].reshape(BUDGET, -1) for one in (made.records, trial.train))))
    assert moved[1] < 0.7 * moved[0]


def test_the_targets_features_are_a_mean_of_the_poisons_in_a_polytope_and_the_plain_mean_in_a_bullseye() -> None:
    trial = scene(transfer=True)
    found = {}
    for attack in (ConvexPolytope(radius=128), BullseyePolytope(radius=128)):
        _, before, after, target = crafted(attack, trial)
        start = torch.full((BUDGET,), 1 / BUDGET)
        weights = nearest_weights(torch.from_numpy(after), torch.from_numpy(target[0]), start).numpy()
        found[attack.name] = [far(c @ after, target) / far(before.mean(0), target) for c in (weights, start.numpy())]
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


def test_an_extractor_that_sees_nothing_leaves_poisons_where_they_are() -> None:
    class Blind(nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return 0 * pixels.flatten(1) + 1

    bases = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    box, body, wanted = Box(bases, 0.1), Blind(), torch.ones(64)
    value, slope = FeatureCollision()._objective(body, wanted, box, bases)
    assert not value.any()
    assert not slope.any()


def test_weights_on_the_simplex_are_those_of_a_solver_that_knows_nothing_of_them() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        features, wanted = rng.normal(size=(6, 4)), rng.normal(size=4)

        def objective(c: np.ndarray, features: np.ndarray = features, wanted: np.ndarray = wanted) -> float:
            return float(np.square(c @ features - wanted).sum())

        start = np.full(6, 1 / 6)
        limits = {"type": "eq", "fun": lambda c: c.sum() - 1}
        naive = minimize(objective, start, method="SLSQP", bounds=[(0, 1)] * 6, constraints=limits).x
        ours = nearest_weights(*(torch.from_numpy(part) for part in (features, wanted, start)), most=2000).numpy()
        assert objective(ours) <= objective(naive) + 1e-6
        assert ours.min() >= 0
        assert ours.sum() == pytest.approx(1)

        point = 2 * rng.normal(size=6)
        nearest = minimize(
            lambda c, point=point: np.square(c - point).sum(), start, bounds=[(0, 1)] * 6, constraints=limits
        ).x
        np.testing.assert_allclose(onto_simplex(torch.from_numpy(point)).numpy(), nearest, atol=1e-5)
