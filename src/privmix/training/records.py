"""The private records of a training run, in memory or memory-mapped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.mechanisms.persons import grouped
from privmix.training.batches import refuse_foreign_loader

# Rows hashed at once, and rows checked at once.
BLOCK = 8192


@dataclass(frozen=True, eq=False)
class TrainingRecords:
    """Features and labels of n records. Private.

    Formal guarantees:
        * Silent: no message or ``repr`` holds a value, a label, the number of a record or how many there are.
        * Closed class list: a label outside the declared classes is refused, never added.
    """

    # x: (n, d), or (n, V, d): V precomputed views of each record. labels: in [0, classes). units: with persons as
    # units, the order that groups records by person, and each person's first place.

    x: NDArray[np.float32]
    labels: NDArray[np.int64]
    classes: int
    units: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def __repr__(self) -> str:
        return f"<TrainingRecords of {self.x.shape[-1]} features, {self.classes} classes>"

    @classmethod
    def of(cls, x: Any, labels: Any, *, classes: int, persons: NDArray[np.int64] | None = None) -> TrainingRecords:
        """Check arrays x (n, d) or (n, V, d), labels (n,) and persons (n,); float32 and int64 are not copied."""
        refuse_foreign_loader(x)
        check_integer("classes", classes, low=2)
        features = np.asarray(x)
        if features.ndim not in (2, 3) or features.dtype.kind not in "biuf" or 0 in features.shape:
            # Without a size: that of texts is the longest one's.
            shown = features.dtype.type.__name__
            raise InvalidInput("x", shown, "numbers of shape (n, d) or (n, views, d), none of them 0")
        with np.errstate(over="ignore"):
            # Values too large for float32 become infinite, and are refused below.
            features = features.astype(np.float32, copy=False)
        y = np.asarray(labels)
        if y.shape != (len(features),):
            raise InvalidInput("labels", WITHHELD, "a vector of one label a record")
        if y.dtype.kind not in "biuf" or not np.logical_and(y >= 0, y < classes).all() or (y != np.trunc(y)).any():
            raise InvalidInput("labels", WITHHELD, f"integers from 0 to {classes - 1}: one of the declared classes")
        for start in range(0, len(features), BLOCK):
            if not np.isfinite(features[start : start + BLOCK]).all():
                raise InvalidInput("x", WITHHELD, "finite numbers")
        y = y.astype(np.int64, copy=False)
        if persons is None:
            return cls(features, y, classes)
        if np.shape(persons) != y.shape:
            raise InvalidInput("persons", WITHHELD, "one person a record")
        return cls(features, y, classes, grouped(persons, y))

    def __len__(self) -> int:
        """How many units there are: records, or persons."""
        return len(self.x) if self.units is None else len(self.units[1]) - 1

    @property
    def dim(self) -> int:
        return int(self.x.shape[-1])

    def in_unit_range(self) -> bool:
        blocks = (self.x[start : start + BLOCK] for start in range(0, len(self.x), BLOCK))
        return all(float(block.min()) >= 0 and float(block.max()) <= 1 for block in blocks)

    def take(self, indices: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
        x = torch.from_numpy(np.ascontiguousarray(self.x[indices]))
        return x.to(device), torch.from_numpy(self.labels[indices]).to(device)

    def of_persons(self, persons: NDArray[np.int64], starts: NDArray[np.float64], most: int) -> NDArray[np.int64]:
        """(b, most) indices of records of b persons, equally spaced from ``starts`` (b,), uniform in [0, 1)."""
        # Each record of a person is as likely. With fewer records than `most`, each is there as often as the others or
        # once more.
        assert self.units is not None
        order, begins = self.units
        counts = (begins[persons + 1] - begins[persons])[:, None]
        places = np.floor((np.arange(most) + starts[:, None]) * counts / most).astype(np.int64)
        return np.asarray(order[begins[persons][:, None] + np.minimum(places, counts - 1)])

    def whose(self) -> NDArray[np.int64]:
        """(n,) which unit each record is of; -1: of a person with more records than count, it does not."""
        if self.units is None:
            return np.arange(len(self.x))
        order, begins = self.units
        found = np.full(len(self.x), -1, np.int64)
        found[order] = np.repeat(np.arange(len(self)), np.diff(begins))
        return found

    def kept(self, kept: NDArray[np.int64]) -> TrainingRecords:
        """Return these records alone, of the persons that they are of."""
        if self.units is None:
            return replace(self, x=self.x[kept], labels=self.labels[kept])
        whose = self.whose()
        kept = kept[whose[kept] >= 0]
        return TrainingRecords.of(self.x[kept], self.labels[kept], classes=self.classes, persons=whose[kept])

    def digest(self, key: bytes) -> str:
        """Keyed hash of all records: without the key it confirms no guess of the data."""
        digest = hashlib.blake2b(key=key, digest_size=32)
        digest.update(repr((self.x.shape, self.classes)).encode())
        for start in range(0, len(self.x), BLOCK):
            digest.update(np.ascontiguousarray(self.x[start : start + BLOCK]).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        for part in self.units or ():
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()
