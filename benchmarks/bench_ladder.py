"""Public images, used better step by step: Park et al. 2024, Table 1, on MNIST at a size that a CPU trains.

600 images of MNIST's training split (1%, as many of each digit) are public; 10,000 others, drawn by the seed, are
private; the network is the tanh CNN (26,010 parameters); epsilon 2, delta 1e-5, priced by PLD. Each rung differs in one
thing from another one, which is named. All rungs of a seed share private records, initial weights, batches and noise,
so that a step's gain is paired: its interval is Student's over the seeds. Public images and pools are the same for all
seeds, so intervals say nothing about other ones.

Settings come from the paper where a CPU allows: batches of the same share of the records (8.5%), C = 1, no momentum,
one view a weight perturbation, public batches of 64, rho 0.1; warm-up by SGD with momentum 0.9, weight decay 5e-4, rate
0.05 falling as a cosine, batches of 100. K is 4 (theirs 16), there are 3 epochs (theirs 30), and every warm-up takes
about 1,060 steps, so that no rung gains by more of them. The learning rate of the private phase is 0.5
(theirs) or 2 (the library's), by a simulation in which rendered digits stand for all of MNIST, public and private: no
MNIST image is in it. Test images are looked at once a run, and settle nothing. "The same without EDM" was added when
the other rungs had been seen.

A second table asks what a pool of DP-Mix is worth (Bao et al. 2023, Tables 6 and 12): the 600 images, which are of the
private ones' own distribution, what is made of them, and digits rendered from fonts, which are not. A pool can be mixed
with the private records, or be all that their gradients see.

A third table has rungs at epsilon 1, 4 and 6 beside 2 (Park et al. 2024, Tables 5 and 6), a fourth the number of
synthetic images (Table 8). Their images are of one more EDM, the swept pool: 4,000 steps of 32 at noise levels
ln sigma ~ N(-0.4, 1.2^2), the scalings measured, 5,000 images. Learning rates are those of epsilon 2 throughout.

Pools are those of bench_synthesis: by EDM (10,000 images; another one trained longer), by EDM with guidance and by DDPM
(4,000 each, beside as many by EDM), trained on the 600 images; made here where they are missing (three hours). Finished
runs are kept in results/ladder_runs.json; a broken-off benchmark goes on where it stopped. What tables call EDM (0.5)
is the first model: see bench_synthesis.py.

    python benchmarks/bench_ladder.py [--only ladder,mixes,budgets,amounts] [--seeds 3] [--pools FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

import common
import privmix as pm
from bench_designs import CACHE
from bench_synthesis import IMAGES, made
from privmix import named, research
from privmix.data import open_dataset
from privmix.data.public_share import PublicShare, split_off
from privmix.jobs.training import TrainingJob
from privmix.mechanisms.streams import SecretStreams
from privmix.procedural import get_generator
from privmix.reports.style import COLOURS, new_figure, save_figure
from privmix.training import TrainingRecords
from privmix.training.not_private import train_without_noise

RUNS = common.RESULTS / "ladder_runs.json"
Images = tuple[NDArray[np.uint8], NDArray[np.int64]]

EPSILON, DELTA = 2.0, 1e-5
RECORDS, PUBLIC, DRAWN = 10_000, 600, 10_000
# Images of the pools that are compared with one another.
COMPARED = 4_000
# 8.5% of the records, as 4096 of 48,000 are.
BATCH, EPOCHS, VIEWS = 853, 3.0, 4
RATES = (0.5, 2.0)
SHARED: dict[str, Any] = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "classes": range(10),
    "features": "pixels",
    "model": "cnn",
    "batch_size": BATCH,
    "epochs": EPOCHS,
    # Named, so that a run is the same whatever else the machine does.
    "strategy": "vmap:chunk=64",
}
CROPS: dict[str, Any] = {"views": f"self-aug:augmentations=crop,k_base={VIEWS}"}
# 1,056 steps of 100 images.
SOME: dict[str, Any] = {"epochs": 176, "optimiser": "sgd", "augmentations": "none"}


def warm_up(**changes: Any) -> dict[str, str]:
    """The option for a warm-up as of most rungs, with changes."""
    said = {**SOME, **changes}
    return {"warm_up": named.in_words(said.pop("optimiser"), said)}


def update(rate: float) -> dict[str, str]:
    """The option for the private update."""
    return {"optimiser": f"sgd:learning_rate={rate:g},ema_decay=0.9"}


BUDGETS = (1.0, 2.0, 4.0, 6.0)
CROPPED = "crops and cutout in the warm-up"
# One more model, of a third of the time that bench_synthesis.py's longer one takes: a pool for the sweeps.
SWEPT: dict[str, Any] = {
    "steps": 4000,
    "batch_size": 32,
    "noise_mean": -0.4,
    "precision": "bfloat16",
    "sampler_steps": 12,
}
SWEPT_IMAGES, AMOUNTS = 5_000, (1_250, 2_500)
# Park et al. 2024, CIFAR-10 (Table 5, theirs with all techniques) and CIFAR-100 (Table 6), by epsilon.
PAPER_BUDGETS = {
    "cold": {1.0: "56.8 / 9.28", 2.0: "64.9 / 18.19", 4.0: "71.9 / -", 6.0: "77.0 / 33.61"},
    "warm": {1.0: "- / 20.84", 2.0: "- / 25.15", 6.0: "- / 33.47"},
    "EDM": {1.0: "- / 26.27", 2.0: "- / 31.55", 6.0: "- / 35.61"},
    "EDM + crops and cutout": {1.0: "- / 41.17", 2.0: "- / 44.51", 6.0: "- / 50.50"},
    "EDM + crops and cutout + SAM + weight multiplicity": {
        1.0: "84.32 / 45.89",
        2.0: "85.78 / 47.93",
        4.0: "86.59 / -",
        6.0: "87.23 / 54.72",
    },
}


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
        epsilon: 0: the warm-up alone; infinite: without noise.
        uses: arguments that take the 600 public images, or its pool.
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

    def key(self, seed: int) -> str:
        return f"{self.part}: {self.label}: {seed}"


def ladder() -> Iterator[Rung]:
    """The paper's rungs; DDPM and guidance take part as other pools, beside as many images by EDM."""
    warm = {**CROPS, "scenario": "warm"}
    cut = {"augmentations": "crop+cutout"}
    flat = {**cut, "optimiser": "sam"}
    weights = {"scenario": "extended", "public_method": f"multiplicity:perturbations={VIEWS}"}
    fewer = "EDM" if COMPARED == DRAWN else f"EDM ({COMPARED} images)"
    yield Rung("ladder", "cold", "", 64.02, options=CROPS)
    yield Rung("ladder", "warm", "cold", 68.09, uses={"public": "public"}, options={**warm, **warm_up()})
    yield from_pool("EDM", "warm", 75.13)
    yield from_pool("EDM trained longer", "EDM", None, pool="longer")
    if fewer != "EDM":
        yield from_pool(fewer, "EDM", None, drawn=COMPARED)
    yield from_pool("DDPM", fewer, 72.0, pool="ddpm", drawn=COMPARED)
    yield from_pool("EDM with guidance", fewer, 77.66, pool="guided", drawn=COMPARED)
    cropped = "EDM + crops and cutout in the warm-up"
    yield from_pool(cropped, "EDM", 84.88, **cut)
    yield Rung("ladder", "the same without EDM", cropped, uses={"public": "public"}, options={**warm, **warm_up(**cut)})
    sam, last = "EDM + crops and cutout + SAM", "EDM + crops and cutout + SAM + weight multiplicity"
    yield from_pool(sam, cropped, 85.28, **flat)
    yield from_pool(last, sam, 85.78, weights, **flat)
    yield replace(from_pool("this warm-up alone (epsilon 0)", last, 80.4, **flat), epsilon=0.0)
    yield replace(from_pool("without noise (epsilon infinite)", last, 88.5, weights, **flat), epsilon=math.inf)


