"""Persons with many records as the unit of privacy: accuracy by design, beside group privacy and beside records.

MNIST (scattering, projected to 1,000 numbers, each record at norm 1) and banking77 (sentence embeddings) are dealt to
persons at random: 1, 5 or 20 records each, or by a Zipf law (exponent 2, at most 200), by a seed that is stated. A
release of persons is priced for one person with all records. Beside it stand

* group privacy: a release of records whose price for the most records that a person has is the same epsilon;
* one record a person, drawn at random, released as records: what a release of persons must beat;
* records as units: the same epsilon, for one record alone.

Designs and the linear head have their defaults (moments: label share 0.5; DP-SGD: up to 4 records of a person in a
step).
Test sets were read for the figures here. Runs are kept in results/persons_runs.json, so a broken-off benchmark goes on
where it stopped. The time of a release of a million records in memory, with persons and without, is measured pair by
pair.

    python benchmarks/bench_persons.py [--only banking77,mnist,time] [--seeds 5]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import bench_designs
import common
from privmix import accounting
from privmix.accounting.groups import group_event
from privmix.designs import Classwise, Moments, Poisson, ThreeStage, TwoStage
from privmix.engine import PrivateRecords
from privmix.engine.engines import make_engine
from privmix.features import Identity
from privmix.features.projected import Projected
from privmix.learning import LEARNERS
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.releases import release_to_memory
from privmix.training import ModelFacts, Trainer, TrainingConfig, TrainingRecords

RUNS = common.RESULTS / "persons_runs.json"
DELTA: Final = 1e-5
EPSILONS: Final = (1.0, 8.0)
CLASSES: Final = {"banking77": 77, "mnist": 10}
DEALT: Final = ("1", "5", "20", "Zipf")
DESIGNS: Final[dict[str, Any]] = {
    "moments": Moments(),
    "two stages": TwoStage(),
    "three stages": ThreeStage(),
    "Poisson mixup": Poisson(),
    "class sums": Classwise(full_batch=True),
}
TRAINED, GROUP, ONE, RECORDS = (
    "DP-SGD, linear head",
    "moments, group privacy",
    "moments, one record a person",
    "moments, records as units",
)
METHODS: Final = (*DESIGNS, TRAINED, GROUP, ONE, RECORDS)
MOST_IN_A_STEP: Final = 4
MILLION: Final = 1_000_000

Data = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]


@cache
def data(dataset: str) -> Data:
    """Features at norm 1 and labels, to train on and to test."""
    found: list[Any] = []
    for split in ("train", "test"):
        x, y = bench_designs.data(dataset, split)
        if dataset == "mnist":
            x = Projected(Identity(), 1000).transform(np.asarray(x, np.float32))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
        found += [x, np.asarray(y)]
    return tuple(found)  # type: ignore[return-value]


def dealt(records: int, how: str, seed: int = 0) -> NDArray[np.int64]:
    """(records,) whose each record is."""
    rng = np.random.default_rng(seed)
    if how != "Zipf":
        return rng.permutation(records) // int(how)
    sizes = np.minimum(rng.zipf(2.0, records), 200)
    whose = np.repeat(np.arange(records), sizes)[:records]
    return rng.permutation(whose)


def release_run(dataset: str, how: str, method: str, epsilon: float, seed: int) -> dict[str, Any]:
    x, y, test_x, test_y = data(dataset)
    whose = dealt(len(x), how)
    persons = len(np.unique(whose))
    design: Any = DESIGNS.get(method, Moments())
    unit: dict[str, Any] = {"records": len(x)} if method in (GROUP, RECORDS) else {"records": persons}
    if method in DESIGNS:
        unit["per_person"] = 1
    records = PrivateRecords(x, y, whose if method in DESIGNS else None)
    if method == ONE:
        order = np.random.default_rng(seed).permutation(len(x))
        own = order[np.unique(whose[order], return_index=True)[1]]
        records = PrivateRecords(x[own], y[own])
    rows = 1 if method not in ("Poisson mixup", "class sums") else None
    names = tuple(str(number) for number in range(CLASSES[dataset]))
    config = ReleaseConfig(dim=x.shape[1], classes=names, design=design, rows=rows, **unit)
    plan: Any = group_plan(config, int(np.bincount(whose).max()), epsilon) if method == GROUP else None
    start = time.process_time()
    plan = plan or config.calibrate(epsilon, DELTA)
    release = release_to_memory(
        plan, records, SecretStreams.from_seed(seed), extractor={"name": "identity"}, input_shape=(x.shape[1],)
    )
    model = LEARNERS[design.learner]().fit(release)
    return {"accuracy": float((model.predict(test_x) == test_y).mean()), "cpu": time.process_time() - start}


def group_plan(config: ReleaseConfig, records: int, epsilon: float) -> Any:
    """The least noise at which ``records`` records together cost no more than epsilon."""

    def event(noise: float) -> Any:
        return group_event(config.with_noise(noise, 20.0 * records / epsilon).event, records)

    noise = accounting.calibrate(event, epsilon, DELTA).noise_multiplier
    return config.with_noise(noise, 20.0 * records / epsilon).priced(DELTA)


def train_run(dataset: str, how: str, epsilon: float, seed: int) -> dict[str, Any]:
    x, y, test_x, test_y = data(dataset)
    whose, classes = dealt(len(x), how), tuple(str(number) for number in range(CLASSES[dataset]))
    persons = len(np.unique(whose))
    most = min(MOST_IN_A_STEP, 1 if how == "1" else MOST_IN_A_STEP)
    config = TrainingConfig.for_model("linear", records=persons, epsilon=epsilon, delta=DELTA, per_person=most)
    facts = ModelFacts(classes, {"name": "identity", "version": 1, "options": {}}, (x.shape[1],), x.shape[1])
    start = time.process_time()
    records = TrainingRecords.of(x, y, classes=len(classes), persons=whose)
    model = Trainer(config, facts, persons).run(records, streams=SecretStreams.from_seed(seed))
    return {"accuracy": float((model.predict(test_x) == test_y).mean()), "cpu": time.process_time() - start}


def kept() -> list[dict[str, Any]]:
    return json.loads(RUNS.read_text()) if RUNS.exists() else []


def jobs(parts: set[str], seeds: int) -> Iterator[tuple[str, str, str, float, int]]:
    for seed in range(seeds):
        for dataset in CLASSES:
            for how in DEALT:
                for method in METHODS if dataset in parts else ():
                    for epsilon in EPSILONS:
                        if not (how == "1" and method in (GROUP, ONE)):
                            yield dataset, how, method, epsilon, seed


def timed(pairs: int = 5) -> list[dict[str, float]]:
    """Seconds of a release of a million records of 64 numbers, as records and of 100,000 persons, in turns."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(MILLION, 64)).astype(np.float32), rng.integers(0, 10, MILLION)
    whose = dealt(MILLION, "10")
    found = []
    for design in ("moments", "poisson"):
        for number in range(pairs):
            seconds = {}
            for unit in ("records", "persons"):
                count = MILLION if unit == "records" else MILLION // 10
                config = ReleaseConfig(
                    records=count,
                    dim=64,
                    classes=tuple("0123456789"),
                    design=design,
                    rows=1 if design == "moments" else 100_000,
                    per_person=None if unit == "records" else 1,
                    **({"mixup_degree": 64} if design == "poisson" else {}),
                )
                plan = config.with_noise(2.0)
                records = PrivateRecords(x, y, None if unit == "records" else whose)
                start = time.perf_counter()
                for _ in make_engine(plan, records, SecretStreams.from_seed(number), workers=1).rows():
                    pass
                seconds[unit] = time.perf_counter() - start
            found.append({"design": design, **seconds})
            print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="banking77,mnist,time", help="parts, separated by commas; none: tables alone")
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    parts, runs = set(asked.only.split(",")), kept()
    done = {tuple(run.get(name) for name in ("dataset", "dealt", "method", "epsilon", "seed")) for run in runs}
    for dataset, how, method, epsilon, seed in jobs(parts, asked.seeds):
        if (dataset, how, method, epsilon, seed) in done:
            continue
        found = (
            train_run(dataset, how, epsilon, seed)
            if method == TRAINED
            else release_run(dataset, how, method, epsilon, seed)
        )
        one = {"dataset": dataset, "dealt": how, "method": method, "epsilon": epsilon, "seed": seed, **found}
        runs.append(one)
        RUNS.write_text(json.dumps(runs, indent=1) + "\n")
        print(one, flush=True)
    if "time" in parts and not any("records" in run for run in runs):
        runs += timed()
        RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    report(runs)


