"""What views, mixup and public images bring to private training, each line at its own learning rate, paired by seed.

A tanh CNN (26,010 parameters) is trained on 2,000 MNIST images for 5 epochs in batches of 250, momentum 0, C = 1.
The rate of a line is the one with the best accuracy on 5,000 held-out training images, in a training of seed 100: 1, 2
and 4 are tried (2, 4 and 8 at epsilon 8), and further powers of two while the best is at an edge. Where others come
within half a point, one more training of each decides. Five other seeds train at this rate and open the test images.
For one seed all lines share private records, initial weights, Poisson batches and noise.

* ``views``: Bao et al. 2023, Tables 1 and 2, at epsilon 1 and 8;
* ``number``: their Table 5 and footnote 3 at epsilon 8, each at the rate of the line with 4 crops;
* ``public``: their Tables 6 and 12, and Park et al. 2024, Table 9, at epsilon 2: 600 public digits, or 600 rendered
  from fonts, in a warm-up, in the mixes, or alone; DOPE-SGD also with its public gradients as long as they are, and
  plain DP-SGD with automatic clipping.

Finished runs are kept in results/training_ablation_runs.json.

    python benchmarks/bench_training_ablation.py [--only views,number,public] [--lines DOPE] [--report]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy import stats

import common
import font_digits
from privmix.data import open_dataset
from privmix.features.base import get_extractor
from privmix.mechanisms.streams import SecretStreams
from privmix.training.config import OptimiserConfig, TrainingConfig
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts, PublicData
from privmix.training.gradients.config import ExecutionConfig
from privmix.training.public.config import ExtendedConfig, WarmUpConfig
from privmix.training.trainer import Trainer
from privmix.training.views.augment import Crop
from privmix.training.views.config import ViewConfig

RUNS = common.RESULTS / "training_ablation_runs.json"
DELTA, RECORDS, PUBLIC, HELD = 1e-5, 2000, 600, 5000
SEEDS, TUNED_ON, AGAIN = range(5), 100, 101
# Private and held-out records come from before the last images, which are public.
LAST = 57_600
CLASSES = tuple("0123456789")
CROP = (Crop(padding=2),)
WARM_UP = WarmUpConfig(epochs=30, batch_size=100, learning_rate=0.05)
REAL, FONTS = "600 real digits", "600 digits rendered from fonts"


@dataclass(frozen=True)
class Line:
    """One training, by what differs from plain DP-SGD; ``as_tuned`` names the line whose rate it takes."""

    group: str
    label: str
    epsilon: float
    views: ViewConfig
    paper: str = ""
    images: str = ""
    changes: tuple[tuple[str, Any], ...] = ()
    as_tuned: str = ""

    def key(self, rate: float, seed: int) -> str:
        return f"{self.group}: {self.label}: {self.epsilon:g}: {rate:g}: {seed}"


def lines() -> Iterator[Line]:
    plain, crops = ViewConfig.plain(), ViewConfig.self_aug(4, CROP)
    mixes, mixed = ViewConfig.dp_mix_self(4, 4, CROP), ViewConfig.dp_mix_diff(4, 2, 1, CROP)
    for epsilon, papers in ((8.0, ("72.5", "78.7")), (1.0, ("", "56.8"))):
        yield Line("views", "plain DP-SGD", epsilon, plain, papers[0])
        yield Line("views", "Self-Aug", epsilon, crops, papers[1])
        yield Line("views", "DP-MIX_DIFF", epsilon, mixed, "", REAL)
    for epsilon, paper in ((1.0, "57.2"), (8.0, "79.8")):
        yield Line("views", "DP-MIX_SELF", epsilon, mixes, paper)
    for k in (1, 2, 8):
        yield Line("number", f"Self-Aug {k}", 8.0, ViewConfig.self_aug(k, CROP), as_tuned="Self-Aug")
    yield Line("number", "DP-MIX_SELF 2 + 2", 8.0, ViewConfig.dp_mix_self(2, 2, CROP), as_tuned="DP-MIX_SELF")
    many = ViewConfig.dp_mix_diff(4, 4, 4, CROP)
    yield Line("number", "DP-MIX_DIFF, K_DIFF 4", 8.0, many, "", REAL, as_tuned="DP-MIX_DIFF")
    yield Line("public", "plain DP-SGD", 2.0, plain)
    for images, papers in ((REAL, ("81.5", "91.8")), (FONTS, ("", ""))):
        yield Line("public", f"warm-up on {images}", 2.0, plain, papers[0], images, warm("sgd"))
        yield Line("public", f"{images} in the mixes", 2.0, ViewConfig.dp_mix_diff(2, 2, 1, CROP), papers[1], images)
    for images in (REAL, FONTS):
        yield Line("public", f"views of {images} alone", 2.0, ViewConfig.pure_diff(3, 2), "", images)
    yield Line("public", "warm-up by SAM", 2.0, plain, "", REAL, warm("sam"))
    methods = {
        "DOPE-SGD": ("dope", 0.1),
        "mirror descent": ("mirror", 0.1),
        "weight multiplicity": ("multiplicity", 0.1),
        "adaptive weight multiplicity": ("multiplicity", 1.0),
    }
    for label, (method, rho) in methods.items():
        # Weight multiplicity needs a view a perturbation.
        extended = ExtendedConfig(
            method=method, batch_size=64, perturbations=4, rho=rho, adaptive=rho == 1, max_norm=1.0
        )
        changes = (*warm("sam", "extended"), ("extended", extended))
        views = ViewConfig(k_base=4) if method == "multiplicity" else plain
        yield Line("public", f"warm-up by SAM, {label}", 2.0, views, "", REAL, changes)
    # The other bound is one that no gradient reaches.
    for start, optimiser, label, bound in (
        ("warm-up by SAM", "sam", "DOPE-SGD, no bound", 1e6),
        (f"warm-up on {REAL}", "sgd", "DOPE-SGD", 1.0),
        (f"warm-up on {REAL}", "sgd", "DOPE-SGD, no bound", 1e6),
    ):
        extended = ExtendedConfig(method="dope", batch_size=64, max_norm=bound)
        changes = (*warm(optimiser, "extended"), ("extended", extended))
        yield Line("public", f"{start}, {label}", 2.0, plain, "", REAL, changes)
    yield Line("public", "plain DP-SGD, automatic clipping", 2.0, plain, changes=(("clipping", "automatic"),))


def warm(optimiser: str, scenario: str = "warm") -> tuple[tuple[str, Any], ...]:
    return (("scenario", scenario), ("warm_up", replace(WARM_UP, optimiser=optimiser)))


@cache
def raw(split: str) -> tuple[Any, Any]:
    found = open_dataset(common.data_root() / "mnist", split=split).read()
    return found.x, found.y


@cache
def features(split: str) -> Any:
    return get_extractor("pixels").extract(raw(split)[0])


@cache
def public(images: str) -> PublicData:
    if images == REAL:
        return PublicData.of(features("train")[-PUBLIC:], raw("train")[1][-PUBLIC:].astype(np.int64), classes=10)
    drawn = font_digits.draw("digits", PUBLIC, seed=1)
    return PublicData.of(get_extractor("pixels").extract(drawn.x), drawn.y, classes=10)


def settings(epsilon: float, rate: float) -> TrainingConfig:
    """Plain DP-SGD."""
    return TrainingConfig.for_model(
        "cnn",
        records=RECORDS,
        epsilon=epsilon,
        delta=DELTA,
        epochs=5.0,
        batch_size=250,
        # Named, so that a run is the same whatever else the machine does.
        execution=ExecutionConfig("vmap", 64),
        views=ViewConfig.plain(),
        optimiser=OptimiserConfig(learning_rate=rate, momentum=0.0, ema_decay=0.9),
    )


def one_run(line: Line, rate: float, seed: int) -> dict[str, Any]:
    """A training, and its accuracy on held-out training images where it tunes, else on the test images."""
    torch.set_num_threads(1)
    config = replace(settings(line.epsilon, rate), views=line.views, model_seed=seed, **dict(line.changes))
    y = raw("train")[1]
    order = np.random.default_rng(seed).permutation(LAST)
    mine, others = np.sort(order[:RECORDS]), np.sort(order[RECORDS:][:HELD])
    facts = ModelFacts(CLASSES, get_extractor("pixels").spec(), (28, 28), 784)
    start = time.process_time()
    given = {"pool" if line.views.k_diff else "public": public(line.images)} if line.images else {}
    records = TrainingRecords.of(features("train")[mine], y[mine], classes=10)
    model = Trainer(config, facts, RECORDS, **given).run(records, streams=SecretStreams.from_seed(seed))
    spent = time.process_time() - start
    tunes = seed >= TUNED_ON
    told, labels = (features("train")[others], y[others]) if tunes else (features("test"), raw("test")[1])
    return {
        "group": line.group,
        "label": line.label,
        "epsilon": line.epsilon,
        "rate": rate,
        "seed": seed,
        "on": "held-out" if tunes else "test",
        "accuracy": round(100 * float((model.predict(told) == labels).mean()), 2),
        "spent": model.certificate["guarantee"]["epsilon"],
        "cpu_seconds": round(spent, 1),
    }


def climb(score: Callable[[float], float], *, start: float = 2.0, least: float = 0.25, most: float = 16.0) -> float:
    """The best power of two, from three around the start and further ones while the best is at an edge.

    Example:
        >>> climb(lambda rate: -abs(rate - 8)), climb(lambda rate: -rate, least=0.5)
        (8.0, 0.5)
    """
    tried = {rate: score(rate) for rate in (start / 2, start, 2 * start)}
    while True:
        best = max(tried, key=lambda rate: tried[rate])
        further = best / 2 if best == min(tried) else 2 * best
        if min(tried) < best < max(tried) or not least <= further <= most:
            return best
        tried[further] = score(further)


def student(gaps: Sequence[float]) -> tuple[float, float, float] | None:
    """Mean of paired differences and its 95% interval by Student's t; None of one seed."""
    if len(gaps) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / len(gaps) ** 0.5)
    return float(np.mean(gaps)), float(np.mean(gaps)) - half, float(np.mean(gaps)) + half


