"""Augmentations: against plain loops over pixels, in range, and each view on its own."""

import colorsys
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage, stats
from torch import Tensor

from privmix.training.views import augmentation as pixels
from privmix.training.views.augment import (
    SELF_AUGMENTATIONS,
    Affine,
    Blur,
    Crop,
    Cutout,
    Flip,
    Jitter,
    Noise,
    OneOf,
    Sobel,
    parse_augmentations,
)
from privmix.training.views.augmentation import Augmentation, RecordRandom, augment
from tests.refusals import refuses

# Fixed seeds; a statistical test would fail by chance with a probability below this.
# No test makes more than 100 comparisons: below 1e-9 in all.
FALSE_ALARM = 1e-11
NAMES = ["flip", "crop", "jitter", "affine", "cutout", "noise", "blur", "sobel", "all", "autoaugment"]


def some_images(count: int, views: int = 3, channels: int = 3, height: int = 11, width: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(count + channels)
    return torch.rand(count, views, channels, height, width, generator=generator)


def of(name: str) -> Augmentation:
    return parse_augmentations(name)[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_own_view_only(name: str, channels: int) -> None:
    if name == "autoaugment" and channels == 2:
        return
    images, seeds = some_images(13, 4, channels), torch.arange(100, 113)
    whole = augment(images, (of(name),), RecordRandom(seeds))
    for index in ([4], [12, 0], list(range(3, 10)), []):
        assert torch.equal(augment(images[index], (of(name),), RecordRandom(seeds[index])), whole[index])
    # Fewer views of a record leave those there are.
    assert torch.equal(augment(images[:, :2], (of(name),), RecordRandom(seeds)), whole[:, :2])
    other, kept = images.clone(), torch.ones(13, 4, dtype=torch.bool)
    other[2, 1], kept[2, 1] = other[2, 1] ** 2, False
    after = augment(other, (of(name),), RecordRandom(seeds))
    assert torch.equal(after[kept], whole[kept])
    assert not torch.equal(after[2, 1], whole[2, 1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 3])
def test_in_range_and_not_in_place(name: str, channels: int) -> None:
    images = some_images(40, 4, channels)
    images[:20] = (images[:20] > 0.5).float()
    before = images.clone()
    changed = of(name)(images, RecordRandom(torch.arange(40)))
    assert torch.equal(images, before)
    assert (changed.shape, changed.dtype) == (images.shape, images.dtype)
    assert 0 <= changed.min() <= changed.max() <= 1
    assert not torch.equal(changed, images)
    # The views of a record differ, though they start from one image.
    alike = of(name)(images[:, :1].expand(-1, 8, -1, -1, -1), RecordRandom(torch.arange(40)))
    if name != "sobel":
        assert not torch.equal(alike[:, :1].expand_as(alike), alike)


def test_probability_leaves_images_as_they_are() -> None:
    images, random = some_images(2000, 2), RecordRandom(torch.arange(2000))
    for chance in (0.0, 0.25, 1.0):
        changed = (Sobel(probability=chance)(images, random) != images).flatten(2).any(dim=2)
        assert stats.binomtest(int(changed.sum()), changed.numel(), chance).pvalue > FALSE_ALARM


def test_flip_mirrors_half_of_the_views() -> None:
    images = some_images(2000, 2, 1, 3, 4)
    changed = Flip()(images, RecordRandom(torch.arange(2000))).numpy()
    flipped = 0
    for old, new in zip(images.flatten(end_dim=1).numpy(), changed.reshape(-1, 1, 3, 4), strict=True):
        mirrored = bool((new[0] == np.fliplr(old[0])).all())
        assert mirrored or (new == old).all()
        flipped += mirrored
    assert stats.binomtest(flipped, 4000, 0.5).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("mode", "padding_mode"), [("reflect", "reflect"), ("zeros", "constant")])
def test_crop_is_a_window_of_the_padded_image(mode: str, padding_mode: str) -> None:
    images = some_images(1, 81, 3, 7, 6).flatten(end_dim=1)
    places = torch.cartesian_prod(torch.arange(9), torch.arange(9))
    result = pixels.crop_padded(images, places[:, 0], places[:, 1], 4, reflect=mode == "reflect").numpy()
    for image, (top, left), found in zip(images.numpy(), places.tolist(), result, strict=True):
        padded = np.pad(image, ((0, 0), (4, 4), (4, 4)), mode=padding_mode)  # type: ignore[call-overload]
        assert (found == padded[:, top : top + 7, left : left + 6]).all()


def test_crop_windows_are_uniform() -> None:
    ramp = torch.arange(64.0).view(1, 1, 1, 8, 8) / 64
    crops = Crop(padding=1)(ramp.expand(3000, 3, -1, -1, -1), RecordRandom(torch.arange(3000)))
    _, counts = (crops[:, :, 0, 3, 3] * 64).round().long().unique(return_counts=True)
    assert len(counts) == 9
    assert stats.chisquare(counts.numpy()).pvalue > FALSE_ALARM


def naive_affine(image: NDArray[np.float32], degrees: float, down: float, right: float) -> NDArray[np.float64]:
    height, width = image.shape[1:]
    result = np.zeros(image.shape)
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    for row in range(height):
        for column in range(width):
            # Up is positive here, as in a text book: the target point, turned back clockwise.
            u, v = column - (width - 1) / 2 - right, -(row - (height - 1) / 2 - down)
            u, v = cosine * u + sine * v, -sine * u + cosine * v
            y, x = -v + (height - 1) / 2, u + (width - 1) / 2
            for near_y in (math.floor(y), math.floor(y) + 1):
                for near_x in (math.floor(x), math.floor(x) + 1):
                    if 0 <= near_y < height and 0 <= near_x < width:
                        share = (1 - abs(y - near_y)) * (1 - abs(x - near_x))
                        result[:, row, column] += share * image[:, near_y, near_x]
    return result


def test_affine_against_loops() -> None:
    images = some_images(1, 6, 2, 8, 5).flatten(end_dim=1)
    degrees = torch.tensor([0.0, 90.0, 30.0, -45.0, 10.0, 180.0])
    down = torch.tensor([0.0, 0.0, 1.5, -2.0, 0.25, 0.0])
    right = torch.tensor([0.0, 0.0, -0.5, 1.0, 2.0, 3.0])
    result = pixels.rotate_and_shift(images, degrees, down, right).numpy()
    for image, *parameters, found in zip(images.numpy(), degrees, down, right, result, strict=True):
        expected = naive_affine(image, *(float(number) for number in parameters))
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_cutout_squares() -> None:
    images = some_images(300, 1, 3, 8, 6) * 0.4
    changed = Cutout(size=0.5, fill=1.0)(images, RecordRandom(torch.arange(300)))[:, 0].numpy()
    areas, ends = set(), set()
    for old, new in zip(images[:, 0].numpy(), changed, strict=True):
        filled = (new == 1.0).all(axis=0)
        assert (new[:, ~filled] == old[:, ~filled]).all()
        rows, columns = np.flatnonzero(filled.any(axis=1)), np.flatnonzero(filled.any(axis=0))
        assert filled[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
        areas.add((len(rows), len(columns)))
        ends.add((rows[-1], columns[-1]))
    # A side of 3 = 0.5 * 6 where it fits, 2 at the edge; every centre occurs, and of 8 x 6 those in the last two rows
    # or columns have their squares' ends in common.
    assert areas == {(height, width) for height in (2, 3) for width in (2, 3)}
    assert len(ends) == 7 * 5


def test_noise_is_gaussian() -> None:
    images = torch.full((50, 2, 1, 20, 20), 0.5)
    noise = (Noise(std=0.05)(images, RecordRandom(torch.arange(50))) - 0.5) / 0.05
    assert stats.kstest(noise.double().numpy().ravel(), "norm").pvalue > FALSE_ALARM


@pytest.mark.parametrize("radius", [0, 1, 3])
def test_blur_against_scipy(radius: int) -> None:
    images = some_images(1, 4, 2, 7, 5).flatten(end_dim=1)
    sigma = torch.tensor([0.1, 0.7, 1.3, 2.0])
    result = pixels.blur(images, sigma, radius).numpy()
    for image, spread, found in zip(images.numpy(), sigma.tolist(), result, strict=True):
        # SciPy calls "mirror" what others call "reflect": the edge pixel is not repeated.
        expected = ndimage.gaussian_filter(image.astype(np.float64), spread, axes=(1, 2), radius=radius, mode="mirror")
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_is_reflected_must_be_there() -> None:
    images, random = some_images(3, 1, 1, 1, 5), RecordRandom(torch.arange(3))
    assert torch.equal(Blur()(images, random), images)
    assert Crop(mode="zeros")(images, random).shape == images.shape
    with refuses("blur radius"):
        Blur(radius=2)(images, random)
    with refuses("crop padding"):
        Crop()(some_images(2, 1, 1, 4, 9), RecordRandom(torch.arange(2)))


def test_sobel_against_scipy() -> None:
    images = some_images(1, 3, 2).flatten(end_dim=1)

    def slope(channel: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.hypot(*(ndimage.sobel(channel, axis, mode="nearest") for axis in (0, 1)))

    # SciPy smooths along every other axis, so it must see one channel at a time.
    expected = np.stack([[slope(channel) for channel in image] for image in images.double().numpy()])
    np.testing.assert_allclose(pixels.sobel(images).numpy(), np.minimum(expected / 4, 1), atol=1e-6)


def test_hue_against_colorsys() -> None:
    images = some_images(1, 5, 3, 4, 4).flatten(end_dim=1)
    images[0, :, 0, 0] = 0.3  # grey has no hue
    images[0, :, 0, 1] = torch.tensor([0.0, 1.0, 1.0])
    turns = torch.tensor([0.0, 0.1, -0.3, 0.5, 0.05])
    result = pixels.hue(images, turns).numpy()
    for image, turn, found in zip(images.numpy(), turns.tolist(), result, strict=True):
        for row, column in np.ndindex(4, 4):
            h, s, v = colorsys.rgb_to_hsv(*image[:, row, column].tolist())
            expected = colorsys.hsv_to_rgb((h + turn) % 1.0, s, v)
            np.testing.assert_allclose(found[:, row, column], expected, atol=2e-6)


def test_brightness_contrast_saturation_against_loops() -> None:
    images = some_images(1, 3, 3).flatten(end_dim=1)
    factors = torch.tensor([0.0, 0.6, 1.4])
    found = [change(images, factors).numpy() for change in (pixels.brightness, pixels.contrast, pixels.saturation)]
    for number, (image, factor) in enumerate(zip(images.double().numpy(), factors.tolist(), strict=True)):
        luminance = 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]
        for change, towards in zip(found, (0.0, luminance.mean(), luminance), strict=True):
            expected = np.clip(towards + factor * (image - towards), 0, 1)
            np.testing.assert_allclose(change[number], expected, atol=2e-6)


def test_jitter_leaves_grey_images_grey() -> None:
    random = RecordRandom(torch.arange(20))
    grey = some_images(20, 2, 1)
    colour = Jitter(saturation=0, hue=0)(grey.expand(-1, -1, 3, -1, -1), random)
    assert (colour - colour[:, :, :1]).abs().max() < 1e-6
    np.testing.assert_allclose(Jitter()(grey, random), colour[:, :, :1], atol=2e-6)


def test_parse() -> None:
    assert parse_augmentations("flip, crop") == SELF_AUGMENTATIONS == (Flip(probability=0.5), Crop(padding=4))
    assert parse_augmentations("") == parse_augmentations("none") == ()
    assert [augmentation.name for augmentation in parse_augmentations(",".join(NAMES))] == NAMES
    assert {choice.name for choice in OneOf().choices} == set(NAMES) - {"flip", "crop", "all", "autoaugment"}
    with refuses("augmentations"):
        parse_augmentations("flip,mirror")
    with refuses("augmentations"):
        parse_augmentations("flip,crop,flip")


WRONG: dict[type[Augmentation], dict[str, object]] = {
    Flip: {"probability": 1.5},
    Crop: {"padding": -1, "mode": "wrap"},
    Jitter: {"hue": 0.6, "contrast": -0.1},
    Affine: {"degrees": 200, "translation": -0.1},
    Cutout: {"size": 0, "fill": 2},
    Noise: {"std": -1},
    Blur: {"low": 0, "high": 0.01, "radius": -1},
}


def test_settings_are_checked() -> None:
    for kind, settings in WRONG.items():
        for name, value in settings.items():
            with refuses(f"{kind.name} {name}"):
                kind(**{name: value})  # type: ignore[arg-type]
    with refuses("augmentations to choose from"):
        OneOf(choices=())
