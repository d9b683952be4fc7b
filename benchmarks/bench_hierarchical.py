"""Hierarchical sampling against plain Poisson sampling on many classes, each at its best settings (Li et al. 2024).

banking77: 77 classes, 10,003 records, sentence embeddings. Mixup degree m, and the classes that a row expects, are
searched for each method, learner and epsilon alike, on a fifth of the training records that no release of the search
sees. Hierarchical sampling is run at a valid price, and at the published noise, whose true epsilon the page states.
Learners: the paper's (generalised KL, without centring), and the one that ``privmix fit`` takes. DP-SGD and second
moments stand in the last table, as ``bench_training_linear.py`` and ``bench_designs.py`` ran them.

Finished runs are kept in results/hierarchical_runs.json, so a stopped benchmark goes on.

    python benchmarks/bench_hierarchical.py [--report]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import common
from bench_designs import data as sentences
from privmix.accounting import published_noise_multiplier
from privmix.designs import Hierarchical, Poisson
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.learning.base import LEARNERS
from privmix.learning.kl import GeneralizedKLClassifier
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.registry import made_by
from privmix.releases.run import release_to_memory

RUNS = common.RESULTS / "hierarchical_runs.json"
DELTA, EPSILONS = 1e-5, (1.0, 8.0)
DEGREES, EXPECTED = (8, 16, 32, 64, 128), (1.5, 3.0, 10.0)
POISSON, VALID, PUBLISHED = "Poisson", "hierarchical", "hierarchical, published noise"
PAPER, FIT = "generalised KL", "privmix fit"
EPOCHS, SEARCHED, SEEDS = 50, 2, 5


@dataclass(frozen=True)
class Point:
    """One release and its learner; ``expected`` is None for plain sampling."""

    method: str
    learner: str
    epsilon: float
    degree: int
    expected: float | None
    held_out: bool
    seed: int

    @property
    def key(self) -> str:
        return " | ".join(map(str, asdict(self).values()))


def settings_of(method: str) -> list[tuple[int, float | None]]:
    """Settings that the search tries for a method."""
    return [(degree, expected) for degree in DEGREES for expected in ((None,) if method == POISSON else EXPECTED)]


def lines() -> Iterator[tuple[str, str, float]]:
    for epsilon in EPSILONS:
        for method in (POISSON, VALID, PUBLISHED):
            for learner in (PAPER, FIT):
                yield method, learner, epsilon


def parts(held_out: bool) -> tuple[Any, Any, Any, Any]:
    """Records to release and records to judge by; the search judges by training records held out."""
    x, y = sentences("banking77", "train")
    if not held_out:
        return x, y, *sentences("banking77", "test")
    order = np.random.default_rng(0).permutation(len(x))
    judged, released = order[: len(x) // 5], order[len(x) // 5 :]
    return x[released], y[released], x[judged], y[judged]


def run(point: Point) -> dict[str, Any]:
    x, y, judged_x, judged_y = parts(point.held_out)
    design: Any = Poisson(mixup_degree=point.degree)
    if point.expected is not None:
        design = Hierarchical(mixup_degree=point.degree, expected_classes=point.expected)
    config = ReleaseConfig(records=len(x), dim=x.shape[1], classes=tuple(map(str, range(77))), design=design)
    if point.learner == PAPER:
        config = replace(config, centre="none")
    facts: dict[str, Any] = {"true_epsilon": point.epsilon}
    if point.method == PUBLISHED:
        noise = published_noise_multiplier(point.degree / len(x), len(x), point.epsilon, DELTA)
        plan = config.with_noise(noise, None if point.learner == PAPER else 4.0).priced(DELTA)
        facts["true_epsilon"] = plan.epsilon
    else:
        plan = config.calibrate(point.epsilon, DELTA)
    release = release_to_memory(
        plan,
        PrivateRecords(x, y),
        SecretStreams.from_seed(point.seed),
        extractor={"name": "minilm"},
        input_shape=(x.shape[1],),
    )
    paper = point.learner == PAPER
    learner = GeneralizedKLClassifier(epochs=EPOCHS, seed=point.seed) if paper else LEARNERS[made_by(plan).learner]()
    model = learner.fit(release)
    return {**facts, "accuracy": 100 * float((model.predict(judged_x) == judged_y).mean())}


def found_of(runs: dict[str, Any], **facts: Any) -> list[dict[str, Any]]:
    return [run for run in runs.values() if all(run[name] == value for name, value in facts.items())]


def searched(runs: dict[str, Any], method: str, learner: str, epsilon: float) -> dict[Any, float]:
    """Setting -> mean accuracy on held-out training records."""
    kept: dict[Any, list[float]] = {}
    for one in found_of(runs, method=method, learner=learner, epsilon=epsilon, held_out=True):
        if one["accuracy"] is not None:
            kept.setdefault((one["degree"], one["expected"]), []).append(one["accuracy"])
    return {setting: float(np.mean(values)) for setting, values in kept.items()}


def points(runs: dict[str, Any]) -> Iterator[Point]:
    """First the search, then the final runs at what it found."""
    for seed in range(SEARCHED):
        for line in lines():
            for setting in settings_of(line[0]):
                yield Point(*line, *setting, True, 100 + seed)
    for line in lines():
        tried = searched(runs, *line)
        for seed in range(SEEDS):
            yield Point(*line, *max(tried, key=tried.__getitem__), False, seed)


def _percent(accuracy: float) -> float:
    return accuracy if accuracy > 1 else 100 * accuracy


def kept_lines() -> list[list[str]]:
    """DP-SGD and second moments on the same features: runs of other benchmarks."""
    rows = []
    for name, words, wanted in (
        ("training_linear", "DP-SGD, searched alike", {"how": "tuned"}),
        ("designs", "second moments", {"design": "moments"}),
    ):
        found: dict[float, list[float]] = {}
        for one in common.kept(common.RESULTS / f"{name}_runs.json"):
            if all(one.get(key) == value for key, value in {"dataset": "banking77", **wanted}.items()):
                found.setdefault(float(one["epsilon"]), []).append(_percent(one["accuracy"]))
        rows.append([words, "", *(common.told(found[epsilon]) for epsilon in EPSILONS)])
    return rows


def report(runs: dict[str, Any]) -> None:
    rows, chosen, results = [], [], []
    for method in (POISSON, VALID, PUBLISHED):
        for learner in (PAPER, FIT):
            cells = []
            for epsilon in EPSILONS:
                final = found_of(runs, method=method, learner=learner, epsilon=epsilon, held_out=False)
                results += final
                values = [one["accuracy"] for one in final]
                true = f"; costs {final[0]['true_epsilon']:.2f}" if final and method == PUBLISHED else ""
                cells.append(common.told(values) + true if values else "-")
                if final:
                    chosen.append([method, learner, f"{epsilon:g}", final[0]["degree"], final[0]["expected"] or "all"])
            rows.append([method, learner, *cells])
    head = ["sampling", "learner", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)]
    tables = [common.table(head, [*rows, *kept_lines()]), gains(runs)]
    tables.append("## Settings chosen\n\n" + common.table(["sampling", "learner", "epsilon", "m", "classes"], chosen))
    for learner in (PAPER, FIT):
        for place, (name, values) in enumerate((("m", DEGREES), ("classes", EXPECTED))):
            tables.append(f"## Accuracy over {name}: {learner}\n\n{over(runs, learner, place, name, values)}")
    settings = {
        "delta": DELTA,
        "cells": "test accuracy, %: mean (standard deviation, runs)",
        "accounting": "PLD; add or remove one record",
        "search": f"m in {DEGREES}, expected classes in {EXPECTED}, {SEARCHED} runs each",
        "edge": "best settings at the edge of the search stay: they are lower bounds of a line's best",
        "held out for the search": "a fifth of the training records",
        "paper's learner": f"generalised KL, {EPOCHS} epochs, no centring",
        "published noise": "Li et al. 2024; with a private mean of its own noise multiplier 4 where `fit` learns",
        "cpu_seconds": round(sum(one["cpu_seconds"] for one in runs.values())),
    }
    common.save("hierarchical", "Hierarchical sampling, each method at its best settings", settings, results, tables)


def gains(runs: dict[str, Any]) -> str:
    """Hierarchical less Poisson sampling, paired by seed."""
    rows = []
    for learner in (PAPER, FIT):
        for epsilon in EPSILONS:
            facts = {"learner": learner, "epsilon": epsilon, "held_out": False}
            few, plain = (
                {one["seed"]: one["accuracy"] for one in found_of(runs, method=method, **facts)}
                for method in (VALID, POISSON)
            )
            pairs = [few[seed] - plain[seed] for seed in sorted(few.keys() & plain.keys())]
            if len(pairs) > 1:
                rows.append([learner, f"{epsilon:g}", common.gap(pairs)])
    return "## Points that hierarchical sampling gains at a valid epsilon\n\n" + common.table(
        ["learner", "epsilon", "gain, 95%"], rows
    )


def over(runs: dict[str, Any], learner: str, place: int, name: str, values: Sequence[float]) -> str:
    """Held-out accuracy for each value of one setting, at the best value of the other."""
    rows = []
    for epsilon in EPSILONS:
        for method in (POISSON, VALID, PUBLISHED)[place:]:
            tried = searched(runs, method, learner, epsilon)
            best = [max((v for at, v in tried.items() if at[place] == value), default=None) for value in values]
            rows.append([f"{epsilon:g}", method, *("-" if value is None else f"{value:.1f}" for value in best)])
    return common.table(["epsilon", "sampling", *(f"{name} = {value:g}" for value in values)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="only write the page, from the runs that are kept")
    runs: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    for point in () if parser.parse_args().report else points(runs):
        if point.key not in runs:
            start = time.process_time()
            try:
                measured = run(point)
            except InvalidInput as refusal:
                measured = {"true_epsilon": None, "accuracy": None, "refused": refusal.field}
            runs[point.key] = {**asdict(point), **measured, "cpu_seconds": round(time.process_time() - start, 1)}
            print(point.key, measured["accuracy"], runs[point.key]["cpu_seconds"], flush=True)
            RUNS.write_text(json.dumps(runs, indent=0) + "\n")
    report(runs)


if __name__ == "__main__":
    main()