def in_words(found: tuple[float, float, float] | None) -> str:
    return "one seed" if found is None else f"{found[0]:+.2f} ({found[1]:+.2f} to {found[2]:+.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="views,number,public", help="groups, separated by commas")
    parser.add_argument("--lines", default="", help="part of the lines' names; all if not set")
    parser.add_argument("--report", action="store_true", help="run nothing more")
    options = parser.parse_args()
    runs: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    before, rates = len(runs), {}

    def accuracy(line: Line, rate: float, seed: int) -> float:
        key = line.key(rate, seed)
        if key not in runs:
            runs[key] = one_run(line, rate, seed)
            print(key, runs[key]["accuracy"], runs[key]["cpu_seconds"], flush=True)
            RUNS.write_text(json.dumps(runs, indent=0) + "\n")
        return float(runs[key]["accuracy"])

    for line in lines():
        if options.report or line.group not in options.only.split(",") or options.lines not in line.label:
            continue
        if line.as_tuned:
            rate = rates.get((line.as_tuned, line.epsilon)) or best_rate(runs, "views", line.as_tuned, line.epsilon)
        else:
            start = 4.0 if line.epsilon == 8 else 2.0
            rate = climb(lambda rate, line=line: accuracy(line, rate, TUNED_ON), start=start)  # type: ignore[misc]
            first = held_out(runs, line.group, line.label, line.epsilon)
            close = [other for other in first if first[other][0] > first[rate][0] - 0.5]
            for other in close if len(close) > 1 else ():
                accuracy(line, other, AGAIN)
            rate = best_rate(runs, line.group, line.label, line.epsilon)
            # The second runs may have moved the best to an edge.
            tried = held_out(runs, line.group, line.label, line.epsilon)
            if rate in (min(tried), max(tried)):
                further = rate / 2 if rate == min(tried) else 2 * rate
                for seed in (TUNED_ON, AGAIN):
                    accuracy(line, further, seed)
                rate = best_rate(runs, line.group, line.label, line.epsilon)
            rates[line.label, line.epsilon] = rate
            for key, run in list(runs.items()):
                same = (run["group"], run["label"], run["epsilon"]) == (line.group, line.label, line.epsilon)
                if same and run["on"] == "test" and run["rate"] != rate:
                    del runs[key]
        for seed in SEEDS:
            accuracy(line, rate, seed)
    report(runs, again=len(runs) == before)


