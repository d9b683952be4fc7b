"""What the warm-up is worth by itself: Park et al. 2024, Tables 3, 4 and 16, on MNIST at a size that a CPU trains.

The setting is near that of the table ``synthetic`` in bench_ladder.py, from which data and statistics come: a tanh CNN
(26,010 weights), 600 public images and 10,000 that EDM drew of them in the warm-up, 10,000 private records, epsilon
2, delta 1e-5, PLD. Rows differ in the warm-up alone: what is done to its images, and by which optimiser. A row's two
accuracies are of one run: of the network before its first private step (what `privmix train --epsilon 0` makes) and
after the last one. All rows of a seed share private records, initial weights, batches and noise; intervals are
Student's of paired differences.

Table 4 of the paper measures the warm-up's model on synthetic and on private images. Nobody may measure private ones
without paying for it, so images of MNIST's training split that are neither public nor private to the run stand in for
them here. 600 of each kind; the public ones are what `privmix sharpness` would show an owner.

Settings that the ladder does not have: ASAM with its authors' rho for small images (0.5); the adversary takes 3 steps
of a quarter of its radius from a random point (the library's 7 take twice the time). AutoAugment's policy stands
alone, as in the paper's table, and crops have no flips, which digits don't bear. Test images are looked at once a
network, and settle nothing.

Finished runs are kept in results/warm_up_runs.json, and run again where --pools holds another pool than theirs.

    python benchmarks/bench_warm_up.py [--rows "crops,SAM"] [--seeds 3] [--pools FOLDER]
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bench_ladder as ladder
import common
from bench_designs import CACHE
from bench_synthesis import public_part
from privmix.jobs.training import TrainingJob
from privmix.mechanisms.streams import SecretStreams
from privmix.research.curvature.hessian import curvature
from privmix.training.batches import Batch
from privmix.training.dp_sgd import StepObserver, TrainingRecords
from privmix.training.examples import PublicData
from privmix.training.trained import NetworkClassifier, shaped

RUNS = common.RESULTS / "warm_up_runs.json"
# Images that a Hessian is taken of.
MEASURED = 600
BEFORE, AFTER = "after the warm-up", "after the private phase"
# Of which networks the Hessian is measured.
SHARPNESS = {"SGD": "crops + cutout", "SAM": "SAM", "ASAM": "ASAM"}
# Park et al. 2024, Table 4: lambda_max, lambda_max / lambda_5, trace.
PAPER = {
    ("SGD", "synthetic"): "1.38; 10.62; 71.98",
    ("SGD", "unseen"): "112.82; 1.58; -2527.78",
    ("SAM", "synthetic"): "0.44; 2.63; 53.21",
    ("SAM", "unseen"): "58.32; 1.50; 333.03",
}
# The private phase; what the pool is.
PAST: dict[str, Any] = {"views": "self-aug:augmentations=crop,k_base=4"}
PAST_RATE, EARLIER = (
    2.0,
    "EDM (0.5): its network's scalings take 0.5 for the deviation of the images, as Karras et al. have it for theirs; "
    "it is 0.62 for these, as in any model that is trained today.",
)
SETS = {"synthetic": "drawn by EDM (0.5)", "public": "the 600 public", "unseen": "unseen, of MNIST"}


def from_pool(label: str, above: str, paper: float | None, **changes: Any) -> ladder.Rung:
    """A row: a warm-up on EDM's images and the public ones."""
    rung = ladder.from_pool(label, above, paper, pool="edm", **changes)
    return replace(rung, part="warm-up", options={**PAST, **rung.options})


def rows() -> Iterator[ladder.Rung]:
    """Warm-ups, and the paper's accuracy after the private phase."""
    cut: dict[str, Any] = {"augmentations": "crop+cutout"}
    found = [
        from_pool("as they are", "", 75.32),
        from_pool("crops", "as they are", 83.97, augmentations="crop"),
        from_pool("crops + cutout", "crops", 84.88, **cut),
        from_pool("turns and shifts", "as they are", None, augmentations="affine"),
        from_pool("crops + CutMix", "crops", 82.20, augmentations="crop", mixing="cutmix"),
        from_pool("AutoAugment for CIFAR-10", "as they are", 83.45, augmentations="autoaugment"),
        from_pool("SAM", "crops + cutout", 85.28, **cut, optimiser="sam"),
        from_pool("ASAM", "crops + cutout", None, **cut, optimiser="asam", rho=0.5),
    ]
    for radius, accuracy in (("2/255", 81.55), ("8/255", 77.25)):
        harder = {**cut, "adversary": radius, "adversary_steps": 3}
        found.append(from_pool(f"adversary of {radius}", "crops + cutout", accuracy, **harder))
    yield from found


