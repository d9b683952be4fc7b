"""Augmentations of one image: self-augmentation (De et al. 2022) and those that Bao et al. (2023) compare (Table 4)."""
# If a paper gives no strength, the defaults are usual ones for small images.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import torch
from torch import Tensor

from privmix.errors import InvalidInput, check_choice, check_number
from privmix.fields import Amount, Choice, Number, Positive, Proportion, Rate, Size
from privmix.training.views.augmentation import (
    Augmentation,
    RecordRandom,
    blur,
    box_mask,
    brightness,
    check_augmentations,
    contrast,
    crop_padded,
    hue,
    rotate_and_shift,
    saturation,
    sobel,
)
from privmix.training.views.autoaugment import AutoAugment


@dataclass(frozen=True, kw_only=True)
class Flip(Augmentation):
    """Mirror left and right."""

    name: ClassVar[str] = "flip"
    probability: Proportion = 0.5

    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        return images.flip(-1)


@dataclass(frozen=True, kw_only=True)
class Crop(Augmentation):
    """A window of the image's size from the image padded on all sides by ``padding`` pixels (De et al.: reflect)."""

    name: ClassVar[str] = "crop"
    padding: Size = 4
    mode: Annotated[str, Choice("reflect", "zeros")] = "reflect"

    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        top, left = random.integers("place", 2 * self.padding + 1, 2).unbind(dim=1)
        return crop_padded(images, top, left, self.padding, reflect=self.mode == "reflect")


@dataclass(frozen=True, kw_only=True)
class Jitter(Augmentation):
    """Colour jitter: brightness, contrast, saturation, hue, in this order; grey images get the first two only."""

    # s >= 0: factors are uniform on [max(0, 1 - s), 1 + s]; the hue turns by a uniform part of the circle on [-hue,
    # hue].

    name: ClassVar[str] = "jitter"
    brightness: Amount = 0.4
    contrast: Amount = 0.4
    saturation: Amount = 0.4
    hue: Annotated[float, Number(0, 0.5)] = 0.1

    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        """Channels are taken for red, green and blue where there are three."""
        colour = images.shape[1] == 3
        for name, change, everywhere in (
            ("brightness", brightness, True),
            ("contrast", contrast, True),
            ("saturation", saturation, False),
        ):
            strength = getattr(self, name)
            if strength > 0 and (everywhere or colour):
                images = change(images, _between(random.uniform(name), max(0.0, 1.0 - strength), 1.0 + strength))
        if self.hue > 0 and colour:
            images = hue(images, _between(random.uniform("hue"), -self.hue, self.hue))
        return images


