"""Defences that change batches do what their papers say, and gradients pass through them."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from privmix.research.poisoning.base import DefenceAugmentation, parse_defence
from privmix.research.poisoning.defences.cutmix import CutMix
from privmix.research.poisoning.defences.maxup import MaxUp
from privmix.research.poisoning.defences.mixup import Mixup
from privmix.research.poisoning.defences.noise import InputNoise

ALL = ("mixup:3", "cutmix", "cutout:4", "maxup", "noise:16", "mixup:4+noise:16", "noise:16+maxup:4", "cutout:3+cutmix")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(count: int, side: int = 8) -> tuple[Tensor, Tensor]:
    """Images whose pixels all have the image's number, and a class of its own for each."""
    return torch.arange(count).float()[:, None, None, None].expand(count, 1, side, side), torch.eye(count)


@pytest.mark.parametrize("ways", [2, 4, 8])
def test_mixup_takes_k_different_images_with_equal_weights(ways: int) -> None:
    pixels, targets = batch(9)
    met = torch.zeros(9, 9)
    for seed in range(300):
        mixed, labels = Mixup(ways).apply(pixels, targets, seeded(seed), 0.0)
        # The label says who is in it, and the pixels say the same.
        assert torch.equal((labels * ways).round(), (labels > 0).float())
        assert torch.equal((labels > 0).sum(1), torch.full((9,), ways))
        torch.testing.assert_close(mixed[:, 0, 0, 0], labels @ torch.arange(9.0))
        met += labels > 0
    # Each image's others are any of the 8 alike: binomial counts of 300, 72 of them, within 7 deviations (2e-10).
    chance = (ways - 1) / 8
    others = met[~torch.eye(9, dtype=torch.bool)]
    assert (others - 300 * chance).abs().max() <= 7 * np.sqrt(300 * chance * (1 - chance)) + 1e-6
    assert torch.equal(met.diagonal(), torch.full((9,), 300.0))


def test_cutmix_labels_are_areas() -> None:
    pixels, targets = batch(400)
    mixed, labels = CutMix(1.0).apply(pixels, targets, seeded(), 0.0)
    for image, label, own in zip(mixed[:, 0], labels, range(400), strict=True):
        held = torch.bincount(image.flatten().long(), minlength=400) / 64
        torch.testing.assert_close(label, held)
        assert (held > 0).sum() <= 2
        assert held[own] > 0 or (held > 0).sum() == 1
    # Before they are cut off, boxes cover 1/2 on average; centres are uniform, so that at most half of that is lost.
    lost = 1 - labels.diagonal()
    assert 0.2 < lost.mean() < 0.5
    half = (CutMix().apply(pixels, targets, seeded(), 0.0)[1].diagonal() < 1).float().mean()
    every = (labels.diagonal() < 1).float().mean()
    # Of 400 images, each with probability 1/2: within 7 deviations.
    assert abs(half - every / 2) < 7 * 0.5 / 20


def test_maxup_trains_on_the_worst_after_its_start() -> None:
    class Brightness(nn.Module):
        """The more white is left, the surer of class 0."""

        def forward(self, images: Tensor) -> Tensor:
            total = images.sum(dim=(1, 2, 3))
            return torch.stack([total, -total], 1) / 64

    pixels, targets = torch.rand(16, 1, 8, 8, generator=seeded()), torch.eye(2)[torch.arange(16) % 2]
    defence = MaxUp(5, side=4)
    worst = defence.worst(Brightness(), pixels, targets, seeded(3))
    generator, cutout = seeded(3), parse_defence("cutout:4")
    assert isinstance(cutout, DefenceAugmentation)
    versions = [cutout.apply(pixels, targets, generator, 0.5)[0] for _ in range(5)]
    for place in range(16):
        losses = [float(functional.cross_entropy(Brightness()(one[[place]]), targets[[place]])) for one in versions]
        assert torch.equal(worst[place], versions[int(np.argmax(losses))][place])
    plain = functional.cross_entropy(Brightness()(pixels), targets)
    assert defence.loss(Brightness(), pixels, targets, seeded(3), 0.12) == plain
    late = functional.cross_entropy(Brightness()(worst), targets)
    assert defence.loss(Brightness(), pixels, targets, seeded(3), 0.13) == late != plain


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_noise_has_the_scale_it_says_and_is_not_clipped(factor: float, right: bool) -> None:
    pixels = torch.rand(50, 1, 20, 20, generator=seeded())
    noisy, _ = InputNoise(16.0 * factor).apply(pixels, torch.eye(50), seeded(1), 0.0)
    noise = (noisy - pixels) * 255 / 16
    assert noisy.min() < 0
    assert noisy.max() > 1
    # |Laplace(1)| is exponential: mean 1, deviation 1; 20,000 draws, 7 deviations (false alarms below 1e-11).
    assert bool(abs(float(noise.abs().mean()) - 1) < 7 / np.sqrt(20_000)) is right
    if right:
        # Its tails are an exponential's, which those of a Gaussian are not; its signs are even.
        assert abs(float((noise.abs() > 3).float().mean()) - np.exp(-3)) < 7 * np.sqrt(np.exp(-3) / 20_000)
        assert abs(float((noise > 0).float().mean()) - 0.5) < 7 * 0.5 / np.sqrt(20_000)


@pytest.mark.parametrize("name", ALL)
def test_an_attacker_can_train_through_it_and_randomness_is_an_argument(name: str) -> None:
    defence = parse_defence(name)
    assert isinstance(defence, DefenceAugmentation)
    assert str(parse_defence(str(defence))) == str(defence)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    pixels = torch.rand(6, 1, 8, 8, generator=seeded(), requires_grad=True)
    targets = torch.eye(3).repeat(2, 1)
    before = torch.get_rng_state()
    losses = [defence.loss(network, pixels, targets, seeded(seed), 0.9) for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert losses[0] == losses[1] != losses[2]
    (gradient,) = torch.autograd.grad(losses[0], pixels)
    assert bool((gradient.flatten(1).abs().sum(1) > 0).all())
    mixed, labels = defence.apply(pixels, targets, seeded(), 0.9)
    assert mixed.shape == pixels.shape
    torch.testing.assert_close(labels.sum(1), torch.ones(6))
