"""Quality of predictions on labelled records, and how near a table's rows are to real ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from privmix.shown import Bar, Bars, Shown

# As Guo et al. 2017 have it: other numbers of bins give other errors, which cannot be compared.
_BINS: Final = 15
# Classes whose recall a summary names.
_MOST_SHOWN: Final = 10
_FIGURES: Final = (
    *("accuracy", "balanced_accuracy", "majority", "majority_accuracy", "auc", "log_loss", "guessing_log_loss"),
)


@dataclass(frozen=True, eq=False)
class Reliability:
    """Compare stated probabilities p with the frequency of being right, in 15 bins of one width (Guo et al. 2017).

    Example:
        >>> sure = Reliability.of(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1]))
        >>> round(sure.error, 6)
        0.4
    """

    # By the probability of the predicted class: records, mean probability and share that is right; 0 in an empty bin.
    counts: NDArray[np.int64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]

    @classmethod
    def of(cls, probabilities: NDArray[Any], labels: NDArray[np.int64]) -> "Reliability":
        """Return the calibration of (n, K) probabilities and (n,) true class indices."""
        told = probabilities.max(axis=1).astype(np.float64)
        right = probabilities.argmax(axis=1) == labels
        # Probability 1 belongs to the last bin.
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
    """Figures of one classifier on n labelled records. They are about these records; no guarantee covers them."""

    # `confusion`: (K, K), true class by predicted class. `auc` is None for more than two classes, or an empty one.
    # `log_loss`: in nats, probabilities cut as scikit-learn cuts them; None without probabilities.
    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    auc: float | None
    log_loss: float | None = None
    calibration: Reliability | None = None

    @classmethod
    def of(
        cls,
        scores: NDArray[Any],
        labels: NDArray[np.int64],
        classes: tuple[str, ...],
        probabilities: NDArray[Any] | None = None,
    ) -> "Quality":
        """From scores (n, K), true class indices (n,), K names and, where there are some, probabilities (n, K)."""
        size = len(classes)
        predicted = scores.argmax(axis=1)
        matrix = np.bincount(labels * size + predicted, minlength=size * size).reshape(size, size)
        auc = None
        if size == 2 and matrix.sum(axis=1).all():
            auc = _auc(scores[:, 1].astype(np.float64) - scores[:, 0], labels)
        if probabilities is None:
            return cls(classes, matrix, auc)
        least = np.finfo(probabilities.dtype).eps
        likelihoods = np.clip(probabilities[np.arange(len(labels)), labels], least, 1 - least)
        loss = float(-np.log(likelihoods).mean(dtype=np.float64))
        return cls(classes, matrix, auc, loss, Reliability.of(probabilities, labels))

    def shown(self) -> tuple[str, Mapping[str, object]]:
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
        loss = f"{self.log_loss:.3f} ({self.guessing_log_loss:.3f} for the classes' shares only)"
        return {"log loss": loss, "calibration error": f"{100 * self.calibration.error:.1f}%"}

    def _shown_recall(self) -> str:
        known = sorted((share, name) for name, share in self.recall.items() if share is not None)
        more = f", and {len(known) - _MOST_SHOWN} classes more" if len(known) > _MOST_SHOWN else ""
        return ", ".join(f"{name} {100 * share:.1f}%" for share, name in known[:_MOST_SHOWN]) + more

    def picture(self, without: "Quality | None" = None) -> Bars:
        """Accuracy, compared with that of a classifier ``without`` privacy where there is one."""
        known = {"accuracy": self.accuracy, "balanced": self.balanced_accuracy}
        bars = [Bar(name, share, f"{100 * share:.1f}%") for name, share in known.items()]
        beside = {f"always {self.majority}": self.majority_accuracy}
        if without is not None:
            beside["without privacy"] = without.accuracy
        bars += [Bar(name, share, f"{100 * share:.1f}%", strong=False) for name, share in beside.items()]
        return Bars("Accuracy", bars, full=1.0)

    @property
    def n(self) -> int:
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
        """Mean of the classes' recall, over those that have records: 1/K for a constant prediction."""
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
        # `xlogy` takes 0 log 0 as 0: a class without records adds nothing.
        return float(-xlogy(shares, shares).sum())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why the accuracy is worth less than it looks."""
        said = self.confusion.sum(axis=0) > 0
        found = []
        if said.sum() == 1:
            found.append(f"the model predicts {self.classes[int(said.argmax())]} for every record")
        elif len(self.classes) > 2 and said.sum() < len(self.classes):
            found.append(f"the model never predicts {int((~said).sum())} of {len(self.classes)} classes")
        if self.accuracy <= self.majority_accuracy:
            found.append(f"always predicting {self.majority} is at least as accurate")
        if self.log_loss is not None and self.log_loss > self.guessing_log_loss:
            beside = f"log loss {self.log_loss:.2f}, compared with {self.guessing_log_loss:.2f} for the classes' shares"
            found.append(f"its probabilities are worse than the classes' shares: {beside}")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _FIGURES},
            "calibration_error": None if self.calibration is None else self.calibration.error,
            "per_class": dict(self.recall),
            "n": self.n,
            "warnings": list(self.warnings),
        }


def evaluation_content(
    quality: Quality, split: str, reference: Quality | None, groups: Mapping[str, Quality], words: str
) -> dict[str, Any]:
    """Return the content of an evaluation's record; `words`: what the reference is."""
    found = {**quality.to_dict(), "reference_accuracy": None if reference is None else reference.accuracy}
    if reference is not None:
        found["reference"] = reference.to_dict()
        found |= {"reference_words": words} if words else {}
    if groups:
        found["groups"] = [{"group": name, **one.to_dict()} for name, one in groups.items()]
    return {**found, "classes": list(quality.classes), "confusion": quality.confusion.tolist(), "split": split}


