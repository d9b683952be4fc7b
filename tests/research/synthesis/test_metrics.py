"""Metrics of synthetic sets, each against a naive reference."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from privmix.research.synthesis.metrics import frechet_distance, inception_score, near_copies, precision_recall

REAL = np.random.default_rng(0).normal(size=(120, 4))
DRAWN = np.random.default_rng(1).normal(0.3, 0.8, size=(90, 4))


def test_frechet_distance_is_its_formula() -> None:
    pytest.importorskip("torchmetrics")
    mean = REAL.mean(0) - DRAWN.mean(0)
    ours, theirs = np.cov(REAL, rowvar=False), np.cov(DRAWN, rowvar=False)
    naive = mean @ mean + np.trace(ours + theirs - 2 * sqrtm(ours @ theirs).real)
    assert frechet_distance(REAL, DRAWN) == pytest.approx(naive, rel=1e-4)
    assert frechet_distance(REAL, REAL) == pytest.approx(0, abs=1e-6)


def test_precision_and_recall_are_their_definition() -> None:
    def covered(points: np.ndarray, by: np.ndarray) -> float:
        hits = 0
        for point in points:
            for centre in by:
                radius = np.sort(np.linalg.norm(by - centre, axis=1))[3]
                if np.linalg.norm(point - centre) <= radius:
                    hits += 1
                    break
        return hits / len(points)

    found = precision_recall(REAL, DRAWN)
    assert (found.precision, found.recall) == (covered(DRAWN, REAL), covered(REAL, DRAWN))


def test_inception_score_is_its_definition() -> None:
    logits = np.random.default_rng(2).normal(size=(50, 3)) * 3
    each = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    naive = np.exp(np.mean([(p * np.log(p / each.mean(0))).sum() for p in each]))
    assert inception_score(logits) == pytest.approx(naive)
    assert inception_score(np.zeros((5, 3))) == pytest.approx(1)


def test_copies_are_found_and_fresh_images_are_not() -> None:
    wide = np.random.default_rng(3).normal(size=(400, 16))
    planted = np.concatenate([wide[:30] + 1e-4, np.random.default_rng(4).normal(size=(70, 16))])
    found = near_copies(wide, planted)
    assert found.rate == pytest.approx(0.3, abs=0.05)
    assert np.array_equal(found.nearest[:30], np.arange(30))
