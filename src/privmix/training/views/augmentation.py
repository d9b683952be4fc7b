"""Augmentations: random changes of one image that keep its label, and the image operations that they take."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Final

import torch
from torch import Tensor
from torch.nn import functional

from privmix.errors import InvalidInput, check_integer, check_number, in_terms_of
from privmix.fields import Proportion, check_fields

# A draw is a hash of (seed, purpose, counter), by the finaliser of splitmix64 (Steele, Lea and Flood 2014). It is no
# cipher: a record's views may depend on its data and on any randomness that is independent of the other records. Noise
# and sampling draw from :mod:`privmix.mechanisms.streams`.

# 2**64 / golden ratio, and the two multipliers of splitmix64, as signed integers.
_STEP: Final = 0x9E3779B97F4A7C15 - 2**64
_FIRST: Final = 0xBF58476D1CE4E5B9 - 2**64
_SECOND: Final = 0x94D049BB133111EB - 2**64


class RecordRandom:
    """Random numbers for b records, each a function of its record's seed (63 bits), a purpose and a counter.

    There is no state: the same call gives the same numbers again, so each use has a purpose (a name) of its own. The
    first entries of a longer draw are those of a shorter one along its first axis.

    Formal guarantees:
        * Own seed only: row i of every result is a function of ``seeds[i]``, for any number of other seeds.
        * Purposes apart: draws of one purpose do not change when draws of another are added.
        * Every device: bits, uniforms, integers, subsets and pairs are equal to the last bit on CPU and CUDA. Normals
          and betas are computed in float64 and equal but for the last bit of float32, rarely.
    """

    def __init__(self, seeds: Tensor) -> None:
        if seeds.dtype != torch.int64 or seeds.dim() != 1:
            raise InvalidInput("seeds", f"{seeds.dim()} axes of {seeds.dtype}", "one int64 seed a record")
        self._seeds = seeds
        self._mixed = _mix(seeds + _STEP)

    def __len__(self) -> int:
        return len(self._seeds)

    @property
    def device(self) -> torch.device:
        return self._seeds.device

    def bits(self, purpose: str, *shape: int) -> Tensor:
        """(b, *shape) int64 of 64 random bits each."""
        digest = hashlib.blake2b(purpose.encode(), digest_size=8).digest()
        key = _mix(self._mixed ^ int.from_bytes(digest, "little", signed=True))
        counters = torch.arange(1, math.prod(shape) + 1, device=self.device) * _STEP
        return _mix(key[:, None] + counters).view(len(self), *shape)

    def uniform(self, purpose: str, *shape: int) -> Tensor:
        """(b, *shape) float32 in [0, 1), multiples of 2**-24."""
        return _shift(self.bits(purpose, *shape), 40).to(torch.float32) * 2.0**-24

    def integers(self, purpose: str, high: int, *shape: int) -> Tensor:
        """(b, *shape) int64 from 0 to ``high - 1``; for high < 2**31 no probability is off by more than 2**-53."""
        check_integer("high", high, low=1, high=2**31)
        unit = _shift(self.bits(purpose, *shape), 11).to(torch.float64) * 2.0**-53
        return (unit * high).to(torch.int64).clamp_(max=high - 1)

    def normal(self, purpose: str, *shape: int) -> Tensor:
        """(b, *shape) float32 standard normals (Box and Muller 1958)."""
        count = math.prod(shape)
        pairs = self._open(purpose, (count + 1) // 2, 2)
        radius = torch.sqrt(-2.0 * torch.log(pairs[..., 0].contiguous()))
        angle = 2.0 * math.pi * pairs[..., 1].contiguous()
        both = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=-1)
        return both.flatten(start_dim=1)[:, :count].reshape(len(self), *shape).to(torch.float32)

    def beta(self, purpose: str, alpha: float, *shape: int) -> Tensor:
        """Symmetric Beta(alpha, alpha) numbers, float32, from four uniforms each, without rejection."""
        # Let W ~ Beta(alpha + 1, alpha + 1) by Ulrich's polar method (1984), with uniforms U, V. The ratio W
        # U^(1/alpha) / (W U^(1/alpha) + (1 - W) V^(1/alpha)) is Beta(alpha, alpha). The reason is that Gamma(alpha + 1)
        # times U^(1/alpha) is Gamma(alpha). It is formed from logarithms, as U^(1/alpha) underflows for small alpha.
        check_number("alpha", alpha, low=0, low_open=True)
        radial, angle, first, second = (part.contiguous() for part in self._open(purpose, *shape, 4).unbind(-1))
        share = 0.5 + 0.5 * torch.sqrt(1.0 - radial ** (2.0 / (2.0 * alpha + 1.0))) * torch.cos(2.0 * math.pi * angle)
        odds = torch.log(share) - torch.log1p(-share) + (torch.log(first) - torch.log(second)) / alpha
        return torch.sigmoid(odds).to(torch.float32)

    def subset(self, purpose: str, high: int, size: int) -> Tensor:
        """(b, size) int64: distinct numbers from 0 to ``high - 1``, each set equally likely, in biased order."""
        # Floyd's algorithm (Bentley and Floyd 1987).
        check_integer("size of a subset", size, low=0, high=high)
        chosen = torch.empty(len(self), size, dtype=torch.int64, device=self.device)
        for place in range(size):
            last = high - size + place
            drawn = self.integers(f"{purpose}/{place}", last + 1)
            taken = (chosen[:, :place] == drawn[:, None]).any(dim=1)
            chosen[:, place] = torch.where(taken, last, drawn)
        return chosen

    def pairs(self, purpose: str, high: int, count: int) -> tuple[Tensor, Tensor]:
        """Two (b, count) int64: ordered pairs of distinct numbers below ``high``, all equally likely."""
        check_integer("members to pair", high, low=2)
        first = self.integers(f"{purpose}/first", high, count)
        second = self.integers(f"{purpose}/second", high - 1, count)
        return first, second + (second >= first)

    def derive(self, purpose: str) -> "RecordRandom":
        """Another generator for the same records: its draws are independent of this one's, purpose by purpose."""
        return RecordRandom(self.bits(f"derive/{purpose}"))

    def views(self, count: int) -> "RecordRandom":
        """Return a generator for b * count views, record by record; a view's draws do not depend on ``count``."""
        return RecordRandom(self.bits("views", count).flatten())

    def select(self, index: Tensor) -> "RecordRandom":
        return RecordRandom(self._seeds[index])

    def _open(self, purpose: str, *shape: int) -> Tensor:
        """(b, *shape) float64 in the open interval (0, 1), where a logarithm is finite."""
        return (_shift(self.bits(purpose, *shape), 12).to(torch.float64) + 0.5) * 2.0**-52


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    return z ^ _shift(z, 31)


