"""Texts of two and six classes: what the planner chooses, what it expects and what releases reach.

Datasets, not part of this repository: 5,452 questions of six kinds (Li and Roth 2002), and three of two classes:
sentences of films' reviews (Socher et al. 2013), subjective sentences (Pang and Lee 2004) and customers' reviews (Hu
and Liu 2004), in the files of Kim (2014), a number and a text a line: TREC.train.all, TREC.test.all,
stsa.binary.train, stsa.binary.test, subj.all, custrev.all. Where there is no test split, a fifth at random is one.
Texts go through ``--features minilm``, and through its layers 3 to 6, which were chosen by what they
reach on docstrings without privacy (``bench_text_layers.py``).

A release is what ``privmix release --design auto`` makes where it is told nothing, or the accuracy of discriminant
analysis without privacy (``--assume attainable=``); beside it stand moments with the share of X'Y that the planner took
for such sets before it knew how far apart few classes lie. Descriptions of classes, for ``fit --class-descriptions``,
were written from the classes' names alone. Runs are kept in results/few_classes_runs.json.

    python benchmarks/bench_few_classes.py --data FOLDER
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import common
from privmix.designs import Moments
from privmix.engine import PrivateRecords
from privmix.features import MiniLm
from privmix.jobs.class_texts import class_prior
from privmix.learning import LEARNERS, DataModel
from privmix.planning import ReleaseConfig, choose_design
from privmix.plans import Design
from privmix.releases import SecretStreams, release_to_memory

RUNS = common.RESULTS / "few_classes_runs.json"
CACHE = common.RESULTS.parent / "cache"
DELTA: Final = 1e-5
EPSILONS: Final = (1.0, 8.0)
SEEDS: Final = 5
BEFORE, NOTHING, ACCURACY, TEXTS = "moments, X'Y 0.9", "auto", "auto, told an accuracy", "auto, with descriptions"
LAYERS: Final = "auto, minilm:3+4+5+6"
HOW: Final = (BEFORE, NOTHING, ACCURACY, TEXTS, LAYERS)
# Files to learn from and to be judged by, and the classes in words.
SETS: Final[dict[str, tuple[str, str | None, tuple[str, ...]]]] = {
    "questions": (
        "TREC.train.all",
        "TREC.test.all",
        (
            "a question that asks for a description, a definition, a reason or a manner",
            "a question about a thing: an animal, a product, a film, a food or a word",
            "a question about what an abbreviation stands for",
            "a question that asks who: the name of a person or a group",
            "a question that asks where: a city, a country or a place",
            "a question that asks how many or when: a number, a date, an amount",
        ),
    ),
    "films' reviews": (
        "stsa.binary.train",
        "stsa.binary.test",
        ("a bad film: boring, dull, a failure", "a good film: moving, funny, a pleasure"),
    ),
    "subjective": (
        "subj.all",
        None,
        ("somebody's opinion of a film", "the plot of a film: who does what to whom"),
    ),
    "customers' reviews": (
        "custrev.all",
        None,
        ("a customer is disappointed: it does not work", "a customer is content: it works well"),
    ),
}


def encoder(how: str) -> MiniLm:
    return MiniLm("3+4+5+6") if how == LAYERS else MiniLm()


def data_of(folder: Path, name: str, how: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Embeddings and labels of one file; embeddings are kept."""
    lines = (folder / name).read_text(encoding="latin-1").strip().split("\n")
    pairs = [[*line.split(None, 1), ""][:2] for line in lines]
    path = CACHE / f"few-{name}{'-layers' if how == LAYERS else ''}.npy"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        np.save(path, encoder(how).transform(np.array([text for _, text in pairs], dtype=object)[:, None]))
    return np.load(path), np.array([int(label) for label, _ in pairs])


