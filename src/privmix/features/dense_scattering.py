"""The fast scattering transform of small images: every Fourier transform is a matrix product.

For a side of a few dozen pixels a dense product of 36 or 18 points costs less than an FFT, because all images of a tile
share the matrix. Padding, subsampling and (where it pays) the filter are folded into the matrices. Arrays keep the tile
last, so that every contraction is one contiguous product:

    image (r, c, n) -> rows to frequencies k -> filter along c -> frequencies back to rows -> modulus -> ...

The result equals :func:`privmix.features.scattering.scatter_fft` up to rounding, and is tested against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from privmix.features.wavelets import ANGLES, CHANNELS, STRIDE, FilterBank, halve_band
from privmix.packages import torch

if TYPE_CHECKING:
    from torch import Tensor

# Images a tile: small enough for the working set (0.7 MB an image at 28 x 28) to stay in cache. Tiles always
# have this size (columns that the last one has to spare are computed and left out), so that no record's
# rounding depends on how many others there are.
TILE: Final = 32
# Longest padded side for which the dense products beat the FFT.
MAX_PADDED: Final = 48
# Keeps the gradient of a modulus finite at zero, where it is then zero.
_TINY: Final = 1e-20

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]


class DenseScattering:
    """Scattering of order 2 as a chain of matrix products, for a padded side of at most ``MAX_PADDED``."""

    def __init__(self, bank: FilterBank) -> None:
        self.bank = bank
        (rows, columns), (top, left) = bank.padded, (bank.pads[0][0], bank.pads[1][0])
        self.rows: Final = rows
        self.columns: Final = columns
        pad_rows = _reflection(bank.shape[0], rows, top)
        pad_columns = _reflection(bank.shape[1], columns, left)
        back_rows, back_columns = _inverse_dft(rows), _inverse_dft(columns)

        # Both aliases of a frequency lie side by side: (k', alias, re/im).
        aliased = np.arange(rows).reshape(2, -1).T.ravel()
        self.to_rows_frequency: Final = _float(_stack_real(_dft(rows)[aliased]) @ pad_rows)
        self.fine: Final = _float(self._row_filters(bank.psi[0], pad_columns, 1)[aliased])
        self.fine_back: Final = _float(_parts_first(back_rows[:, aliased]))
        coarse = self._row_filters(bank.psi[1], pad_columns, 2)[aliased]
        outputs, inputs = coarse.shape[1:]
        pairs = coarse.reshape(rows // 2, 2, outputs, inputs).transpose(0, 2, 1, 3)
        self.coarse: Final = _float(pairs.reshape(rows // 2, outputs, 2 * inputs))
        half_rows, half_columns = back_rows[::2, : rows // 2], back_columns[::2, : columns // 2]
        self.half_back_rows: Final = _float(_parts_first(half_rows))

        self.modulus_rows: Final = _float(_stack_real(_dft(rows)[: rows // 2 + 1]))
        self.modulus_columns: Final = _float(_parts_last(_dft(columns)))
        self._gather, self._second = self._second_order_filters()
        self.half_back_columns: Final = _float(_parts_first(half_columns))

        self.average: Final = tuple(_float(_low_pass(phi, STRIDE)) for phi in bank.phi)
        self.half_average: Final = tuple(_float(_low_pass(halve_band(phi), STRIDE // 2)) for phi in bank.phi)
        self.image_average: Final = tuple(
            _float(_low_pass(phi, STRIDE) @ pad) for phi, pad in zip(bank.phi, (pad_rows, pad_columns), strict=True)
        )

    def __call__(self, images: Tensor) -> Tensor:
        """(b, H, W) float32 images -> (b, 81, H // 4, W // 4) float32."""
        count = len(images)
        output = torch.empty(count, *self.bank.output_shape)
        tile = torch.zeros(*self.bank.shape, TILE)
        work = _Workspace()
        for start in range(0, count, TILE):
            part = images[start : start + TILE]
            tile[:, :, : len(part)] = part.permute(1, 2, 0)
            self._scatter_tile(tile, output[start : start + TILE], work)
        return output

    def differentiable(self, images: Tensor) -> Tensor:
        """Return the same products with gradients, in one tile of all images: (b, H, W) -> (b, 81, H // 4, W // 4)."""
        # The gradient of a modulus at zero is taken as zero.
        output = torch.empty(len(images), *self.bank.output_shape)
        self._scatter_tile(images.permute(1, 2, 0).contiguous(), output, _WithGradients())
        return output

    def _scatter_tile(self, tile: Tensor, output: Tensor, work: _Workspace) -> None:
        """Scatter ``tile`` (H, W, n) into ``output`` (b <= n, 81, h, w)."""
        rows, columns = self.rows, self.columns
        _, height, width = self.bank.output_shape
        count = tile.shape[-1]
        maps = work.empty("maps", CHANNELS, height, width, count)
        maps[0] = _smooth(tile, self.image_average, work)
        # (k', alias, re/im, w, n)
        spectrum = work.mm("spectrum", self.to_rows_frequency, tile.view(len(tile), -1)).view(rows, -1, count)

        wave = work.bmm("a", self.fine, spectrum)
        fine = work.mm("b", self.fine_back, wave.view(2 * rows, -1)).view(2, rows, columns, ANGLES * count)
        modulus = work.modulus(fine)
        averaged = _smooth(modulus, self.average, work).view(height, width, ANGLES, count)
        maps[1 : 1 + ANGLES] = averaged.permute(2, 0, 1, 3)

        averaged = self._second_order(modulus, work).view(height, width, ANGLES, ANGLES, count)
        maps[1 + 2 * ANGLES :].view(ANGLES, ANGLES, height, width, count)[:] = averaged.permute(3, 2, 0, 1, 4)

        wave = work.bmm("a", self.coarse, spectrum.view(rows // 2, -1, count))
        coarse = work.mm("b", self.half_back_rows, wave.view(rows, -1))
        modulus = work.modulus(coarse.view(2, rows // 2, columns // 2, ANGLES * count))
        averaged = _smooth(modulus, self.half_average, work).view(height, width, ANGLES, count)
        maps[1 + ANGLES : 1 + 2 * ANGLES] = averaged.permute(2, 0, 1, 3)

        output.copy_(maps.permute(3, 0, 1, 2)[: len(output)])

    def _second_order(self, modulus: Tensor, work: _Workspace) -> Tensor:
        """Scatter |x * psi_1| (R, C, 8 n) once more: (h, w, 8 second angles, 8 first angles, n) in few axes."""
        rows, columns, tile = modulus.shape
        # Rows to frequencies, half of them: the modulus is real. (k, re/im, c, n)
        half = work.mm("a", self.modulus_rows, modulus.view(rows, -1)).view(rows // 2 + 1, -1, tile)
        spectrum = work.bmm("c", self.modulus_columns.expand(len(half), -1, -1), half)
        # The aliases of every frequency that is left side by side: (k', l', re/im, 4, n).
        aliases = work.select("a", spectrum.view(-1, tile), self._gather).view(len(self._second), 4, tile)
        filtered = work.bmm("b", self._second, aliases).view(rows // 2, columns, ANGLES * tile)
        wave = work.bmm("a", self.half_back_columns.expand(rows // 2, -1, -1), filtered)
        waves = work.mm("b", self.half_back_rows, wave.view(rows, -1))
        moduli = work.modulus(waves.view(2, rows // 2, columns // 2, ANGLES * tile))
        return _smooth(moduli, self.half_average, work)

    def _row_filters(self, psi: Array, pad: Array, step: int) -> Array:
        """Per row frequency, convolution of the columns with all angles: (R, (re/im, C / step, angle), (re/im, W))."""
        kernel = np.fft.ifft(psi, axis=-1)
        points = np.arange(self.columns)
        circulant = kernel[:, :, (points[::step, None] - points[None, :]) % self.columns]
        matrix = (circulant @ pad).transpose(1, 2, 0, 3)
        blocks = _real_blocks(matrix.reshape(self.rows, -1, pad.shape[1]))
        return blocks.reshape(self.rows, -1, 2 * pad.shape[1])

    def _second_order_filters(self) -> tuple[Tensor, Tensor]:
        """Flat rows (k', l', re/im, alias) of every frequency's 4 aliases, and (R/2 * C/2 * 2, 8, 4) factors."""
        rows, columns = self.rows, self.columns
        shape = (rows // 2, columns // 2, 2, 2, 2)
        k, l, part, alias_k, alias_l = np.indices(shape)  # noqa: E741
        k, l = k + alias_k * rows // 2, l + alias_l * columns // 2  # noqa: E741
        # The upper half of a real signal's spectrum is the conjugate of the lower half, mirrored.
        mirrored = k > rows // 2
        row = np.where(mirrored, rows - k, k)
        column = np.where(mirrored, -l % columns, l)
        sign = np.where(mirrored & (part == 1), -1.0, 1.0)
        factors = self.bank.psi[1][:, k, l] * sign
        where = (row * columns + column) * 2 + part
        return torch.from_numpy(where.ravel()), _float(np.moveaxis(factors, 0, 3).reshape(-1, ANGLES, 4))


class _Workspace:
    """Scratch memory by name, reused from step to step: fresh pages would cost more than the arithmetic."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def empty(self, name: str, *shape: int) -> Tensor:
        """Memory of that name and shape, with arbitrary content."""
        size = int(np.prod(shape))
        memory = self._memory.get(name)
        if memory is None or len(memory) < size:
            memory = self._memory[name] = torch.empty(size)
        return memory[:size].view(shape)

    def mm(self, name: str, left: Tensor, right: Tensor) -> Tensor:
        return torch.mm(left, right, out=self.empty(name, len(left), right.shape[1]))

    def bmm(self, name: str, left: Tensor, right: Tensor) -> Tensor:
        return torch.bmm(left, right, out=self.empty(name, len(left), left.shape[1], right.shape[2]))

    def select(self, name: str, rows: Tensor, which: Tensor) -> Tensor:
        return torch.index_select(rows, 0, which, out=self.empty(name, len(which), rows.shape[1]))

    def modulus(self, wave: Tensor) -> Tensor:
        """|re + i im| of (2, ...), in place."""
        # Separate steps, each correctly rounded: the bits do not depend on position.
        real, imaginary = wave[0], wave[1]
        real.mul_(real)
        imaginary.mul_(imaginary)
        return real.add_(imaginary).sqrt_()


class _WithGradients(_Workspace):
    """The same arithmetic in fresh memory, so that gradients can go back through every step."""

    def empty(self, name: str, *shape: int) -> Tensor:
        return torch.empty(shape)

    def mm(self, name: str, left: Tensor, right: Tensor) -> Tensor:
        return torch.mm(left, right)

    def bmm(self, name: str, left: Tensor, right: Tensor) -> Tensor:
        return torch.bmm(left, right)

    def select(self, name: str, rows: Tensor, which: Tensor) -> Tensor:
        return torch.index_select(rows, 0, which)

    def modulus(self, wave: Tensor) -> Tensor:
        real, imaginary = wave[0], wave[1]
        return (real * real + imaginary * imaginary + _TINY).sqrt()


def _smooth(x: Tensor, average: tuple[Tensor, ...], work: _Workspace) -> Tensor:
    """Low-pass (R, C, n) along both axes and keep every output position: (h, w, n)."""
    by_rows, by_columns = average
    rows = work.mm("smooth rows", by_rows, x.view(x.shape[0], -1)).view(len(by_rows), *x.shape[1:])
    return work.bmm("smooth", by_columns.expand(len(by_rows), -1, -1), rows)


def _dft(length: int) -> ComplexArray:
    """(frequency, point)."""
    points = np.arange(length)
    return np.asarray(np.exp(-2j * np.pi * np.outer(points, points) / length))


def _inverse_dft(length: int) -> ComplexArray:
    """(point, frequency)."""
    return np.asarray(_dft(length).conj() / length)


def _reflection(length: int, padded: int, before: int) -> Array:
    """Return (padded, length) 0/1 matrix that mirrors a signal at its first and last sample."""
    source = np.pad(np.arange(length), (before, padded - length - before), mode="reflect")
    return np.eye(length)[source]


def _low_pass(spectrum: Array, step: int) -> Array:
    """Return an (outputs, points) matrix that filters a periodic signal and keeps every ``step``-th sample."""
    kernel = np.fft.ifft(spectrum).real
    points = np.arange(len(kernel))
    centres = points[step:-step:step]
    return np.asarray(kernel[(centres[:, None] - points) % len(points)])


def _stack_real(matrix: ComplexArray) -> Array:
    """(f, p) complex matrix -> (2 f, p) real matrix for real signals, rows in order (f, re/im)."""
    return np.stack([matrix.real, matrix.imag], axis=1).reshape(-1, matrix.shape[1])


def _real_blocks(matrix: ComplexArray) -> Array:
    """(..., o, i) complex matrices -> (..., re/im, o, re/im, i): the same maps on real and imaginary parts."""
    upper = np.stack([matrix.real, -matrix.imag], axis=-2)
    lower = np.stack([matrix.imag, matrix.real], axis=-2)
    return np.stack([upper, lower], axis=-4)


def _parts_first(matrix: ComplexArray) -> Array:
    """Real matrix from (i, re/im) to (re/im, o)."""
    outputs, inputs = matrix.shape
    return _real_blocks(matrix).transpose(0, 1, 3, 2).reshape(2 * outputs, 2 * inputs)


def _parts_last(matrix: ComplexArray) -> Array:
    """Real matrix from (re/im, i) to (o, re/im)."""
    outputs, inputs = matrix.shape
    return _real_blocks(matrix).transpose(1, 0, 2, 3).reshape(2 * outputs, 2 * inputs)


def _float(matrix: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(matrix, dtype=np.float32))