def _shift(z: Tensor, places: int) -> Tensor:
    # Tensors shift arithmetically: the mask takes the copies of the sign off.
    shifted: Tensor = (z >> places) & (2 ** (64 - places) - 1)
    return shifted


@dataclass(frozen=True, kw_only=True)
class Augmentation(ABC):
    """A random change of one image that keeps its label.

    Formal guarantees:
        * Own view only: a view depends on its image, its record's seed and its number among the record's views.
        * In range: values stay in [0, 1].

    Attributes:
        channels: numbers of channels of the images that it takes; empty: any.
        probability: with which a view is changed at all.
    """

    name: ClassVar[str]
    channels: ClassVar[tuple[int, ...]] = ()
    probability: Proportion = 1.0

    def __post_init__(self) -> None:
        with in_terms_of({item.name: f"{self.name} {item.name}" for item in fields(self)}):
            check_fields(self)

    def __call__(self, images: Tensor, random: RecordRandom) -> Tensor:
        """(b, K, C, H, W) images in [0, 1] and the b records' randomness -> as many changed images."""
        return augment(images, (self,), random)

    def check_channels(self, channels: int) -> None:
        """Raise :class:`InvalidInput` unless images of ``channels`` channels can be changed; known before any image."""
        if self.channels and channels not in self.channels:
            allowed = " or ".join(map(str, self.channels))
            raise InvalidInput(f"channels of images for {self.name}", channels, allowed)

    @abstractmethod
    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        """(n, C, H, W) images -> the same images changed, each by its own one of n generators."""

    def change_some(self, images: Tensor, random: RecordRandom) -> Tensor:
        """:meth:`change`, but for those images that chance leaves as they are."""
        changed = self.change(images, random)
        if self.probability == 1:
            return changed
        chosen = random.uniform("chosen") < self.probability
        return torch.where(chosen[:, None, None, None], changed, images)

    def spec(self) -> dict[str, Any]:
        """Name and settings as JSON values."""
        return {"name": self.name, **asdict(self)}


