"""How much of a claim one run proves, against the number of canaries, by both bounds; and how long an audit takes.

MNIST: Poisson and class-wise releases of pixels, and DP-SGD on a linear head over scattering features with planted
gradients. Finished runs are kept in results/canary_runs.json and not repeated. ``timing`` as an argument runs the audit
of a release of MNIST's size alone, in a process of its own; ``persons`` those of persons; ``means`` those whose scores'
means are told; ``tables`` writes what is there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import common
from privmix.attacks.canaries import CanaryAudit, CanaryConfig, audit_release
from privmix.attacks.training_canaries import audit_training_canaries
from privmix.data import FeatureStore, open_dataset
from privmix.designs import Classwise
from privmix.engine import PrivateRecords
from privmix.features import get_extractor, write_features
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.reports.style import COLOURS, new_figure, save_figure
from privmix.training import ModelFacts, TrainingConfig, TrainingRecords

RUNS = common.RESULTS / "canary_runs.json"
CACHE = common.RESULTS.parent / "cache"
CLASSES = tuple("0123456789")
DELTA, CONFIDENCE, DEGREE, EPOCHS = 1e-5, 0.95, 64, 3.0
COUNTS, EPSILONS, SEEDS = (100, 300, 1_000, 3_000, 10_000), (1.0, 8.0), (0, 1, 2)
TARGETS = ("poisson", "classwise", "dp-sgd")
# Records dealt to persons with five each, at random; beside the same of single records.
EACH, SOME = 5, 1_000
UNITS: dict[str, int | None] = {
    "sums of records": None,
    "sums of persons": 1,
    "steps of records": None,
    "steps of persons, K = 1": 1,
    "steps of persons, K = 4": 4,
}
TIMING, PERSONS, MEANS = "timing", "persons", "means"
ASSUMED = {
    "gaussian_epsilon": "scores are Gaussian",
    "own_noise_epsilon": "the plan's own noise",
    "apart_epsilon": "the curve of Gaussian DP",
}
NAMES = {
    "poisson": "Poisson release, pixels",
    "classwise": "class-wise release, pixels",
    "dp-sgd": "DP-SGD, planted gradients",
}


@cache
def pixels() -> PrivateRecords:
    extractor = get_extractor("pixels")
    source = open_dataset(common.data_root() / "mnist", split="train", classes=list(CLASSES)).read()
    return PrivateRecords(extractor.transform(source.x).astype(np.float32), np.asarray(source.y, np.int64))


@cache
def scattering() -> FeatureStore:
    extractor = get_extractor("scattering")
    source = open_dataset(common.data_root() / "mnist", split="train", classes=list(CLASSES))
    CACHE.mkdir(exist_ok=True)
    facts = {"dataset": "mnist", "split": "train"}
    return write_features(source, extractor, CACHE / "mnist-scattering-train-store", facts, lambda *_: None)


def one_audit(target: str, epsilon: float, canaries: int, seed: int) -> CanaryAudit:
    config = CanaryConfig(canaries=canaries, confidence=CONFIDENCE)
    streams, generator = SecretStreams.from_seed(1000 * seed + canaries), np.random.default_rng((seed, canaries))
    if target == "dp-sgd":
        store = scattering()
        records = TrainingRecords.of(store.features, store.labels, classes=10)
        facts = ModelFacts(CLASSES, get_extractor("scattering").spec(), (28, 28), records.dim)
        training = TrainingConfig.for_model("linear", records=len(records), epsilon=epsilon, delta=DELTA, epochs=EPOCHS)
        return audit_training_canaries(training, facts, records, config, streams=streams, generator=generator)
    found: PrivateRecords | FeatureStore = scattering() if target == TIMING else pixels()
    plan = ReleaseConfig(
        records=len(found.labels),
        dim=found.features.shape[1],
        classes=CLASSES,
        design="poisson" if target == TIMING else target,
        mixup_degree=DEGREE,
    ).calibrate(epsilon, DELTA)
    return audit_release(plan, found, config, delta=DELTA, streams=streams, generator=generator)


def dealt() -> PrivateRecords:
    found = pixels()
    return PrivateRecords(found.features, found.labels, np.random.default_rng(0).permutation(len(found.labels)) // EACH)


def one_of_units(target: str, epsilon: float, canaries: int, seed: int) -> CanaryAudit:
    """Class sums, and the linear head, of pixels: records as units, or persons whose canaries have 100 K records."""
    most = UNITS[target]
    found = pixels() if most is None else dealt()
    config = CanaryConfig(canaries, CONFIDENCE, canary_records=None if most is None else 100 * most)
    streams, generator = SecretStreams.from_seed(1000 * seed + canaries), np.random.default_rng((seed, canaries))
    units = found.units
    if target.startswith("sums"):
        design = Classwise(full_batch=True)
        setting = ReleaseConfig(
            records=units, dim=found.features.shape[1], classes=CLASSES, design=design, per_person=most
        )
        plan = setting.calibrate(epsilon, DELTA)
        return audit_release(plan, found, config, delta=DELTA, streams=streams, generator=generator)
    records = TrainingRecords.of(found.features, found.labels, classes=10, persons=found.persons)
    facts = ModelFacts(CLASSES, get_extractor("pixels").spec(), (28, 28), records.dim)
    training = TrainingConfig.for_model("linear", records=units, epsilon=epsilon, delta=DELTA, epochs=EPOCHS)
    training = replace(training, per_person=most)
    return audit_training_canaries(training, facts, records, config, streams=streams, generator=generator)


def one_run(target: str, epsilon: float, canaries: int, seed: int) -> dict[str, Any]:
    # Features are read, or made, before the clock starts.
    _ = pixels() if target in ("poisson", "classwise", *UNITS) else scattering()
    load = os.getloadavg()[0]
    start, worked = time.perf_counter(), time.process_time()
    found = (one_of_units if target in UNITS else one_audit)(target, epsilon, canaries, seed).to_dict()
    seconds, cpu_seconds = round(time.perf_counter() - start, 1), round(time.process_time() - worked, 1)
    memory = {"peak_memory_gib": round(common.peak_memory_gib(), 2), "load": load} if target == TIMING else {}
    return {
        "target": target,
        "epsilon": epsilon,
        "seed": seed,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        **memory,
        **found,
    }


def mean_or_dash(values: list[float | None]) -> str:
    told = [value for value in values if value is not None]
    return f"{np.mean(told):.2f}" if len(told) == len(values) else "-"


def write_tables(runs: list[dict[str, Any]]) -> None:
    cells = [(target, epsilon, count) for target in TARGETS for epsilon in EPSILONS for count in COUNTS]
    rows, points = [], {}
    for cell in cells:
        mine = [run for run in runs if (run["target"], run["epsilon"], run["canaries"]) == cell]
        if not mine:
            continue
        means = {name: float(np.mean([run["proven_by"][name] for run in mine])) for name in ("steinke", "mahloujifar")}
        points[cell] = means
        correct = np.mean([run["correct"] for run in mine])
        rows.append(
            [
                NAMES[cell[0]],
                f"{cell[1]:g}",
                f"{cell[2]:,}",
                f"{correct:.0f} of {mine[0]['guesses']}",
                f"{means['steinke']:.2f}",
                f"{means['mahloujifar']:.2f}",
                f"{mine[0]['provable_epsilon']:.2f}",
                "yes" if any(run["violated"] for run in mine) else "no",
                f"{common.median([run['cpu_seconds'] for run in mine]):.0f} s ({len(mine)})",
            ]
        )
    header = [
        "what",
        "claimed ε",
        "canaries",
        "correct guesses",
        "proven: Steinke et al.",
        "proven: Mahloujifar et al.",
    ]
    header += ["if all were right", "claim refuted", "processor time, median (runs)"]
    timing = [run for run in runs if run["target"] == TIMING]
    speed = [
        [
            f"{run['canaries']:,}",
            f"{run['cpu_seconds']} s",
            f"{run['seconds']} s",
            f"{run['load']:.1f}",
            f"{run['peak_memory_gib']} GiB",
        ]
        for run in timing
    ]
    facts = {
        "data": "MNIST, n = T = 60,000; pixels: 784 features; scattering: 3,969",
        "releases": f"m = {DEGREE}, private centring, lambda = 1, delta {DELTA:g}, add/remove, priced by PLD",
        "DP-SGD": f"linear head, {EPOCHS:g} epochs, batches of 8,192; the attacker sees every noisy sum",
        "confidence": f"{CONFIDENCE:.0%} for both bounds together; guesses are fixed beforehand from the claim",
        "proven": "means over runs with canaries, coins and noise of their own",
        "machine": "two cores, shared with other work; one BLAS thread",
        "papers": "bounds of Steinke, Nasr, Jagielski 2023 and of Mahloujifar, Melis, Chaudhuri 2024; the latter for "
        "the mechanism's own curve at an unknown noise",
    }
    tables = [common.table(header, rows)]
    if speed:
        tables.append(
            "One audit of a release of MNIST's size (T = 60,000, m = 64, d = 3,969), features at hand:\n\n"
            + common.table(
                ["canaries", "processor time", "wall time", "other work: load on two cores", "peak memory"], speed
            )
        )
    told = [run for run in runs if "apart_epsilon" in run.get("assumed", {}) and run["target"] in TARGETS]
    if told:
        tables.append(
            "What scores prove if canaries do not influence one another and, beside that, what the column says, by all "
            "scores (- where a test withdraws it in a run). The last column asks nothing of the scores' law: guesses "
            "at half of the canaries. Means:\n\n"
            + common.table(
                ["what", "claimed ε", "canaries", "runs", "proven without", *ASSUMED.values()],
                [
                    [
                        NAMES[cell[0]],
                        f"{cell[1]:g}",
                        f"{cell[2]:,}",
                        str(len(mine)),
                        f"{np.mean([run['proven_epsilon'] for run in mine]):.2f}",
                        *(mean_or_dash([run["assumed"][name] for run in mine]) for name in ASSUMED),
                    ]
                    for cell in cells
                    if (mine := [run for run in told if (run["target"], run["epsilon"], run["canaries"]) == cell])
                ],
            )
        )
    by_unit = [[run for run in runs if run["target"] == target] for target in UNITS]
    if all(by_unit):
        lines = [
            [
                mine[0]["target"],
                f"{np.mean([run['correct'] for run in mine]):.0f} of {mine[0]['guesses']}",
                f"{np.mean([run['proven_by']['steinke'] for run in mine]):.2f}",
                f"{np.mean([run['proven_by']['mahloujifar'] for run in mine]):.2f}",
                f"{common.median([run['cpu_seconds'] for run in mine]):.0f} s ({len(mine)})",
            ]
            for mine in by_unit
        ]
        tables.append(
            f"Persons beside records, claimed ε 8, {SOME:,} planted canaries, pixels: sums of whole classes, and "
            f"DP-SGD on a linear head. Records are dealt to persons with {EACH} each; a canary person has 100 K "
            "records:\n\n" + common.table(["what", *header[3:6], "processor time, median (runs)"], lines)
        )
    common.save("canaries", "One-run audits against the number of canaries", facts, runs, tables)
    draw(points)


def draw(points: dict[tuple[str, float, int], dict[str, float]]) -> None:
    figure = new_figure(10, 5.0)
    panels = figure.subplots(1, len(EPSILONS))
    for axes, epsilon in zip(panels, EPSILONS, strict=True):
        axes.axhline(epsilon, color="black", linewidth=1.2, label="claimed")
        for target, colour, marker in zip(TARGETS, COLOURS, "os^", strict=False):
            counts = [count for count in COUNTS if (target, epsilon, count) in points]
            for name, style in (("mahloujifar", "-"), ("steinke", ":")):
                values = [points[target, epsilon, count][name] for count in counts]
                label = f"{NAMES[target]}; {name.capitalize()} et al."
                axes.plot(counts, values, style, color=colour, marker=marker, markersize=4, label=label)
        axes.set_xscale("log")
        axes.set_xlabel("canaries")
        axes.set_ylabel("epsilon proven in one run")
        axes.set_title(f"claimed epsilon {epsilon:g}", fontsize=10)
        axes.grid(True, alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
    save_figure(figure, common.RESULTS / "canaries.svg")


def main() -> None:
    """Run what is missing; with the argument ``tables``, only write what is there."""
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    if "tables" in sys.argv:
        write_tables(runs)
        return
    done = {(run["target"], run["epsilon"], run["canaries"], run["seed"]) for run in runs}
    cells = [
        (target, epsilon, count, seed)
        for seed in SEEDS
        for count in COUNTS
        for target in TARGETS
        for epsilon in EPSILONS
    ]
    cells += [(target, 8.0, SOME, seed) for seed in SEEDS for target in UNITS]
    if PERSONS in sys.argv:
        cells = [cell for cell in cells if cell[0] in UNITS]
    if MEANS in sys.argv:
        # Seeds of their own: what was run before told no such figures.
        cells = [(target, epsilon, 3_000, seed) for seed in (3, 4, 5) for target in TARGETS for epsilon in EPSILONS]
    if TIMING in sys.argv:
        cells = [(TIMING, 1.0, 1_000, 0)]
    for cell in cells:
        if cell not in done:
            runs.append(one_run(*cell))
            print(
                {name: runs[-1][name] for name in ("target", "epsilon", "canaries", "correct", "seconds")}, flush=True
            )
            RUNS.write_text(json.dumps(runs, indent=0) + "\n")
    write_tables(runs)


if __name__ == "__main__":
    main()