def report(runs: list[dict[str, Any]]) -> None:
    """results/persons.md."""
    tables = []
    for dataset in CLASSES:
        own = [run for run in runs if run.get("dataset") == dataset]
        if not own:
            continue
        columns = [(how, epsilon) for how in DEALT for epsilon in EPSILONS]
        rows = []
        for method in METHODS:
            cells = []
            for how, epsilon in columns:
                found = [
                    100 * run["accuracy"]
                    for run in own
                    if (run["method"], run["dealt"], run["epsilon"]) == (method, how, epsilon)
                ]
                cells.append(common.told(found) if found else "")
            rows.append([f"persons: {method}" if method in (*DESIGNS, TRAINED) else method, *cells])
        persons = {how: len(np.unique(dealt(len(data(dataset)[0]), how))) for how in DEALT}
        most = {how: int(np.bincount(dealt(len(data(dataset)[0]), how)).max()) for how in DEALT}
        said = "; ".join(
            f"{how}: {persons[how]:,} persons" + (f", at most {most[how]} records each" if how == "Zipf" else "")
            for how in DEALT
        )
        header = ["", *(f"{how} each, epsilon {epsilon:g}" for how, epsilon in columns)]
        tables.append(
            f"## {dataset}\n\nTest accuracy, %: mean (deviation, runs). {said}.\n\n" + common.table(header, rows)
        )
    times = [run for run in runs if "records" in run]
    if times:
        rows = []
        for design in dict.fromkeys(run["design"] for run in times):
            pairs = [run for run in times if run["design"] == design]
            ratios = [run["persons"] / run["records"] for run in pairs]
            rows.append(
                [
                    design,
                    f"{common.median([run['records'] for run in pairs]):.1f}",
                    f"{common.median([run['persons'] for run in pairs]):.1f}",
                    f"{common.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} pairs)",
                ]
            )
        tables.append(
            "## Time\n\nA million records of 64 numbers in memory, one thread; 100,000 persons with ten each, grouping "
            "included. Poisson: as many rows, of which a row holds 64 records or persons.\n\n"
            + common.table(["design", "records, s", "persons, s", "ratio, pair by pair"], rows)
        )
    settings = {
        "delta": DELTA,
        "privacy": "PLD, add or remove one person with all records; queries for the mean are paid for",
        "persons": "dealt at random by seed 0; their number is taken as public",
        "group privacy": "a person with the most records; each query's noise counts for so much less",
        "DP-SGD": f"linear head, default settings, up to {MOST_IN_A_STEP} records of a person in a step",
    }
    common.save("persons", "Persons as the unit of privacy", settings, runs, tables)


if __name__ == "__main__":
    main()
