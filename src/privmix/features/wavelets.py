"""The Morlet filter bank of the scattering network, built from its formulas.

A Morlet wavelet at scale j and angle a is a Gaussian envelope times a plane wave, minus a multiple of the envelope. The
multiple makes its mean zero (Oyallon and Mallat 2015; Bruna and Mallat 2013):

    psi(u) = g(u) (exp(i xi n.u) - beta),     g(u) = exp(-|R u|^2 / (2 sigma^2)) * slant / (2 pi sigma^2)

with n = (cos a, sin a), sigma = 0.8 * 2^j, xi = (3 pi / 4) / 2^j. The envelope is 1/slant times longer across the wave,
slant = 4 / L. The low-pass phi is a round Gaussian with sigma = 0.8 * 2^(J-1). Every filter is made periodic on the
padded image, so its Fourier transform is real.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

SCALES: Final = 2
ANGLES: Final = 8
# 1 average, 2 x 8 moduli, 8 x 8 moduli of moduli (only paths towards coarser scales carry energy).
CHANNELS: Final = 1 + SCALES * ANGLES + ANGLES * ANGLES
STRIDE: Final = 2**SCALES

Array = NDArray[np.float64]
# Filters are periodic on the padded image: further wraps would add less than 1e-12 even at the smallest size.
_WRAPS = range(-2, 3)


@dataclass(frozen=True)
class FilterBank:
    """Filters for images of one size, in the Fourier domain of the padded image."""

    # shape: (H, W); padded: (R, C) after reflection padding, multiples of 4; pads: ((top, bottom), (left, right)).
    # psi: (2, 8, R, C) wavelets by scale and angle, real since the filters are symmetric under conjugation.
    # phi: the low-pass, a separable round Gaussian, as factors (R,) and (C,).

    shape: tuple[int, int]
    padded: tuple[int, int]
    pads: tuple[tuple[int, int], tuple[int, int]]
    psi: Array
    phi: tuple[Array, Array]

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """(81, H // 4, W // 4): one small map a scattering path."""
        return CHANNELS, self.padded[0] // STRIDE - 2, self.padded[1] // STRIDE - 2


def filter_bank(height: int, width: int) -> FilterBank:
    """Build the bank for images of (height, width) pixels, each at least 4."""
    padded = _padded_length(height), _padded_length(width)
    psi = np.empty((SCALES, ANGLES, *padded))
    for scale in range(SCALES):
        for turn in range(ANGLES):
            angle = (ANGLES // 2 - 1 - turn) * np.pi / ANGLES
            wavelet = _morlet(padded, 0.8 * 2**scale, angle, 0.75 * np.pi / 2**scale, 4 / ANGLES)
            psi[scale, turn] = np.fft.fft2(wavelet).real
    sigma = 0.8 * 2 ** (SCALES - 1)
    return FilterBank(
        shape=(height, width),
        padded=padded,
        pads=(_split(padded[0] - height), _split(padded[1] - width)),
        psi=psi,
        phi=(_gaussian(padded[0], sigma), _gaussian(padded[1], sigma)),
    )


def halve_band(spectrum: Array) -> Array:
    """Keep the lower half of the frequencies along the last axis: a filter for a signal sampled half as densely."""
    quarter = spectrum.shape[-1] // 4
    return np.concatenate([spectrum[..., :quarter], spectrum[..., -quarter:]], axis=-1)


def _padded_length(length: int) -> int:
    # One output stride of margin on either side, rounded up to whole strides.
    return (length // STRIDE + 2) * STRIDE


def _split(extra: int) -> tuple[int, int]:
    return extra // 2, extra - extra // 2


def _morlet(
    shape: tuple[int, int], sigma: float, angle: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    wave = np.zeros(shape, dtype=np.complex128)
    envelope = np.zeros(shape)
    rows, columns = np.arange(shape[0], dtype=float)[:, None], np.arange(shape[1], dtype=float)[None, :]
    for wrap_rows in _WRAPS:
        for wrap_columns in _WRAPS:
            u, v = rows + wrap_rows * shape[0], columns + wrap_columns * shape[1]
            along = u * np.cos(angle) + v * np.sin(angle)
            across = v * np.cos(angle) - u * np.sin(angle)
            bump = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
            envelope += bump
            wave += bump * np.exp(1j * frequency * along)
    # A wavelet of mean 0 ignores constant brightness, which the average already holds.
    balance = wave.sum() / envelope.sum()
    return np.asarray((wave - balance * envelope) * slant / (2 * np.pi * sigma**2))


def _gaussian(length: int, sigma: float) -> Array:
    points = np.arange(length, dtype=float)
    bump = sum(np.exp(-((points + wrap * length) ** 2) / (2 * sigma**2)) for wrap in _WRAPS)
    return np.asarray(np.fft.fft(bump).real / np.sqrt(2 * np.pi * sigma**2))
