"""Patch features of images: whitened patches against a dictionary of patches from a generator of public images."""
# The excess over a threshold is averaged over ninths of the image (Coates and Ng 2011). Random patches do as well as
# learned ones (Thiry et al. 2021); here a program makes the images, and no photograph is in them.

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_choice, check_integer
from privmix.features.base import Extractor
from privmix.features.identity import unit_range
from privmix.packages import import_part, torch
from privmix.procedural.base import GENERATORS, get_generator

if TYPE_CHECKING:
    from torch import Tensor

# Points a side of a patch (Coates and Ng 2011), and the cells per side that are averaged over.
_SIDE: Final = 6
_CELLS: Final = 3
# Images that the dictionary is cut from, their side, and patches of each.
_IMAGES: Final = 512
_IMAGE_SIDE: Final = 32
_PATCHES: Final = 40
_SEED: Final = 0
# Added to the variance of a patch (of values in [0, 1]), which then is divided by; and to those of whitened directions.
_FLAT: Final = 10 / 255**2
_RIDGE: Final = 0.1
# Patches with less contrast than this share of the others are left out of the dictionary.
_DULL: Final = 0.2
# A response counts by what it exceeds, in units of the typical response of a patch to one like it.
_THRESHOLD: Final = 0.05
# Features are decorrelated by (S + ridge * mean variance)^(-power / 2), as features of a release are by public data.
_POWER: Final = 0.75
_SPREAD: Final = 0.3
# Filters and weights are whole multiples of this: the last bits of a linear algebra library do not show.
_GRID: Final = 2.0**-12
_FEWEST_POINTS: Final = 8
# The least divisor: an image without any code stays nought.
_TINY: Final = 1e-12
_MOST_FILTERS: Final = 4096


class Patches(Extractor):
    """Thresholded responses to a dictionary of procedural patches, averaged over ninths of image and mirror image.

    Inputs are (b, H, W) or (b, H, W, 3): uint8, or floats in [0, 1], sides of at least 8. Each 6 x 6 patch p is centred
    and divided by its standard deviation. With ZCA whitening Z and dictionary D (rows of norm 1) its code is max(0, D Z
    p - t). Codes are averaged over 3 x 3 cells of image and mirror image; the root follows, then division by the norm.
    The generator gives the mean, and the covariances A of filters and B of cells, each to the power -0.375. The
    features are A (x - mean) B, divided by the norm, in order (filter, row, column). Keep figures with this procedural
    prior apart from those without one.

    Formal guarantees:
        - Per record, to the bit: an image is a call of its own, of one shape, in the same memory.
        - Public: all numbers follow from generator and number of filters; their digest is in the spec.

    Args:
        generator: of the 512 images (seed 0) that patches are cut from; see :mod:`privmix.procedural`.
        filters: patches in the dictionary; the features are nine times as many.
    """

    name: ClassVar[str] = "patches"
    step: ClassVar[int] = 256
    digest_names: ClassVar[tuple[str, ...]] = ("weights_sha256",)

    def __init__(self, *, generator: str = "leaves", filters: int = 512) -> None:
        self.generator: Final = check_choice("generator of patches", generator, list(GENERATORS))
        self.filters: Final = check_integer("filters", filters, low=1, high=_MOST_FILTERS)

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """Return ``GENERATOR``, ``FILTERS`` or both with a comma."""
        options: dict[str, Any] = {}
        for part in argument.split(","):
            name, value = ("filters", int(part)) if part.isascii() and part.isdecimal() else ("generator", part)
            if name in options:
                raise InvalidInput("features", f"{cls.name}:{argument}", f"{cls.name}:GENERATOR,FILTERS")
            options[name] = value
        return cls(**options)

    @classmethod
    def check_stated(cls, options: Mapping[str, Any]) -> None:
        super().check_stated(options)
        cls(**options)

    @classmethod
    def statements(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        found = cls(**options)
        return (
            f"Procedural prior: the {found.filters} patches of its extractor are from procedural:{found.generator}, "
            "images of formulas and pseudo-random numbers: no records of anybody. Compare figures of this release with "
            "those of others that have such a prior.",
        )

    def options(self) -> dict[str, Any]:
        return {"generator": self.generator, "filters": self.filters}

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "weights_sha256": self._weights.digest}

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        # Before anything is paid for: without torch nothing is transformed.
        import_part("torch")
        sides, colours = input_shape[:2], input_shape[2:]
        if len(sides) != 2 or min(sides) < _FEWEST_POINTS or tuple(colours) not in ((), (3,)):
            allowed = f"images (H, W) or (H, W, 3) of at least {_FEWEST_POINTS} x {_FEWEST_POINTS} pixels"
            raise InvalidInput(f"input shape for {self.name}", tuple(input_shape), allowed)
        return _CELLS**2 * self.filters

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        features = np.empty((len(x), self.output_dim(x.shape[1:])), np.float32)
        if not len(x):
            return features
        values = torch.from_numpy(unit_range(x))
        if x.ndim == 3:
            values = values[..., None].expand(-1, -1, -1, 3)
        with torch.inference_mode():
            work = _Coder(self._weights.dictionary, x.shape[1], x.shape[2])
            for row, image in enumerate(values):
                features[row] = self._weights.decorrelated(work(image)).numpy()
        return features

    def differentiable(self, input_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """(b, H, W) or (b, H, W, 3) -> (b, 9 * filters), with gradients; all images at once."""
        self.output_dim(input_shape)
        weights = self._weights
        work = _Coder(weights.dictionary, *input_shape[:2])
        mean, across, between = (torch.from_numpy(part) for part in (weights.mean, weights.across, weights.between))

        def features(x: Tensor) -> Tensor:
            rest = across @ (work.of_all(x.cpu()) - mean) @ between
            return (rest.flatten(1) / rest.square().sum(dim=(1, 2)).clamp(min=_TINY).sqrt()[:, None]).to(x.device)

        return features

    @property
    def _weights(self) -> PatchWeights:
        return _weights(self.generator, self.filters)


@dataclass(frozen=True, eq=False)
class Dictionary:
    """Whitened patches as filters (k, 6 * 6 * 3) float32 of raw patches, and (k,) biases with the threshold."""

    filters: NDArray[np.float32]
    bias: NDArray[np.float32]

    @classmethod
    def of(cls, images: NDArray[np.uint8], count: int, generator: np.random.Generator) -> Dictionary:
        """Cut ``count`` patches that are not flat from (n, H, W, 3) images."""
        found = normal_patches(_cut(images, generator))
        mean = found.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(found - mean, rowvar=False, bias=True))
        zca = (vectors / np.sqrt(values + _RIDGE)) @ vectors.T
        white = (found - mean) @ zca
        norms = np.linalg.norm(white, axis=1)
        sharp = np.flatnonzero(norms > np.quantile(norms, _DULL))
        if len(sharp) < count:
            raise InvalidInput("filters", count, f"at most {len(sharp)} for images of this generator")
        chosen = generator.permutation(sharp)[:count]
        entries = white[chosen] / norms[chosen, None]
        filters = _on_grid(entries @ zca)
        return cls(filters, _on_grid(filters @ mean + _THRESHOLD * np.median(norms)))

    def first(self, count: int) -> Dictionary:
        return Dictionary(self.filters[:count], self.bias[:count])


