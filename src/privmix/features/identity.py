"""Extractors that keep the input as it is: feature vectors computed elsewhere, and raw pixels."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.features.base import LONGEST_NAME, Extractor, Usual, fits_name
from privmix.fields import looks

if TYPE_CHECKING:
    from torch import Tensor


class Identity(Extractor):
    """Inputs as float32, flattened; ``columns`` are public names of the features, where inputs have some."""

    name: ClassVar[str] = "identity"
    most_text: ClassVar[int] = 2**16

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        if columns is not None and (
            isinstance(columns, str)
            or not isinstance(columns, Sequence)
            or not columns
            or not all(map(fits_name, columns))
            or len(set(map(looks, columns))) < len(columns)
        ):
            allowed = f"printable names of at most {LONGEST_NAME} characters without repetition"
            raise InvalidInput("columns of identity", type(columns).__name__, allowed)
        self._columns = None if columns is None else tuple(columns)
        self.decoder: int = Extractor.decoder if columns is None else 1

    def options(self) -> dict[str, Any]:
        return {} if self._columns is None else {"columns": list(self._columns)}

    @classmethod
    def check_stated(cls, options: Mapping[str, Any]) -> None:
        """Check that there are no names, or short ones: they are their author's."""
        cls.check_options(options)
        if cls(**options).options() != dict(options):
            raise InvalidInput("columns of identity", "other columns", "a list of names, or no such option")

    @classmethod
    def names_of(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(cls(**options).options().get("columns", ()))

    def with_columns(self, columns: tuple[str, ...] | None) -> Extractor:
        # A certificate refuses longer options; the margin is for the field around the list.
        fits = columns is not None and all(map(fits_name, columns)) and len(json.dumps(columns)) < self.most_text - 100
        return Identity(columns) if fits else self

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        if self._columns is not None and tuple(input_shape) != (len(self._columns),):
            raise InvalidInput(
                "input shape for identity", tuple(input_shape), f"({len(self._columns)},), one for each column"
            )
        return math.prod(input_shape)

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        return x.reshape(len(x), math.prod(x.shape[1:])).astype(np.float32)


class Pixels(Extractor):
    """Images as numbers in [0, 1], flattened: uint8 images are divided by 255 (DPMix, Lee et al. 2019)."""

    name: ClassVar[str] = "pixels"
    # Rendered characters have 1.2 to 1.4. With that, stages would be taken for photographs, which do not repay them:
    # settled with a look at what CIFAR-10 reaches.
    usual: Usual = Usual(concentration=2.0)

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        return math.prod(input_shape)

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        return unit_range(x).reshape(len(x), math.prod(x.shape[1:]))

    def differentiable(self, input_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        return lambda x: x.flatten(1)


def unit_range(x: NDArray[Any]) -> NDArray[np.float32]:
    """Image values as float32 in [0, 1]: uint8 divided by 255, floats as they are."""
    if x.dtype == np.uint8:
        return np.asarray(x, dtype=np.float32) / np.float32(255)
    if not np.issubdtype(x.dtype, np.floating):
        raise InvalidInput("pixel type", str(x.dtype), "uint8, or floats in [0, 1]")
    return x.astype(np.float32)
