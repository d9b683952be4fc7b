"""Mixed labels of PUBLIC records, clean and noisy: do classes survive in them (Li et al. 2024, Figures 2 and 14)?"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer
from privmix.plans.rows import ReleasePlan

_LABEL_ROWS = 4096


@dataclass(frozen=True)
class LabelCollapse:
    """The content of mixed labels after noise; spread and noise are standard deviations, of entries around 1/K."""

    # top_kept: rows whose largest noisy entry is a largest clean one (1/K is chance). level_kept: entries that stay
    # on their side of 1/K, averaged over those above and those below (0.5 is chance; NaN if every entry is 1/K).
    top_kept: float
    level_kept: float
    spread: float
    noise_std: float
    signal_to_noise: float


def mixed_labels(
    plan: ReleasePlan, labels: NDArray[np.integer[Any]], generator: np.random.Generator, rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw `rows` mixed labels of PUBLIC `labels` as `plan` would release them, clean and noisy, (rows, K) each."""
    # The classes of `plan.records` records have the shares of `labels`, so a small public sample stands for a large
    # set. Only the counts of each class are drawn: O(rows x K). `random-weight` has no counts.
    check_integer("rows", rows, low=1)
    count = plan.num_classes
    held = np.asarray(labels)
    if held.ndim != 1 or held.dtype.kind not in "iu" or not len(held) or held.min() < 0 or held.max() >= count:
        raise InvalidInput("labels", (held.shape, str(held.dtype)), f"a non-empty 1-d array of integers below {count}")
    sizes = _class_sizes(np.bincount(held, minlength=count), plan.records)
    counts = plan.kind.label_counts(plan, sizes, rows, generator)
    clean = counts / plan.divisor
    if plan.noise == "laplace":
        noise = generator.laplace(0.0, plan.noise_std_y / math.sqrt(2), clean.shape)
    else:
        noise = generator.normal(0.0, plan.noise_std_y, clean.shape)
    return clean, clean + noise


def label_collapse(
    plan: ReleasePlan, labels: NDArray[np.integer[Any]], generator: np.random.Generator, rows: int = 20_000
) -> LabelCollapse:
    """Measure how much of the mixed labels' shape is lost to averaging and noise, on PUBLIC labels."""
    # NeuroMixGDP (Li et al. 2024, section 2) shows it as histograms. Poisson-mixed labels crowd around 1/K and drown in
    # noise; hierarchical ones form a group at zero and one at 1 / (K p1) that stay apart.
    check_integer("rows", rows, low=1)
    level, tops, squares = 1 / plan.num_classes, 0, 0.0
    # [was above the level, stayed on its side]
    sides = np.zeros((2, 2), np.int64)
    for start in range(0, rows, _LABEL_ROWS):
        clean, noisy = mixed_labels(plan, labels, generator, min(_LABEL_ROWS, rows - start))
        top = np.take_along_axis(clean, noisy.argmax(axis=1)[:, None], axis=1)[:, 0]
        tops += int((top == clean.max(axis=1)).sum())
        squares += float(((clean - level) ** 2).sum())
        sided = clean != level
        above, after = clean[sided] > level, noisy[sided] > level
        np.add.at(sides, (above.astype(np.intp), (above == after).astype(np.intp)), 1)
    spread = math.sqrt(squares / (rows * plan.num_classes))
    shares = [sides[k, 1] / sides[k].sum() for k in (0, 1) if sides[k].sum()] or [math.nan]
    ratio = (spread / plan.noise_std_y) ** 2 if plan.noise_std_y > 0 else math.inf
    return LabelCollapse(tops / rows, float(np.mean(shares)), spread, plan.noise_std_y, ratio)


def _class_sizes(counts: NDArray[np.int64], records: int) -> NDArray[np.int64]:
    """Whole numbers that sum to ``records`` in the proportions of ``counts`` (largest remainders get the rest)."""
    shares = counts * (records / counts.sum())
    sizes: NDArray[np.int64] = np.floor(shares).astype(np.int64)
    rest = np.argsort(sizes - shares, kind="stable")[: records - int(sizes.sum())]
    sizes[rest] += 1
    return sizes
