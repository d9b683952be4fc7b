"""Membership inference on linear models: without privacy, on mixtures without noise, on releases, and by DP-SGD.

Beside Li et al. 2022, Table 4, and Li et al. 2024, Table 9, which attack linear models on CIFAR-100 by their loss. Here
LiRA and RMIA attack too, with reference models. Of each method 20 models are made in pairs, each pair from the two
halves of a shuffle of the records. One model each of three pairs is attacked, with the 18 models of the other pairs as
references: so many of these have a record, and so many don't, whether it is a member or not. Finished methods are kept
in results/membership_runs.json.

    python benchmarks/bench_membership.py [tables]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import common
from privmix.accounting import tradeoff_curve
from privmix.attacks.membership.attack import MembershipConfig, score_records
from privmix.attacks.membership.references import (
    DpSgdTrainer,
    EstimatorTrainer,
    ReferenceTrainer,
    ReleaseTrainer,
    deal_records,
)
from privmix.attacks.membership.scores import (
    ReferenceModels,
    auc_interval,
    class_scores,
    fit_temperature,
    gives_probabilities,
    roc_with_band,
    tpr_at,
    true_class_logits,
)
from privmix.certificate.certificate import Certificate
from privmix.data import open_dataset
from privmix.designs.moments.learner import SecondMomentsClassifier
from privmix.engine.engines import make_engine
from privmix.engine.rows import PrivateRecords
from privmix.features.base import parse_features
from privmix.learning.base import ReleaseLearner
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.releases.folder import assemble
from privmix.reports.pictures import COLOURS, new_figure, save_figure
from privmix.training.config import TrainingConfig
from privmix.training.examples import ModelFacts
from privmix.training.trainer import Trainer

RUNS = common.RESULTS / "membership_runs.json"
CACHE = common.RESULTS.parent / "cache"
DELTA: Final = 1e-5
MODELS, TARGETS = 20, (0, 2, 4)
ATTACKS = ("loss", "lira", "rmia", "lira-offline", "rmia-offline")
# The attack and the models whose curves are kept and drawn, of the first target.
DRAWN = "lira-offline"
SHOWN = [
    ("none", None),
    ("mixing", None),
    ("discriminant", 8.0),
    ("poisson", 8.0),
    ("dp-sgd", 8.0),
    ("discriminant", 1.0),
]
# Classes, records in all, description.
SETS: dict[str, tuple[int, int, str]] = {
    "banking77": (77, 13_083, "sentence embeddings of all-MiniLM-L6-v2, 384 features"),
    "mnist": (10, 10_000, "pixels, 784 features; the first 10,000 records"),
    "cifar10": (10, 10_000, "a public image encoder, `efficientnet:160,lite2`, 768 features; the 10,000 test images"),
}
EPSILONS = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25)
METHODS: list[tuple[str, float | None]] = [
    ("none", None),
    ("mixing", None),
    *(("poisson", epsilon) for epsilon in EPSILONS),
    *(("moments", epsilon) for epsilon in EPSILONS),
    *(("discriminant", epsilon) for epsilon in EPSILONS),
    *(("hierarchical", epsilon) for epsilon in EPSILONS),
    *(("dp-sgd", epsilon) for epsilon in EPSILONS),
]
LABELS = {
    "none": "non-private, logistic regression",
    "mixing": "mixing, m = 64, no noise",
    "poisson": "Poisson mixing, m = 64",
    "hierarchical": "hierarchical (HS), m = 64",
    "dp-sgd": "DP-SGD, linear",
    "moments": "moments, regression on second moments",
    "discriminant": "moments, discriminant (what `fit` takes)",
}
# The papers' epsilons and methods alone, beside what `fit` takes.
ENCODED_METHODS = [(method, epsilon) for method, epsilon in METHODS if method != "moments" and (epsilon or 1.0) >= 1]
# (test accuracy, AUC, gap in points or None) on CIFAR-100.
PUBLISHED: dict[tuple[str, float | None], tuple[str, float, float, float | None]] = {
    ("none", None): ("Li et al. 2022, T4", 84.45, 0.5735, 9.42),
    ("mixing", None): ("Li et al. 2022, T4", 74.57, 0.5160, 2.49),
    ("poisson", 8.0): ("Li et al. 2022, T4", 66.35, 0.5075, 1.08),
    ("poisson", 4.0): ("Li et al. 2022, T4", 64.53, 0.5065, 0.83),
    ("poisson", 2.0): ("Li et al. 2022, T4", 60.35, 0.5061, 1.26),
    ("poisson", 1.0): ("Li et al. 2022, T4", 50.80, 0.5033, 0.57),
    ("dp-sgd", 8.0): ("Li et al. 2024, T9", 72.77, 0.5097, None),
    ("dp-sgd", 4.0): ("Li et al. 2024, T9", 72.40, 0.5096, None),
    ("dp-sgd", 2.0): ("Li et al. 2024, T9", 71.37, 0.5092, None),
    ("dp-sgd", 1.0): ("Li et al. 2024, T9", 68.13, 0.5091, None),
    ("hierarchical", 8.0): ("Li et al. 2024, T9", 73.39, 0.5117, None),
    ("hierarchical", 1.0): ("Li et al. 2024, T9", 71.72, 0.5090, None),
}


@cache
def records(dataset: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Features and labels of both splits in random order: members and others are then of one kind."""
    classes, count, _ = SETS[dataset]
    if dataset == "banking77":
        parts = [_texts(split) for split in ("train", "test")]
    elif dataset == "cifar10":
        from bench_photographs import data

        parts = [data("test")]
    else:
        extractor = parse_features("pixels")
        source = open_dataset(common.data_root() / dataset, split="test", classes=classes)
        batches = [(extractor.transform(batch.x), batch.y) for batch in source.batches(1000)]
        parts = [(np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches]))]
    x, y = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    order = np.random.default_rng(0).permutation(len(x))[:count]
    return np.ascontiguousarray(x[order], dtype=np.float32), y[order]


