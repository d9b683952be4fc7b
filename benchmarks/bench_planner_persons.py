"""What the planner predicts of releases whose units are persons, against what was reached.

The records of banking77 and MNIST are dealt to persons as bench_persons.py deals them, and two tables have persons of
their own (person_tables.py). The planner is told how many records persons have, in round public figures: 5 or 20 each,
quantiles of the law by which numbers are drawn, or of what a study or a university would say of itself. Of the records
it is told what bench_planner.py tells it, too: an accuracy that is published, or half of the test split as public data.

Three tables:

* every design at its default settings, as bench_persons.py released it (the runs are those of persons_runs.json);
* the planner's own choice, with that hint and without, each released and learnt from;
* K, the records of a person that count as much as one record of somebody with one: what the planner predicts of it, and
  what is reached, for second moments. What persons weigh together is taken as known there; a private count, which K > 1
  asks for, would cost a little more.

Runs are kept in results/planner_persons_runs.json, so a broken-off benchmark goes on where it stopped.

    python benchmarks/bench_planner_persons.py [--only banking77,mnist,randhie,insteval]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import bench_persons as persons
import common
from privmix.engine import PrivateRecords
from privmix.features import parse_features
from privmix.features.base import Usual
from privmix.learning import LEARNERS, DataModel
from privmix.learning.holdings import Holdings
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig, choose_design, predict_accuracy
from privmix.planning.choice import DECLARED, PUBLIC
from privmix.plans import Plan, made_by
from privmix.publication import RecordTransform
from privmix.releases import release_to_memory

RUNS: Final = common.RESULTS / "planner_persons_runs.json"
# Without privacy, as papers and tutorials have it, in round figures.
PUBLISHED: Final = {"banking77": 0.93, "mnist": 0.99, "randhie": 0.65, "insteval": 0.65}
FEATURES: Final = {"banking77": "minilm", "mnist": "scattering"}
TOLD: Final = ("published", "public")
# Of the planner's own choice; those of the other datasets take hours.
SEEDS: Final = {"banking77": 5, "randhie": 5}
MOST: Final = (1, 2, 4, 8)
# (dataset, persons) of which K is tried.
UNEVEN: Final = (("banking77", "Zipf"), ("insteval", persons.OWN), ("randhie", persons.OWN))
ONE: Final = Holdings()
OWN: Final = {"randhie": Holdings((3, 3, 3, 5)), "insteval": Holdings((5, 12, 22, 33, 50))}


def holdings(dataset: str, how: str) -> Holdings:
    """What is publicly known of persons."""
    if how == persons.OWN:
        return OWN[dataset]
    return zipf() if how == "Zipf" else Holdings((int(how),))


@cache
def zipf() -> Holdings:
    """Quantiles of the law: P(k) falls as k^-2, cut at 200."""
    law = 1 / np.arange(1, 10**6) ** 2.0
    below = np.cumsum(law / law.sum())
    found = 1 + np.searchsorted(below, (np.arange(50) + 0.5) / 50)
    return Holdings(tuple(np.minimum(found, 200).tolist()))


@cache
def assumed(dataset: str, told: str) -> tuple[DataModel, str]:
    """The planner's model of the records, one a person, and its words."""
    x, _, test_x, test_y = persons.data(dataset)
    classes, generator = persons.CLASSES[dataset], np.random.default_rng(0)
    if told == "public":
        half = in_half(len(test_x))
        transform = RecordTransform(1.0, "l2", np.zeros(x.shape[1], np.float32), 0.55)
        model = DataModel.of_public_data(test_x[half], test_y[half], classes, transform, generator)
        return model, f"{int(half.sum())} {PUBLIC}"
    usual = Usual() if dataset in persons.TABLES else parse_features(FEATURES[dataset]).usual
    declared = {**usual.of(classes), "attainable": PUBLISHED[dataset]}
    return DataModel.declared(x.shape[1], classes, generator, **declared), DECLARED


def in_half(count: int) -> NDArray[np.bool_]:
    """Which test records are public, half of them at random."""
    return np.random.default_rng(0).permutation(count) % 2 == 0


