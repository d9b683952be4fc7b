"""Extractors that keep the input as it is: feature vectors computed elsewhere, and raw pixels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.features.base import Extractor


class Identity(Extractor):
    """Inputs as float32, flattened: for feature vectors that another public model has made.

    Example:
        >>> Identity().transform(np.arange(4).reshape(1, 2, 2)).tolist()
        [[0.0, 1.0, 2.0, 3.0]]
    """

    name: ClassVar[str] = "identity"

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        """Number of values in one input."""
        return math.prod(input_shape)

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """(b, *shape) -> (b, prod(shape)) float32."""
        return x.reshape(len(x), math.prod(x.shape[1:])).astype(np.float32)


class Pixels(Extractor):
    """Images as numbers in [0, 1], flattened: uint8 images are divided by 255 (DPMix, Lee et al. 2019).

    Example:
        >>> Pixels().transform(np.array([[[0, 255]]], dtype=np.uint8)).tolist()
        [[0.0, 1.0]]
    """

    name: ClassVar[str] = "pixels"

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        """Number of values in one image."""
        return math.prod(input_shape)

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """(b, *shape) uint8, or floats that are in [0, 1] already -> (b, prod(shape)) float32."""
        return unit_range(x).reshape(len(x), math.prod(x.shape[1:]))

    def differentiable(self, input_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """(b, *input_shape) -> (b, d): the values themselves."""
        return lambda x: x.flatten(1)


def unit_range(x: NDArray[Any]) -> NDArray[np.float32]:
    """Image values as float32 in [0, 1]: uint8 divided by 255, floats as they are.

    Example:
        >>> unit_range(np.array([51], dtype=np.uint8)).tolist()
        [0.20000000298023224]
    """
    if x.dtype == np.uint8:
        return np.asarray(x, dtype=np.float32) / np.float32(255)
    if not np.issubdtype(x.dtype, np.floating):
        raise InvalidInput("pixel type", str(x.dtype), "uint8, or floats in [0, 1]")
    return x.astype(np.float32)