@cache
def data(
    folder: Path, name: str, how: str
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Records to release, and others that judge."""
    train, test, _ = SETS[name]
    x, y = data_of(folder, train, how)
    if test is not None:
        return x, y, *data_of(folder, test, how)
    held = np.random.default_rng(0).permutation(len(y)) % 5 == 0
    return x[~held], y[~held], x[held], y[held]


@cache
def without_privacy(folder: Path, name: str, how: str = NOTHING) -> float:
    x, y, test_x, test_y = data(folder, name, LAYERS if how == LAYERS else NOTHING)
    return float(LinearDiscriminantAnalysis().fit(x, y).score(test_x, test_y))


def config_of(folder: Path, name: str, design: Design[Any] | None = None) -> ReleaseConfig:
    x, _, _, _ = data(folder, name, NOTHING)
    classes = tuple(map(str, range(len(SETS[name][2]))))
    # Rows sampled from moments are for other learners: one is enough here.
    rows = 1 if design is not None and design.rows_follow else None
    return ReleaseConfig(len(x), x.shape[1], classes, **({} if design is None else {"design": design}), rows=rows)


@cache
def planned(folder: Path, name: str, epsilon: float, told: str) -> tuple[Design[Any], dict[str, float]]:
    config = config_of(folder, name)
    given = MiniLm.usual.of(len(config.classes))
    if told == ACCURACY:
        given["attainable"] = without_privacy(folder, name)
    model = DataModel.declared(config.dim, len(config.classes), np.random.default_rng(0), **given)
    best = choose_design(config, epsilon, DELTA, model, curve=False).best
    return best.config.design, {"predicted": best.accuracy, "low": best.low, "high": best.high}


def one_run(folder: Path, name: str, how: str, epsilon: float, seed: int) -> dict[str, Any]:
    x, y, test_x, test_y = data(folder, name, LAYERS if how == LAYERS else NOTHING)
    design: Design[Any] = Moments(label_share=0.9)
    expected: dict[str, float] = {}
    if how != BEFORE:
        design, expected = planned(folder, name, epsilon, ACCURACY if how == ACCURACY else NOTHING)
    release = release_to_memory(
        config_of(folder, name, design).calibrate(epsilon, DELTA),
        PrivateRecords(x, y),
        SecretStreams.from_seed(seed),
        extractor=encoder(how).spec(),
        input_shape=(1,),
    )
    # Descriptions are for one learner; of a release in stages it reads the first.
    learner = LEARNERS["discriminant" if how == TEXTS else design.learner]()
    prior = None
    if how == TEXTS:
        prior = class_prior(release, dict(zip(release.classes, SETS[name][2], strict=True)), MiniLm())
    reached = float((learner.fit(release, prior=prior).predict(test_x) == test_y).mean())
    return {"settings": design.settings(), **expected, "reached": reached}


def jobs() -> Iterator[tuple[str, str, float, int]]:
    for name in SETS:
        for how in HOW:
            for epsilon in EPSILONS:
                for seed in range(SEEDS):
                    yield name, how, epsilon, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the files; none: tables alone")
    folder = parser.parse_args().data
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["data"], run["how"], run["epsilon"], run["seed"]) for run in runs}
    for job in jobs():
        if folder is not None and job not in done:
            name, how, epsilon, seed = job
            found = one_run(folder, name, how, epsilon, seed)
            runs.append({"data": name, "how": how, "epsilon": epsilon, "seed": seed, **found})
            RUNS.write_text(json.dumps(runs, indent=1) + "\n")
            if seed == 0:
                print(job, f"{runs[-1]['reached']:.3f}", flush=True)
    limits = (
        {name: {how: without_privacy(folder, name, how) for how in (NOTHING, LAYERS)} for name in SETS}
        if folder is not None
        else kept_limits()
    )
    report(runs, limits)


def kept_limits() -> dict[str, dict[str, float]]:
    return dict(json.loads((common.RESULTS / "few_classes.json").read_text())["results"]["without_privacy"])


def report(runs: list[dict[str, Any]], limits: dict[str, dict[str, float]]) -> None:
    rows = []
    for name in SETS:
        for epsilon in EPSILONS:
            cells = {}
            for how in HOW:
                own = [run for run in runs if (run["data"], run["how"], run["epsilon"]) == (name, how, epsilon)]
                cells[how] = common.told([100 * run["reached"] for run in own]), own[0]
            expected = []
            for how in (NOTHING, ACCURACY):
                run = cells[how][1]
                expected.append(f"{100 * run['predicted']:.1f} ({100 * run['low']:.0f} to {100 * run['high']:.0f})")
            design = ", ".join(str(value) for value in cells[NOTHING][1]["settings"].values())
            reached = [cells[how][0] for how in HOW]
            most = [f"{100 * limits[name][how]:.1f}" for how in (NOTHING, LAYERS)]
            rows.append([name, f"{epsilon:g}", *reached, *most, design, *expected])
    header = ["data", "eps", *HOW, "no privacy", "no privacy, layers", "chosen", "predicted", "predicted, told"]
    settings = {
        "delta": DELTA,
        "cells": "test accuracy, %: mean (standard deviation, runs)",
        "predicted": "by the planner told nothing, and told the accuracy without privacy; with its range",
        "no privacy": "discriminant analysis of all records",
        "accounting": "PLD, add or remove one record; queries for the mean are paid for",
    }
    results = {"runs": runs, "without_privacy": limits}
    common.save("few_classes", "Texts of few classes", settings, results, [common.table(header, rows)])


if __name__ == "__main__":
    main()
