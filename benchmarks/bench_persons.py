"""Persons with many records as the unit of privacy: accuracy by design, beside group privacy and beside records.

MNIST (scattering, projected to 1,000 numbers, each record at norm 1) and banking77 (sentence embeddings) are dealt to
persons at random: 1, 5 or 20 records each, or by a Zipf law (exponent 2, at most 200), by a seed that is stated. A
release of persons is priced for one person with all records. Beside it stand

* K estimated: a person with up to K records weighs by them; K is a private estimate, as is the number of persons;
* group privacy: a release of records whose price for the most records that a person has is the same epsilon;
* one record a person, drawn at random, released as records: what a release of persons must beat;
* records as units: the same epsilon, for one record alone.

Two public tables have persons of their own (person_tables.py): person-years of the RAND Health Insurance Experiment,
and ratings of lectures by students. There privacy for persons stands beside that of groups and records, and none.

Designs and the linear head have their defaults (moments: label share 0.5; DP-SGD: up to 4 records of a person in a
step).
Test sets were read for the figures here. Runs are kept in results/persons_runs.json, so a broken-off benchmark goes on
where it stopped. The time of a release of a million records in memory, with persons and without, is measured pair by
pair.

    python benchmarks/bench_persons.py [--only banking77,mnist,randhie,insteval,time] [--seeds 5]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import bench_designs
import common
from person_tables import ABOUT, TABLES, TITLES, parts
from privmix import accounting
from privmix.accounting.pricing import count_noise, group_event
from privmix.data import FeatureStore, Schema
from privmix.data.persons import numbered
from privmix.designs import Classwise, Moments, Poisson, ThreeStage, TwoStage
from privmix.engine.engines import make_engine
from privmix.engine.grouping import store_by_person
from privmix.engine.rows import PrivateRecords
from privmix.features.identity import Identity
from privmix.features.projected import Projected
from privmix.learning.base import LEARNERS
from privmix.mechanisms.private_count import private_count
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.releases.run import release_to_memory
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts
from privmix.training.trainer import Trainer

RUNS = common.RESULTS / "persons_runs.json"
DELTA: Final = 1e-5
EPSILONS: Final = (1.0, 8.0)
CLASSES: Final = {"banking77": 77, "mnist": 10, "randhie": 2, "insteval": 2}
DEALT: Final = ("1", "5", "20", "Zipf")
COUNTS: Final = {"banking77": 10_003, "mnist": 60_000}
"""Records to train on of the datasets that are dealt."""

OWN: Final = "own"
"""Persons that the data have, not dealt."""
DESIGNS: Final[dict[str, Any]] = {
    "moments": Moments(),
    "two stages": TwoStage(),
    "three stages": ThreeStage(),
    "Poisson mixup": Poisson(),
    "class sums": Classwise(full_batch=True),
}
TRAINED, QUANTILE, GROUP, ONE, RECORDS = (
    "DP-SGD, linear head",
    "moments, K estimated",
    "moments, group privacy",
    "moments, one record a person",
    "moments, records as units",
)
TRAINED_RECORDS, PLAIN = "DP-SGD, records as units", "logistic regression, without privacy"
METHODS: Final = (*DESIGNS, TRAINED, QUANTILE, GROUP, ONE, RECORDS)
MOST_IN_A_STEP: Final = 4
SHARE: Final = 0.9
"""Of the persons, who have at most K records where K is estimated."""
MILLION: Final = 1_000_000
SORTED: Final = 2_000_000
SORTED_DIM: Final = 256
NUMBERED: Final = 5_000_000

Data = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]


@cache
def data(dataset: str) -> Data:
    """Features and labels, to train on and to test; those of texts and images have norm 1."""
    if dataset in TABLES:
        train, test, _ = parts(dataset, bench_designs.CACHE)
        return (*train, *test)
    found: list[Any] = []
    for split in ("train", "test"):
        x, y = bench_designs.data(dataset, split)
        if dataset == "mnist":
            x = Projected(Identity(), 1000).transform(np.asarray(x, np.float32))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
        found += [x, np.asarray(y)]
    return tuple(found)  # type: ignore[return-value]


def whose_records(dataset: str, how: str) -> NDArray[np.int64]:
    """(n,) whose each record to train on is."""
    return parts(dataset, bench_designs.CACHE)[2] if how == OWN else dealt(len(data(dataset)[0]), how)


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
    whose = whose_records(dataset, how)
    persons = len(np.unique(whose))
    design: Any = DESIGNS.get(method, Moments())
    unit: dict[str, Any] = {"records": len(x)} if method in (GROUP, RECORDS) else {"records": persons}
    if method in (*DESIGNS, QUANTILE):
        unit["per_person"] = 1
    if method == QUANTILE:
        unit |= {"records_noise_multiplier": count_noise(epsilon, DELTA), "person_quantile": SHARE}
    records = PrivateRecords(x, y, whose if "per_person" in unit else None)
    if method == ONE:
        order = np.random.default_rng(seed).permutation(len(x))
        own = order[np.unique(whose[order], return_index=True)[1]]
        records = PrivateRecords(x[own], y[own])
    rows = 1 if method not in ("Poisson mixup", "class sums") else None
    names = tuple(str(number) for number in range(CLASSES[dataset]))
    config = ReleaseConfig(dim=x.shape[1], classes=names, design=design, rows=rows, **unit)
    plan: Any = group_plan(config, int(np.bincount(whose).max()), epsilon) if method == GROUP else None
    start = time.process_time()
    if method == QUANTILE:
        # As a job does: the numbers first, for a tenth of the budget; then the plan.
        found = private_count(config, np.bincount(whose), SecretStreams.from_seed(seed))
        config = replace(config, records=found.records, per_person=found.per_person)
    plan = plan or config.calibrate(epsilon, DELTA)
    release = release_to_memory(
        plan, records, SecretStreams.from_seed(seed), extractor={"name": "identity"}, input_shape=(x.shape[1],)
    )
    model = LEARNERS[design.learner]().fit(release)
    estimated = {"per_person": config.per_person} if method == QUANTILE else {}
    return {**judged(model, test_x, test_y), **estimated, "cpu": time.process_time() - start}


def judged(model: Any, x: NDArray[np.float32], y: NDArray[np.int64]) -> dict[str, float]:
    """Accuracy; and of two classes the area under the curve."""
    scores = np.asarray(model.decision_function(x) if hasattr(model, "decision_function") else model.predict_proba(x))
    if scores.ndim == 2 and scores.shape[1] > 2:
        return {"accuracy": float((scores.argmax(axis=1) == y).mean())}
    score = scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0]
    return {"accuracy": float(((score > 0) == y).mean()), "auc": float(roc_auc_score(y, score))}


def group_plan(config: ReleaseConfig, records: int, epsilon: float) -> Any:
    """The least noise at which ``records`` records together cost no more than epsilon."""

    def event(noise: float) -> Any:
        return group_event(config.with_noise(noise, 20.0 * records / epsilon).event, records)

    noise = accounting.calibrate(event, epsilon, DELTA).noise_multiplier
    return config.with_noise(noise, 20.0 * records / epsilon).priced(DELTA)


def train_run(dataset: str, how: str, method: str, epsilon: float, seed: int) -> dict[str, Any]:
    x, y, test_x, test_y = data(dataset)
    whose: Any = whose_records(dataset, how)
    classes = tuple(str(number) for number in range(CLASSES[dataset]))
    persons, most = len(np.unique(whose)), 1 if how == "1" else MOST_IN_A_STEP
    unit: dict[str, Any] = {"per_person": most}
    if method == TRAINED_RECORDS:
        whose, persons, unit = None, len(x), {}
    config = TrainingConfig.for_model("linear", records=persons, epsilon=epsilon, delta=DELTA, **unit)
    facts = ModelFacts(classes, {"name": "identity", "version": 1, "options": {}}, (x.shape[1],), x.shape[1])
    start = time.process_time()
    records = TrainingRecords.of(x, y, classes=len(classes), persons=whose)
    model = Trainer(config, facts, persons).run(records, streams=SecretStreams.from_seed(seed))
    return {**judged(model, test_x, test_y), "cpu": time.process_time() - start}


def plain_run(dataset: str) -> dict[str, Any]:
    x, y, test_x, test_y = data(dataset)
    start = time.process_time()
    model = LogisticRegression(C=10.0, max_iter=2000).fit(x, y)
    return {**judged(model, test_x, test_y), "cpu": time.process_time() - start}


def one_run(dataset: str, how: str, method: str, epsilon: float | None, seed: int) -> dict[str, Any]:
    if epsilon is None:
        return plain_run(dataset)
    if method in (TRAINED, TRAINED_RECORDS):
        return train_run(dataset, how, method, epsilon, seed)
    return release_run(dataset, how, method, epsilon, seed)


def kept() -> list[dict[str, Any]]:
    return json.loads(RUNS.read_text()) if RUNS.exists() else []


def methods(dataset: str) -> tuple[str, ...]:
    return (*METHODS, TRAINED_RECORDS, PLAIN) if dataset in TABLES else METHODS


def jobs(asked: set[str], seeds: int) -> Iterator[tuple[str, str, str, float | None, int]]:
    for seed in range(seeds):
        for dataset in CLASSES:
            for how in (OWN,) if dataset in TABLES else DEALT:
                for method in methods(dataset) if dataset in asked else ():
                    if method == PLAIN:
                        if seed == 0:
                            yield dataset, how, method, None, seed
                        continue
                    for epsilon in EPSILONS:
                        if not (how == "1" and method in (QUANTILE, GROUP, ONE)):
                            yield dataset, how, method, epsilon, seed


def timed(pairs: int = 5) -> list[dict[str, float]]:
    """CPU seconds of a release of a million records of 64 numbers, as records and of 100,000 persons, in turns."""
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
                start = time.process_time()
                for _ in make_engine(plan, records, SecretStreams.from_seed(number), workers=1).rows():
                    pass
                seconds[unit] = time.process_time() - start
            found.append({"design": design, **seconds})
            print(found[-1], flush=True)
    return found


def sorted_store() -> dict[str, float]:
    """A feature store of 2 GB, dealt to persons of ten records each, sorted with parts of 256 MiB: time and memory."""
    rng = np.random.default_rng(0)
    schema = Schema(records=SORTED, input_shape=(SORTED_DIM,), classes=tuple("0123456789"))
    with tempfile.TemporaryDirectory(dir=common.RESULTS.parent) as folder:
        place = Path(folder, "store")
        with FeatureStore.create(place, SORTED, SORTED_DIM, schema=schema, extractor={"name": "identity"}) as writer:
            for start in range(0, SORTED, 50_000):
                count = min(50_000, SORTED - start)
                x = rng.standard_normal((count, SORTED_DIM), dtype=np.float32)
                writer.append(x, rng.integers(0, 10, count))
        store, whose, part = FeatureStore.open(place), dealt(SORTED, "10"), 2**28
        found: dict[str, float] = {"sorted": SORTED, "dim": SORTED_DIM, "part": part}
        with common.watched(found):
            store_by_person(store, whose, Path(folder, "by-person"), memory_bytes=part)
        return found


def numbered_on_disk() -> dict[str, float]:
    """Identifiers of more records than are numbered in memory, ten records a person: time and memory."""
    found: dict[str, float] = {"numbered": NUMBERED}
    whose = dealt(NUMBERED, "10")
    with common.watched(found):
        numbered(f"patient-{one}" for one in whose)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        default="banking77,mnist,randhie,insteval,time,sort",
        help="parts, separated by commas; none: tables alone",
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--releases", action="store_true", help="leave trainings out, which take most of the time")
    asked = parser.parse_args()
    wanted, runs = set(asked.only.split(",")), kept()
    done = {tuple(run.get(name) for name in ("dataset", "dealt", "method", "epsilon", "seed")) for run in runs}
    for dataset, how, method, epsilon, seed in jobs(wanted, asked.seeds):
        left_out = asked.releases and method in (TRAINED, TRAINED_RECORDS)
        if left_out or (dataset, how, method, epsilon, seed) in done:
            continue
        found = one_run(dataset, how, method, epsilon, seed)
        one = {"dataset": dataset, "dealt": how, "method": method, "epsilon": epsilon, "seed": seed, **found}
        runs.append(one)
        RUNS.write_text(json.dumps(runs, indent=1) + "\n")
        print(one, flush=True)
    if "time" in wanted and not any("records" in run for run in runs):
        runs += timed()
        RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    if "sort" in wanted and not any("sorted" in run for run in runs):
        runs += [sorted_store(), numbered_on_disk()]
        RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    report(runs)


def cell(runs: list[dict[str, Any]], what: str, **wanted: Any) -> str:
    found = [100 * run[what] for run in runs if all(run.get(name) == value for name, value in wanted.items())]
    return common.told(found) if found else ""


def row_name(method: str) -> str:
    return f"persons: {method}" if method in (*DESIGNS, TRAINED, QUANTILE) else method


def estimates(runs: list[dict[str, Any]]) -> str:
    """Which K were estimated, by data and epsilon."""
    by: dict[tuple[str, str, float], list[int]] = {}
    for run in runs:
        if run.get("method") == QUANTILE:
            by.setdefault((run["dataset"], run["dealt"], run["epsilon"]), []).append(run["per_person"])
    rows = [[*map(str, key), ", ".join(map(str, found))] for key, found in sorted(by.items())]
    return (
        f"## What K was estimated\n\nFor {SHARE:g} of the persons, on the low side. A tenth of the budget pays for it "
        "and for the number of persons.\n\n" + common.table(["data", "records each", "epsilon", "K, run by run"], rows)
    )


def dealt_table(dataset: str, runs: list[dict[str, Any]]) -> str:
    columns = [(how, epsilon) for how in DEALT for epsilon in EPSILONS]
    rows = []
    for method in METHODS:
        by = {"dataset": dataset, "method": method}
        cells = [cell(runs, "accuracy", dealt=how, epsilon=epsilon, **by) for how, epsilon in columns]
        rows.append([row_name(method), *cells])
    counts = {how: np.unique(dealt(COUNTS[dataset], how), return_counts=True)[1] for how in DEALT}
    said = "; ".join(
        f"{how}: {len(found):,} persons" + (f", at most {found.max()} records each" if how == "Zipf" else "")
        for how, found in counts.items()
    )
    header = ["", *(f"{how} each, epsilon {epsilon:g}" for how, epsilon in columns)]
    return f"## {dataset}\n\nTest accuracy, %: mean (deviation, runs). {said}.\n\n" + common.table(header, rows)


def own_table(dataset: str, runs: list[dict[str, Any]]) -> str:
    rows = []
    for method in methods(dataset):
        by = {"dataset": dataset, "method": method}
        for_all = {what: cell(runs, what, epsilon=None, **by) for what in ("accuracy", "auc")}
        cells = [cell(runs, what, epsilon=epsilon, **by) or for_all[what] for epsilon in EPSILONS for what in for_all]
        rows.append([row_name(method), *cells])
    header = ["", *(f"{what}, epsilon {epsilon:g}" for epsilon in EPSILONS for what in ("accuracy", "AUC"))]
    return f"## {TITLES[dataset]}\n\n{ABOUT[dataset]}\n\n" + common.table(header, rows)


def report(runs: list[dict[str, Any]]) -> None:
    """results/persons.md."""
    tables = [dealt_table(dataset, runs) for dataset in COUNTS if any(run.get("dataset") == dataset for run in runs)]
    tables += [own_table(dataset, runs) for dataset in TABLES if any(run.get("dataset") == dataset for run in runs)]
    tables.append(estimates(runs))
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
            "## Time\n\nCPU seconds for a million records of 64 numbers in memory, one thread; 100,000 persons with "
            "ten each, grouping included. Poisson: as many rows, of which a row holds 64 records or persons.\n\n"
            + common.table(["design", "records, s", "persons, s", "ratio, pair by pair"], rows)
        )
    for run in runs:
        if "sorted" in run:
            size = run["sorted"] * run["dim"] * 4 / 1e9
            tables.append(
                f"## Sorting on the disk\n\nA feature store of {run['sorted']:,} records of {run['dim']} numbers "
                f"({size:.1f} GB), dealt to persons of ten records each and sorted by person with parts of "
                f"{run['part'] / 2**20:.0f} MiB: {run['seconds']:.0f} s ({run['cpu_seconds']:.0f} s of CPU time) on "
                f"a busy machine, at most {run['peak_gib'] * 1024:.0f} MiB of memory more than before. One run."
            )
        if "numbered" in run:
            tables.append(
                f"Identifiers of {run['numbered']:,} records, numbered on the disk: {run['seconds']:.0f} s "
                f"({run['cpu_seconds']:.0f} s of CPU time), at most {run['peak_gib'] * 1024:.0f} MiB of memory more "
                "than before. One run."
            )
    settings = {
        "delta": DELTA,
        "privacy": "PLD, add or remove one person with all records; queries for the mean are paid for",
        "persons": "dealt at random by seed 0, or those of the data; their number is taken as public",
        "group privacy": "a person with the most records; each query's noise counts for so much less",
        "DP-SGD": f"linear head, default settings, up to {MOST_IN_A_STEP} records of a person in a step",
    }
    common.save("persons", "Persons as the unit of privacy", settings, runs, tables)


if __name__ == "__main__":
    main()