def from_pool(
    label: str,
    above: str,
    paper: float | None,
    options: Mapping[str, Any] = {},
    *,
    pool: str = "edm",
    drawn: int = DRAWN,
    **changes: Any,
) -> Rung:
    """A rung whose warm-up has synthetic images beside the public ones, for as many steps as these alone."""
    said = {"epochs": round(SOME["epochs"] * PUBLIC / (PUBLIC + drawn)), **changes}
    shared = {**CROPS, "scenario": "warm-synthetic", **warm_up(**said)}
    both = {"public": "public", "synthetic": "pool"}
    return Rung("ladder", label, above, paper, pool, drawn, uses=both, options={**shared, **options})


def mixes() -> Iterator[Rung]:
    """Bao et al. 2023, Table 6 has 80.9 with their public images in pretraining alone, 91.8 in the mixes.

    Their Table 12 has views of public images alone 1.1 points below the mixes.
    """
    own = "augmentations=crop,k_base=2,k_self=2"
    mixed = {"views": f"dp-mix-diff:{own},k_diff=1"}
    none, real = "none (DP-MIX_SELF)", "the 600 public images"
    yield Rung("mixes", none, options={"views": f"dp-mix-self:{own}"})
    yield Rung("mixes", real, none, uses={"pool": "public"}, options=mixed)
    yield Rung("mixes", "10,000 images by EDM", real, pool="edm", uses={"pool": "pool"}, options=mixed)
    other = "600 digits rendered from fonts"
    yield Rung("mixes", other, none, uses={"pool": "rendered"}, options=mixed)
    # As many views as the mixes have.
    alone = {"views": "pure-diff:k_self=2,k_diff=3"}
    yield Rung("mixes", f"views of {real} alone", real, uses={"pool": "public"}, options=alone)
    yield Rung("mixes", f"views of {other} alone", other, uses={"pool": "rendered"}, options=alone)


