"""How good predictions are on labelled records, beside what takes no model at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score


@dataclass(frozen=True, eq=False)
class Quality:
    """Figures of one classifier on n labelled records. They are about these records; no guarantee covers them.

    Attributes:
        classes: K names.
        confusion: (K, K) counts, true class by predicted class.
        auc: of two classes, the chance that a record of the second gets a higher score for it than one of the first;
            None for more classes, or where one has no record.

    Example:
        >>> found = Quality.of(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([0, 0, 1]), ("no", "yes"))
        >>> found.accuracy, found.majority, round(found.majority_accuracy, 2), found.auc
        (1.0, 'no', 0.67, 1.0)
    """

    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    auc: float | None

    @classmethod
    def of(cls, scores: NDArray[Any], labels: NDArray[np.int64], classes: tuple[str, ...]) -> Quality:
        """Of (n, K) scores, the largest of a row naming its class, and (n,) true class indices; n at least 1."""
        size = len(classes)
        predicted = scores.argmax(axis=1)
        matrix = np.bincount(labels * size + predicted, minlength=size * size).reshape(size, size)
        auc = None
        if size == 2 and matrix.sum(axis=1).all():
            auc = float(roc_auc_score(labels, scores[:, 1].astype(np.float64) - scores[:, 0]))
        return cls(classes, matrix, auc)

    @property
    def n(self) -> int:
        """How many records."""
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """Share of the records whose class was found."""
        return float(np.trace(self.confusion) / self.n)

    @property
    def recall(self) -> Mapping[str, float | None]:
        """Share of each class's records that were found; None for a class without records."""
        totals = self.confusion.sum(axis=1)
        found = np.diagonal(self.confusion)
        return {
            name: float(found[index] / totals[index]) if totals[index] else None
            for index, name in enumerate(self.classes)
        }

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the classes' recall, over those that have records: 1/K for whoever always says the same."""
        return float(np.mean([value for value in self.recall.values() if value is not None]))

    @property
    def majority(self) -> str:
        """The class that most of the records have."""
        return self.classes[int(self.confusion.sum(axis=1).argmax())]

    @property
    def majority_accuracy(self) -> float:
        """Accuracy of always saying :attr:`majority`: what any model has to beat."""
        return float(self.confusion.sum(axis=1).max() / self.n)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the accuracy worth less than it looks."""
        said = self.confusion.sum(axis=0) > 0
        found = []
        if said.sum() == 1:
            found.append(f"the model says {self.classes[int(said.argmax())]} to every record")
        elif len(self.classes) > 2 and said.sum() < len(self.classes):
            found.append(f"the model never says {int((~said).sum())} of {len(self.classes)} classes")
        if self.accuracy <= self.majority_accuracy:
            found.append(f"always saying {self.majority} is as accurate or more so")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, the confusion matrix left out."""
        return {
            "accuracy": self.accuracy,
            "balanced_accuracy": self.balanced_accuracy,
            "majority": self.majority,
            "majority_accuracy": self.majority_accuracy,
            "auc": self.auc,
            "per_class": dict(self.recall),
            "n": self.n,
            "warnings": list(self.warnings),
        }