class Warmed(StepObserver):
    """Keeps the network as the warm-up leaves it."""

    def __init__(self, network: Any) -> None:
        self._network, self.network = network, None

    def drawn(self, batch: Batch, step: int) -> Batch:
        if self.network is None:
            self.network = copy.deepcopy(self._network)
        return batch


def one_run(row: ladder.Rung, seed: int, folder: Path, rate: float) -> dict[str, Any]:
    torch.set_num_threads(1)
    x, y = ladder.images(folder / "private.npz")
    mine = ladder.chosen(len(x), seed, 10_000)
    drawn = ladder.pool(folder, row.pool)
    held = {"public": ladder.images(folder / "public.npz"), "synthetic": tuple(part[: row.drawn] for part in drawn)}
    start = time.process_time()
    options = {**ladder.SHARED, **row.options, **held, **ladder.update(rate), "model_seed": seed}
    job = TrainingJob((x[mine], y[mine]), **options)
    with job.processes() as world:
        trainer = job.plan(world).trainer
    records = TrainingRecords.of(job.extractor.extract(x[mine]), y[mine], classes=10)
    warmed = Warmed(trainer.network)
    last = trainer.observed(records, [warmed], streams=SecretStreams.from_seed(seed))
    networks = {BEFORE: warmed.network, AFTER: last}
    spent = time.process_time() - start

    def accuracy(network: Any) -> float:
        images, labels = ladder.test()
        model = NetworkClassifier()
        model.network, model.facts_ = network, trainer.facts
        found = model.predict(job.extractor.extract(images))
        return round(100 * float((found == labels).mean()), 2)

    run = {
        "part": row.part,
        "label": row.label,
        "seed": seed,
        "rate": rate,
        "pool": digest(folder),
        "warmed_up": accuracy(networks[BEFORE]),
        "accuracy": accuracy(networks[AFTER]),
        "epsilon": trainer.plan.cost().epsilon,
        "cpu_seconds": round(spent, 1),
    }
    if row.label in SHARPNESS.values():
        others = np.setdiff1d(np.arange(len(x)), mine)
        unseen = np.random.default_rng([seed, 1]).choice(others, MEASURED, replace=False)
        chosen = np.random.default_rng([seed, 2]).choice(row.drawn, MEASURED, replace=False)
        sets = {
            "synthetic": tuple(part[chosen] for part in held["synthetic"]),
            "public": held["public"],
            "unseen": (x[unseen], y[unseen]),
        }
        run["curvature"] = {
            f"{stage}: {name}": measured(network, sets[name], job, trainer.facts)
            for stage, network in networks.items()
            for name in sets
            # What it forgets of the synthetic images nobody asked.
            if (stage, name) != (AFTER, "synthetic")
        }
        run["cpu_seconds"] = round(time.process_time() - start, 1)
    return run


def measured(network: Any, images: ladder.Images, job: TrainingJob, facts: Any) -> dict[str, Any]:
    """Figures of the Hessian of the mean loss."""
    network.eval()
    data = PublicData.of(job.extractor.extract(images[0]), images[1], classes=10)
    return curvature(network, PublicData(shaped(data.x, network, facts), data.targets), probes=10).to_dict()


def digest(folder: Path) -> str | None:
    """Of the pool's images; None where there is no pool, and kept runs are all that there is."""
    place = folder / "pool-edm" / "train.npz"
    return hashlib.sha256(ladder.images(place)[0].tobytes()).hexdigest()[:16] if place.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="by their names, separated by commas; all where empty")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each row")
    parser.add_argument("--pools", type=Path, default=CACHE / "synthesis", help="public and private images, pool")
    asked = parser.parse_args()
    runs = ladder.kept(RUNS)
    now = digest(asked.pools)
    wanted = [row for row in rows() if not asked.rows or row.label in asked.rows.split(",")]
    missing = [
        (row, seed)
        for seed in range(asked.seeds)
        for row in wanted
        if row.key(seed) not in runs or (now is not None and runs[row.key(seed)]["pool"] != now)
    ]
    if missing:
        public_part(asked.pools)
        rate = PAST_RATE
        for row, seed in missing:
            runs[row.key(seed)] = one_run(row, seed, asked.pools, rate)
            ladder.keep(runs, row.key(seed), RUNS)
    report(runs, again=not missing)


def of(runs: Mapping[str, Any], label: str, name: str) -> dict[int, float]:
    """One figure of a row, by seed."""
    return {run["seed"]: run[name] for run in runs.values() if run["label"] == label}


def spread(values: Mapping[int, float], form: str = ".2f") -> str:
    found = np.array(list(values.values()))
    return f"{found.mean():{form}} ({found.min():{form}} to {found.max():{form}})"


