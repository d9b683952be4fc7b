"""A trained diffusion model, and drawing images from it."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix.research.synthesis.denoising import Denoiser, DenoisingSampler, Guidance, NoiseProcess, own_noise, sample
from privmix.research.synthesis.networks import Condition

_LEVELS: Final = 18


@dataclass(frozen=True, eq=False)
class DiffusionModel:
    """A trained diffusion model of labelled images (C, H, W), with the averaged weights."""

    denoiser: Denoiser = field(repr=False)
    shape: tuple[int, int, int]
    classes: int
    steps: int
    loss: float
    precision: str = "float32"

    @property
    def process(self) -> NoiseProcess:
        return self.denoiser.process

    def draw(
        self,
        labels: NDArray[np.int64],
        *,
        seed: int,
        first: int = 0,
        batch_size: int = 100,
        sampler: DenoisingSampler | None = None,
        guidance: Callable[[Tensor], Guidance] | None = None,
    ) -> Iterator[NDArray[np.uint8]]:
        """Draw images, block by block: (b, H, W, C) uint8, or (b, H, W) for grey ones."""
        # Image i's noise depends on `seed` and `first` + i alone. `guidance`: (b,) classes -> what bends the block's
        # paths.
        device = next(self.denoiser.parameters()).device
        self.denoiser.eval().to(memory_format=layout(self.precision, device))  # type: ignore[call-overload]
        sampler = sampler or self.process.sampler(_LEVELS)
        for at in range(0, len(labels), batch_size):
            block = torch.from_numpy(np.asarray(labels[at : at + batch_size], dtype=np.int64))
            noise = own_noise(seed, range(first + at, first + at + len(block)), self.shape)
            bend = None if guidance is None else guidance(block)
            with torch.no_grad():
                yield as_pixels(sample(self._given(block), noise, sampler, bend))

    def _given(self, labels: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        device = next(self.denoiser.parameters()).device
        condition = Condition(told_classes(labels, self.process).to(device))

        def denoise(x: Tensor, sigma: Tensor) -> Tensor:
            # The path is kept in double precision on the CPU; the network is single, or less.
            with cast(self.precision, device):
                found: Tensor = self.denoiser(x.to(device), sigma.to(device), condition).cpu()
            return found

        return denoise


def as_pixels(images: Tensor) -> NDArray[np.uint8]:
    """(b, C, H, W) in [-1, 1] -> (b, H, W, C) uint8, or (b, H, W) for one channel."""
    pixels = ((images.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def told_classes(labels: Tensor, process: NoiseProcess) -> Tensor:
    """Return the classes that the network gets: an unconditional model is one of a single class."""
    return labels if process.conditional else torch.zeros_like(labels)


def layout(precision: str, device: torch.device) -> torch.memory_format:
    """How a network of that precision keeps its weights to draw; its values stay what they are."""
    # Channels last saves a CPU a tenth of its time in single precision, and costs it 40% more in bfloat16.
    if precision == "float32" and device.type == "cpu":
        return torch.channels_last
    return torch.contiguous_format


def cast(precision: str, device: torch.device) -> Any:
    """Return the context in which a network of that precision runs."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
