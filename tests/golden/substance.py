"""What results follow from: prices, releases, learners, trainings and plans, as numbers from fixed seeds.

``python -m tests.golden.substance`` computes them. Where an area's numbers differ from those kept, its edition goes up
and its date becomes today's; then each page of ``benchmarks/results`` whose script uses a changed area states at its
head that it was not rebuilt. A change that only moves code changes no number, and no page.
"""

import json
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
from benchmarks import editions

from privmix.engine.rows import PrivateRecords
from privmix.learning.base import LEARNERS
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig, choose_design
from privmix.releases.run import release_to_memory
from tests.golden.freeze import CLASSES, FROZEN, records
from tests.learning.test_table_model import fitted
from tests.training.runs import config_of, job_of

Values = dict[str, list[Any]]


def prices() -> Values:
    """Noise multipliers of designs and of a training, at two budgets."""
    found: Values = {}
    for design in ("poisson", "allocation", "fixed", "hierarchical", "classwise", "gaussian-mixing", "moments"):
        config = ReleaseConfig(records=20_000, dim=50, classes=CLASSES, design=design, rows=5_000)
        found[design] = [float(config.calibrate(epsilon, 1e-5).noise_multiplier) for epsilon in (1, 8)]
    found["training"] = [float(job_of(config_of(epsilon=epsilon)).plan.noise_multiplier) for epsilon in (1.0, 8.0)]
    return found


def releases() -> Values:
    """Digests of the arrays of every design, from ``frozen.json``, which has a test of its own."""
    parts = ("rows", "moments", "centre")
    return {name: [found[part] for part in parts if part in found] for name, found in _frozen()["releases"].items()}


def trainings() -> Values:
    """Norm, sum and a sample of weights, from ``frozen.json``."""
    return {name: found["weights"] for name, found in _frozen()["trainings"].items()}


def _frozen() -> Any:
    return json.loads(FROZEN.read_text(encoding="utf-8"))


def learners() -> Values:
    """Probabilities of five records, by the learners of four designs."""
    found: Values = {}
    x, y = records()
    of = {"poisson": ("discriminant", "generalized-kl", "noise-aware-ridge"), "moments": ("second-moments",)}
    of["corrected-moments"] = ("corrected",)
    for design, names in (of | {name: (name,) for name in ("two-stage", "three-stage")}).items():
        plan = ReleaseConfig(records=len(x), dim=x.shape[1], classes=CLASSES, design=design).calibrate(20.0, 1e-3)
        facts: dict[str, Any] = {"extractor": {"name": "identity"}, "input_shape": (x.shape[1],)}
        released = release_to_memory(plan, PrivateRecords(x, y), SecretStreams.from_seed(7), **facts)
        for name in names:
            found[f"{design}: {name}"] = LEARNERS[name]().fit(released).predict_proba(x[:5]).ravel().tolist()
    return found


def tables() -> Values:
    """Shares of all states of a table that a fit gives."""
    rows = fitted(15.0).sample(20_000, np.random.default_rng(0))
    return {"shares": (np.bincount(np.ravel_multi_index(rows.T, (3, 4, 2, 2)), minlength=48) / len(rows)).tolist()}


def plans() -> Values:
    """Designs by expected accuracy, as the planner has them, with mixup degree and shares chosen."""
    config = ReleaseConfig(records=5_000, dim=30, classes=CLASSES)
    found: Values = {}
    for item in choose_design(config, 1.0, 1e-5, curve=False).candidates:
        settings = item.config.design.settings().values()
        found[item.name] = [item.accuracy, *(float(value) for value in settings if isinstance(value, int | float))]
    return found


AREAS: dict[str, Callable[[], Values]] = {
    area.__name__: area for area in (prices, releases, learners, tables, trainings, plans)
}


def differs(found: Values, kept: Values) -> bool:
    """Whether something that is kept has other numbers, or is gone. What is new changes no page."""
    for name, values in kept.items():
        now = found.get(name, [])
        if len(now) != len(values) or any(isinstance(value, str) for value in now):
            if now != values:
                return True
        elif not np.allclose(now, values, rtol=2e-3, atol=1e-3):
            return True
    return False


def main() -> None:
    kept = editions.read()
    for area, compute in AREAS.items():
        found = compute()
        if area not in kept or differs(found, kept[area]["values"]):
            edition = kept[area]["edition"] + 1 if area in kept else 1
            kept[area] = {"edition": edition, "since": date.today().isoformat(), "values": found}
            print(f"{area} changed: edition {edition}")
        elif found.keys() != kept[area]["values"].keys():
            kept[area]["values"] = {name: kept[area]["values"].get(name, values) for name, values in found.items()}
    editions.KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    for page in editions.pages():
        page.write_text(editions.with_head(page), encoding="utf-8")


if __name__ == "__main__":
    main()