def _auc(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Return the chance that a record of class 1 scores above one of class 0; a tie counts a half."""
    # scikit-learn's takes a second to import, as long as all the rest of `evaluate`.
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    # Records that tie share the mean of their ranks.
    ranks = np.cumsum(counts) - (counts - 1) / 2
    ones = int(labels.sum())
    return float((ranks[place][labels == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(labels) - ones)))


Places = NDArray[np.int64]
Numbers = NDArray[Any]
_Task = tuple[Places, Numbers]

# If there are more triples than this, this number is drawn; the same ones for every table of as many columns.
_TRIPLES: Final = 200
_FOLDS: Final = 2


@dataclass(frozen=True)
class TreeQuality:
    """Accuracy and, of two classes, AUC of a gradient-boosted tree on real records."""

    accuracy: float
    auc: float | None
    learner: ClassVar[str] = "tree"

    def shown(self) -> str:
        return f"accuracy {100 * self.accuracy:.2f}%" + ("" if self.auc is None else f", AUC {self.auc:.3f}")


@dataclass(frozen=True)
class NumberQuality:
    """Error of the mean prediction by ridge regression and a gradient-boosted tree, and of predicting the mean."""

    r2: float
    rmse: float
    mean_rmse: float
    learner: ClassVar[str] = "mean of ridge regression and tree"

    def shown(self) -> str:
        return f"R2 {self.r2:.3f}, RMSE {self.rmse:.4g} (predicting the mean: {self.mean_rmse:.4g})"


@dataclass(frozen=True)
class TableQuality:
    """How near rows are to real ones, column by state."""

    # `one_way`, `two_way`, `three_way`: (mean, largest) total variation over columns, pairs, triples (of more than
    # 200 a random choice). `association`: mean absolute difference of Cramer's V over pairs. `tree`: trained on the
    # rows, tested on real records; `real_tree`: trained on one half of the real ones, tested on the other, and vice
    # versa. `forecast` is that of rows instead. Without a target there are no trees.
    one_way: tuple[float, float]
    two_way: tuple[float, float]
    three_way: tuple[float, float]
    worst_pair: tuple[str, str]
    association: float
    tree: TreeQuality | NumberQuality | None
    real_tree: TreeQuality | NumberQuality | None
    forecast: TreeQuality | NumberQuality | None

    def to_dict(self) -> dict[str, Any]:
        named = {"one": self.one_way, "two": self.two_way, "three": self.three_way}
        trees = {"rows": self.tree, "real": self.real_tree, "forecast": self.forecast}
        return {
            "total_variation": {way: {"mean": mean, "largest": most} for way, (mean, most) in named.items()},
            "worst_pair": list(self.worst_pair),
            "association_error": self.association,
            "trees": {name: _finite(vars(tree)) for name, tree in trees.items() if tree is not None},
        }


def _finite(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    # JSON has no NaN: a number that never varies has no R2.
    return {name: one if one is None or np.isfinite(one) else None for name, one in figures.items()}


def table_quality(
    rows: Places,
    real: Places,
    sizes: Sequence[int],
    names: Sequence[str],
    *,
    test: Places | None = None,
    real_tree: bool = True,
    target: int | None = -1,
    numbers: Sequence[Numbers] | None = None,
) -> TableQuality:
    """Compare rows (n, c) with real records (m, c), as states of columns, any label last; `test` is for trees."""
    # `target`: the column that trees predict. `numbers`: its values in rows, records and test, NaN where missing; None:
    # trees predict its state.
    columns = range(len(sizes))
    triples = list(combinations(columns, 3))
    if len(triples) > _TRIPLES:
        chosen = np.random.default_rng(0).choice(len(triples), _TRIPLES, replace=False)
        triples = [triples[one] for one in chosen]
    pairs = list(combinations(columns, 2))
    tables = [(_counts(rows, pair, sizes), _counts(real, pair, sizes)) for pair in pairs]
    apart = [_apart(a, b) for a, b in tables]
    furthest = pairs[int(np.argmax(apart))]
    trees = None
    if target is not None:
        parts = [rows, real] if test is None else [rows, real, test]
        values = [part[:, target] for part in parts] if numbers is None else numbers
        trees = [_without(part, target, told) for part, told in zip(parts, values, strict=True)]
    return TableQuality(
        _told([_apart(*(_counts(part, (one,), sizes) for part in (rows, real))) for one in columns]),
        _told(apart),
        _told([_apart(*(_counts(part, three, sizes) for part in (rows, real))) for three in triples]),
        (names[furthest[0]], names[furthest[1]]),
        float(np.mean([abs(_cramers_v(a) - _cramers_v(b)) for a, b in tables])),
        None if trees is None else _tree(trees[0], trees[-1]),
        None if trees is None or not real_tree else _real_tree(*trees[1:]),
        None if trees is None else _real_tree(trees[0]),
    )


def _counts(rows: Places, columns: Sequence[int], sizes: Sequence[int]) -> NDArray[np.float64]:
    shape = tuple(sizes[column] for column in columns)
    flat = np.ravel_multi_index(tuple(rows[:, column] for column in columns), shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape) / len(rows)


def _apart(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    return float(np.abs(first - second).sum() / 2)


def _told(values: Sequence[float]) -> tuple[float, float]:
    return (float(np.mean(values)), float(np.max(values))) if values else (0.0, 0.0)


def _cramers_v(table: NDArray[np.float64]) -> float:
    expected = np.outer(table.sum(axis=1), table.sum(axis=0))
    seen = expected > 0
    square = float((np.square(table - expected)[seen] / expected[seen]).sum())
    least = min(int((table.sum(axis=0) > 0).sum()), int((table.sum(axis=1) > 0).sum())) - 1
    return float(np.sqrt(square / least)) if least > 0 else 0.0


def _without(places: Places, target: int, values: Numbers) -> _Task:
    known = ~np.isnan(values)
    return np.delete(places, target, axis=1)[known], values[known]


def _tree(rows: _Task, test: _Task) -> TreeQuality | NumberQuality:
    # Imported here: classifiers are measured without it.
    from sklearn import linear_model, pipeline, preprocessing
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, VotingRegressor
    from sklearn.metrics import r2_score, roc_auc_score, root_mean_squared_error

    x, truth = test
    if truth.dtype.kind == "f":
        # Rows show a tree interactions that no released number supports; half of the prediction ignores them.
        hot = preprocessing.OneHotEncoder(handle_unknown="ignore")
        ridge = pipeline.make_pipeline(hot, linear_model.Ridge())
        both = [("ridge", ridge), ("tree", HistGradientBoostingRegressor(random_state=0))]
        found = VotingRegressor(both).fit(*rows).predict(x)
        rmse = float(root_mean_squared_error(truth, found))
        return NumberQuality(float(r2_score(truth, found)), rmse, float(truth.std()))
    labels = np.unique(rows[1])
    if len(labels) < 2:
        # Rows of one class: the only classifier there is.
        return TreeQuality(float((truth == labels[0]).mean()), None)
    tree = HistGradientBoostingClassifier(random_state=0).fit(*rows)
    probabilities = tree.predict_proba(x)
    accuracy = float((tree.classes_[probabilities.argmax(axis=1)] == truth).mean())
    two = len(labels) == 2 and len(np.unique(truth)) == 2
    return TreeQuality(accuracy, float(roc_auc_score(truth, probabilities[:, 1])) if two else None)


def _real_tree(real: _Task, test: _Task | None = None) -> TreeQuality | NumberQuality:
    if test is not None:
        return _tree(real, test)
    x, values = real
    fold = np.random.default_rng(0).permutation(len(x)) % _FOLDS
    found = [
        _tree((x[fold != one], values[fold != one]), (x[fold == one], values[fold == one])) for one in range(_FOLDS)
    ]
    means: dict[str, Any] = {
        name: None if None in (told := [vars(one)[name] for one in found]) else float(np.mean(told))
        for name in vars(found[0])
    }
    return type(found[0])(**means)
