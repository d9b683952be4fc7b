"""Mixed labels against loops that follow the papers' words, and as the plan's own sampler draws them."""

import math
from typing import Any

import numpy as np
import pytest

from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.rows import ReleasePlan
from privmix.research.collapse.labels import label_collapse, mixed_labels

NAMES = ("ant", "bee", "cat", "dog")
DESIGNS: list[dict[str, Any]] = [
    {"design": "poisson"},
    {"design": "hierarchical", "expected_classes": 2.0},
    {"design": "fixed"},
    {"design": "classwise"},
]


def make_plan(design: dict[str, Any], noise: float = 1.0, records: int = 400, degree: int = 20) -> ReleasePlan:
    config = ReleaseConfig(records=records, dim=3, classes=NAMES, mixup_degree=degree, rows=2000, **design)
    return config.with_noise(noise, 20.0)


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design["design"])
def test_mixed_labels_follow_the_sampler(design: dict[str, Any]) -> None:
    """Means and second moments as the plan's sampler's, within 7 errors on 2,000 rows: false alarm below 1e-10."""
    plan = make_plan(design)
    labels = np.repeat(np.arange(4), [160, 120, 80, 40])
    held = [plan.sampler.draw(SecretStreams.from_seed(0), tile, 0, labels) for tile in range(plan.sampler.row_tiles)]
    onehot = np.eye(4)[labels]
    drawn = [onehot[rows] for part in held for rows in np.split(part.indices, part.offsets[1:-1])]
    real = np.array([rows.sum(axis=0) for rows in drawn]) / plan.divisor
    # A fifth of the records: only shares count.
    clean, noisy = mixed_labels(plan, labels[::5], np.random.default_rng(1), len(real))
    for power in (1, 2):
        spread = np.sqrt(((real**power).var(axis=0) + (clean**power).var(axis=0)) / len(real))
        assert (np.abs((real**power).mean(axis=0) - (clean**power).mean(axis=0)) <= 7 * spread + 1e-12).all()
    joint = [(rows[:, 0] * rows[:, 1]) for rows in (real, clean)]
    assert abs(joint[0].mean() - joint[1].mean()) <= 7 * math.sqrt((joint[0].var() + joint[1].var()) / len(real))
    assert (noisy - clean).std() == pytest.approx(plan.noise_std_y, rel=0.06)


def test_label_collapse_is_that_of_a_loop() -> None:
    plan, labels = make_plan({"design": "poisson"}, noise=1.5), np.arange(4)
    found = label_collapse(plan, labels, np.random.default_rng(5), rows=300)
    clean, noisy = mixed_labels(plan, labels, np.random.default_rng(5), 300)
    tops, sides = 0, {True: [0, 0], False: [0, 0]}
    for before, after in zip(clean, noisy, strict=True):
        tops += int(before[np.argmax(after)] == before.max())
        for a, b in zip(before, after, strict=True):
            # An entry of exactly 1/K has no side to keep.
            sides[bool(a > 0.25)][0] += int(a != 0.25 and (a > 0.25) == (b > 0.25))
            sides[bool(a > 0.25)][1] += int(a != 0.25)
    assert found.top_kept == tops / 300
    assert found.level_kept == pytest.approx(np.mean([kept / total for kept, total in sides.values()]))
    assert found.spread == pytest.approx(math.sqrt(((clean - 0.25) ** 2).mean()))
    assert found.signal_to_noise == pytest.approx((found.spread / found.noise_std) ** 2)
