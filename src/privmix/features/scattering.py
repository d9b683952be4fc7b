"""Scattering features of images: two layers of fixed wavelets, nothing learned.

S = [x * phi, abs(x * psi_1) * phi, abs(abs(x * psi_1) * psi_2) * phi], one value every 4 pixels. There are J = 2 scales
and 8 angles (Oyallon and Mallat 2015). Group normalisation over 27 groups of channels follows (Tramèr and Boneh 2021;
DPFMix, appendix E.2). Group statistics are those of one record, so the features stay per-record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.features.base import Extractor, Usual
from privmix.features.dense_scattering import MAX_PADDED, DenseScattering
from privmix.features.identity import unit_range
from privmix.features.wavelets import STRIDE, FilterBank, filter_bank, halve_band
from privmix.packages import import_part, torch

if TYPE_CHECKING:
    from torch import Tensor

GROUPS: Final = 27
# Shorter sides than this cannot be mirrored by a whole margin of 4 pixels.
MIN_SIDE: Final = 5
_CHUNK_PIXELS: Final = 32 * 36 * 36
_OPTIONS: Final = ("ycbcr", "mirror")
# Rows: luma, blue difference, red difference (ITU-R BT.601).
_YCBCR: Final = np.array(
    [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]], dtype=np.float32
)


class Scattering(Extractor):
    """Scattering transform (J=2, 8 angles, order 2) and group normalisation, as flat float32 vectors.

    Inputs are (b, H, W) or (b, H, W, colours): uint8, or floats in [0, 1]. The 81 * colours channels of (H // 4, W //
    4) values are normalised in 27 groups (no affine part, eps 1e-5). Their order is (colour, channel, row, column):
    3,969 numbers for 28 x 28, 15,552 for 32 x 32 x 3. ``scattering:ycbcr,mirror`` adds some four points on CIFAR-10.

    Args:
        ycbcr: transform luma and the two colour differences (ITU-R BT.601, full range) instead of red, green and blue:
            normalisation then weighs colour as much as light.
        mirror: mean of the features of the image and of its mirror image.
    """

    name: ClassVar[str] = "scattering"
    # Rendered digits and letters of 28 x 28 pixels; shapes by the letters, as digits leave next to no errors to mend.
    usual: Usual = Usual(concentration=1.05, own_shapes=0.005, between=0.28)

    def __init__(self, *, ycbcr: bool = False, mirror: bool = False) -> None:
        self.ycbcr: Final = bool(ycbcr)
        self.mirror: Final = bool(mirror)

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """``ycbcr``, ``mirror`` or both with a comma."""
        named = argument.split(",")
        if not set(named) <= set(_OPTIONS) or len(set(named)) != len(named):
            raise InvalidInput("features", f"{cls.name}:{argument}", f"{cls.name}:OPTIONS with {', '.join(_OPTIONS)}")
        return cls(**dict.fromkeys(named, True))

    @classmethod
    def check_stated(cls, options: Mapping[str, Any]) -> None:
        super().check_stated(options)
        if odd := {name: value for name, value in options.items() if not isinstance(value, bool)}:
            raise InvalidInput("features options", odd, f"switches: {', '.join(_OPTIONS)}")

    def options(self) -> dict[str, Any]:
        """Return the steps that are taken; without any, the papers' features under their old fingerprint."""
        return {name: True for name in _OPTIONS if getattr(self, name)}

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        # Before anything is paid for: without torch nothing is transformed.
        import_part("torch")
        height, width, colours = _image_shape(input_shape)
        if self.ycbcr and colours != 3:
            raise InvalidInput("input shape for scattering:ycbcr", tuple(input_shape), "images with 3 colours")
        channels, rows, columns = _bank(height, width).output_shape
        return channels * colours * rows * columns

    def channels(self, input_shape: tuple[int, ...]) -> int:
        """81 * colours: positions come last."""
        height, width, colours = _image_shape(input_shape)
        return _bank(height, width).output_shape[0] * colours

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        dim = self.output_dim(x.shape[1:])
        height, width, colours = _image_shape(x.shape[1:])
        values = unit_range(x).reshape(len(x), height, width, colours)
        if self.ycbcr:
            values = values @ _YCBCR.T
        # Colours first: every colour plane is an image of its own.
        planes = np.ascontiguousarray(values.transpose(0, 3, 1, 2))
        found = _normal(planes)
        if self.mirror:
            found = (found + _normal(np.ascontiguousarray(planes[..., ::-1]))) / 2
        return found.reshape(len(x), dim).numpy()

    def differentiable(self, input_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """(b, H, W) or (b, H, W, colours) floats in [0, 1] -> (b, d), with gradients."""
        height, width, colours = _image_shape(input_shape)
        self.output_dim(input_shape)
        bank = _bank(height, width)
        dense = _dense(height, width) if max(bank.padded) <= MAX_PADDED else None
        to_ycbcr = torch.from_numpy(_YCBCR.T.copy())

        def normal(planes: Tensor) -> Tensor:
            flat = planes.reshape(-1, height, width)
            maps = scatter_fft(flat, bank) if dense is None or flat.is_cuda else dense.differentiable(flat)
            return _normalised(maps.reshape(len(planes), -1, *maps.shape[2:])).flatten(1)

        def features(x: Tensor) -> Tensor:
            values = x.reshape(-1, height, width, colours)
            planes = (values @ to_ycbcr.to(values) if self.ycbcr else values).permute(0, 3, 1, 2)
            return (normal(planes) + normal(planes.flip(-1))) / 2 if self.mirror else normal(planes)

        return features


def _normal(planes: NDArray[np.float32]) -> Tensor:
    """(b, colours, H, W) -> (b, 81 * colours, H // 4, W // 4), normalised in groups."""
    count, colours, height, width = planes.shape
    maps = scatter(torch.from_numpy(planes).view(-1, height, width))
    with torch.inference_mode():
        return _normalised(maps.view(count, colours * maps.shape[1], *maps.shape[2:]))


def _normalised(maps: Tensor) -> Tensor:
    return torch.nn.functional.group_norm(maps, GROUPS, eps=1e-5)


def scatter(images: Tensor) -> Tensor:
    """Scattering coefficients before normalisation: (b, H, W) float32 -> (b, 81, H // 4, W // 4) float32."""
    # Small images go through matrix products, others through the FFT.
    height, width = images.shape[1:]
    bank = _bank(height, width)
    # Made outside inference mode: gradients may go through the same matrices later.
    dense = _dense(height, width) if max(bank.padded) <= MAX_PADDED else None
    with torch.inference_mode():
        if dense is not None:
            return dense(images)
        output = images.new_empty(len(images), *bank.output_shape)
        size = max(1, _CHUNK_PIXELS // (bank.padded[0] * bank.padded[1]))
        for start in range(0, len(images), size):
            output[start : start + size] = scatter_fft(images[start : start + size], bank)
        return output


def scatter_fft(images: Tensor, bank: FilterBank) -> Tensor:
    """Return the transform by definition, on the FFT, in the type of ``images``: to (b, 81, H // 4, W // 4)."""
    # Order: x * phi; abs(x * psi) * phi by scale and angle; then the second order by first and second angle.
    (top, bottom), (left, right) = bank.pads
    psi = torch.from_numpy(bank.psi).to(images)
    phi = torch.from_numpy(np.outer(*bank.phi)).to(images)
    half_phi = torch.from_numpy(np.outer(*(halve_band(factor) for factor in bank.phi))).to(images)

    padded = torch.nn.functional.pad(images[:, None], (left, right, top, bottom), mode="reflect")
    spectrum = torch.fft.fft2(padded)
    zeroth = _low_pass(spectrum, phi, STRIDE)
    fine = torch.fft.fft2(torch.fft.ifft2(spectrum * psi[0]).abs())
    coarse = torch.fft.fft2(torch.fft.ifft2(_subsample(spectrum * psi[1], 2)).abs())
    # (b, first angle, second angle, R / 2, C / 2); coarse-to-fine paths carry no energy and are left out.
    second = torch.fft.ifft2(_subsample(fine[:, :, None] * psi[1], 2)).abs()
    orders = [
        zeroth,
        _low_pass(fine, phi, STRIDE),
        _low_pass(coarse, half_phi, STRIDE // 2),
        _low_pass(torch.fft.fft2(second), half_phi, STRIDE // 2).flatten(1, 2),
    ]
    return torch.cat(orders, dim=1)


def _low_pass(spectrum: Tensor, phi: Tensor, step: int) -> Tensor:
    """Filter, sample every ``step``-th point, drop the margins."""
    smooth: Tensor = torch.fft.ifft2(_subsample(spectrum * phi, step)).real
    return smooth[..., 1:-1, 1:-1]


def _subsample(spectrum: Tensor, step: int) -> Tensor:
    """Every ``step``-th sample of a signal, from its spectrum: the mean over aliased frequencies."""
    *outer, rows, columns = spectrum.shape
    return spectrum.reshape(*outer, step, rows // step, step, columns // step).mean((-4, -2))


def _image_shape(input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(input_shape) not in (2, 3) or min(input_shape) < 1 or min(input_shape[:2]) < MIN_SIDE:
        allowed = f"images (H, W) or (H, W, colours) of at least {MIN_SIDE} x {MIN_SIDE} pixels"
        raise InvalidInput("input shape for scattering", tuple(input_shape), allowed)
    height, width, *colours = input_shape
    return height, width, colours[0] if colours else 1


@lru_cache(maxsize=8)
def _bank(height: int, width: int) -> FilterBank:
    return filter_bank(height, width)


@lru_cache(maxsize=4)
def _dense(height: int, width: int) -> DenseScattering:
    return DenseScattering(_bank(height, width))
