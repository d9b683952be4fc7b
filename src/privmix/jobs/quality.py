"""How good predictions are on labelled records, beside what takes no model at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from privmix.shown import Bar, Bars, Shown

_BINS: Final = 15
# Classes whose recall a summary names.
_MOST_SHOWN: Final = 10


@dataclass(frozen=True, eq=False)
class Calibration:
    """Whether records that are said to be right with probability p are right with frequency p (Guo et al. 2017).

    Records stand in 15 bins of one width, by the probability of their predicted class.

    Attributes:
        counts: (15,) records in each bin.
        confidence: (15,) mean probability in each bin; 0 in an empty one.
        accuracy: (15,) share of each bin's records whose class was found; 0 in an empty one.

    Example:
        >>> sure = Calibration.of(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1]))
        >>> round(sure.error, 6)
        0.4
    """

    counts: NDArray[np.int64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]

    @classmethod
    def of(cls, probabilities: NDArray[Any], labels: NDArray[np.int64]) -> Calibration:
        """Of (n, K) probabilities and (n,) true class indices."""
        told = probabilities.max(axis=1).astype(np.float64)
        right = probabilities.argmax(axis=1) == labels
        bins = np.minimum((told * _BINS).astype(int), _BINS - 1)
        counts = np.bincount(bins, minlength=_BINS)
        sums = (np.bincount(bins, weights=values, minlength=_BINS) for values in (told, right))
        confidence, accuracy = (total / np.maximum(counts, 1) for total in sums)
        return cls(counts, confidence, accuracy)

    @property
    def error(self) -> float:
        """Expected calibration error: mean gap between confidence and accuracy over the records, 0 at best."""
        return float(self.counts @ np.abs(self.confidence - self.accuracy) / self.counts.sum())


@dataclass(frozen=True, eq=False, repr=False)
class Quality(Shown):
    """Figures of one classifier on n labelled records. They are about these records; no guarantee covers them.

    Attributes:
        classes: K names.
        confusion: (K, K) counts, true class by predicted class.
        auc: of two classes, the chance that a record of the second gets a higher score for it than one of the first;
            None for more classes, or where one has no record.
        log_loss: mean of -log(probability of the true class), in nats, probabilities cut as scikit-learn cuts them;
            None where no probabilities were given.
        calibration: of these probabilities.

    Example:
        >>> found = Quality.of(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([0, 0, 1]), ("no", "yes"))
        >>> found.accuracy, found.majority, round(found.majority_accuracy, 2), found.auc
        (1.0, 'no', 0.67, 1.0)
    """

    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    auc: float | None
    log_loss: float | None = None
    calibration: Calibration | None = None

    @classmethod
    def of(
        cls,
        scores: NDArray[Any],
        labels: NDArray[np.int64],
        classes: tuple[str, ...],
        probabilities: NDArray[Any] | None = None,
    ) -> Quality:
        """Of predictions for n records, at least one.

        Args:
            scores: (n, K), the largest of a row naming its class.
            labels: (n,) true class indices.
            classes: K names.
            probabilities: (n, K) of the classes, where the classifier has some.
        """
        # A second of imports, which those who only load a model are spared.
        from sklearn.metrics import log_loss, roc_auc_score

        size = len(classes)
        predicted = scores.argmax(axis=1)
        matrix = np.bincount(labels * size + predicted, minlength=size * size).reshape(size, size)
        auc = None
        if size == 2 and matrix.sum(axis=1).all():
            auc = float(roc_auc_score(labels, scores[:, 1].astype(np.float64) - scores[:, 0]))
        if probabilities is None:
            return cls(classes, matrix, auc)
        loss = float(log_loss(labels, probabilities, labels=list(range(size))))
        return cls(classes, matrix, auc, loss, Calibration.of(probabilities, labels))

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """The figures, beside what takes no model."""
        return f"Evaluation on {self.n:,} records", {
            "accuracy": f"{100 * self.accuracy:.2f}%",
            f"always {self.majority}": f"{100 * self.majority_accuracy:.2f}%",
            "balanced accuracy": f"{100 * self.balanced_accuracy:.2f}%",
            **({} if self.auc is None else {f"AUC for {self.classes[1]}": f"{self.auc:.3f}"}),
            **self._shown_probabilities(),
            "recall, the lowest first": self._shown_recall(),
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    def _shown_probabilities(self) -> Mapping[str, object]:
        if self.log_loss is None or self.calibration is None:
            return {}
        loss = f"{self.log_loss:.3f} ({self.guessing_log_loss:.3f} by the classes' shares alone)"
        return {"log loss": loss, "calibration error": f"{100 * self.calibration.error:.1f}%"}

    def _shown_recall(self) -> str:
        known = sorted((share, name) for name, share in self.recall.items() if share is not None)
        more = f", and {len(known) - _MOST_SHOWN} classes more" if len(known) > _MOST_SHOWN else ""
        return ", ".join(f"{name} {100 * share:.1f}%" for share, name in known[:_MOST_SHOWN]) + more

    def picture(self, without: Quality | None = None) -> Bars:
        """Accuracy, beside that of a classifier ``without`` privacy where there is one."""
        known = {"accuracy": self.accuracy, "balanced": self.balanced_accuracy}
        bars = [Bar(name, share, f"{100 * share:.1f}%") for name, share in known.items()]
        beside = {f"always {self.majority}": self.majority_accuracy}
        if without is not None:
            beside["without privacy"] = without.accuracy
        bars += [Bar(name, share, f"{100 * share:.1f}%", strong=False) for name, share in beside.items()]
        return Bars("Accuracy", bars, full=1.0)

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
    def guessing_log_loss(self) -> float:
        """Log loss of always giving the classes the shares that they have here: what probabilities have to beat."""
        shares = self.confusion.sum(axis=1) / self.n
        return float(-xlogy(shares, shares).sum())

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
        if self.log_loss is not None and self.log_loss > self.guessing_log_loss:
            beside = f"log loss {self.log_loss:.2f}, against {self.guessing_log_loss:.2f} of the classes' shares"
            found.append(f"its probabilities are worse than none: {beside}")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, the confusion matrix left out."""
        return {
            "accuracy": self.accuracy,
            "balanced_accuracy": self.balanced_accuracy,
            "majority": self.majority,
            "majority_accuracy": self.majority_accuracy,
            "auc": self.auc,
            "log_loss": self.log_loss,
            "guessing_log_loss": self.guessing_log_loss,
            "calibration_error": None if self.calibration is None else self.calibration.error,
            "per_class": dict(self.recall),
            "n": self.n,
            "warnings": list(self.warnings),
        }


def evaluation_content(
    quality: Quality,
    split: str,
    reference: Quality | None = None,
    groups: Mapping[str, Quality] | None = None,
    words: str = "",
) -> dict[str, Any]:
    """The content of an evaluation's record."""
    return {
        **content_of(quality, reference, groups or {}, words),
        "classes": list(quality.classes),
        "confusion": quality.confusion.tolist(),
        "split": split,
    }


def content_of(
    quality: Quality, reference: Quality | None, groups: Mapping[str, Quality], words: str
) -> dict[str, Any]:
    """The figures of an evaluation, JSON values."""
    found = {**quality.to_dict(), "reference_accuracy": None if reference is None else reference.accuracy}
    if reference is not None:
        found["reference"] = reference.to_dict()
        found |= {"reference_words": words} if words else {}
    if groups:
        found["groups"] = [{"group": name, **one.to_dict()} for name, one in groups.items()]
    return found
