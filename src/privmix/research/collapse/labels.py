"""Mixed labels of PUBLIC records, clean and noisy: do classes survive in them (Li et al. 2024, Figures 2 and 14)?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer
from privmix.plans import ReleasePlan

_LABEL_ROWS = 4096


@dataclass(frozen=True)
class LabelCollapse:
    """What is left of mixed labels after noise.

    Attributes:
        top_kept: share of rows whose largest noisy entry is a largest clean one. ``1 / K`` is chance.
        level_kept: share of entries that stay on their side of 1/K, the value that labels collapse to; averaged over
            the entries above it and those below, so that 0.5 is chance. NaN if every entry is 1/K.
        spread: standard deviation of clean entries around 1/K.
        noise_std: standard deviation of the noise in an entry.
        signal_to_noise: spread squared over noise squared; below 1 the noise is the larger part. Infinite without
            noise.
    """

    top_kept: float
    level_kept: float
    spread: float
    noise_std: float
    signal_to_noise: float


def mixed_labels(
    plan: ReleasePlan, labels: NDArray[np.integer[Any]], generator: np.random.Generator, rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw mixed labels as ``plan`` would release them from PUBLIC labels: NeuroMixGDP's Figures 2 and 14.

    Rows follow the plan's sampling law for ``plan.records`` records whose classes have the shares of ``labels``, so a
    small public sample stands for a large set. Only the counts of each class are drawn: O(rows x K).

    Args:
        plan: any design but ``random-weight``, whose weights are no counts.
        labels: (n,) integers in [0, K) of public records.
        generator: source of counts and noise.
        rows: how many.

    Returns:
        clean and noisy labels, (rows, K) each.

    Raises:
        InvalidInput: a label outside the plan's classes, or a design without counts.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> config = ReleaseConfig(records=1000, dim=2, classes=("a", "b"), mixup_degree=50, centre="none")
        >>> clean, noisy = mixed_labels(config.with_noise(1.0), np.array([0, 1]), np.random.default_rng(0), 5)
        >>> clean.shape, bool(np.abs(clean - 0.5).max() < 0.5)
        ((5, 2), True)
    """
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
    """Measure how much of the mixed labels' shape is lost to averaging and noise, on PUBLIC labels.

    NeuroMixGDP (Li et al. 2024, section 2, Figures 2 and 14) shows it as histograms: Poisson-mixed labels crowd around
    1/K and drown in noise, hierarchical ones form a group at zero and one at 1 / (K p1) that stay apart. Here as
    numbers: whether the largest entry, and each entry's side of 1/K, survive the noise.

    Args:
        plan: any design but ``random-weight``.
        labels: (n,) integers in [0, K) of public records; only their shares matter.
        generator: source of rows.
        rows: how many rows to judge by; drawn in blocks.

    Raises:
        InvalidInput: as :func:`mixed_labels`.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> names, public = tuple("0123456789"), np.arange(10)
        >>> config = ReleaseConfig(records=50_000, dim=2, classes=names, mixup_degree=64, centre="none")
        >>> found = [label_collapse(config.with_noise(s), public, np.random.default_rng(0)) for s in (0.1, 1.2)]
        >>> [round(f.top_kept, 1) for f in found], [round(f.signal_to_noise) for f in found]
        ([1.0, 0.7], [321, 2])
    """
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