def rungs_at(epsilon: float) -> dict[str, Rung]:
    """Rungs of the third table by name; at epsilon 2 those without a pool are the ladder's own."""
    own = {rung.label: rung for rung in ladder()}
    last = "EDM + crops and cutout + SAM + weight multiplicity"
    chosen = {
        "cold": own["cold"],
        "warm": own["warm"],
        CROPPED: own["the same without EDM"],
        "EDM": replace(own["EDM"], pool="swept", drawn=SWEPT_IMAGES),
        "EDM + crops and cutout": replace(
            own["EDM + crops and cutout in the warm-up"], pool="swept", drawn=SWEPT_IMAGES
        ),
        last: replace(own[last], pool="swept", drawn=SWEPT_IMAGES),
    }
    return {
        name: rung
        if epsilon == EPSILON and not rung.pool
        else replace(_as_many_steps(rung), part="budgets", label=f"{name}, epsilon {epsilon:g}", epsilon=epsilon)
        for name, rung in chosen.items()
    }


def _as_many_steps(rung: Rung) -> Rung:
    """A warm-up on fewer images takes more passes: about 1,060 steps whatever there is."""
    if not rung.pool:
        return rung
    epochs = round(SOME["epochs"] * PUBLIC / (PUBLIC + rung.drawn))
    said = re.sub("epochs=[0-9]+", f"epochs={epochs}", rung.options["warm_up"])
    return replace(rung, options={**rung.options, "warm_up": said})


def budgets() -> Iterator[Rung]:
    for epsilon in BUDGETS:
        yield from rungs_at(epsilon).values()


def amounts() -> Iterator[Rung]:
    """Park et al. 2024, Table 8: fewer of the swept pool's images, in as many steps; all of them are in budgets."""
    for epsilon in BUDGETS[1:]:
        for name in ("EDM", "EDM + crops and cutout"):
            whole = rungs_at(epsilon)[name]
            for drawn in AMOUNTS:
                label = f"{name}, {drawn} images, epsilon {epsilon:g}"
                yield replace(_as_many_steps(replace(whole, drawn=drawn)), part="amounts", label=label)
            yield whole


PARTS = {"ladder": ladder, "mixes": mixes, "budgets": budgets, "amounts": amounts}