@dataclass(frozen=True, eq=False)
class PatchWeights:
    """Numbers of an extractor: (k, 9) mean, (k, k) and (9, 9) matrices that decorrelate filters and cells."""

    # The matrices are symmetric, so that no library's choice of eigenvectors shows.

    dictionary: Dictionary
    mean: NDArray[np.float32]
    across: NDArray[np.float32]
    between: NDArray[np.float32]

    @classmethod
    def of(cls, dictionary: Dictionary, codes: NDArray[np.float64]) -> PatchWeights:
        """Fit to (n, k, 9) codes of public images."""
        mean = _on_grid(codes.mean(axis=0))
        rest = codes - mean
        filters = np.einsum("nfc,ngc->fg", rest, rest, optimize=True)
        cells = np.einsum("nfc,nfd->cd", rest, rest, optimize=True)
        return cls(dictionary, mean, _inverse_power(filters), _inverse_power(cells))

    def decorrelated(self, codes: Tensor) -> Tensor:
        """(k, 9) codes of an image -> (k * 9,) of norm 1."""
        rest = torch.from_numpy(self.across) @ (codes - torch.from_numpy(self.mean)) @ torch.from_numpy(self.between)
        return rest.div_(rest.square().sum().sqrt_().clamp_(min=_TINY)).flatten()

    @cached_property
    def digest(self) -> str:
        hasher = hashlib.sha256()
        for part in (self.dictionary.filters, self.dictionary.bias, self.mean, self.across, self.between):
            hasher.update(part.tobytes())
        return hasher.hexdigest()


def _inverse_power(covariance: NDArray[np.float64]) -> NDArray[np.float32]:
    """(S / s + ridge)^(-p / 2), s the mean variance."""
    values, vectors = np.linalg.eigh(covariance / np.trace(covariance) * len(covariance))
    return _on_grid((vectors * (values.clip(min=0) + _SPREAD) ** (-_POWER / 2)) @ vectors.T)


