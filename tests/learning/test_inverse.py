"""Images from features: near where features are known, smooth where they are not, each by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from privmix.data import embedded_digits
from privmix.features.base import Extractor
from privmix.features.patches import Patches
from privmix.features.scattering import Scattering
from privmix.learning.inverse import InverseConfig, inverse_images, total_variation
from tests.refusals import refuses

SHAPE = (16, 16)
FEW = InverseConfig(steps=120, variation=0.003)


def pixels(x: Tensor) -> Tensor:
    return x.flatten(1)


def images() -> np.ndarray:
    return embedded_digits("test").read().x[:2].repeat(2, axis=1).repeat(2, axis=2).astype(np.float32) / 255


@pytest.mark.parametrize("extractor", [Scattering(), Patches(filters=64)], ids=lambda one: one.name)
def test_features_of_an_image_lead_back_to_it(extractor: Extractor) -> None:
    given = images()
    wanted = extractor.extract(given)
    found = inverse_images(extractor.differentiable(SHAPE), wanted, np.zeros(2), SHAPE, config=FEW)
    assert (found.distances / np.square(wanted).sum(axis=1)).max() < 0.3
    own = [np.corrcoef(one.ravel(), other.ravel())[0, 1] for one, other in zip(found.images, given, strict=True)]
    assert np.mean(own) > 0.4


def test_the_less_noise_the_nearer() -> None:
    """What stops short of the noise at heavy noise comes to the mean as noise goes to nothing."""
    function = Scattering().differentiable(SHAPE)
    wanted = Scattering().extract(images()[1:])
    length = float(np.square(wanted).sum())
    shares = (0.5, 0.0)
    gone = [
        float(inverse_images(function, wanted, np.array([share * length]), SHAPE, config=FEW).distances[0]) / length
        for share in shares
    ]
    assert gone == sorted(gone, reverse=True)
    assert gone[0] > 0.3, "hardly nearer than the noise"
    assert gone[-1] < 0.2


def test_of_images_that_are_near_enough_it_is_the_smoothest() -> None:
    rng = np.random.default_rng(0)
    clean = np.zeros(SHAPE)
    clean[4:12, 4:12] = 0.8
    noisy = clean + 0.1 * rng.normal(size=SHAPE)
    wanted, noise = noisy.reshape(1, -1), np.array([0.01 * clean.size])
    told, plain = (inverse_images(pixels, wanted, within, SHAPE).images for within in (noise, np.zeros(1)))
    # Length, and with it contrast, is free.
    variation = [float(total_variation(torch.from_numpy(one))[0] / one.std()) for one in (told, plain)]
    assert variation[0] < 0.8 * variation[1]
    error = [float(np.square(one[0] / one.max() * clean.max() - clean).mean()) for one in (told, plain)]
    assert error[0] < error[1]


def test_images_do_not_influence_each_other_and_a_seed_is_one_picture() -> None:
    function, wanted = Scattering().differentiable(SHAPE), Scattering().extract(images())
    few = InverseConfig(steps=5)
    both = inverse_images(function, wanted, np.zeros(2), SHAPE, config=few)
    apart = inverse_images(function, wanted, np.zeros(2), SHAPE, config=InverseConfig(steps=5, at_once=1))
    np.testing.assert_allclose(both.images, apart.images, atol=1e-4)
    assert np.array_equal(both.images, inverse_images(function, wanted, np.zeros(2), SHAPE, config=few).images)


def test_what_has_no_image_is_refused() -> None:
    with refuses("image shape"):
        inverse_images(pixels, np.zeros((1, 4)), np.zeros(1), (4,))
    with refuses("features"):
        inverse_images(pixels, np.full((1, 4), np.nan), np.zeros(1), (2, 2))
    with refuses("features"):
        inverse_images(pixels, np.zeros((1, 4)), np.zeros(2), (2, 2))
    with refuses("features"):
        inverse_images(lambda x: x.flatten(1) * np.inf, np.ones((1, 4)), np.zeros(1), (2, 2), config=FEW)
