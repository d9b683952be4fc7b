"""Random fields whose power falls with frequency as it does in photographs."""

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
