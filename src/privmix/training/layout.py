"""How flat feature vectors are images: the one place that knows the order of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from privmix.errors import InvalidInput
from privmix.fields import Checked, Count


@dataclass(frozen=True)
class ImageLayout(Checked):
    """Images of ``channels`` x ``height`` x ``width`` in vectors laid out as (height, width, channels)."""

    channels: Count
    height: Count
    width: Count

    @classmethod
    def of_input(cls, shape: Sequence[int]) -> ImageLayout:
        """Return the layout of raw inputs of shape (H, W) or (H, W, C); raise for others."""
        if len(shape) == 2:
            return cls(1, shape[0], shape[1])
        if len(shape) == 3:
            return cls(shape[2], shape[0], shape[1])
        raise InvalidInput("input shape", tuple(shape), "images: (height, width) or (height, width, channels)")

    @property
    def dim(self) -> int:
        return self.channels * self.height * self.width

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    def to_images(self, x: Tensor) -> Tensor:
        """(..., d) vectors -> (..., C, H, W) images."""
        if x.shape[-1] != self.dim:
            raise InvalidInput("features", x.shape[-1], f"vectors of {self.dim} pixels")
        lead = x.shape[:-1]
        return x.reshape(*lead, self.height, self.width, self.channels).movedim(-1, -3)

    def to_vectors(self, images: Tensor) -> Tensor:
        """(..., C, H, W) images -> (..., d) vectors."""
        return images.movedim(-3, -1).flatten(start_dim=-3)
