"""Public images, used better step by step: Park et al. 2024, Table 1, on MNIST at a size that a CPU trains.

600 images of MNIST's training split (1%, as many of each digit) are public; 5,000 others, drawn by the seed, are
private; the network is the tanh CNN (26,010 parameters); epsilon 2, delta 1e-5, priced by PLD. All rungs of a seed
share private records, initial weights, batches and noise, so that a step's gain is paired: its interval is Student's
over the seeds. Public images and pools are the same for all seeds, so intervals say nothing about other ones.

Every rung has the same search, by the accuracy on 5,000 held-out training images in one training of seed 100: the rate
(powers of two, and further ones while the best is at an edge) at 10 and at 3 epochs, crops of a record in the private
phase (2 views), and 20 epochs, at the rate of 10, where 10 beat 3 by more than half a point. Five other seeds then open
the test images. Batches have 8.5% of the records, as in the paper, and C is 1. Warm-ups take 1,056 steps of 100 images,
by SGD with momentum 0.9, weight decay 5e-4, rate 0.05 falling as a cosine. Other budgets (Park et al. 2024, Tables 5
and 6) have the settings of epsilon 2.

``encoder`` has cold and warm starts of a linear head on CIFAR-10 by a public encoder (features of bench_photographs.py;
2,000 images public, 10,000 private), in the place of their Tables 7 and 14, which fine-tune transformers.

``synthetic`` has the rungs with synthetic images, by the EDM of bench_synthesis.py that was trained longer (an hour),
each with its own search. ``amounts`` has fewer of these images, other budgets (Table 8) and images drawn with guidance
(Tables 2 and 13), with the settings of the rung with all of them.

Finished runs are kept in results/ladder_runs.json.

    python benchmarks/bench_ladder.py [--only ladder,budgets,encoder,synthetic,amounts] [--pools FOLDER] [--report]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray

import bench_photographs
import common
import font_digits
import privmix as pm
from bench_designs import CACHE
from bench_synthesis import IMAGES, made, public_part
from bench_training_ablation import climb, in_words, student
from privmix import named
from privmix.data import open_dataset

RUNS = common.RESULTS / "ladder_runs.json"
Images = tuple[NDArray[np.uint8], NDArray[np.int64]]

EPSILON, DELTA, BUDGETS = 2.0, 1e-5, (1.0, 2.0, 4.0)
RECORDS, FEATURES, PUBLIC, HELD, DRAWN = 5_000, 10_000, 600, 5_000, 10_000
SEEDS, TUNED_ON = range(5), 100
# 8.5% of the records, as 4096 of 48,000 are.
BATCH = 427
SHARED: dict[str, Any] = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "classes": range(10),
    "features": "pixels",
    "model": "cnn",
    "batch_size": 853,
    "epochs": 3.0,
    # Named, so that a run is the same whatever else the machine does.
    "strategy": "vmap:chunk=64",
}
# 1,056 steps of 100 images.
SOME: dict[str, Any] = {"epochs": 176, "optimiser": "sgd", "augmentations": "none"}


def warm_up(**changes: Any) -> dict[str, str]:
    """The option for a warm-up as of most rungs, with changes."""
    options = {**SOME, **changes}
    return {"warm_up": named.in_words(options.pop("optimiser"), options)}


def update(rate: float) -> dict[str, str]:
    """The option for the private update."""
    return {"optimiser": f"sgd:learning_rate={rate:g},ema_decay=0.9"}


@dataclass(frozen=True)
class Rung:
    """One training, by what differs from the shared settings.

    Attributes:
        part: of the benchmark.
        label: what it is called.
        above: the rung that it is compared with.
        paper: the paper's test accuracy, in percent.
        pool: name of its synthetic images.
        drawn: how many of these are used.
        epsilon: 0: the warm-up alone.
        uses: arguments that take public images, or its pool.
        options: of the training.
    """

    part: str
    label: str
    above: str = ""
    paper: float | None = None
    pool: str = ""
    drawn: int = DRAWN
    epsilon: float = EPSILON
    uses: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def key(self, seed: int, setting: str = "") -> str:
        return f"{self.part}: {self.label}: {seed}{setting and ': '}{setting}"


def ladder() -> Iterator[Rung]:
    """Rungs without a synthetic image, each with its own search."""
    cut = {"augmentations": "crop+cutout"}
    real = {"public": "public"}
    yield Rung("ladder", "cold", "", 64.02)
    yield Rung("ladder", "warm", "cold", 68.09, uses=real, options={"scenario": "warm", **warm_up()})
    cropped = {"scenario": "warm", **warm_up(**cut)}
    yield Rung("ladder", "warm, crops and cutout in the warm-up", "warm", uses=real, options=cropped)
    fonts = {"public": "rendered"}
    yield Rung("ladder", "warm on 600 digits of fonts", "cold", uses=fonts, options={"scenario": "warm", **warm_up()})
    mixed = {"views": "dp-mix-diff:k_base=1,k_self=1,k_diff=1"}
    yield Rung("ladder", "cold, the 600 in the mixes (DP-MIX_DIFF)", "cold", uses={"pool": "public"}, options=mixed)


def budgets() -> Iterator[Rung]:
    """The first three rungs at other epsilons, with the settings of epsilon 2."""
    for rung in list(ladder())[:3]:
        for epsilon in BUDGETS:
            if epsilon != EPSILON:
                yield replace(rung, part="budgets", label=f"{rung.label}, epsilon {epsilon:g}", epsilon=epsilon)


def encoder() -> Iterator[Rung]:
    """Cold, warm, and the last rung without synthetic images, on features; each with its own search."""
    head = {"model": "linear", "features": "identity", "strategy": "auto", "batch_size": 853}
    some = {"epochs": 53}
    copies = "self-aug:augmentations=none,k_base=4"
    flat = {"scenario": "extended", "public_method": "multiplicity:perturbations=4", "views": copies}
    for epsilon in (0.5, 2.0):
        at = f"epsilon {epsilon:g}"
        cold = Rung("encoder", f"encoder, cold, {at}", epsilon=epsilon, options=head)
        warm = {"scenario": "warm", **warm_up(**some)}
        yield cold
        real = {"public": "public"}
        yield replace(cold, label=f"encoder, warm, {at}", above=cold.label, uses=real, options=head | warm)
        last = f"encoder, warm by SAM, weight multiplicity, {at}"
        options = head | flat | warm_up(**some, optimiser="sam")
        yield replace(cold, label=last, above=f"encoder, warm, {at}", uses=real, options=options)


def synthetic() -> Iterator[Rung]:
    """Rungs with synthetic images, each with its own search."""
    cut = {"augmentations": "crop+cutout"}
    flat = {**cut, "optimiser": "sam"}
    weights = {"scenario": "extended", "public_method": "multiplicity:perturbations=4", "views": "self-aug:k_base=4"}
    yield from_pool("EDM", "warm", 75.13)
    cropped = from_pool("EDM + crops and cutout in the warm-up", "EDM", 84.88, **cut)
    yield cropped
    yield replace(cropped, label="the same warm-up alone", above=cropped.label, epsilon=0.0, paper=80.4)
    sam = "EDM + crops and cutout + SAM"
    yield from_pool(sam, cropped.label, 85.28, **flat)
    yield from_pool("EDM + crops and cutout + SAM + weight multiplicity", sam, 85.78, weights, **flat)
    mixed = {"views": "dp-mix-diff:k_base=1,k_self=1,k_diff=1"}
    title = "cold, EDM's images in the mixes (DP-MIX_DIFF)"
    yield Rung("synthetic", title, "cold", pool="longer", uses={"pool": "pool"}, options=mixed)


def amounts() -> Iterator[Rung]:
    """Other numbers of images, budgets and weights of guidance, with the settings of ``EDM``."""
    for epsilon in (2.0, 4.0, 6.0):
        for drawn in (1_250, 5_000, DRAWN):
            if (epsilon, drawn) != (EPSILON, DRAWN):
                above = "EDM" if epsilon == EPSILON else f"EDM, {DRAWN:,} images, epsilon {epsilon:g}"
                above = "" if drawn == DRAWN else above
                rung = from_pool(f"EDM, {drawn:,} images, epsilon {epsilon:g}", above, None, drawn=drawn)
                yield replace(rung, part="amounts", epsilon=epsilon)
    title = "EDM, 4,000 images"
    yield replace(from_pool(title, "EDM", None, drawn=4_000), part="amounts")
    for weight in (3, 20):
        guided = from_pool(f"{title}, guidance of weight {weight}", title, None, drawn=4_000, pool=f"guided-{weight}")
        yield replace(guided, part="amounts")


def from_pool(
    label: str,
    above: str,
    paper: float | None,
    options: Mapping[str, Any] = {},
    *,
    pool: str = "longer",
    drawn: int = DRAWN,
    **changes: Any,
) -> Rung:
    """A rung whose warm-up has synthetic and public images, for as many steps as the public ones alone."""
    steps = {"epochs": round(SOME["epochs"] * PUBLIC / (PUBLIC + drawn)), **changes}
    both = {"public": "public", "synthetic": "pool"}
    shared = {"scenario": "warm-synthetic", **warm_up(**steps)}
    return Rung("synthetic", label, above, paper, pool, drawn, uses=both, options={**shared, **options})


PARTS = {"ladder": ladder, "budgets": budgets, "encoder": encoder, "synthetic": synthetic, "amounts": amounts}


@cache
def images(place: Path) -> Images:
    with np.load(place) as found:
        return found["x"], found["y"]


def pool(folder: Path, name: str) -> Images:
    """Synthetic images of the public ones, drawn where they are not there."""
    if not (folder / f"pool-{name}").exists():
        made(folder, name, IMAGES[name])
    return images(folder / f"pool-{name}" / "train.npz")


@cache
def rendered() -> Images:
    """As many digits as are public, drawn from fonts."""
    drawn = font_digits.draw("digits", PUBLIC, seed=1)
    assert drawn.y is not None
    return drawn.x, drawn.y


@cache
def test() -> Images:
    found = open_dataset(common.data_root() / "mnist", split="test").read()
    return found.x, found.y


def chosen(total: int, seed: int, records: int = RECORDS) -> NDArray[np.int64]:
    """Private records of a seed."""
    return np.sort(np.random.default_rng(seed).choice(total, records, replace=False))


@cache
def photographs(split: str) -> Images:
    """Features of CIFAR-10; the first 2,000 of a fixed order of the training split are public, the others private."""
    if split == "test":
        return bench_photographs.data("test")
    x, y = bench_photographs.data("train")
    order = np.random.default_rng(600).permutation(len(x))
    part = order[:2000] if split == "public" else order[2000:]
    return x[part], y[part]


@dataclass(frozen=True)
class Setting:
    """Settings that the search tries."""

    epochs: float
    rate: float
    crops: bool

    def __str__(self) -> str:
        return f"{self.epochs:g} epochs, rate {self.rate:g}{', crops' if self.crops else ''}"

    def options(self, views: str) -> dict[str, Any]:
        """Settings of the training."""
        if self.crops:
            views = f"{views},augmentations=crop" if views else "self-aug:augmentations=crop,k_base=2"
        elif views:
            views = f"{views},augmentations=none"
        found = {"epochs": self.epochs, "strategy": "vmap:chunk=256"}
        found |= {"batch_size": BATCH, **update(self.rate)}
        return found | ({"views": views} if views else {})


def one_run(rung: Rung, seed: int, folder: Path, setting: Setting) -> dict[str, Any]:
    """A training, and its accuracy on held-out training images where it tunes, else on the test images."""
    torch.set_num_threads(1)
    features = rung.part == "encoder"
    x, y = photographs("private") if features else images(folder / "private.npz")
    count = FEATURES if features else RECORDS
    mine = chosen(len(x), seed, count)
    public = photographs("public") if features else images(folder / "public.npz")
    held = {"public": public, "rendered": rendered()}
    if rung.pool:
        held["pool"] = tuple(part[: rung.drawn] for part in pool(folder, rung.pool))
    given = {argument: held[name] for argument, name in rung.uses.items()}
    searched = setting.options(rung.options.get("views", ""))
    if features:
        searched = {key: value for key, value in searched.items() if key in ("epochs", "optimiser")}
    options = {**SHARED, **rung.options, **searched, **given, "model_seed": seed, "epsilon": rung.epsilon}
    start = time.process_time()
    secret = {} if rung.epsilon == 0 else {"seed": seed}
    model = pm.train((x[mine], y[mine]), **options, **secret)
    spent, told = time.process_time() - start, photographs("test") if features else test()
    if seed == TUNED_ON:
        others = np.setdiff1d(np.arange(len(x)), mine)[:: (len(x) - count) // HELD][:HELD]
        told = x[others], y[others]
    return {
        "part": rung.part,
        "label": rung.label,
        "seed": seed,
        "setting": str(setting),
        "on": "held-out" if seed == TUNED_ON else "test",
        "accuracy": round(100 * model.score(*told), 2),
        "epsilon": model.certificate["guarantee"]["epsilon"],
        "cpu_seconds": round(spent, 1),
    }


def kept(place: Path = RUNS) -> dict[str, Any]:
    return json.loads(place.read_text()) if place.exists() else {}


def keep(runs: dict[str, Any], key: str, place: Path = RUNS) -> None:
    """Write a finished run, next to those that another process may have finished meanwhile."""
    runs.update(kept(place) | {key: runs[key]})
    place.write_text(json.dumps(runs, indent=0) + "\n")
    print(key, runs[key]["accuracy"], runs[key]["cpu_seconds"], flush=True)


def searched_of(rung: Rung) -> Rung:
    """The rung whose search gives this one its settings."""
    if rung.part == "budgets":
        return replace(rung, part="ladder", label=label_of(rung), epsilon=EPSILON)
    if rung.part == "amounts":
        return next(synthetic())
    if rung.epsilon == 0:
        return next(one for one in synthetic() if one.label == rung.above)
    return rung


def search(rung: Rung, runs: dict[str, Any], folder: Path) -> Setting:
    """The best setting of a rung by held-out training images."""
    tried: dict[Setting, float] = {}

    def score(epochs: float, rate: float, crops: bool = False) -> float:
        setting = Setting(epochs, rate, crops)
        key = rung.key(TUNED_ON, str(setting))
        if key not in runs:
            runs[key] = one_run(rung, TUNED_ON, folder, setting)
            keep(runs, key)
        tried[setting] = runs[key]["accuracy"]
        return tried[setting]

    # Starts from public images do best at lower rates: fewer steps lead there from 1.
    rate = climb(lambda rate: score(10, rate), start=1.0 if rung.part == "synthetic" else 4.0)
    short = climb(lambda rate: score(3, rate), start=rate)
    if tried[Setting(10, rate, False)] > tried[Setting(3, short, False)] + 0.5:
        score(20, rate)
    best = max(tried, key=lambda setting: tried[setting])
    if rung.part != "encoder":
        score(best.epochs, best.rate, crops=True)
    return max(tried, key=lambda setting: tried[setting])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--pools", type=Path, default=CACHE / "synthesis", help="public and private images, pools")
    parser.add_argument("--report", action="store_true", help="run nothing more")
    options = parser.parse_args()
    runs = kept()
    before = len(runs)
    if not options.report:
        public_part(options.pools)
        for part in options.only.split(","):
            for rung in PARTS[part]():
                setting = search(searched_of(rung), runs, options.pools)
                for seed in SEEDS:
                    if rung.key(seed) not in runs:
                        runs[rung.key(seed)] = one_run(rung, seed, options.pools, setting)
                        keep(runs, rung.key(seed))
    report(runs, again=len(runs) == before)


def accuracies(runs: Mapping[str, Any], rung: Rung) -> dict[int, float]:
    """On the test images, by seed."""
    return {
        run["seed"]: run["accuracy"]
        for run in runs.values()
        if (run["part"], run["label"]) == (rung.part, rung.label) and run["seed"] != TUNED_ON
    }


def gain(mine: Mapping[int, float], before: Mapping[int, float]) -> tuple[float, float, float] | None:
    """Mean of the paired differences and its 95% interval by Student's t."""
    return student([mine[seed] - before[seed] for seed in mine if seed in before])