def parted(folder: Path) -> None:
    """The public share of MNIST, and what is left."""
    if not (folder / "public.npz").exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = open_dataset(common.data_root() / "mnist")
        split_off(source, PublicShare(count=PUBLIC // 10, seed=600), folder / "public.npz", folder / "private.npz")


@cache
def images(place: Path) -> Images:
    with np.load(place) as found:
        return found["x"], found["y"]


def pool(folder: Path, name: str) -> Images:
    """Synthetic images of the public ones, drawn where they are not there."""
    if not (folder / f"pool-{name}").exists():
        if name == "swept":
            where = {"out": folder / "pool-swept", "work": folder / "work-swept"}
            research.synthesise(folder / "public.npz", images=SWEPT_IMAGES, **where, **SWEPT)
        else:
            made(folder, name, IMAGES[name])
    return images(folder / f"pool-{name}" / "train.npz")


@cache
def rendered() -> Images:
    """As many digits as are public, of fonts: nobody wrote them."""
    drawn = get_generator("digits", (28, 28)).draw(PUBLIC, seed=1)
    assert drawn.y is not None
    return drawn.x, drawn.y


@cache
def test() -> Images:
    found = open_dataset(common.data_root() / "mnist", split="test").read()
    return found.x, found.y


def chosen(total: int, seed: int) -> NDArray[np.int64]:
    """Private records of a seed."""
    return np.sort(np.random.default_rng(seed).choice(total, RECORDS, replace=False))


def one_run(rung: Rung, seed: int, folder: Path, rate: float) -> dict[str, Any]:
    torch.set_num_threads(1)
    x, y = images(folder / "private.npz")
    mine = chosen(len(x), seed)
    held = {"public": images(folder / "public.npz"), "rendered": rendered()}
    if rung.pool:
        held["pool"] = tuple(part[: rung.drawn] for part in pool(folder, rung.pool))
    given = {argument: held[name] for argument, name in rung.uses.items()}
    start = time.process_time()
    options = {**SHARED, **rung.options, **given, **update(rate), "model_seed": seed}
    epsilon = rung.epsilon
    if math.isinf(epsilon):
        accuracy = noiseless((x[mine], y[mine]), seed, options)
    else:
        secret = {} if epsilon == 0 else {"seed": seed}
        model = pm.train((x[mine], y[mine]), **{**options, "epsilon": epsilon}, **secret)
        epsilon, accuracy = model.certificate["guarantee"]["epsilon"], model.score(*test())
    spent = time.process_time() - start
    return {
        "part": rung.part,
        "label": rung.label,
        "seed": seed,
        "rate": rate,
        "accuracy": round(100 * accuracy, 2),
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "cpu_seconds": round(spent, 1),
    }


def noiseless(private: Images, seed: int, options: Mapping[str, Any]) -> float:
    """Test accuracy of the same training without its noise: no privacy, and no model that could be kept."""
    job = TrainingJob(private, **options)
    with job.processes() as world:
        trainer = job.plan(world).trainer
    records = TrainingRecords.of(job.extractor.extract(private[0]), private[1], classes=10)
    model = train_without_noise(trainer, records, streams=SecretStreams.from_seed(seed))
    x, y = test()
    return float((model.predict(job.extractor.extract(x)) == y).mean())


def simulated(kind: str, rate: float) -> dict[str, Any]:
    """The same protocol on rendered digits, by which the learning rate is chosen; one view, to be quick."""
    torch.set_num_threads(1)
    drawn = get_generator("digits", (28, 28)).draw(RECORDS + PUBLIC + 2000, seed=0)
    assert drawn.y is not None
    mine, public, held = np.split(np.arange(len(drawn)), [RECORDS, RECORDS + PUBLIC])
    given = {} if kind == "cold" else {"public": (drawn.x[public], drawn.y[public]), "scenario": "warm", **warm_up()}
    model = pm.train((drawn.x[mine], drawn.y[mine]), **given, **SHARED, **update(rate), seed=0)
    accuracy = round(100 * model.score(drawn.x[held], drawn.y[held]), 2)
    return {"part": "rates", "label": kind, "rate": rate, "accuracy": accuracy}


def rates(runs: dict[str, Any]) -> dict[str, float]:
    """The learning rate of a training from scratch, and of one that was warmed up."""
    found = {}
    for kind in ("cold", "warm"):
        for rate in RATES:
            key = f"rates: {kind}: {rate:g}"
            if key not in runs:
                runs[key] = simulated(kind, rate)
                keep(runs, key)
        found[kind] = max(RATES, key=lambda rate: runs[f"rates: {kind}: {rate:g}"]["accuracy"])
    return found


def kept(place: Path = RUNS) -> dict[str, Any]:
    return json.loads(place.read_text()) if place.exists() else {}


def keep(runs: dict[str, Any], key: str, place: Path = RUNS) -> None:
    """Write a finished run, beside those that another process may have finished meanwhile."""
    runs.update(kept(place) | {key: runs[key]})
    place.write_text(json.dumps(runs, indent=0) + "\n")
    print(key, runs[key]["accuracy"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--rungs", default="", help="rungs by their names, separated by semicolons; all where empty")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each rung")
    parser.add_argument("--pools", type=Path, default=CACHE / "synthesis", help="public and private images, pools")
    parser.add_argument("--there", action="store_true", help="only rungs whose pools are there: draw none")
    asked = parser.parse_args()
    runs, named = kept(), [name.strip() for name in asked.rungs.split(";") if name.strip()]
    parted(asked.pools)
    rate = rates(runs)
    # A rung of two parts is run once.
    wanted = list({rung.key(0): rung for part in asked.only.split(",") if part for rung in PARTS[part]()}.values())
    if asked.there:
        wanted = [rung for rung in wanted if not rung.pool or (asked.pools / f"pool-{rung.pool}").exists()]
    for seed in range(asked.seeds):
        for rung in wanted:
            if (not named or rung.label in named) and rung.key(seed) not in runs:
                kind = "warm" if "scenario" in rung.options else "cold"
                runs[rung.key(seed)] = one_run(rung, seed, asked.pools, rate[kind])
                keep(runs, rung.key(seed))
    report(runs)


def accuracies(runs: Mapping[str, Any], rung: Rung) -> dict[int, float]:
    return {
        run["seed"]: run["accuracy"] for run in runs.values() if (run["part"], run["label"]) == (rung.part, rung.label)
    }


def gain(mine: Mapping[int, float], before: Mapping[int, float]) -> tuple[float, float, float] | None:
    """Mean of the paired differences and its 95% interval by Student's t."""
    gaps = np.array([mine[seed] - before[seed] for seed in mine if seed in before])
    if len(gaps) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5)
    mean = float(gaps.mean())
    return mean, mean - half, mean + half


def in_words(found: tuple[float, float, float] | None) -> str:
    return "one seed" if found is None else f"{found[0]:+.2f} ({found[1]:+.2f} to {found[2]:+.2f})"


def unproven(runs: Mapping[str, Any]) -> str:
    """Rungs whose gain may be nothing, or less."""
    rungs = {rung.label: rung for rung in ladder()}
    found = []
    for rung in rungs.values():
        step = gain(accuracies(runs, rung), accuracies(runs, rungs[rung.above])) if rung.above else None
        if step is not None and step[1] <= 0 <= step[2]:
            found.append(shown(rung.label))
    return "Differences that may be nothing, by these seeds: " + ("; ".join(found) or "none") + "."


def rows(runs: Mapping[str, Any], part: str) -> list[list[str]]:
    rungs = {rung.label: rung for rung in PARTS[part]()}
    found = []
    for rung in rungs.values():
        mine = accuracies(runs, rung)
        if not mine:
            continue
        values = np.array(list(mine.values()))
        value = f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f}; {len(values)})"
        above = rungs.get(rung.above)
        step = "-" if above is None else f"{in_words(gain(mine, accuracies(runs, above)))} on {shown(above.label)}"
        while above is not None and above.paper is None:
            above = rungs.get(above.above)
        found.append([shown(rung.label), value, step, *papers(rung, above)])
    return found


