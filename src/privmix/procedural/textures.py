"""Textures as in photographs: random fields whose power falls with frequency, and dead leaves."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.procedural.base import BLOCK, GENERATORS, GeneratedImages, ImageGenerator

# Exponents of the amplitude spectrum: around 1 in photographs (Field 1987), over a range as in Baradad et al. 2021.
_EXPONENTS: Final = (0.5, 2.0)
_COLOUR_SHARE: Final = 0.4


@GENERATORS.register
class NoiseFields(ImageGenerator):
    """Gaussian random fields with amplitude 1 / |frequency|^a, a uniform in [0.5, 2], one exponent an image."""

    # Colours share a grey field, as they do in photographs, and have a share of their own (Baradad et al. 2021,
    # "Learning to See by Looking at Noise", spectrum model). An image is scaled to its own range.

    name: ClassVar[str] = "fields"
    words: ClassVar[str] = "random fields with the spectra of photographs"

    def _block(self, generator: np.random.Generator) -> GeneratedImages:
        height, width = self.shape[:2]
        rows, columns = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
        frequency = np.hypot(rows, columns)
        frequency[0, 0] = np.inf
        exponents = generator.uniform(*_EXPONENTS, (BLOCK, 1, 1))
        amplitude = frequency[None] ** -exponents
        colours = 1 if len(self.shape) == 2 else 3

        def field() -> NDArray[np.float64]:
            noise = np.fft.rfft2(generator.standard_normal((BLOCK, height, width)))
            found: NDArray[np.float64] = np.fft.irfft2(noise * amplitude, s=(height, width))
            found /= found.std(axis=(1, 2), keepdims=True)
            return found

        grey = field()
        planes = np.stack([grey + (_COLOUR_SHARE * field() if colours > 1 else 0.0) for _ in range(colours)], axis=-1)
        low, high = planes.min(axis=(1, 2, 3), keepdims=True), planes.max(axis=(1, 2, 3), keepdims=True)
        images = np.round(255 * (planes - low) / (high - low)).astype(np.uint8)
        return GeneratedImages(images[..., 0] if colours == 1 else images)


# Shapes an image, and the least and the largest radius as shares of its shorter side.
_LEAVES: Final = 80
_RADII: Final = (1 / 32, 3 / 4)
# Points a pixel, along each side: edges are as smooth as a lens leaves them.
_FINE: Final = 2
# Spread of the blue difference; the red one has the same, and goes against it, as from daylight to shade.
_COLOUR: Final = 0.08
_AGAINST: Final = -0.6
_DISC, _BOX = 0, 1
_SORTED: Final = 0.5
# From luma and two colour differences (ITU-R BT.601) to red, green and blue.
_TO_RGB: Final = np.array([[1.0, 1.0, 1.0], [0.0, -0.344136, 1.772], [1.402, -0.714136, 0.0]])


@GENERATORS.register
class Leaves(ImageGenerator):
    """Discs, boxes and triangles that hide one another, shaded, with a texture whose power falls with frequency."""

    # Radii have the density r^-3, which makes images look alike at all scales, as photographs do (Lee, Mumford and
    # Huang 2001). Dead leaves were the best data-free source for networks on photographs (Baradad et al. 2021). In half
    # of the images the largest lie lowest. Light varies more than colour; contrast, saturation and texture are drawn
    # for each image.

    name: ClassVar[str] = "leaves"
    words: ClassVar[str] = "random shapes that lie on one another"

    def _block(self, generator: np.random.Generator) -> GeneratedImages:
        light = np.stack([_image(generator, self.shape[0], self.shape[1]) for _ in range(BLOCK)])
        colours = light @ _TO_RGB if len(self.shape) == 3 else light[..., 0]
        return GeneratedImages(np.round(255 * np.clip(colours, 0, 1)).astype(np.uint8))


def _image(generator: np.random.Generator, height: int, width: int) -> NDArray[np.float64]:
    """(height, width, 3) luma and colour differences."""
    canvas = np.empty((height * _FINE, width * _FINE, 3))
    colours = _colours(generator, _LEAVES + 1)
    canvas[:] = colours[-1]
    short = min(height, width)
    low, high = (share * short for share in _RADII)
    # The inverse of the distribution function whose density is r^-3 from low to high.
    part = generator.uniform(size=_LEAVES)
    radii = 1 / np.sqrt(part / low**2 + (1 - part) / high**2)
    if generator.random() < _SORTED:
        radii = np.sort(radii)[::-1]
    margin = short / 8
    rows = generator.uniform(-margin, height + margin, _LEAVES)
    columns = generator.uniform(-margin, width + margin, _LEAVES)
    for index in range(_LEAVES):
        _leaf(generator, canvas, (rows[index], columns[index]), radii[index], colours[index])
    image: NDArray[np.float64] = canvas.reshape(height, _FINE, width, _FINE, 3).mean(axis=(1, 3))
    strength = generator.gamma(1.0, (0.05, 0.015, 0.015))
    for channel in range(3):
        image[..., channel] += strength[channel] * _texture(generator, height, width)
    mean = image[..., 0].mean()
    contrast = 0.85 * np.exp(generator.normal(0, 0.35))
    brightness = np.clip(mean + generator.normal(0, 0.1), 0.15, 0.85)
    image[..., 0] = (image[..., 0] - mean) * contrast + brightness
    return image


def _colours(generator: np.random.Generator, count: int) -> NDArray[np.float64]:
    """(count, 3) luma and colour differences of one image's things: as bright as you like, of little colour."""
    spread = _COLOUR * generator.gamma(2.0, 0.5)
    blue = generator.standard_normal(count)
    red = _AGAINST * blue + np.sqrt(1 - _AGAINST**2) * generator.standard_normal(count)
    return np.stack([generator.uniform(size=count), spread * blue, spread * red], axis=1)