def rows(runs: Mapping[str, Any], part: str) -> list[list[str]]:
    rungs = {rung.label: rung for every in PARTS.values() for rung in every()}
    found = []
    for rung in PARTS[part]():
        mine = accuracies(runs, rung)
        if not mine:
            continue
        above = rungs.get(rung.above)
        step = "-" if above is None else f"{in_words(gain(mine, accuracies(runs, above)))} on {above.label}"
        while above is not None and above.paper is None:
            above = rungs.get(above.above)
        found.append([rung.label, spread(mine), step, *papers(rung, above)])
    return found


def papers(rung: Rung, above: Rung | None) -> list[str]:
    if rung.paper is None:
        return [""]
    gained = "" if above is None else f" ({rung.paper - (above.paper or 0.0):+.2f})"
    return [f"{rung.paper:.2f}{gained}"]


def spread(found: Mapping[int, float]) -> str:
    """Mean, standard deviation and number of seeds."""
    if len(found) < 2:
        return "".join(f"{value:.2f} (1 run)" for value in found.values())
    values = np.array(list(found.values()))
    return f"{values.mean():.2f} ({values.std(ddof=1):.2f}, {len(values)})"


def searched(runs: Mapping[str, Any]) -> str:
    """The settings tried of each rung, best first."""
    found = []
    for rung in (*ladder(), *synthetic(), *encoder()):
        tried = [run for run in runs.values() if run["label"] == rung.label and run["seed"] == TUNED_ON]
        tried.sort(key=lambda run: -run["accuracy"])
        if tried and accuracies(runs, rung):
            others = "; ".join(f"{run['setting']}: {run['accuracy']:.1f}" for run in tried[1:])
            found.append([rung.label, f"{tried[0]['setting']}: {tried[0]['accuracy']:.1f}", others])
    return common.table(["rung", "chosen: accuracy", "others: accuracy"], found)