def _texts(split: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    path = CACHE / f"banking77-minilm-{split}.npy"
    if not path.exists():
        from bench_designs import data

        return data("banking77", split)
    return np.load(path), np.load(path.with_suffix(".labels.npy"))


class NoiselessTrainer(ReleaseTrainer):
    """Mixes by the real engine at the least noise that a plan takes. No release: it has no finite price."""

    def __call__(self, features: NDArray[Any], labels: NDArray[np.int64], streams: SecretStreams) -> ReleaseLearner:
        """A fitted copy of the learner."""
        engine = make_engine(self.plan, PrivateRecords(features, labels), streams)
        blocks = list(engine.rows())
        x, y = np.concatenate([block.x for block in blocks]), np.concatenate([block.y for block in blocks])
        facts = {"extractor": self.extractor, "input_shape": list(self.input_shape), "id": "no-release"}
        learner: ReleaseLearner = clone(self.learner)
        return learner.fit(assemble(self.plan, x, y, engine.transform.centre, Certificate(facts), engine.beside))


def trainer_of(dataset: str, method: str, epsilon: float | None) -> tuple[ReferenceTrainer, Plan | Trainer | None]:
    """What makes models, and what it is priced by."""
    x, _ = records(dataset)
    size, dim = len(x) // 2, x.shape[1]
    classes = tuple(map(str, range(SETS[dataset][0])))
    if method == "none":
        return EstimatorTrainer(LogisticRegression(C=10.0, max_iter=300)), None
    extractor = {"name": "identity"}
    if method == "dp-sgd":
        assert epsilon is not None
        config = TrainingConfig.for_model("linear", records=size, epsilon=epsilon, delta=DELTA)
        job = Trainer(config, ModelFacts(classes, extractor, (dim,), dim), size)
        return DpSgdTrainer(job), job
    design = {"mixing": "poisson", "discriminant": "moments"}.get(method, method)
    config = ReleaseConfig(
        records=size,
        dim=dim,
        classes=classes,
        design=design,
        rows=1 if design == "moments" else None,
        centre="none" if method == "mixing" else None,
        # Pixels of a digit have a norm of about 9.
        clip_norm=10.0 if dataset == "mnist" else 1.0,
        **common.degree_64(design),
    )
    plan = config.with_noise(1e-6) if epsilon is None else config.calibrate(epsilon, DELTA)
    learners = {"moments": SecondMomentsClassifier, "discriminant": DiscriminantClassifier}
    learner = learners.get(method, NoiseAwareRidgeClassifier)()
    if epsilon is None:
        return NoiselessTrainer(plan, learner, extractor, (dim,)), None
    return ReleaseTrainer(plan, learner, extractor, (dim,)), plan


def one_method(dataset: str, method: str, epsilon: float | None) -> list[dict[str, Any]]:
    """Make the models, attack the first three."""
    x, y = records(dataset)
    classes = SETS[dataset][0]
    trainer, priced = trainer_of(dataset, method, epsilon)
    streams = SecretStreams.from_seed(1)
    marks = deal_records(len(x), len(x) // 2, MODELS, streams.generator("records"))
    scores = np.empty((MODELS, len(x), classes), np.float32)
    start = time.perf_counter()
    for number, mark in enumerate(marks):
        model = trainer(x[mark], y[mark], streams.derive(f"model {number}"))
        scores[number] = class_scores(model, x, classes)
    seconds = (time.perf_counter() - start) / MODELS
    own = gives_probabilities(model)
    bound = None
    if priced is not None:
        event = priced.plan.event if isinstance(priced, Trainer) else priced.event
        bound = lambda rates: 1 - tradeoff_curve(event, rates)  # noqa: E731
    return [
        {
            "dataset": dataset,
            "method": method,
            "epsilon": epsilon,
            "target": number,
            "seconds_a_model": seconds,
            **attack(scores, marks, y, number, own, bound, (method, epsilon) in SHOWN and number == TARGETS[0]),
        }
        for number in TARGETS
    ]


def attack(
    scores: NDArray[np.float32],
    marks: NDArray[np.bool_],
    labels: NDArray[np.int64],
    number: int,
    own_probabilities: bool,
    bound: Callable[[Any], NDArray[np.float64]] | None,
    drawn: bool,
) -> dict[str, Any]:
    """All attacks on model ``number``; the models of all other pairs are references."""
    inside = marks[number]
    target = scores[number].astype(np.float64)
    temperature = 1.0 if own_probabilities else fit_temperature(target[~inside], labels[~inside])
    logits = np.stack([true_class_logits(part.astype(np.float64), labels, temperature) for part in scores])
    # Its other half is left out: members would be missing in one reference more than non-members.
    others = np.arange(MODELS) // 2 != number // 2
    found = score_records(
        logits[number], ReferenceModels(logits[others], marks[others]), ~inside, MembershipConfig(ATTACKS)
    )
    right = target.argmax(axis=1) == labels
    result: dict[str, Any] = {
        "train_accuracy": float(right[inside].mean()),
        "test_accuracy": float(right[~inside].mean()),
        "bounds": None if bound is None else {str(rate): float(bound([rate])[0]) for rate in (0.01, 0.001)},
        "attacks": {},
    }
    for name, values in found.items():
        curve = roc_with_band(values[inside], values[~inside], points=60)
        result["attacks"][name] = {
            "auc": auc_interval(values[inside], values[~inside]),
            "tpr": {str(rate): vars(tpr_at(values[inside], values[~inside], rate)) for rate in (0.01, 0.001)},
            "roc": curve.to_dict() if drawn and name == DRAWN else None,
        }
    return result


def in_lines(runs: list[dict[str, Any]]) -> str:
    """One run a line."""
    return "[\n" + ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs) + "\n]\n"


def write_tables(runs: list[dict[str, Any]]) -> None:
    tables = []
    for dataset, (_, count, what) in SETS.items():
        rows = []
        for method, epsilon in sorted(METHODS, key=lambda item: (list(LABELS).index(item[0]), -(item[1] or 0))):
            mine = [
                run for run in runs if (run["dataset"], run["method"], run["epsilon"]) == (dataset, method, epsilon)
            ]
            if mine:
                rows.append(_row(method, epsilon, mine))
        if rows:
            tables.append(f"## {dataset}: {what}; {count // 2:,} members, as many others\n\n{_table(rows)}")
    found = [result for run in runs for result in run["attacks"].values()]
    auc = common.median([(result["auc"][2] - result["auc"][1]) / 2 for result in found])
    tpr = common.median([(result["tpr"]["0.01"]["high"] - result["tpr"]["0.01"]["low"]) / 2 for result in found])
    facts = {
        "figures": f"mean of {len(TARGETS)} attacked models; each has {MODELS - 2} reference models of the same method "
        "on other halves. Loss AUC with its spread over the models. LiRA and RMIA: online / offline",
        "intervals": f"95%, of one model, over records: DeLong for AUC (about ±{auc:.3f}), Clopper-Pearson for true "
        f"positives (at 1%, about ±{100 * tpr:.2f} points); each is in {RUNS.name}",
        "LiRA, RMIA": "LiRA with one variance a side for all records; RMIA with gamma 1, all non-members as population "
        "and, offline, a = 0.3. Regression scores become probabilities by a temperature fitted on non-members",
        "bound": f"most true positives at 1% false positives that any attack on one record can expect: 1 - f(0.01) "
        f"with f the trade-off curve by PLD; delta {DELTA:g}, add/remove",
        "methods": "releases: Poisson and HS (3 expected classes) with private centring, T = n, the noise-aware ridge; "
        "moments with the learner that is named; all priced honestly by PLD. Mixing without noise is no release that "
        "privmix makes: the plan's noise multiplier is set to 1e-6. DP-SGD: defaults for linear models. Non-private: "
        "C = 10",
        "published": "Li et al. 2022, Table 4, and Li et al. 2024, Table 9: CIFAR-100, ResNet-152 (SimCLRv2) "
        "features, 50,000 members, a "
        "linear softmax, attacked by loss alone; ε by asymptotic Gaussian DP, which is no upper bound, and for HS far "
        "from one. With other data, features and sizes the order of the methods compares, the figures don't",
    }
    # The record has the areas of each attack, RUNS all of its figures.
    results = [
        {**run, "attacks": {name: {"auc": values["auc"]} for name, values in run["attacks"].items()}} for run in runs
    ]
    common.save("membership", "Membership inference", facts, results, tables)
    draw(runs)


def _row(method: str, epsilon: float | None, mine: list[dict[str, Any]]) -> list[str]:
    def mean(pick: Callable[[dict[str, Any]], float]) -> float:
        return float(np.mean([pick(run) for run in mine]))

    def spread(pick: Callable[[dict[str, Any]], float]) -> float:
        return float(np.std([pick(run) for run in mine]))

    def loss(run: dict[str, Any]) -> float:
        return float(run["attacks"]["loss"]["auc"][0])

    row = [
        LABELS[method],
        "" if epsilon is None else f"{epsilon:g}",
        f"{100 * mean(lambda run: run['test_accuracy']):.1f}",
        f"{100 * mean(lambda run: run['train_accuracy'] - run['test_accuracy']):.2f}",
        f"{mean(loss):.4f} ± {spread(loss):.4f}",
    ]
    for name in ("lira", "rmia"):
        both = (name, f"{name}-offline")
        row.append(" / ".join(f"{mean(lambda run, n=n: run['attacks'][n]['auc'][0]):.3f}" for n in both))
        for rate in ("0.01", "0.001"):
            found = [100 * mean(lambda run, n=n, r=rate: run["attacks"][n]["tpr"][r]["tpr"]) for n in both]
            row.append(" / ".join(f"{value:.2f}" for value in found))
    row.append("" if mine[0]["bounds"] is None else f"{100 * mine[0]['bounds']['0.01']:.1f}")
    published = PUBLISHED.get((method, epsilon))
    if published is None:
        return [*row, ""]
    place, accuracy, auc, gap = published
    return [*row, f"{place}: {accuracy:.2f}, {auc:.4f}" + ("" if gap is None else f", {gap:.2f}")]


def _table(rows: list[list[str]]) -> str:
    header = ["model", "ε", "test acc %", "gap", "loss AUC", "LiRA AUC", "TPR % at 1%", "at 0.1%", "RMIA AUC"]
    header += ["TPR % at 1%", "at 0.1%", "bound at 1%", "published: acc, loss AUC, gap"]
    return common.table(header, rows)


def draw(runs: list[dict[str, Any]]) -> None:
    """ROC curves of offline LiRA on log axes, one panel a dataset."""
    figure = new_figure(14, 4.8)
    panels = figure.subplots(1, len(SETS), sharey=True)
    for axes, dataset in zip(panels, SETS, strict=True):
        for index, (method, epsilon) in enumerate(SHOWN):
            key = (dataset, method, epsilon, 0)
            run = next((r for r in runs if (r["dataset"], r["method"], r["epsilon"], r["target"]) == key), None)
            if run is None:
                continue
            curve = run["attacks"][DRAWN]["roc"]
            name = LABELS[method] + ("" if epsilon is None else f", ε = {epsilon:g}")
            colour = COLOURS[index]
            axes.loglog(curve["fpr"], np.maximum(curve["tpr"], 1e-6), color=colour, label=name, linewidth=1.6)
            low, high = np.maximum(curve["low"], 1e-6), np.maximum(curve["high"], 1e-6)
            axes.fill_between(curve["fpr"], low, high, color=colour, alpha=0.12, linewidth=0)
        axes.loglog([1e-4, 1], [1e-4, 1], color="#555555", linestyle=":", label="guessing")
        axes.set_xlim(2e-4, 1)
        axes.set_ylim(1e-4, 1)
        axes.set_xlabel("false positive rate")
        axes.set_title(f"offline LiRA on {dataset}", fontsize=10)
        axes.grid(True, which="major", alpha=0.3)
    panels[0].set_ylabel("true positive rate (95% band of each point)")
    # Where no curve runs.
    panels[1].legend(fontsize=8, loc="upper left")
    save_figure(figure, common.RESULTS / "membership.svg")


def main() -> None:
    """Run what is missing; with the argument ``tables``, only write what is there."""
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["dataset"], run["method"], run["epsilon"]) for run in runs}
    for method, epsilon in () if "tables" in sys.argv else METHODS:
        for dataset in SETS:
            if dataset == "cifar10" and (method, epsilon) not in ENCODED_METHODS:
                continue
            if (dataset, method, epsilon) not in done:
                runs += one_method(dataset, method, epsilon)
                losses = [run["attacks"]["loss"]["auc"][0] for run in runs[-len(TARGETS) :]]
                print(dataset, method, epsilon, f"{runs[-1]['seconds_a_model']:.1f} s a model", losses, flush=True)
                RUNS.write_text(in_lines(runs))
    write_tables(runs)


if __name__ == "__main__":
    main()
