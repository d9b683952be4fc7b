"""AutoAugment: its operations against Pillow's by hand, its law, and the images that it refuses."""

import numpy as np
import pytest
import torch
from PIL import Image

from privmix.training.examples import ImageLayout
from privmix.training.public_phase import PublicViews
from privmix.training.views.augment import parse_augmentations
from privmix.training.views.augmentation import RecordRandom
from privmix.training.views.autoaugment import POLICY, AutoAugment, operate
from privmix.training.views.config import ViewConfig
from privmix.training.views.pipeline import ViewPipeline
from tests.refusals import refuses


def levels(channels: int = 3, side: int = 20) -> np.ndarray:
    return np.random.default_rng(channels).integers(20, 200, size=(side, side, channels), dtype=np.uint8)


def operated(image: np.ndarray, name: str, magnitude: int, sign: int = 1) -> np.ndarray:
    grey = image.shape[2] == 1
    found = np.array(operate(Image.fromarray(image[:, :, 0] if grey else image), name, magnitude, sign))
    return found[:, :, None] if grey else found


@pytest.mark.parametrize("channels", [1, 3])
def test_operations_on_levels(channels: int) -> None:
    image = levels(channels, side=32)
    wide = image.astype(np.int64)
    # Magnitude 0 of ten leaves all 8 bits and 9 leaves 4; the threshold falls from 256 to 0.
    for magnitude, bits in ((0, 8), (9, 4), (7, 5)):
        assert (operated(image, "posterize", magnitude) == (wide >> (8 - bits)) << (8 - bits)).all()
    for magnitude, threshold in ((0, 256), (5, round(256 * 4 / 9)), (9, 0)):
        assert (operated(image, "solarize", magnitude) == np.where(wide < threshold, wide, 255 - wide)).all()
    assert (operated(image, "invert", 7) == 255 - wide).all()
    # A blend with black, by factors from 0.1 to 1.9.
    for magnitude in (0, 3, 9):
        wanted = np.clip(wide * (0.1 + 1.8 * magnitude / 9), 0, 255)
        assert np.abs(operated(image, "brightness", magnitude) - wanted).max() <= 1
    for sign, outside in ((1, slice(22, 32)), (-1, slice(0, 10))):
        for name, axis in (("translate-x", 1), ("translate-y", 0)):
            wanted = np.roll(wide, -10 * sign, axis)
            wanted[(slice(None),) * axis + (outside,)] = 128
            assert (operated(image, name, 9, sign) == wanted).all()


def test_shears_and_turns() -> None:
    for sign in (1, -1):
        # A line across is as steep as the shear: the last column moves by 0.3 of 31 pixels.
        line = np.full((32, 32, 1), 128, np.uint8)
        line[16] = 255
        rows = operated(line, "shear-y", 9, sign)[:, :, 0].argmax(axis=0)
        assert np.abs(rows - (16 - sign * 0.3 * np.arange(32))).max() <= 1
        # Counter-clockwise as seen, by up to 30 degrees: what lay to the right of the centre goes up.
        dot = np.zeros((33, 33, 1), np.uint8)
        dot[15:18, 27:30] = 255
        row, column = (
            float(axis[axis.size // 2]) for axis in np.nonzero(operated(dot, "rotate", 9, sign)[:, :, 0] == 255)
        )
        assert np.degrees(np.arctan2(16 - row, column - 16)) == pytest.approx(30 * sign, abs=6)


def test_a_view_is_done_by_its_own_pair_of_operations() -> None:
    """The policy by hand: which pair, which of its operations, and which way, from the view's own draws."""
    image, random = levels(), RecordRandom(torch.arange(120))
    x = torch.from_numpy(image).permute(2, 0, 1)[None].expand(120, -1, -1, -1) / 255.0
    found = (AutoAugment().change(x, random) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    pairs, done, ways = random.integers("pair", 25), random.uniform("done", 2), random.integers("way", 2, 2)
    for place in range(120):
        wanted = image
        for step, (name, probability, magnitude) in enumerate(POLICY[int(pairs[place])]):
            if done[place, step] < probability:
                wanted = operated(wanted, name, magnitude, 1 - 2 * int(ways[place, step]))
        assert (found[place] == wanted).all()


def test_images_that_no_operation_changes_are_not_rounded() -> None:
    x = torch.rand(60, 1, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    changed = AutoAugment()(x, RecordRandom(torch.arange(60)))
    kept = (changed == x).flatten(1).all(dim=1)
    assert 0 < int(kept.sum()) < 60
    on_levels = changed[~kept] * 255
    torch.testing.assert_close(on_levels, on_levels.round(), atol=1e-4, rtol=0)


def test_other_than_grey_and_rgb_is_refused_before_there_are_records() -> None:
    layout, given = ImageLayout(2, 8, 8), parse_augmentations("flip,autoaugment")
    for make in (
        lambda: ViewPipeline(ViewConfig.self_aug(2, given), layout, classes=2),
        lambda: PublicViews(layout, given),
        lambda: AutoAugment()(torch.rand(1, 1, 2, 4, 4), RecordRandom(torch.arange(1))),
    ):
        with refuses("channels of images for autoaugment"):
            make()