def others(runs: Mapping[str, Any]) -> Iterator[str]:
    """Other budgets and the encoder, where they were run."""
    head = ["", "test accuracy, % (deviation, seeds)", "gain, 95% interval"]
    own, found = {rung.label: rung for rung in ladder()}, []
    for rung in budgets():
        above = replace(rung, label=rung.label.replace(label_of(rung), own[label_of(rung)].above))
        pair = accuracies(runs, rung), accuracies(runs, above)
        if pair[0]:
            found.append([rung.label, spread(pair[0]), in_words(gain(*pair)) if pair[1] else "-"])
    if found:
        yield "### Other budgets\n\nSettings are those of epsilon 2.\n\n" + common.table(head, found)
    if heads := rows(runs, "encoder"):
        yield (
            "## A public encoder\n\nA linear head on CIFAR-10 (a JPEG copy) by `efficientnet:160,lite2`; 10,000 "
            "private images, 2,000 public. The last line of an epsilon has no synthetic images.\n\n"
            + common.table(head, [row[:3] for row in heads])
        )


def drawn(runs: Mapping[str, Any], header: list[str]) -> Iterator[str]:
    """Rungs with synthetic images, where they were run."""
    if found := rows(runs, "synthetic"):
        yield (
            "10,000 digits by the EDM of synthesis.md that was trained longer on the 600. One model, one pool: "
            "intervals say nothing about other ones. Each line has its own search; a warm-up alone has none.\n\n"
            + common.table(header, found)
        )
    if found := rows(runs, "amounts"):
        yield (
            "### Numbers of images, budgets, guidance\n\nSettings are those of EDM. All warm-ups take as many "
            "steps.\n\n" + common.table(header[:3], [row[:3] for row in found])
        )


