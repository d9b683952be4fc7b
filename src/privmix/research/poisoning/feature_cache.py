"""Features of images by public extractors, each image once: trials share all records but the poisoned ones."""

import hashlib
from collections import OrderedDict
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privmix.features.base import Extractor, parse_features

_MOST_BYTES: Final = 2**30


class FeatureCache:
    """An extractor that remembers images by their digests, the most recent ones in `most_bytes` of memory."""

    def __init__(self, features: str, most_bytes: int = _MOST_BYTES) -> None:
        self.extractor: Extractor = parse_features(features)
        self._most = most_bytes
        self._known: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    def features(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, C, H, W) in [0, 1] -> (n, d)."""
        shape = str(pixels.shape[1:]).encode()
        keys = [hashlib.blake2b(image.tobytes() + shape, digest_size=16).digest() for image in pixels]
        found = {key: self._known[key] for key in keys if key in self._known}
        missing = {key: place for place, key in enumerate(keys) if key not in found}
        places = list(missing.values())
        for start in range(0, len(places), self.extractor.step):
            part = places[start : start + self.extractor.step]
            for place, row in zip(part, self.extractor.transform(as_inputs(pixels[part])), strict=True):
                found[keys[place]] = row.copy()
        for key, row in found.items():
            self._known[key] = row
            self._known.move_to_end(key)
        while self._known and len(self._known) * next(iter(self._known.values())).nbytes > self._most:
            self._known.popitem(last=False)
        return np.stack([found[key] for key in keys])


@cache
def cached_features(features: str) -> FeatureCache:
    """Return the one cache of this process for an extractor."""
    return FeatureCache(features)


def as_inputs(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, C, H, W) -> what extractors take: (n, H, W), or (n, H, W, C) where there are several colours."""
    return pixels[:, 0] if pixels.shape[1] == 1 else np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))


def input_shape(shape: tuple[int, int, int]) -> tuple[int, ...]:
    channels, height, width = shape
    return (height, width) if channels == 1 else (height, width, channels)