def _on_grid(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(np.rint(values / _GRID) * _GRID, dtype=np.float32)


@lru_cache(maxsize=2)
def _images(name: str) -> NDArray[np.uint8]:
    return get_generator(name, (_IMAGE_SIDE, _IMAGE_SIDE, 3)).draw(_IMAGES, _SEED).x


@lru_cache(maxsize=8)
def _weights(name: str, count: int) -> PatchWeights:
    images, dictionary = _images(name), _dictionary(name).first(count)
    with torch.inference_mode():
        work = _Coder(dictionary, _IMAGE_SIDE, _IMAGE_SIDE)
        codes = [work(image).numpy() for image in torch.from_numpy(unit_range(images))]
    return PatchWeights.of(dictionary, np.stack(codes).astype(np.float64))


@lru_cache(maxsize=2)
def _dictionary(name: str) -> Dictionary:
    """Return the largest dictionary: a caller with fewer filters takes the first ones."""
    return Dictionary.of(_images(name), _MOST_FILTERS, np.random.default_rng(_SEED))


def _cut(images: NDArray[np.uint8], generator: np.random.Generator) -> NDArray[np.float64]:
    """(n * 40, 6 * 6 * 3) patches in [0, 1], from anywhere in each image."""
    height, width = (side - _SIDE + 1 for side in images.shape[1:3])
    windows = np.lib.stride_tricks.sliding_window_view(images, (_SIDE, _SIDE), axis=(1, 2))
    which = np.repeat(np.arange(len(images)), _PATCHES)
    rows, columns = generator.integers(height, size=len(which)), generator.integers(width, size=len(which))
    # The window's axes come last: (n, colours, row, column) to (n, row, column, colour).
    return unit_range(windows[which, rows, columns].transpose(0, 2, 3, 1)).reshape(len(which), -1).astype(np.float64)


def normal_patches(patches: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, p) patches, each centred and divided by its standard deviation."""
    centred = patches - patches.mean(axis=1, keepdims=True)
    return np.asarray(centred / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + _FLAT))


class _Coder:
    """Codes of one image after another, in the same memory: the same bits at every place of an image."""

    def __init__(self, dictionary: Dictionary, height: int, width: int) -> None:
        rows, columns = height - _SIDE + 1, width - _SIDE + 1
        filters = torch.from_numpy(dictionary.filters)
        count, points = filters.shape
        # A filter of the mirror image is a mirrored filter of the image.
        turned = filters.view(count, _SIDE, _SIDE, 3).flip(2).reshape(count, points)
        self.filters = torch.cat([filters, turned]).T.contiguous()
        self.bias = torch.from_numpy(dictionary.bias).repeat(2).neg()
        self.cells = _cells(rows, columns)
        self.mirrored = _cells(rows, columns, mirrored=True)
        self.patches = torch.empty(rows * columns, points)
        self.codes = torch.empty(rows * columns, 2 * count)
        self.shape = (rows, columns, _SIDE, _SIDE, 3)

    def __call__(self, image: Tensor) -> Tensor:
        """(H, W, 3) in [0, 1] -> (k, 9)."""
        windows = image.unfold(0, _SIDE, 1).unfold(1, _SIDE, 1).permute(0, 1, 3, 4, 2)
        self.patches.view(self.shape).copy_(windows)
        centred = self.patches.sub_(self.patches.mean(dim=1, keepdim=True))
        centred.div_(centred.square().mean(dim=1, keepdim=True).add_(_FLAT).sqrt_())
        torch.addmm(self.bias, centred, self.filters, out=self.codes).clamp_(min=0)
        count = self.codes.shape[1] // 2
        means = self.cells @ self.codes[:, :count] + self.mirrored @ self.codes[:, count:]
        # The squares' sum is the means' own.
        return means.div_(means.sum().clamp_(min=_TINY)).sqrt_().T.contiguous()

    def of_all(self, images: Tensor) -> Tensor:
        """(b, H, W) or (b, H, W, 3) in [0, 1] -> (b, k, 9), in fresh memory: gradients go through it."""
        colours = images[..., None].expand(-1, -1, -1, 3) if images.ndim == 3 else images
        windows = colours.unfold(1, _SIDE, 1).unfold(2, _SIDE, 1).permute(0, 1, 2, 4, 5, 3)
        patches = windows.reshape(len(images), *self.patches.shape)
        centred = patches - patches.mean(dim=2, keepdim=True)
        codes = centred / (centred.square().mean(dim=2, keepdim=True) + _FLAT).sqrt() @ self.filters + self.bias
        first, turned = codes.clamp(min=0).chunk(2, dim=2)
        means = self.cells @ first + self.mirrored @ turned
        # A root's slope has no end at nought.
        shares = means / means.sum(dim=(1, 2), keepdim=True).clamp(min=_TINY)
        return shares.clamp(min=_TINY).sqrt().transpose(1, 2)


def _cells(rows: int, columns: int, mirrored: bool = False) -> Tensor:
    """(9, rows * columns): half the mean over each cell; what lies across a border belongs to both sides."""

    def thirds(length: int) -> NDArray[np.float64]:
        found = np.zeros((_CELLS, length))
        for cell in range(_CELLS):
            start, stop = cell * length // _CELLS, -(-(cell + 1) * length // _CELLS)
            found[cell, start:stop] = 1 / (stop - start)
        return found

    across = thirds(columns)[:, ::-1] if mirrored else thirds(columns)
    return torch.from_numpy(np.kron(thirds(rows), across) / 2).float()