def label_of(rung: Rung) -> str:
    return rung.label.split(", epsilon")[0]


def report(runs: Mapping[str, Any], *, again: bool) -> None:
    header = ["", "test accuracy, % (deviation, seeds)", "gain, 95% interval", "Park et al. 2024, Table 1 (CIFAR-10)"]
    tables = [
        "## Without synthetic images",
        "Each line has its own search of epochs, rate and crops.",
        common.table(header, rows(runs, "ladder")),
        "### Settings: accuracy on held-out training images, % (one run each)",
        searched(runs),
        *others(runs),
        "## With synthetic images",
        *drawn(runs, header),
    ]
    facts = {
        "task": f"tanh CNN on MNIST pixels, {RECORDS} private records, {PUBLIC} public",
        "fixed for every line": f"batches of {BATCH}, C = 1, no momentum, average of the weights (0.9)",
        "searched for every line": "rates, powers of two, further ones while the best is at an edge, at 10 and 3 epochs"
        "; 20 epochs at the rate of 10 where 10 beat 3 by half a point; two crops of a record in the private phase",
        "privacy": f"delta {DELTA}, PLD; spent at most {max((run['epsilon'] for run in runs.values()), default=0):.4f}",
        "not run yet": "; ".join(rung.label for part in PARTS.values() for rung in part() if not accuracies(runs, rung))
        or "none",
        "interval": "Student's t of paired differences over the seeds: private records, weights, batches and noise",
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs.values())),
    }
    common.save("ladder", "Public images, used better step by step", facts, list(runs.values()), tables, again=again)


if __name__ == "__main__":
    main()