def setting(dataset: str, how: str, design: Any, most: int = 1, **changes: Any) -> ReleaseConfig:
    counts = np.bincount(persons.whose_records(dataset, how))
    units = int(np.minimum(1.0, counts[counts > 0] / most).sum())
    classes = tuple(str(number) for number in range(persons.CLASSES[dataset]))
    return ReleaseConfig(units, persons.data(dataset)[0].shape[1], classes, design, per_person=most, **changes)


def released(dataset: str, how: str, plan: Plan, seed: int) -> list[float]:
    """Accuracy on all test records, and on those that are not public."""
    x, y, test_x, test_y = persons.data(dataset)
    records = PrivateRecords(x, y, persons.whose_records(dataset, how))
    streams = SecretStreams.from_seed(seed)
    release = release_to_memory(plan, records, streams, extractor={"name": "identity"}, input_shape=(x.shape[1],))
    right = LEARNERS[made_by(plan).learner]().fit(release).predict(test_x) == test_y
    return [float(right.mean()), float(right[~in_half(len(test_y))].mean())]


def forecast(dataset: str, how: str, name: str, epsilon: float) -> dict[str, Any]:
    """Of a design at its defaults, as bench_persons.py released it, by what the planner was told."""
    design = persons.DESIGNS[name]
    rows = 1 if name not in ("Poisson mixup", "class sums") else None
    plan = setting(dataset, how, design, rows=rows).calibrate(epsilon, persons.DELTA)
    found = {}
    for told in TOLD:
        model = assumed(dataset, told)[0]
        for hint, held in (("hint", holdings(dataset, how)), ("none", ONE)):
            found[f"{told}, {hint}"] = predict_accuracy(plan, replace(model, holdings=held)).accuracy
    return {"predicted": found}


def choice(dataset: str, how: str, hint: str, epsilon: float) -> dict[str, Any]:
    """The planner's own, told public data, and what it reaches."""
    model, words = assumed(dataset, "public")
    config = setting(dataset, how, "poisson", mixup_degree=1)
    model = replace(model, holdings=holdings(dataset, how) if hint == "hint" else ONE)
    found = choose_design(config, epsilon, persons.DELTA, model, model_words=words, curve=False).best
    plan = found.plan
    if found.config.design.released:
        # Rows sampled from moments are for other learners: one is enough here.
        plan = replace(found.config, rows=1).calibrate(epsilon, persons.DELTA)
    reached = [released(dataset, how, plan, seed)[1] for seed in range(SEEDS[dataset])]
    between = {"predicted": found.accuracy, "low": found.low, "high": found.high}
    return {**between, "settings": found.config.design.settings(), "reached": reached}


def weighed(dataset: str, how: str, most: int, epsilon: float) -> dict[str, Any]:
    """Second moments with K."""
    plan = setting(dataset, how, "moments", most, rows=1).calibrate(epsilon, persons.DELTA)
    model = replace(assumed(dataset, "public")[0], holdings=holdings(dataset, how))
    return {
        "units": plan.records,
        "predicted": predict_accuracy(plan, model).accuracy,
        "reached": [released(dataset, how, plan, seed)[0] for seed in range(5)],
    }


WORK: Final = {"forecast": forecast, "choice": choice, "K": weighed}


def jobs(only: set[str]) -> Iterator[tuple[str, str, str, Any, float]]:
    asked = [
        (dataset, how)
        for dataset in persons.CLASSES
        for how in ((persons.OWN,) if dataset in persons.TABLES else persons.DEALT)
        if dataset in only
    ]
    tried = {
        "forecast": {pair: tuple(persons.DESIGNS) for pair in asked},
        "K": {pair: MOST for pair in asked if pair in UNEVEN},
        "choice": {pair: ("hint", "none") for pair in asked if pair[0] in SEEDS and pair[1] != "1"},
    }
    for what, of_pair in tried.items():
        for (dataset, how), variants in of_pair.items():
            for epsilon in persons.EPSILONS:
                for variant in variants:
                    yield what, dataset, how, variant, epsilon


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(persons.CLASSES), help="datasets, separated by commas; none: tables")
    only = set(parser.parse_args().only.split(","))
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {tuple(run["job"]) for run in runs}
    for job in jobs(only):
        if job not in done:
            runs.append({"job": list(job), **WORK[job[0]](*job[1:])})
            print(runs[-1], flush=True)
            RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    report(runs)