def _leaf(
    generator: np.random.Generator,
    canvas: NDArray[np.float64],
    centre: tuple[float, float],
    radius: float,
    colour: NDArray[np.float64],
) -> None:
    """Lay one shape on what is there."""
    kind, turn = generator.integers(3), generator.uniform(0, np.pi)
    stretch = np.exp(generator.normal(0, 0.4))
    slope = generator.normal(0, 0.15 / radius, 2)
    # No point of a shape is farther from its centre along a row or a column.
    reach = radius * np.sqrt(2) * max(stretch, 1 / stretch)
    span = [
        np.arange(max(0, int((place - reach) * _FINE)), min(side, int((place + reach) * _FINE) + 2))
        for place, side in zip(centre, canvas.shape[:2], strict=True)
    ]
    if not (len(span[0]) and len(span[1])):
        return
    down = (span[0] / _FINE - centre[0])[:, None]
    right = (span[1] / _FINE - centre[1])[None, :]
    across = (right * np.cos(turn) + down * np.sin(turn)) * stretch
    along = (down * np.cos(turn) - right * np.sin(turn)) / stretch
    if kind == _DISC:
        inside = across**2 + along**2 < radius**2
    elif kind == _BOX:
        inside = (np.abs(across) < radius) & (np.abs(along) < radius)
    else:
        inside = (along > -0.6 * radius) & (2 * np.abs(across) + along < radius)
    shade = colour[0] + slope[0] * across + slope[1] * along
    part = canvas[span[0][0] : span[0][-1] + 1, span[1][0] : span[1][-1] + 1]
    part[inside] = colour
    part[inside, 0] = shade[inside]


def _texture(generator: np.random.Generator, height: int, width: int) -> NDArray[np.float64]:
    """(height, width) noise of variance 1 with amplitude 1 / frequency^a, a around 1."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(generator.standard_normal((height, width))) / frequency ** generator.uniform(0.6, 1.4)
    found = np.fft.irfft2(spectrum, s=(height, width))
    return np.asarray(found / found.std())