@dataclass(frozen=True, kw_only=True)
class Affine(Augmentation):
    """Rotation by up to ``degrees`` and shift by up to ``translation`` times height and width, zeros outside."""

    name: ClassVar[str] = "affine"
    degrees: Annotated[float, Number(0, 180)] = 15.0
    translation: Proportion = 0.1

    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        """Bilinear; non-square images are rotated, not sheared."""
        degrees = _between(random.uniform("degrees"), -self.degrees, self.degrees)
        down = _between(random.uniform("down"), -self.translation, self.translation) * images.shape[-2]
        right = _between(random.uniform("right"), -self.translation, self.translation) * images.shape[-1]
        return rotate_and_shift(images, degrees, down, right).clamp_(0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Cutout(Augmentation):
    """Fill a square, ``size`` of the shorter side, around a uniform pixel; grey is what models see as 0."""

    name: ClassVar[str] = "cutout"
    size: Rate = 0.5
    fill: Proportion = 0.5

    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        """Erase a square; its side is rounded to pixels, at least one."""
        height, width = images.shape[-2:]
        row, column = random.integers("row", height), random.integers("column", width)
        side = torch.full_like(row, max(1, round(self.size * min(height, width))))
        mask = box_mask((height, width), row, column, side, side)
        return images.masked_fill(mask[:, None], self.fill)


@dataclass(frozen=True, kw_only=True)
class Noise(Augmentation):
    """Add Gaussian noise of standard deviation ``std``, then cut to [0, 1]. It has no part in privacy."""

    name: ClassVar[str] = "noise"
    std: Amount = 0.05

    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        return (images + random.normal("noise", *images.shape[1:]) * self.std).clamp_(0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Blur(Augmentation):
    """Gaussian blur with deviation uniform on [low, high] pixels, reflected at the edge."""

    # radius: where the filter is cut off; None: a twentieth of the shorter side (as SimCLR), at least one pixel.

    name: ClassVar[str] = "blur"
    low: Positive = 0.1
    high: Positive = 2.0
    radius: Size | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("blur high", self.high, low=self.low)

    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        """Blur images; the default radius leaves an image one pixel high or wide unchanged."""
        side = min(images.shape[-2:])
        radius = min(max(1, side // 20), side - 1) if self.radius is None else self.radius
        return blur(images, _between(random.uniform("sigma"), self.low, self.high), radius)


@dataclass(frozen=True, kw_only=True)
class Sobel(Augmentation):
    """Replace the image by the strength of its edges, channel by channel."""

    name: ClassVar[str] = "sobel"

    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        """Filter images, with edge pixels repeated outwards."""
        return sobel(images)


@dataclass(frozen=True, kw_only=True)
class OneOf(Augmentation):
    """One of several augmentations for each view, chosen uniformly ("+All" of Bao et al. 2023, Table 4)."""

    name: ClassVar[str] = "all"
    choices: tuple[Augmentation, ...] = (Jitter(), Affine(), Cutout(), Noise(), Blur(), Sobel())

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.choices:
            raise InvalidInput("augmentations to choose from", "none", "at least one")

    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        choice = random.integers("choice", len(self.choices))
        result = torch.empty_like(images)
        for number, augmentation in enumerate(self.choices):
            chosen = (choice == number).nonzero().squeeze(1)
            inner = random.select(chosen).derive(f"{number}:{augmentation.name}")
            result[chosen] = augmentation.change_some(images[chosen], inner)
        return result

    def check_channels(self, channels: int) -> None:
        for augmentation in self.choices:
            augmentation.check_channels(channels)

    def spec(self) -> dict[str, Any]:
        choices = [augmentation.spec() for augmentation in self.choices]
        return {"name": self.name, "probability": self.probability, "choices": choices}


SELF_AUGMENTATIONS: Final[tuple[Augmentation, ...]] = (Flip(), Crop())
"""Self-Aug of De et al. (2022): random horizontal flips and crops with reflection padding of 4 pixels."""

_KINDS: Final[dict[str, type[Augmentation]]] = {
    kind.name: kind for kind in (Flip, Crop, Jitter, Affine, Cutout, Noise, Blur, Sobel, OneOf, AutoAugment)
}


_MOST_CHOICES: Final = 16


def parse_augmentations(text: str) -> tuple[Augmentation, ...]:
    """Augmentations from names with commas between, in this order; "none" or nothing gives none."""
    names = [name.strip() for name in text.split(",")]
    if names in ([""], ["none"]):
        return ()
    result = tuple(_KINDS[check_choice("augmentations", name, _KINDS)]() for name in names)
    check_augmentations(result)
    return result


def augmentations_of(specs: Sequence[Mapping[str, Any]]) -> tuple[Augmentation, ...]:
    """Inverse of :meth:`Augmentation.spec` for several; raise where a setting is out of range."""
    if not isinstance(specs, list | tuple) or len(specs) > len(_KINDS):
        raise InvalidInput("augmentations", type(specs).__name__, "a list of descriptions, one a kind at most")
    found = tuple(_augmentation_of(spec, inner=False) for spec in specs)
    check_augmentations(found)
    return found


def _augmentation_of(spec: Any, *, inner: bool) -> Augmentation:
    if not isinstance(spec, Mapping):
        raise InvalidInput("augmentation", type(spec).__name__, "a name and its settings")
    settings = {name: value for name, value in spec.items() if name != "name"}
    kind = _KINDS[check_choice("augmentation", spec.get("name"), _KINDS)]
    if "choices" in settings and not inner:
        choices = settings["choices"]
        if not isinstance(choices, list | tuple) or len(choices) > _MOST_CHOICES:
            raise InvalidInput("augmentations to choose from", type(choices).__name__, f"{_MOST_CHOICES} at most")
        settings["choices"] = tuple(_augmentation_of(choice, inner=True) for choice in choices)
    try:
        return kind(**settings)
    except (TypeError, AttributeError):
        raise InvalidInput(f"settings of {kind.name}", sorted(settings), "those that it has") from None


def _between(unit: Tensor, low: float, high: float) -> Tensor:
    return unit * (high - low) + low