def augment(images: Tensor, augmentations: Sequence[Augmentation], random: RecordRandom) -> Tensor:
    """Apply augmentations in order to every view (b, K, C, H, W) in [0, 1]; at most one of each kind."""
    views = random.views(images.shape[1])
    flat = images.flatten(end_dim=1)
    for augmentation in augmentations:
        flat = augmentation.change_some(flat, views.derive(augmentation.name))
    return flat.reshape(images.shape)


def check_augmentations(augmentations: Sequence[Augmentation]) -> None:
    """Raise :class:`InvalidInput` where a kind of augmentation is there twice: both would draw the same numbers."""
    names = [augmentation.name for augmentation in augmentations]
    if len(set(names)) != len(names):
        raise InvalidInput("augmentations", ",".join(names), "each name at most once")


# Image i of a result depends on image i and its parameters alone, to the last bit. All is element by element, or a sum
# that is exact in any order. The rounding of a convolution or a mean may vary with n.


# ITU-R BT.601, the weights of PIL's and torchvision's grey.
_GREY: Final = (0.299, 0.587, 0.114)
_SUM_BITS: Final = 20


def crop_padded(images: Tensor, top: Tensor, left: Tensor, padding: int, *, reflect: bool) -> Tensor:
    """Return the H x W window at ``top``, ``left`` (n,) of images padded by mirroring (edge not repeated) or zeros."""
    if reflect:
        _check_reflection("crop padding", padding, (images.shape[-2], images.shape[-1]))
    rows = _window(top, images.shape[-2], padding)
    columns = _window(left, images.shape[-1], padding)
    if reflect:
        return _take(images, _reflect(rows, images.shape[-2]), _reflect(columns, images.shape[-1]))
    height, width = images.shape[-2:]
    inside = _between(rows, height)[:, None, :, None] & _between(columns, width)[:, None, None, :]
    return _take(images, rows.clamp(0, height - 1), columns.clamp(0, width - 1)) * inside