def accuracies(runs: Mapping[str, Any]) -> list[list[str]]:
    """The table of augmentations and optimisers."""
    found, all_rows = [], {row.label: row for row in rows()}
    for row in all_rows.values():
        if not of(runs, row.label, "accuracy"):
            continue
        cells = [row.label]
        for name in ("warmed_up", "accuracy"):
            mine, before = of(runs, row.label, name), of(runs, row.above, name)
            cells.append(spread(mine))
            cells.append(ladder.in_words(ladder.gain(mine, before)) if row.above else "-")
        above = all_rows.get(row.above)
        found.append([*cells, row.above or "-", *ladder.papers(replace(row, part="ladder"), above)])
    return found


def figure_of(runs: Mapping[str, Any], label: str, place: str, name: str) -> dict[int, float]:
    """A figure of the Hessian, by seed; infinite ratios are."""
    found = {seed: held[place] for seed, held in of(runs, label, "curvature").items()}
    if name == "largest":
        return {seed: one["eigenvalues"][0] for seed, one in found.items()}
    return {seed: math.inf if one[name] is None else one[name] for seed, one in found.items()}


def worst_error(runs: Mapping[str, Any]) -> float:
    """The largest standard error of a trace."""
    return max(one["error"] for run in runs.values() for one in run.get("curvature", {}).values())


def sharpness(runs: Mapping[str, Any]) -> list[list[str]]:
    """The paper's Table 4."""
    found = []
    for stage in (BEFORE, AFTER):
        for name, said in SETS.items():
            for optimiser, label in SHARPNESS.items():
                place = f"{stage}: {name}"
                if (stage, name) == (AFTER, "synthetic") or not of(runs, label, "accuracy"):
                    continue
                largest, ratio, trace = (figure_of(runs, label, place, one) for one in ("largest", "ratio", "trace"))
                beside = (
                    "-" if optimiser == "SGD" else times(largest, figure_of(runs, "crops + cutout", place, "largest"))
                )
                paper = PAPER.get((optimiser, name), "") if stage == BEFORE else ""
                cells = [spread(largest), beside, spread(ratio), spread(trace, ".1f")]
                found.append([stage, said, optimiser, *cells, paper])
    return found


def times(mine: Mapping[int, float], other: Mapping[int, float]) -> str:
    """The geometric mean of paired ratios and its interval; figures that are not positive have none."""
    if min([*mine.values(), *other.values()]) <= 0:
        return "not all positive"
    found = ladder.gain(*({seed: math.log(value) for seed, value in one.items()} for one in (mine, other)))
    if found is None:
        return "one seed"
    mean, low, high = (math.exp(value) for value in found)
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


NOTE = (
    "The private phase has three epochs with four crops at rate 2, which no search "
    "chose. So rows compare warm-ups alone. Runs are three a row."
)


def report(runs: Mapping[str, Any], *, again: bool = False) -> None:
    spans = "%, mean (least to most)"
    header = [
        "warm-up on images by EDM (0.5) and the public ones",
        f"after it alone, {spans}",
        "gain, 95% interval",
        f"after the private phase, {spans}",
        "gain, 95% interval",
        "gains are on",
        "Park et al. 2024, Tables 3 and 16 (CIFAR-10)",
    ]
    hessian = [
        "network",
        "images",
        "warm-up by",
        "largest eigenvalue",
        "times that of SGD's, 95% interval",
        "over the fifth",
        "trace",
        "Park et al. 2024, Table 4 (the three)",
    ]
    says = (
        "### How sharp the minimum is\n\nAll three warm up with crops and cutout. The paper's second kind of images "
        "are its private ones; here they are images that the run never saw, since private ones may not be measured "
        "without paying for it. Standard errors of the traces are at most {:.1f}."
    )
    tables = [NOTE, common.table(header, accuracies(runs)), EARLIER]
    tables.append(says.format(worst_error(runs)) + "\n\n" + common.table(hessian, sharpness(runs)))
    facts = {
        "task": "that of bench_ladder.py: tanh CNN on MNIST, 10000 private records, 600 public, 10000 by EDM (0.5)",
        "privacy": f"epsilon 2, delta 1e-05, PLD; spent at most {max(run['epsilon'] for run in runs.values()):.4f}",
        "seeds": "; ".join(f"{row.label}: {len(of(runs, row.label, 'accuracy'))}" for row in rows()),
        "pools": ", ".join(sorted({run["pool"] for run in runs.values()})),
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs.values())),
    }
    common.save("warm_up", "The warm-up by itself", facts, list(runs.values()), tables, again=again)


if __name__ == "__main__":
    main()