# What its pool is, wherever EDM stands for the shorter training: see bench_synthesis.py.
EARLIER = (
    "EDM (0.5): its network's scalings take 0.5 for the deviation of the images, as Karras et al. have it for theirs; "
    "it is 0.62 for these, as in the model that was trained longer, and in any that is trained today."
)


def shown(label: str) -> str:
    """A rung's name in tables, which says by which model its images are.

    Example:
        >>> shown("EDM with guidance"), shown("EDM trained longer"), shown("the same without EDM")
        ('EDM (0.5) with guidance of weight 2', 'EDM trained longer', 'the same without EDM')
    """
    if label in ("EDM trained longer", "the same without EDM"):
        return label
    return label.replace("EDM", "EDM (0.5)").replace("with guidance", "with guidance of weight 2")


def papers(rung: Rung, above: Rung | None) -> list[str]:
    if rung.part != "ladder":
        return []
    if rung.paper is None:
        return [""]
    gained = "" if above is None else f" ({rung.paper - (above.paper or 0.0):+.2f})"
    return [f"{rung.paper:.2f}{gained}"]


NOT_TUNED: Final = (
    "The cold start is not tuned: it has three epochs with crops, at one learning rate. Its row is no baseline, and "
    "what a warm start gains does not follow from this page."
)


