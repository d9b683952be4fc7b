"""Collapse diagnostics: what is reported is what the measures on public data say, and histograms hold all entries."""

import json

import numpy as np
import pytest

from privmix.planning import ReleaseConfig
from privmix.research.collapse.diagnostics import neural_collapse
from privmix.research.collapse.measures import measure_collapse

CLASSES = tuple("abcdefghij")


def config(degree: int = 64) -> ReleaseConfig:
    return ReleaseConfig(50_000, 12, CLASSES, mixup_degree=degree, centre="none")


def public(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, n)
    return np.eye(10, 12)[labels] * 3 + rng.normal(0, 0.2, (n, 12)), labels


@pytest.mark.parametrize("degree", [1, 7, 64, 1000])
def test_histograms_hold_every_entry_and_clean_values_lie_inside_bins(degree: int) -> None:
    plan = config(degree).with_noise(0.5)
    (found,) = measure_collapse([plan], *public(), np.random.default_rng(2), rows=500).histograms
    assert len(found.clean) == len(found.noisy) == len(found.edges) - 1
    assert 20 <= len(found.clean) <= 130
    assert sum(found.clean) == pytest.approx(1)
    assert sum(found.noisy) == pytest.approx(1)
    gaps = np.abs(np.subtract.outer(np.asarray(found.edges) * degree, np.arange(-5, 5)))
    assert gaps.min() > 1e-3  # no clean value k / m is on an edge, where rounding would decide


def test_features_are_clipped_before_they_are_judged_and_figures_are_json() -> None:
    features, labels = public()
    report = measure_collapse([config().with_noise(1.0)], features, labels, np.random.default_rng(3), rows=50)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert report.neural_collapse == pytest.approx(neural_collapse(unit, labels), rel=1e-6)
    content = report.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["labels"] == 10
    assert content["histogram"]["edges"] == content["histograms"][0]["edges"]
