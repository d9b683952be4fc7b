"""Ordinary training: settings, speed-ups that change nothing, and the same bits for the same seed."""

import pytest
import torch
from torch import Tensor, nn

from privmix.research.poisoning.base import DefenceAugmentation, parse_defence
from privmix.research.poisoning.victims.networks.base import NETWORKS, build
from privmix.research.poisoning.victims.ordinary import TrainedNetwork, Victim, VictimConfig
from tests.research.poisoning.scenes import digits


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


@pytest.mark.parametrize("name", list(NETWORKS))
def test_networks_take_small_images_of_any_channels(name: str) -> None:
    for shape in ((1, 8, 8), (3, 9, 7), (2, 4, 4)):
        network = build(name, shape, 5)
        assert network(torch.rand(3, *shape)).shape == (3, 5)
        assert network.head.in_features == network.body(torch.rand(2, *shape)).shape[1]
    assert any(isinstance(one, nn.BatchNorm2d) for one in network.modules())
