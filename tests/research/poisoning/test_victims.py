"""Ordinary training: settings, speed-ups that change nothing, and the same bits for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput
from privmix.research.poisoning import (
    DefenceAugmentation,
    TrainedNetwork,
    Victim,
    VictimConfig,
    VictimImages,
    parse_defence,
)
from privmix.research.poisoning.victims.config import PRESETS
from privmix.research.poisoning.victims.networks import NETWORKS, build
from privmix.research.poisoning.victims.ordinary import moved
from tests.refusals import refuses
from tests.research.poisoning.scenes import QUICK, digits


def weights(trained: TrainedNetwork) -> Tensor:
    return torch.cat([one.detach().flatten().float() for one in trained.network.state_dict().values()])


@pytest.mark.parametrize("augmentation", [None, "maxup:2", "mixup:4+noise:16", "minibatch-dp-sgd"])
def test_a_training_depends_on_its_seed_and_nothing_else(augmentation: str | None) -> None:
    changed = None if augmentation is None else parse_defence(augmentation)
    assert changed is None or isinstance(changed, DefenceAugmentation)
    records = digits("train", 120)
    victim = Victim(VictimConfig(epochs=1, batch=32, flips=True, crops=1))
    torch.manual_seed(1)
    first = victim.fit(records, seed=5, augmentation=changed)
    before = torch.get_rng_state()
    again = victim.fit(records, seed=5, augmentation=changed)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(weights(first), weights(again))
    assert not torch.equal(weights(first), weights(victim.fit(records, seed=6, augmentation=changed)))


def test_it_learns_and_mixing_does_too() -> None:
    records, test = digits("train", 800), digits("test", 300)
    for name, least in (("none", 0.9), ("mixup:2", 0.85), ("cutmix", 0.85)):
        defence = parse_defence(name)
        changed = defence if isinstance(defence, DefenceAugmentation) else None
        made = Victim(QUICK).fit(records, seed=0, augmentation=changed)
        assert (made.predict(test.pixels) == test.labels).mean() > least, name


def test_every_record_is_seen_once_an_epoch_in_batches_of_one_size() -> None:
    class Counting(DefenceAugmentation):
        name = "counting"
        seen: list[Tensor]

        def loss(self, network, pixels, targets, generator, progress):  # type: ignore[no-untyped-def]
            self.seen.append(pixels[:, 0, 0, 0])
            shares.append(progress)
            return super().loss(network, pixels, targets, generator, progress)

    shares: list[float] = []
    counting = Counting()
    counting.seen = []
    marks = np.arange(70) / 100
    records = VictimImages.of(np.broadcast_to(marks[:, None, None, None], (70, 1, 4, 4)), np.arange(70) % 2, classes=2)
    Victim(VictimConfig(epochs=2, batch=32)).fit(records, seed=0, augmentation=counting)
    assert [len(one) for one in counting.seen] == [35, 35, 35, 35]
    for epoch in (counting.seen[:2], counting.seen[2:]):
        np.testing.assert_allclose(np.sort(torch.cat(epoch)), marks, atol=1e-6)
    assert shares == [0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("name", list(NETWORKS))
def test_networks_take_small_images_of_any_channels(name: str) -> None:
    for shape in ((1, 8, 8), (3, 9, 7), (2, 4, 4)):
        network = build(name, shape, 5)
        assert network(torch.rand(3, *shape)).shape == (3, 5)
        assert network.head.in_features == network.body(torch.rand(2, *shape)).shape[1]
    assert any(isinstance(one, nn.BatchNorm2d) for one in network.modules())


def test_resnet18_is_the_one_of_the_papers() -> None:
    assert sum(one.numel() for one in build("resnet18", (3, 32, 32), 10).parameters()) == 11_173_962
    made = Victim(VictimConfig(network="resnet18", epochs=1, batch=8, precision="bfloat16")).fit(
        digits("train", 16), seed=0
    )
    assert made.logits(digits("test", 4).pixels).dtype == np.float32
    assert all(one.dtype == torch.float32 for one in made.network.parameters())


def test_flips_and_crops_are_slices_and_gradients_are_theirs() -> None:
    pixels = torch.rand(64, 2, 5, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    views = moved(pixels, torch.Generator().manual_seed(1), flips=True, crops=2)
    framed = nn.functional.pad(pixels.detach(), (2, 2, 2, 2))
    met = set()
    for image, view in zip(framed, views.detach(), strict=True):
        found = [
            (row, column, flip)
            for row in range(5)
            for column in range(5)
            for flip in (False, True)
            if torch.equal(view, (image[:, row : row + 5, column : column + 6].flip(2 if flip else ())))
        ]
        assert len(found) == 1
        met.add(found[0])
    # 64 of 50 equally likely views: fewer than 25 different ones have a probability below 1e-9.
    assert len(met) >= 25
    (gradient,) = torch.autograd.grad(views.sum(), pixels)
    assert set(gradient.unique().tolist()) == {0.0, 1.0}
    assert moved(pixels, torch.Generator(), flips=False, crops=0) is pixels


def test_presets_are_the_papers() -> None:
    for name in PRESETS:
        VictimConfig.named(name)
    assert VictimConfig.named("mnist") == VictimConfig()
    patch = VictimConfig.named("patch-backdoor")
    assert [round(patch.rate(epoch / 80), 6) for epoch in (0, 29, 30, 49, 50, 69, 70)] == [
        *(0.1, 0.1),
        *(0.01, 0.01),
        *(0.001, 0.001),
        0.0001,
    ]
    matching = VictimConfig.named("gradient-matching")
    assert (matching.nesterov, matching.flips, matching.crops) == (True, True, 4)
    assert [round(matching.rate(epoch / 40), 6) for epoch in (13, 14, 23, 24, 34, 35)] == [
        *(0.1, 0.01),
        *(0.01, 0.001),
        *(0.001, 0.0001),
    ]
    assert VictimConfig.named("transfer").rate(29.9 / 40) == pytest.approx(0.01)


@pytest.mark.parametrize(
    "wrong",
    [
        {"momentum": 0.0, "nesterov": True},
        {"drops": (0.5, 0.2)},
        {"drops": (1.0,)},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        VictimConfig(**wrong)  # type: ignore[arg-type]


def test_one_record_is_no_training_set() -> None:
    with refuses("records"):
        Victim(QUICK).fit(digits("train", 1), seed=0)