def best_rate(runs: Mapping[str, Any], group: str, label: str, epsilon: float) -> float:
    """The rate that held-out images chose, among those with most runs."""
    found = held_out(runs, group, label, epsilon)
    return max(found, key=lambda rate: (len(found[rate]), np.mean(found[rate])))


def held_out(runs: Mapping[str, Any], group: str, label: str, epsilon: float) -> dict[float, list[float]]:
    """Accuracies by rate."""
    found: dict[float, list[float]] = {}
    for run in runs.values():
        if (run["group"], run["label"], run["epsilon"], run["on"]) == (group, label, epsilon, "held-out"):
            found.setdefault(run["rate"], []).append(run["accuracy"])
    return found


def tested(runs: Mapping[str, Any], group: str, label: str, epsilon: float) -> dict[int, dict[str, Any]]:
    wanted = (group, label, epsilon, "test")
    return {
        run["seed"]: run for run in runs.values() if (run["group"], run["label"], run["epsilon"], run["on"]) == wanted
    }


def gain(runs: Mapping[str, Any], mine: tuple[str, str, float], base: tuple[str, str, float]) -> str:
    one, other = tested(runs, *mine), tested(runs, *base)
    if mine == base or not one or not other:
        return "-"
    return in_words(student([one[seed]["accuracy"] - other[seed]["accuracy"] for seed in sorted(one) if seed in other]))