def report(runs: Mapping[str, Any]) -> None:
    header = ["", "test accuracy, % (least to most; seeds)", "gain, 95% interval"]
    tables = [
        NOT_TUNED,
        common.table([*header, "Park et al. 2024, Table 1 (CIFAR-10)"], rows(runs, "ladder")),
        unproven(runs),
        EARLIER
        + " Guidance was tried at this weight alone, and in 4,000 images (the paper's gain is at a weight of 20): what "
        "other weights bring does not follow. Above 95% there is little room left for any rung.",
        "![Ladder](ladder.svg)",
    ]
    if mixed := rows(runs, "mixes"):
        says = (
            "### A pool for DP-Mix\n\nBao et al. 2023, Table 6 (Caltech256, epsilon 2): public images bring 91.8% in "
            "the mixes, 80.9% to 81.5% in a pretraining alone. Here K_BASE and K_SELF are 2, K_DIFF is 1, no warm-up. "
            "Table 12: views of public images alone lose 1.1 points. The 600 public images here are a share of the "
            "private data's own distribution, theirs are pictures that a model drew of class names; so a pool of fonts "
            "stands beside. Views of the pool alone hold nothing of a private record: what they teach is the pool."
        )
        tables.append(says + "\n\n" + common.table(["pool", *header[1:]], mixed))
    if any(accuracies(runs, rung) for rung in budgets() if rung.part == "budgets"):
        tables.append(budgets_table(runs))
    if any(accuracies(runs, rung) for rung in amounts() if rung.part == "amounts"):
        tables.append(amounts_table(runs))
    if chosen_by := [run for run in runs.values() if run["part"] == "rates"]:
        found = [[run["label"], f"{run['rate']:g}", f"{run['accuracy']:.2f}"] for run in chosen_by]
        title = "### The learning rate, by rendered digits in place of MNIST\n\n"
        tables.append(title + common.table(["start", "rate", "accuracy on other rendered digits, %"], found))
    draw(runs)
    made = [run for run in runs.values() if "seed" in run]
    spent = max(run["epsilon"] or 0.0 for run in made if run["part"] in ("ladder", "mixes"))
    facts = {
        "task": f"tanh CNN on MNIST pixels, {RECORDS} private records, {PUBLIC} public, pools of {DRAWN}",
        "private phase": f"batch {BATCH}, {EPOCHS:g} epochs, {VIEWS} crops a record, C = 1, no momentum",
        "privacy": f"epsilon {EPSILON:g}, delta {DELTA:g}, PLD; spent at most {spent:.4f}",
        "interval": "Student's t of paired differences over the seeds: private records, weights, batches and noise",
        "not run yet": "; ".join(
            dict.fromkeys(rung.label for part in PARTS.values() for rung in part() if not accuracies(runs, rung))
        )
        or "none",
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in made)),
    }
    common.save("ladder", "Public images, used better step by step", facts, list(runs.values()), tables)


def spread(found: Mapping[int, float]) -> str:
    """Mean, least, most and number of seeds."""
    if not found:
        return ""
    values = np.array(list(found.values()))
    if len(values) == 1:
        return f"{values[0]:.2f} (1 run)"
    return f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f}; {len(values)})"


def shift(mine: Mapping[int, float], before: Mapping[int, float]) -> str:
    """Mean of paired differences with its interval, or the one difference that there is."""
    gaps = [mine[seed] - before[seed] for seed in mine if seed in before]
    if len(gaps) == 1:
        return f"{gaps[0]:+.2f} (1 seed)"
    return "" if not gaps or mine == before else in_words(gain(mine, before))


# Each on a rung that it adds to.
GAINS = (
    ("warm", "cold"),
    (CROPPED, "warm"),
    ("EDM", "warm"),
    ("EDM + crops and cutout", "EDM"),
    ("EDM + crops and cutout", CROPPED),
    ("EDM + crops and cutout + SAM + weight multiplicity", "EDM + crops and cutout"),
)