def report(runs: list[dict[str, Any]]) -> None:
    """results/planner_persons.md."""
    by_job = {tuple(run["job"]): run for run in runs}
    by_job = {job: by_job[job] for job in jobs(set(persons.CLASSES)) if job in by_job}
    kept = persons.kept()
    rows, gaps = [], {f"{told}, {hint}": [] for told in TOLD for hint in ("hint", "none")}
    for (what, dataset, how, name, epsilon), run in by_job.items():
        wanted = {"dataset": dataset, "dealt": how, "method": name, "epsilon": epsilon}
        found = [100 * one["accuracy"] for one in kept if all(one.get(key) == value for key, value in wanted.items())]
        if what != "forecast" or not found:
            continue
        for key, predicted in run["predicted"].items():
            gaps[key].append(abs(100 * predicted - np.mean(found)))
        cells = [f"{100 * run['predicted'][key]:.1f}" for key in gaps]
        rows.append([dataset, how, f"{epsilon:g}", name, common.told(found), *cells])
    header = ["dataset", "records each", "eps", "design", "reached, %", *(said(key) for key in gaps)]
    summary = [
        [
            said(key),
            f"{np.mean(values):.1f}",
            f"{max(values):.1f}",
            f"{sum(gap <= 5 for gap in values)} of {len(values)}",
        ]
        for key, values in gaps.items()
        if values
    ]
    tables = [
        "## Every design at its defaults\n\n"
        + common.table(["predicted, told", "mean difference, points", "largest", "within 5"], summary),
        common.table(header, rows),
        "## The planner's choice\n\n" + choices(by_job),
        "## K, records of a person that count\n\n" + of_most(by_job),
    ]
    settings = {
        "delta": persons.DELTA,
        "accounting": "PLD, add or remove one person with all records",
        "published": json.dumps(PUBLISHED),
        "records each, as told": json.dumps(
            {"Zipf": list(zipf().counts), **{k: list(v.counts) for k, v in OWN.items()}}
        ),
    }
    common.save("planner_persons", "The planner for persons: predicted and reached", settings, {"runs": runs}, tables)


def said(key: str) -> str:
    told, hint = key.split(", ")
    return f"{told}, records each" if hint == "hint" else told


def choices(by_job: dict[Any, dict[str, Any]]) -> str:
    rows = []
    for (what, dataset, how, hint, epsilon), run in by_job.items():
        if what == "choice":
            reached = [100 * value for value in run["reached"]]
            between = f"{100 * run['predicted']:.1f} ({100 * run['low']:.0f} to {100 * run['high']:.0f})"
            chosen = ", ".join(str(value) for value in run["settings"].values())
            told = "yes" if hint == "hint" else "no"
            rows.append([dataset, how, f"{epsilon:g}", told, chosen, between, common.told(reached)])
    header = ["dataset", "records each", "eps", "told", "chosen", "predicted, %", "reached, %"]
    return "Public data are told in both cases.\n\n" + common.table(header, rows)


def of_most(by_job: dict[Any, dict[str, Any]]) -> str:
    rows = []
    for (what, dataset, how, most, epsilon), run in by_job.items():
        if what == "K":
            reached = common.told([100 * value for value in run["reached"]])
            weigh = f"{run['units']:,}"
            rows.append([dataset, how, f"{epsilon:g}", most, weigh, f"{100 * run['predicted']:.1f}", reached])
    header = ["dataset", "records each", "eps", "K", "persons weigh together", "predicted, %", "reached, %"]
    return "Second moments at their defaults; public data and records each are told.\n\n" + common.table(header, rows)


if __name__ == "__main__":
    main()
