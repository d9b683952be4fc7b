"""The dataset that needs no files: scikit-learn's handwritten digits."""

from __future__ import annotations

import numpy as np

from privmix.data.source import ArraySource, Source
from privmix.errors import check_choice


def embedded_digits(split: str = "train") -> Source:
    """1,797 grey images of 8 x 8 pixels in 10 classes (UCI optdigits), as uint8 from 0 to 255.

    Every fifth image, from the first on, is the test split: 360 images; the other 1,437 are the training split. The
    original values 0 to 16 are multiplied by 255 / 16 and rounded.

    Args:
        split: ``"train"`` or ``"test"``.

    Example:
        >>> embedded_digits("test").schema.records
        360
    """
    from sklearn.datasets import load_digits

    check_choice("split", split, ["train", "test"])
    digits = load_digits()
    held_out = np.arange(len(digits.target)) % 5 == 0
    chosen = held_out if split == "test" else ~held_out
    images = np.round(digits.images[chosen] * (255 / 16)).astype(np.uint8)
    return ArraySource(images, digits.target[chosen].astype(np.int64), tuple(map(str, range(10))))
