"""Small releases for the tests of this floor."""

import hashlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from privmix.certificate.certificate import Certificate, content_hash
from privmix.certificate.croissant import croissant
from privmix.engine.rows import PrivateRecords
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.plans.registry import all_designs, design_named, plan_from_dict
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import ReleasedDataset
from privmix.releases.card import data_card
from privmix.releases.folder import file_hash
from privmix.releases.run import release_to_folder, release_to_memory

CLASSES = ("ant", "bee", "cat")
TARGET = (4.0, 1e-5)

# Designs whose rows mix records, and all of them; tests/designs says that none of the registry is missing.
ALL_DESIGNS: list[dict[str, Any]] = [
    {"design": "poisson"},
    {"design": "poisson", "centre": "none"},
    {"design": "allocation"},
    {"design": "hierarchical", "expected_classes": 1.5},
    {"design": "classwise"},
    {"design": "classwise", "full_batch": True},
    {"design": "fixed"},
    {"design": "fixed", "noise": "laplace"},
    {"design": "random-weight", "max_weight": 0.5},
    {"design": "gaussian-mixing"},
]
EMBEDDINGS: list[dict[str, Any]] = [
    {"design": "merf", "frequencies": 24},
    {"design": "hermite", "order": 4, "pairs": 3, "pair_order": 2},
]
EVERY_DESIGN = [
    *ALL_DESIGNS,
    {"design": "moments"},
    {"design": "moments", "centre": "none"},
    {"design": "class-moments"},
    {"design": "class-moments", "centre": "none"},
    {"design": "moments-series", "steps": 3},
    {"design": "corrected-moments"},
    {"design": "corrected-moments", "centre": "none"},
    {"design": "two-stage"},
    {"design": "two-stage", "centre": "none"},
    {"design": "three-stage"},
    {"design": "three-stage", "centre": "none"},
    *EMBEDDINGS,
]


def design_name(choices: dict[str, Any]) -> str:
    return "-".join(str(value) for value in choices.values())


def own_options(choices: dict[str, Any]) -> dict[str, Any]:
    """Choices without options that their design does not have: what many designs are tested with, for each."""
    own = {option.name for option in design_named(choices.get("design", "poisson")).options()}
    foreign = {option.name for design in all_designs() for option in design.options()} - own
    return {name: value for name, value in choices.items() if name not in foreign}


def make_records(count: int = 600, dim: int = 7, seed: int = 0) -> PrivateRecords:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CLASSES), count)
    features = rng.normal(size=(count, dim)) + 2 * np.eye(len(CLASSES), dim)[labels]
    return PrivateRecords(features.astype(np.float32), labels)


@cache
def make_plan(records: int = 600, dim: int = 7, **choices: Any) -> ReleasePlan:
    own = own_options({"mixup_degree": 20, **choices})
    return ReleaseConfig(records=records, dim=dim, classes=CLASSES, **own).calibrate(*TARGET)


def release(plan: ReleasePlan, records: PrivateRecords, seed: int = 1) -> ReleasedDataset:
    return release_to_memory(
        plan, records, SecretStreams.from_seed(seed), extractor={"name": "identity"}, input_shape=(plan.dim,)
    )


def write_release(
    out: Path, plan: Plan, records: PrivateRecords | None = None, seed: int | None = 1, **more: Any
) -> Certificate:
    """A release in a folder; without a seed, under a secret key."""
    streams = SecretStreams.from_entropy() if seed is None else SecretStreams.from_seed(seed)
    facts = {"extractor": {"name": "identity"}, "input_shape": (plan.dim,), **more}
    return release_to_folder(plan, records or make_records(), streams, out, **facts)


def replant(folder: Path, certificate: dict[str, Any], *, rehashed: bool = False) -> None:
    """Write a certificate, and what follows from it as far as it can be made; ``rehashed``: with the files' hashes."""
    for item in certificate["files"] if rehashed else []:
        item["sha256"] = file_hash(folder / item["file"])
    certificate["content_sha256"] = content_hash(certificate)
    content = Certificate(certificate).to_bytes()
    (folder / "certificate.json").write_bytes(content)
    if (folder / "README.md").exists():
        # Whatever these make of it: a forger would write them by hand.
        with suppress(Exception):
            (folder / "README.md").write_text(data_card(plan_from_dict(certificate["plan"]), certificate))
        with suppress(Exception):
            (folder / "croissant.json").write_bytes(croissant(certificate, hashlib.sha256(content).hexdigest()))