def budgets_table(runs: Mapping[str, Any]) -> str:
    names = [name for name in rungs_at(EPSILON) if any(accuracies(runs, rungs_at(one)[name]) for one in BUDGETS)]
    rows = [[name, *(spread(accuracies(runs, rungs_at(one)[name])) for one in BUDGETS)] for name in names]
    theirs = [[name, *(PAPER_BUDGETS[name].get(one, "") for one in BUDGETS)] for name in PAPER_BUDGETS]
    gains = []
    for name, before in GAINS:
        steps = [[accuracies(runs, rungs_at(one)[part]) for part in (name, before)] for one in BUDGETS]
        if any(step[0] for step in steps):
            gains.append([f"{name}, on {before}", *(shift(*step) for step in steps)])
    moved = [
        [name, *(shift(*(accuracies(runs, rungs_at(at)[name]) for at in (one, EPSILON))) for one in BUDGETS)]
        for name in names
    ]
    head = [f"epsilon {one:g}" for one in BUDGETS]
    says = (
        "### Other budgets\n\nTest accuracy, % (least to most; seeds). Settings, learning rates included, are those of "
        f"epsilon {EPSILON:g}.{OF_SWEPT if 'EDM' in names else ''} Park et al. 2024, Table 5 (CIFAR-10; cold by De et "
        "al. 2022) / Table 6 (CIFAR-100; SAM and weight multiplicity together):"
    )
    return "\n\n".join(
        [
            says,
            common.table(["here", *head], rows),
            common.table([f"against epsilon {EPSILON:g}, the same seeds", *head], moved),
            common.table(["gain, 95% interval", *head], gains),
            common.table(["Park et al. 2024", *head], theirs),
        ]
    )


OF_SWEPT = (
    f" EDM here is one more model, of {SWEPT['steps']:,} steps of {SWEPT['batch_size']} at noise levels around "
    f"exp({SWEPT['noise_mean']:g}), scalings measured; {SWEPT_IMAGES:,} images."
)


def amounts_table(runs: Mapping[str, Any]) -> str:
    found, gaps = [], []
    for name, none in (("EDM", "warm"), ("EDM + crops and cutout", CROPPED)):
        for drawn in (0, *AMOUNTS, SWEPT_IMAGES):
            cells, steps = [], []
            for epsilon in BUDGETS[1:]:
                whole = rungs_at(epsilon)[name]
                label = f"{name}, {drawn} images, epsilon {epsilon:g}"
                fewer = rungs_at(epsilon)[none] if drawn == 0 else replace(whole, part="amounts", label=label)
                mine = accuracies(runs, whole if drawn == SWEPT_IMAGES else fewer)
                cells.append(spread(mine))
                steps.append(shift(mine, accuracies(runs, whole)))
            if any(cells):
                found.append([name, f"{drawn:,}", *cells])
            if any(steps):
                gaps.append([name, f"{drawn:,}", *steps])
    says = (
        "### The number of synthetic images\n\nTest accuracy, % (least to most; seeds), warm-ups of about 1,060 steps "
        "throughout; 0: on the 600 public images alone, with the same augmentation. Park et al. 2024, Table 8: 5,000 / "
        "20,000 / 40,000 images reach 77.48 / 83.29 / 85.14 at epsilon 2, 77.98 / 84.08 / 85.61 at 4 and 78.00 / 84.22 "
        "/ 86.03 at 6, trained until they converge."
    )
    epsilons = [f"epsilon {one:g}" for one in BUDGETS[1:]]
    against = common.table([f"against {SWEPT_IMAGES:,} images, the same seeds", "images", *epsilons], gaps)
    return "\n\n".join([says, common.table(["warm-up on", "images", *epsilons], found), against])


def draw(runs: Mapping[str, Any]) -> None:
    """Every run of the ladder a dot, and their means."""
    made = [(rung.label, accuracies(runs, rung)) for rung in ladder()]
    made = [(label, found) for label, found in made if found]
    figure = new_figure(7.5, 0.6 + 0.36 * len(made))
    axes = figure.subplots()
    for place, (_, found) in enumerate(made):
        axes.plot(list(found.values()), [place] * len(found), "o", color=COLOURS[0], alpha=0.5, markersize=4)
        axes.plot([np.mean(list(found.values()))] * 2, [place - 0.3, place + 0.3], color=COLOURS[1], linewidth=2)
    axes.set_yticks(range(len(made)), [shown(label) for label, _ in made], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("test accuracy, % (a dot a seed; line: mean)", fontsize=8)
    axes.grid(True, axis="x", alpha=0.3)
    save_figure(figure, common.RESULTS / "ladder.svg")


if __name__ == "__main__":
    main()
