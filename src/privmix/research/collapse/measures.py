"""Collapse diagnostics on a PUBLIC proxy: do classes survive mixing and noise (Li et al. 2024, sections 2, I.5, J.6)"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer
from privmix.mechanisms.clipping import clip_l2
from privmix.plans.plan import Plan
from privmix.plans.rows import ReleasePlan
from privmix.research.collapse.diagnostics import minimum_euclidean_distance, neural_collapse
from privmix.research.collapse.labels import LabelCollapse, label_collapse, mixed_labels
from privmix.research.known_rows import check_sums

_BINS = 60
_MIXTURES = 1000
# Share of noisy entries that the histogram may leave at either end.
_TAIL = 1e-3


@dataclass(frozen=True)
class LabelHistogram:
    """Mixed labels of one plan: shares of entries by value, before and after noise; the outermost bins are open."""

    design: str
    m: int
    edges: tuple[float, ...]
    clean: tuple[float, ...]
    noisy: tuple[float, ...]
    collapse: LabelCollapse


@dataclass(frozen=True)
class CollapseReport:
    """All diagnostics of one proxy: small neural collapse and a large least distance are good."""

    neural_collapse: float
    minimum_euclidean_distance: float
    classes: int
    histograms: tuple[LabelHistogram, ...]

    def to_dict(self) -> dict[str, Any]:
        """Content of a run record of kind ``collapse``: the first plan's figures, and those of every plan."""
        first = self.histograms[0]
        return {
            "neural_collapse": _json(self.neural_collapse),
            "minimum_euclidean_distance": _json(self.minimum_euclidean_distance),
            "label_collapse": _figures(first),
            "histogram": {"edges": list(first.edges), "clean": list(first.clean), "noisy": list(first.noisy)},
            "histograms": [
                {
                    **_figures(one),
                    "design": one.design,
                    "m": one.m,
                    "edges": list(one.edges),
                    "clean": list(one.clean),
                    "noisy": list(one.noisy),
                }
                for one in self.histograms
            ],
            "labels": self.classes,
        }


def measure_collapse(
    plans: Sequence[Plan],
    features: NDArray[Any],
    labels: NDArray[np.integer[Any]],
    generator: np.random.Generator,
    *,
    rows: int = 20_000,
) -> CollapseReport:
    """Judge PUBLIC features (n, d) and labels (n,) for releases by `plans`."""
    # Features are clipped to the first plan's bound before they are judged, as NeuroMixGDP does.
    if not plans:
        raise InvalidInput("plans", 0, "at least one plan")
    check_integer("rows", rows, low=1)
    clipped = clip_l2(features, plans[0].clip_norm)
    distance = minimum_euclidean_distance(
        features, labels, generator, clip_norm=plans[0].clip_norm, mixtures=min(_MIXTURES, len(labels))
    )
    histograms = tuple(_histogram(check_sums(plan), labels, generator, rows) for plan in plans)
    return CollapseReport(neural_collapse(clipped, labels), distance.smallest, plans[0].num_classes, histograms)


def _histogram(
    plan: ReleasePlan, labels: NDArray[np.integer[Any]], generator: np.random.Generator, rows: int
) -> LabelHistogram:
    clean, noisy = mixed_labels(plan, labels, generator, rows)
    low, high = np.quantile(noisy, [_TAIL, 1 - _TAIL])
    edges = _edges(min(low, float(clean.min())), max(high, float(clean.max())), plan.divisor)

    def shares(values: NDArray[np.float64]) -> tuple[float, ...]:
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        return tuple((counts / values.size).tolist())

    figures = label_collapse(plan, labels, generator, rows)
    return LabelHistogram(plan.design, plan.mixup_degree, tuple(edges.tolist()), shares(clean), shares(noisy), figures)


def _edges(low: float, high: float, divisor: float) -> NDArray[np.float64]:
    """Edges of about as many bins as wanted, each with the same number of clean values, which are multiples of 1/m."""
    steps = max(1.0, (high - low) * divisor)
    # An odd number of bins a step keeps clean values in the middle of a bin.
    width = math.ceil(steps / _BINS) if steps > _BINS else 1 / (2 * int((_BINS / steps - 1) / 2) + 1)
    first = math.floor(low * divisor / width + 0.5)
    count = math.ceil((high * divisor - (first - 0.5) * width) / width)
    return np.asarray((first - 0.5 + np.arange(count + 1)) * (width / divisor))


def _figures(histogram: LabelHistogram) -> dict[str, float | None]:
    return {name: _json(value) for name, value in asdict(histogram.collapse).items()}


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None
