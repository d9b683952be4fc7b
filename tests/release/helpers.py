"""Small releases for the tests of this floor."""

from __future__ import annotations

from typing import Any

import numpy as np

from privmix.release import (
    PrivateRecords,
    ReleaseConfig,
    ReleasedDataset,
    ReleasePlan,
    SecretStreams,
    release_to_memory,
)

CLASSES = ("ant", "bee", "cat")
TARGET = (4.0, 1e-5)

ALL_DESIGNS: list[dict[str, Any]] = [
    {"design": "poisson"},
    {"design": "poisson", "centre": "none"},
    {"design": "hierarchical", "expected_classes": 1.5},
    {"design": "classwise"},
    {"design": "classwise", "full_batch": True},
    {"design": "fixed"},
    {"design": "fixed", "noise": "laplace"},
    {"design": "random-weight", "max_weight": 0.5},
]


def design_name(choices: dict[str, Any]) -> str:
    return "-".join(str(value) for value in choices.values())


def make_records(count: int = 600, dim: int = 7, seed: int = 0) -> PrivateRecords:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CLASSES), count)
    features = rng.normal(size=(count, dim)) + 2 * np.eye(len(CLASSES), dim)[labels]
    return PrivateRecords(features.astype(np.float32), labels)


def make_plan(records: int = 600, dim: int = 7, **choices: Any) -> ReleasePlan:
    choices.setdefault("mixup_degree", 20)
    return ReleaseConfig(records=records, dim=dim, classes=CLASSES, **choices).calibrate(*TARGET)


def release(plan: ReleasePlan, records: PrivateRecords, seed: int = 1) -> ReleasedDataset:
    return release_to_memory(
        plan,
        records,
        SecretStreams.from_seed(seed),
        target=TARGET,
        extractor={"name": "identity"},
        input_shape=(plan.dim,),
    )
