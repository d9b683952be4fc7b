"""How near a table's rows are to real ones: marginals, associations, and a tree that learns from the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

Places = NDArray[np.int64]

# If there are more triples than this, this number is drawn; the same ones for every table of as many columns.
_TRIPLES: Final = 200
_FOLDS: Final = 2


@dataclass(frozen=True)
class TreeQuality:
    """Accuracy and, of two classes, AUC of a gradient-boosted tree on real records."""

    accuracy: float
    auc: float | None


@dataclass(frozen=True)
class TableQuality:
    """How near rows are to real ones, column by state."""

    # `one_way`, `two_way`, `three_way`: (mean, largest) total variation over columns, pairs, triples (of more than
    # 200 a random choice). `association`: mean absolute difference of Cramer's V over pairs. `tree`: trained on the
    # rows, tested on real records; `real_tree`: trained on one half of the real ones, tested on the other, and vice
    # versa.
    one_way: tuple[float, float]
    two_way: tuple[float, float]
    three_way: tuple[float, float]
    worst_pair: tuple[str, str]
    association: float
    tree: TreeQuality
    real_tree: TreeQuality | None

    def to_dict(self) -> dict[str, Any]:
        named = {"one": self.one_way, "two": self.two_way, "three": self.three_way}
        trees = {"rows": self.tree, **({} if self.real_tree is None else {"real": self.real_tree})}
        return {
            "total_variation": {way: {"mean": mean, "largest": most} for way, (mean, most) in named.items()},
            "worst_pair": list(self.worst_pair),
            "association_error": self.association,
            "trees": {name: vars(tree) for name, tree in trees.items()},
        }


def table_quality(
    rows: Places,
    real: Places,
    sizes: Sequence[int],
    names: Sequence[str],
    *,
    test: Places | None = None,
    real_tree: bool = True,
) -> TableQuality:
    """Compare rows (n, c) with real records (m, c), as states of columns, label last; `test` is for trees."""
    columns = range(len(sizes))
    triples = list(combinations(columns, 3))
    if len(triples) > _TRIPLES:
        chosen = np.random.default_rng(0).choice(len(triples), _TRIPLES, replace=False)
        triples = [triples[one] for one in chosen]
    pairs = list(combinations(columns, 2))
    tables = [(_counts(rows, pair, sizes), _counts(real, pair, sizes)) for pair in pairs]
    apart = [_apart(a, b) for a, b in tables]
    furthest = pairs[int(np.argmax(apart))]
    tested = real if test is None else test
    return TableQuality(
        _told([_apart(*(_counts(part, (one,), sizes) for part in (rows, real))) for one in columns]),
        _told(apart),
        _told([_apart(*(_counts(part, three, sizes) for part in (rows, real))) for three in triples]),
        (names[furthest[0]], names[furthest[1]]),
        float(np.mean([abs(_cramers_v(a) - _cramers_v(b)) for a, b in tables])),
        _tree(rows, tested),
        _real_tree(real, test) if real_tree else None,
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


def _tree(rows: Places, test: Places) -> TreeQuality:
    labels = np.unique(rows[:, -1])
    if len(labels) < 2:
        # Rows of one class: the only classifier there is.
        return TreeQuality(float((test[:, -1] == labels[0]).mean()), None)
    tree = HistGradientBoostingClassifier(random_state=0).fit(rows[:, :-1], rows[:, -1])
    probabilities = tree.predict_proba(test[:, :-1])
    accuracy = float((tree.classes_[probabilities.argmax(axis=1)] == test[:, -1]).mean())
    two = len(labels) == 2 and len(np.unique(test[:, -1])) == 2
    return TreeQuality(accuracy, float(roc_auc_score(test[:, -1], probabilities[:, 1])) if two else None)


def _real_tree(real: Places, test: Places | None) -> TreeQuality:
    if test is not None:
        return _tree(real, test)
    fold = np.random.default_rng(0).permutation(len(real)) % _FOLDS
    found = [_tree(real[fold != one], real[fold == one]) for one in range(_FOLDS)]
    aucs = [one.auc for one in found if one.auc is not None]
    return TreeQuality(
        float(np.mean([one.accuracy for one in found])), float(np.mean(aucs)) if len(aucs) == _FOLDS else None
    )
