"""The public facts with which a model classifies raw inputs on its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer
from privmix.fields import Count, check_fields
from privmix.mechanisms.plan import check_classes
from privmix.training.layout import ImageLayout

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
        if not 0 < len(self.input_shape) <= _MOST_AXES:
            raise InvalidInput("input_shape", len(self.input_shape), f"1 to {_MOST_AXES} sizes")
        for size in self.input_shape:
            check_integer("input_shape", size, low=1, high=2**31)

    @property
    def extractor_arrays(self) -> Mapping[str, NDArray[np.float32]]:
        """No arrays: extractors that carry arrays are not trained on."""
        return {}

    @property
    def layout(self) -> ImageLayout | None:
        """How the features are images, or None where they are not pixels in the input's own order."""
        if self.extractor.get("name") != "pixels" or len(self.input_shape) not in (2, 3):
            return None
        return ImageLayout.of_input(self.input_shape)
