"""The public facts with which a model classifies raw inputs on its own, and the layout of its images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor

from privmix.errors import InvalidInput, check_integer
from privmix.fields import Checked, Count, check_fields
from privmix.mechanisms.plan import check_classes


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


_MOST_AXES: Final = 8


@dataclass(frozen=True)
class ModelFacts:
    """The public facts with which a model classifies raw inputs of ``input_shape`` on its own."""

    classes: tuple[str, ...]
    extractor: Mapping[str, Any] = field(repr=False)
    input_shape: tuple[int, ...]
    dim: Count

    def __post_init__(self) -> None:
        check_fields(self)
        check_classes(self.classes)
        if len(self.classes) == 1:
            allowed = "the name of the label column: a model needs a label, a table without one `privmix release`"
            raise InvalidInput("label", None, allowed)
        if not 0 < len(self.input_shape) <= _MOST_AXES:
            raise InvalidInput("input_shape", len(self.input_shape), f"1 to {_MOST_AXES} sizes")
        for size in self.input_shape:
            check_integer("input_shape", size, low=1, high=2**31)

    @property
    def layout(self) -> ImageLayout | None:
        """How the features are images, or None where they are not pixels in the input's own order."""
        # Augmentations need values in [0, 1] in the order of the image, which only this extractor keeps.
        if self.extractor.get("name") != "pixels" or len(self.input_shape) not in (2, 3):
            return None
        return ImageLayout.of_input(self.input_shape)