def rotate_and_shift(images: Tensor, degrees: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Rotate counter-clockwise about the centre, then shift by pixels (n,); bilinear, zeros from outside."""
    height, width = images.shape[-2:]
    angle = degrees.to(torch.float64) * (math.pi / 180.0)
    # Rounded from float64, so that a cosine's last bit is the same on every device.
    cosine, sine = (f(angle).to(images.dtype)[:, None, None] for f in (torch.cos, torch.sin))
    y = torch.arange(height, device=images.device, dtype=images.dtype)[None, :, None] - (height - 1) / 2
    x = torch.arange(width, device=images.device, dtype=images.dtype)[None, None, :] - (width - 1) / 2
    y, x = y - down[:, None, None], x - right[:, None, None]
    # Each target pixel looks back to its source; rows count downwards, hence the signs.
    source_x = cosine * x - sine * y
    source_y = sine * x + cosine * y
    grid = torch.stack([source_x * (2.0 / width), source_y * (2.0 / height)], dim=-1)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def box_mask(shape: tuple[int, int], row: Tensor, column: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """(..., H, W) bool: the box of ``height`` x ``width`` centred on ``row``, ``column``, cut at the edge."""
    # Boxes with even sides reach one pixel further up and left than down and right.
    first_row, first_column = row - height // 2, column - width // 2
    y = torch.arange(shape[0], device=row.device)
    x = torch.arange(shape[1], device=row.device)
    down = (y >= first_row[..., None]) & (y < (first_row + height)[..., None])
    right = (x >= first_column[..., None]) & (x < (first_column + width)[..., None])
    return down[..., :, None] & right[..., None, :]


def grey(images: Tensor) -> Tensor:
    """(n, 1, H, W) luminance of RGB images; the mean of the channels where there are not three."""
    channels = images.unbind(dim=1)
    weights = _GREY if len(channels) == 3 else (1.0 / len(channels),) * len(channels)
    total = channels[0] * weights[0]
    for channel, weight in zip(channels[1:], weights[1:], strict=True):
        total = total + channel * weight
    return total[:, None]


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply by ``factor`` (n,); 0 gives black."""
    return (images * _per_image(factor)).clamp_(0.0, 1.0)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Spread values about the image's mean grey by ``factor`` (n,); 0 gives that grey."""
    # A sum of integers is exact, so the mean does not depend on how a device orders it.
    units = (grey(images) * 2.0**_SUM_BITS).round().to(torch.int64).sum(dim=(1, 2, 3))
    pixels = images.shape[-1] * images.shape[-2]
    centre = (units.to(torch.float64) / (pixels * 2.0**_SUM_BITS)).to(images.dtype)
    return _blend(images, _per_image(centre), factor)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Spread RGB values about the pixel's grey by ``factor`` (n,); 0 gives a grey image."""
    return _blend(images, grey(images), factor)


def hue(images: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue of RGB images by ``turn`` (n,) of a full circle, in HSV."""
    red, green, blue = images.unbind(dim=1)
    value = torch.maximum(torch.maximum(red, green), blue)
    spread = value - torch.minimum(torch.minimum(red, green), blue)
    safe = torch.where(spread > 0, spread, 1.0)
    sixth = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, (blue - red) / safe + 2.0, (red - green) / safe + 4.0),
    )
    sixth = sixth + 6.0 * turn[:, None, None]
    # Each channel is a trapezium of the hue, the same for all but its place on the circle.
    parts = []
    for place in (5.0, 3.0, 1.0):
        where = torch.remainder(sixth + place, 6.0)
        parts.append(value - spread * torch.minimum(where, 4.0 - where).clamp(0.0, 1.0))
    return torch.stack(parts, dim=1).clamp_(0.0, 1.0)


def blur(images: Tensor, sigma: Tensor, radius: int) -> Tensor:
    """Gaussian blur of deviation ``sigma`` (n,) pixels > 0, cut off at ``radius``, reflected at the edge."""
    _check_reflection("blur radius", radius, (images.shape[-2], images.shape[-1]))
    offsets = torch.arange(-radius, radius + 1, device=images.device, dtype=torch.float64)
    weights = torch.exp(-0.5 * (offsets / sigma.to(torch.float64)[:, None]) ** 2)
    total = torch.zeros_like(weights[:, 0])
    for part in weights.unbind(dim=1):
        total = total + part
    weights = (weights / total[:, None]).to(images.dtype)
    return _smooth(_smooth(images, weights, dim=-1), weights, dim=-2).clamp_(0.0, 1.0)


def sobel(images: Tensor) -> Tensor:
    """Length of the Sobel gradient of each channel, a quarter of it (a full edge gives 1) and at most 1."""
    rows, columns = _shifts(images, -2), _shifts(images, -1)
    down = rows[2] - rows[0]
    right = columns[2] - columns[0]
    before, here, after = _shifts(down, -1)
    vertical = before + 2.0 * here + after
    before, here, after = _shifts(right, -2)
    horizontal = before + 2.0 * here + after
    return (torch.sqrt(horizontal * horizontal + vertical * vertical) / 4.0).clamp_(0.0, 1.0)


def _shifts(images: Tensor, dim: int) -> list[Tensor]:
    """Neighbours before, here and after along an axis; the edge repeats itself."""
    size = images.shape[dim]
    places = torch.arange(size, device=images.device)
    return [images.index_select(dim, (places + step).clamp(0, size - 1)) for step in (-1, 0, 1)]


def _smooth(images: Tensor, weights: Tensor, dim: int) -> Tensor:
    size, radius = images.shape[dim], weights.shape[1] // 2
    places = torch.arange(size, device=images.device)
    total = torch.zeros_like(images)
    for column in range(weights.shape[1]):
        shifted = images.index_select(dim, _reflect(places + column - radius, size))
        total += shifted * _per_image(weights[:, column])
    return total


def _blend(images: Tensor, towards: Tensor, factor: Tensor) -> Tensor:
    weight = _per_image(factor)
    return (images * weight + towards * (1.0 - weight)).clamp_(0.0, 1.0)


def _per_image(numbers: Tensor) -> Tensor:
    return numbers[:, None, None, None]


def _window(start: Tensor, size: int, padding: int) -> Tensor:
    return start[:, None] + torch.arange(-padding, size - padding, device=start.device)


def _between(places: Tensor, size: int) -> Tensor:
    return (places >= 0) & (places < size)


def _reflect(places: Tensor, size: int) -> Tensor:
    return (size - 1) - ((size - 1) - places.abs()).abs()


def _take(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """images[i, :, rows[i], columns[i]] for (n, H') rows and (n, W') columns."""
    count, channels, _, width = images.shape
    picked = images.gather(2, rows[:, None, :, None].expand(count, channels, rows.shape[1], width))
    return picked.gather(3, columns[:, None, None, :].expand(count, channels, rows.shape[1], columns.shape[1]))


def _check_reflection(field: str, reach: int, shape: tuple[int, int]) -> None:
    """Raise unless images of ``shape`` (H, W) can be reflected ``reach`` pixels far."""
    if reach >= min(shape):
        raise InvalidInput(field, reach, f"less than the images' shorter side, {min(shape)}, which is reflected")
