"""AutoAugment's policy for CIFAR-10 (Cubuk et al. 2019): pairs of operations that a search found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from privmix.training.views.augmentation import Augmentation, RecordRandom

# Fill from outside of an image: grey, which models see as 0.
_FILL: Final = 128
_STRONGEST: Final = 9
# The authors' program for CIFAR moves 32 pixels by up to 10; their table's 150 pixels are of images of 331.
_FARTHEST: Final = 10 / 32

# An image, a strength from 0 to 1 and a sign.
_Operation = Callable[[Image.Image, float, int], Image.Image]
# (operation, its probability, its magnitude from 0 to 9), twice: Cubuk et al. 2019, the table of the CIFAR-10 policy.
_Step = tuple[str, float, int]
POLICY: Final[tuple[tuple[_Step, _Step], ...]] = (
    (("invert", 0.1, 7), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate-x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear-y", 0.5, 8), ("translate-y", 0.7, 9)),
    (("autocontrast", 0.5, 8), ("equalize", 0.9, 2)),
    (("shear-y", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 5), ("equalize", 0.5, 1)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("translate-x", 0.5, 8)),
    (("equalize", 0.3, 7), ("autocontrast", 0.4, 8)),
    (("translate-y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 3)),
    (("equalize", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalize", 0.2, 8), ("equalize", 0.6, 4)),
    (("color", 0.9, 9), ("equalize", 0.6, 6)),
    (("autocontrast", 0.8, 4), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, 3)),
    (("translate-y", 0.9, 9), ("translate-y", 0.7, 9)),
    (("autocontrast", 0.9, 2), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 8), ("invert", 0.1, 3)),
    (("translate-y", 0.7, 9), ("autocontrast", 0.9, 1)),
)


@dataclass(frozen=True, kw_only=True)
class AutoAugment(Augmentation):
    """One of the policy's 25 pairs of operations for each view, chosen uniformly (Cubuk et al. 2019)."""

    # Each operation has its own probability and magnitude, one of ten that are evenly spaced over its range; shears,
    # shifts and rotations go either way with equal chance. The authors' order is ``flip,crop,autoaugment,cutout``.
    # Pillow applies it, as for the authors, to 8-bit levels, without blending pixels; grey comes in from outside.
    # Images of fewer than 255 pixels are not equalized, as they have fewer pixels than levels.

    name: ClassVar[str] = "autoaugment"
    # Pillow's grey, and red, green and blue.
    channels: ClassVar[tuple[int, ...]] = (1, 3)

    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        """Three channels are taken for red, green and blue, one for grey."""
        self.check_channels(images.shape[1])
        pair = random.integers("pair", len(POLICY)).tolist()
        done = random.uniform("done", 2).tolist()
        way = random.integers("way", 2, 2).tolist()
        levels = (images * 255.0).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().contiguous().numpy()
        touched = torch.zeros(len(images), dtype=torch.bool)
        for place, (chosen, chances, ways) in enumerate(zip(pair, done, way, strict=True)):
            steps = [
                (name, magnitude, side)
                for (name, probability, magnitude), chance, side in zip(POLICY[chosen], chances, ways, strict=True)
                if chance < probability
            ]
            if steps:
                levels[place], touched[place] = _done(levels[place], steps), True
        found = torch.from_numpy(levels).to(images.device).permute(0, 3, 1, 2).to(images.dtype) / 255.0
        return torch.where(touched.to(images.device)[:, None, None, None], found, images)


def _done(levels: NDArray[np.uint8], steps: list[tuple[str, int, int]]) -> NDArray[np.uint8]:
    """(H, W, C) uint8 after the operations ``steps``, each with its magnitude and side (0 or 1)."""
    grey = levels.shape[2] == 1
    image = Image.fromarray(levels[:, :, 0] if grey else levels)
    for name, magnitude, side in steps:
        image = operate(image, name, magnitude, -1 if side else 1)
    found = np.asarray(image)
    return found[:, :, None] if grey else found


def operate(image: Image.Image, name: str, magnitude: int, sign: int) -> Image.Image:
    """One operation of :data:`POLICY` on a grey ("L") or "RGB" image; magnitude 0 to 9, sign 1 or -1."""
    return _OPERATIONS[name](image, magnitude / _STRONGEST, sign)


def _affine(image: Image.Image, *coefficients: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, fillcolor=_fill(image))


def _fill(image: Image.Image) -> int | tuple[int, ...]:
    return _FILL if image.mode == "L" else (_FILL,) * 3


def _enhanced(kind: Callable[[Image.Image], Any]) -> _Operation:
    """By a factor from 0.1 to 1.9: the magnitudes in the middle, around 1, change least."""

    def operation(image: Image.Image, strength: float, sign: int) -> Image.Image:
        found: Image.Image = kind(image).enhance(0.1 + 1.8 * strength)
        return found

    return operation


_OPERATIONS: Final[dict[str, _Operation]] = {
    "shear-y": lambda image, strength, sign: _affine(image, 1, 0, 0, sign * 0.3 * strength, 1, 0),
    "translate-x": lambda image, strength, sign: _affine(
        image, 1, 0, sign * round(_FARTHEST * strength * image.width), 0, 1, 0
    ),
    "translate-y": lambda image, strength, sign: _affine(
        image, 1, 0, 0, 0, 1, sign * round(_FARTHEST * strength * image.height)
    ),
    "rotate": lambda image, strength, sign: image.rotate(sign * 30 * strength, fillcolor=_fill(image)),
    "autocontrast": lambda image, strength, sign: ImageOps.autocontrast(image),
    "invert": lambda image, strength, sign: ImageOps.invert(image),
    "equalize": lambda image, strength, sign: ImageOps.equalize(image),
    "solarize": lambda image, strength, sign: ImageOps.solarize(image, round(256 * (1 - strength))),
    "posterize": lambda image, strength, sign: ImageOps.posterize(image, round(8 - 4 * strength)),
    "color": _enhanced(ImageEnhance.Color),
    "contrast": _enhanced(ImageEnhance.Contrast),
    "brightness": _enhanced(ImageEnhance.Brightness),
    "sharpness": _enhanced(ImageEnhance.Sharpness),
}
