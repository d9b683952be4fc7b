"""The private records of a training run, in memory or memory-mapped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.training.batches import refuse_foreign_loader

# Rows hashed at once, and rows checked at once.
_BLOCK = 8192


@dataclass(frozen=True, eq=False)
class TrainingRecords:
    """Features and labels of n records. Private.

    Formal guarantees:
        * Silent: no message or ``repr`` holds a value, a label, the number of a record or how many there are.
        * Closed class list: a label outside the declared classes is refused, never added.

    Attributes:
        x: (n, d) float32 features, or (n, V, d): V precomputed views of each record.
        labels: (n,) int64 in [0, classes).
        classes: number of declared classes.

    Example:
        >>> TrainingRecords.of(np.zeros((5, 3)), [0, 1, 1, 0, 1], classes=2)
        <TrainingRecords of 3 features, 2 classes>
    """

    x: NDArray[np.float32]
    labels: NDArray[np.int64]
    classes: int

    def __repr__(self) -> str:
        return f"<TrainingRecords of {self.x.shape[-1]} features, {self.classes} classes>"

    @classmethod
    def of(cls, x: Any, labels: Any, *, classes: int) -> TrainingRecords:
        """Check arrays and take them without a copy where they are float32 and int64 already.

        Raises:
            InvalidInput: shapes don't fit, values are not finite, a label is outside the classes, or ``x`` is a loader.
        """
        refuse_foreign_loader(x)
        check_integer("classes", classes, low=2)
        features = np.asarray(x)
        if features.ndim not in (2, 3) or features.dtype.kind not in "biuf" or 0 in features.shape:
            # Without a size: that of texts is the longest one's.
            shown = features.dtype.type.__name__
            raise InvalidInput("x", shown, "numbers of shape (n, d) or (n, views, d), none of them 0")
        with np.errstate(over="ignore"):
            # What is too large for float32 becomes infinite, and is refused below.
            features = features.astype(np.float32, copy=False)
        y = np.asarray(labels)
        if y.shape != (len(features),):
            raise InvalidInput("labels", WITHHELD, "a vector of one label a record")
        if y.dtype.kind not in "biuf" or not np.logical_and(y >= 0, y < classes).all() or (y != np.trunc(y)).any():
            raise InvalidInput("labels", WITHHELD, f"integers from 0 to {classes - 1}: one of the declared classes")
        for start in range(0, len(features), _BLOCK):
            if not np.isfinite(features[start : start + _BLOCK]).all():
                raise InvalidInput("x", WITHHELD, "finite numbers")
        return cls(features, y.astype(np.int64, copy=False), classes)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def dim(self) -> int:
        """d."""
        return int(self.x.shape[-1])

    def in_unit_range(self) -> bool:
        """Whether all features are from 0 to 1, as those of images are."""
        blocks = (self.x[start : start + _BLOCK] for start in range(0, len(self.x), _BLOCK))
        return all(float(block.min()) >= 0 and float(block.max()) <= 1 for block in blocks)

    def take(self, indices: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
        """Features and labels of the records ``indices``, on ``device``."""
        x = torch.from_numpy(np.ascontiguousarray(self.x[indices]))
        return x.to(device), torch.from_numpy(self.labels[indices]).to(device)

    def digest(self, key: bytes) -> str:
        """Keyed hash of all records: without the key it confirms no guess of the data."""
        digest = hashlib.blake2b(key=key, digest_size=32)
        digest.update(repr((self.x.shape, self.classes)).encode())
        for start in range(0, len(self.x), _BLOCK):
            digest.update(np.ascontiguousarray(self.x[start : start + _BLOCK]).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        return digest.hexdigest()