# group -> (title, the line that gains are from, about the papers)
ABOUT = {
    "views": (
        "Views and mixup",
        "Self-Aug",
        "Self-Aug: 4 crops. DP-MIX_SELF: and 4 mixes. DP-MIX_DIFF: 4 crops, a public digit and 2 mixes. No flips, "
        "which change digits. The paper's column is Table 2 (CIFAR-10, WRN-16-4). Its DP-MIX_DIFF gains 9.3 points "
        "over Self-Aug on Caltech256 at epsilon 1.",
    ),
    "number": (
        "Number of views",
        "Self-Aug",
        "The rate is that of the same method with 4 crops. Bao et al. 2023, Table 5 (CIFAR-10, epsilon 8): Self-Aug "
        "78.8 to 78.4 with 16 to 36 crops, DP-MIX_SELF 79.8. Footnote 3 takes K_DIFF 24 where classes are many.",
    ),
    "public": (
        "Uses of public images",
        "plain DP-SGD",
        "Mixes: K_BASE 2, K_SELF 2, K_DIFF 1. The paper's column is Bao et al. 2023, Table 6 (Caltech256, epsilon 2). "
        "In Table 12, views of public images alone lose 1.1 points to the mixes. Warm-ups: 30 epochs, no augmentation. "
        "DOPE-SGD cuts public gradients to C but where it has no bound; Park et al. 2024 (D.3) report that it may "
        "diverge from a sharp minimum, which a warm-up without SAM reaches.",
    ),
}


def report(runs: Mapping[str, Any], *, again: bool) -> None:
    tables = []
    for group, (title, base, about) in ABOUT.items():
        rows, searched = [], []
        for line in lines():
            mine = tested(runs, line.group, line.label, line.epsilon)
            if line.group != group or not mine:
                continue
            tried = held_out(runs, line.group, line.label, line.epsilon)
            rates = sorted({run["rate"] for run in mine.values()})
            values = [run["accuracy"] for run in mine.values()]
            reference = ("views" if group == "number" else group, base, line.epsilon)
            rows.append(
                [
                    line.label,
                    f"{line.epsilon:g}",
                    ", ".join(f"{rate:g}" for rate in rates),
                    f"{np.mean(values):.2f} ({np.std(values, ddof=1):.2f}, {len(values)})",
                    gain(runs, (line.group, line.label, line.epsilon), reference),
                    f"{np.median([run['cpu_seconds'] for run in mine.values()]):.1f}",
                    line.paper,
                ]
            )
            if tried:
                cells = "; ".join(
                    f"{rate:g}: {np.mean(tried[rate]):.1f} ({len(tried[rate])})" for rate in sorted(tried)
                )
                searched.append([line.label, f"{line.epsilon:g}", cells])
        if not rows:
            continue
        head = ["", "epsilon", "rate", "test accuracy, % (deviation, runs)", f"gain on {base}, 95% interval"]
        body = [f"## {title}", about, common.table([*head, "CPU seconds", "paper, %"], rows)]
        if searched:
            head = ["line", "epsilon", "rate: accuracy (runs)"]
            body += ["Accuracy on held-out training images, %, by rate (runs):", common.table(head, searched)]
        tables.append("\n\n".join(body))
    done = [run for run in runs.values() if run["on"] == "test"]
    facts = {
        "task": f"tanh CNN (26,010 parameters) on MNIST pixels, {RECORDS} private records drawn by the seed",
        "fixed for every line": "5 epochs, batches of 250, C = 1, no momentum, average of the weights (0.9)",
        "searched for every line": "learning rate, from 1, 2, 4 (2, 4, 8 at epsilon 8) and further powers of two while "
        "the best is at an edge; a second run where rates are within half a point",
        "privacy": f"delta {DELTA}, PLD; spent at most epsilon + {max(r['spent'] - r['epsilon'] for r in done):.4f}",
        "not run yet": "; ".join(
            f"{line.label}, epsilon {line.epsilon:g}"
            for line in lines()
            if not tested(runs, line.group, line.label, line.epsilon)
        )
        or "none",
        "interval": "Student's t of paired differences over the seeds, each by itself",
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs.values())),
    }
    title = "Methods of private training, each at its own learning rate"
    common.save("training_ablation", title, facts, list(runs.values()), tables, again=again)


if __name__ == "__main__":
    main()
