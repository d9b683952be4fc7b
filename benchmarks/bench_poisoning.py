"""Poisoning in miniature: Borgnia et al. 2021, Tables A1, A2, A4, A5 and A6 and Figures 1b, A.2 and A.4.

Networks that a CPU trains in a second or two stand for ResNet-18, on 2,000 images (200 a class): of CIFAR-10 for most
attacks, which digits withstand, and of MNIST; the patch backdoor on 10,000 images of CIFAR-10 too. Attacks on transfer
learning have a frozen extractor that 10,000 other images taught. What is checked is
the paper's order of defences, not its level: each pair of which the paper says that one does better is held against our
trials, paired by scene, with a sign test on the shares of goal inputs. Settings are fixed beforehand, in STUDIES;
finished trials are kept in cache/poisoning and finished studies in results/poisoning_runs.json, so a broken-off run
goes on. Four hours of one core. With --clean the victims of Tables A2 and A5 are trained without poison, too, and
asked for the attacker's image: kept in results/poisoning_clean_runs.json. With --times each defence trains victims by
itself: its CPU seconds are kept in results/poisoning_times_runs.json. Table "alone" varies one setting at a time.

    python benchmarks/bench_poisoning.py [--table A1,A2,A4,A5,A6,1b,A.4,alone] [--data MNIST] [--trials 5] [--report]
    python benchmarks/bench_poisoning.py --clean
    python benchmarks/bench_poisoning.py --times
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import numpy as np

import common
import poisoning_pictures as pictures
from privmix.data import open_dataset
from privmix.research.poisoning.base import Case, parse_attack, parse_defence
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.kept import KeptTrials, Trial
from privmix.research.poisoning.order import PairComparison, check_order
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.trials import PoisoningResult, TrialConfig, run_trials
from privmix.research.poisoning.victims.extractor import held_apart, pretrained
from privmix.research.poisoning.victims.ordinary import Victim, VictimConfig

RUNS = common.RESULTS / "poisoning_runs.json"
CLEAN_RUNS = common.RESULTS / "poisoning_clean_runs.json"
TIMES_RUNS = common.RESULTS / "poisoning_times_runs.json"
# Of whose victims the success without poison is measured, in this order.
CLEAN = ("none", "mixup:4", "mixup:2", "cutmix", "mixup:4+noise:16", "mixup:8")
CACHE = common.RESULTS.parent / "cache" / "poisoning"
MNIST, CIFAR, LARGE = "2,000 MNIST", "2,000 CIFAR-10", "10,000 CIFAR-10"
FOLDER = {MNIST: "mnist", CIFAR: "cifar10", LARGE: "cifar10"}
RECORDS = {MNIST: 2000, CIFAR: 2000, LARGE: 10_000}
# The first images of the training split, of which the trainer's and the extractor's are drawn; test images.
FROM, TESTS = 12_000, 1000
VICTIMS = {MNIST: VictimConfig(), CIFAR: VictimConfig(), LARGE: VictimConfig.named("cifar10")}
# Extractor and last layer: some 60% accuracy on CIFAR-10.
TRANSFER = VictimConfig(epochs=12, batch=128, learning_rate=0.1)
FILTERS = ["spectral-signatures", "activation-clustering", "deep-knn"]
CHANGES = ["none", "mixup:2", "mixup:4", "mixup:8", "cutmix", "cutout", "maxup", "noise:16", "mixup:4+noise:16"]
TWELVE = [*CHANGES, *FILTERS]
# DP-InstaHide as the paper trains with it, what it is made of, and MaxUp, the paper's best.
OWN = ["none", "mixup:4", "noise:16", "mixup:4+noise:16", "maxup", "noise:16+maxup"]


@dataclass(frozen=True)
class Study:
    """One attack against several defences.

    Attributes:
        table: of the paper.
        data: of the miniature.
        label: of the attack, as the tables call it.
        attack: as privmix calls it, with the settings of the miniature.
        poisoned: records that are poisoned.
        trials: how many are wanted.
        defences: as privmix calls them.
        adaptive: the attacker trains through the defence.
        published: the paper's success by defence, %.
        transfer: the victim trains the last layer on an extractor, also where the attack does not need that.
        longer: victims train for so many times the epochs.
        accuracies: the paper's clean accuracy by defence, %.
    """

    table: str
    data: str
    label: str
    attack: str
    poisoned: int
    trials: int
    defences: list[str] = field(default_factory=lambda: TWELVE)
    adaptive: bool = False
    published: dict[str, float] = field(default_factory=dict)
    transfer: bool = False
    longer: int = 1
    accuracies: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What tells it from others."""
        return f"{self.table} {self.data} {self.label}"

    @property
    def title(self) -> str:
        """Its name in tables: the paper's patch is at another place of each image."""
        place = {PATCH: "one place of all images", RANDOM: "random places"}.get(self.attack, "")
        known = not place or "places" in self.label
        return self.label if known else self.label.replace("patch backdoor", f"patch backdoor at {place}")


PATCH, COLLISION, MATCHING = "patch-backdoor:4,fixed", "feature-collision", "gradient-matching:32,30,1,1"
# Table A2 and Figure 1b: what an attacker can train through.
ADAPTED = ["mixup:2", "cutout", "cutmix", "mixup:4", "maxup", "mixup:4+noise:16", "noise:16+maxup"]
_A1 = {"none": 45.6, "cutmix": 7.0, "mixup:2": 23.9, "spectral-signatures": 48.3, "activation-clustering": 44.0}
_A1_ALL = {"none": 98.3, "cutmix": 14.1, "mixup:2": 99.8}
_CLEAN = {"none": 94.3, "cutmix": 95.1, "mixup:2": 94.4, "spectral-signatures": 92.3, "activation-clustering": 89.4}
_CLEAN_ALL = {"none": 85.0, "cutmix": 94.2, "mixup:2": 85.3}
_A2 = {"mixup:2": 45.0, "cutout": 60.0, "cutmix": 75.0, "mixup:4": 5.0, "maxup": 5.26}
_A2_ADAPTIVE = {"mixup:2": 72.73, "cutout": 81.25, "cutmix": 60.0, "mixup:4": 55.0, "maxup": 20.0}
_MINIBATCH = ["minibatch-dp-sgd:0.0001", "minibatch-dp-sgd:0.001", "minibatch-dp-sgd"]
_A5_DEFENCES = [*FILTERS, *_MINIBATCH, "mixup:4"]
_A5 = {
    "minibatch-dp-sgd": 86.25,
    "spectral-signatures": 95.0,
    "deep-knn": 90.0,
    "activation-clustering": 30.0,
    "mixup:4": 5.0,
}


def _five(none: float, spectral: float, clustering: float, mixup: float, cutmix: float) -> dict[str, float]:
    return {
        "none": none,
        "spectral-signatures": spectral,
        "activation-clustering": clustering,
        "mixup:2": mixup,
        "cutmix": cutmix,
    }


# The paper's patch is at another place of each image, which 2,000 images don't teach: see RANDOM, and 10,000 images.
RANDOM = "patch-backdoor:4,random"
_TEN, _ALL = "patch backdoor, 10% of the class", "patch backdoor, 100% of the class"
STUDIES = [
    # As in the paper: at a random place of each image.
    Study("A1", LARGE, _ALL, RANDOM, 1000, 20, published=_A1_ALL, accuracies=_CLEAN_ALL),
    Study("A1", CIFAR, _TEN, PATCH, 20, 20, published=_A1, accuracies=_CLEAN),
    Study("A1", CIFAR, "patch backdoor, 25% of the class", PATCH, 50, 20, published=_A1),
    Study("A1", CIFAR, _ALL, PATCH, 200, 20, published=_A1_ALL, accuracies=_CLEAN_ALL),
    Study("A1", CIFAR, "patch backdoor at random places, 100% of the class", RANDOM, 200, 4, ["none"]),
    Study("A1", MNIST, _ALL, PATCH, 200, 20, published=_A1_ALL),
    Study("A4", CIFAR, "feature collision", COLLISION, 25, 20, published=_five(80, 70, 45, 5, 5)),
    Study("A4", CIFAR, "convex polytope", "convex-polytope", 25, 10, published=_five(95, 90, 75, 70, 50)),
    Study("A4", CIFAR, "bullseye polytope", "bullseye-polytope", 25, 10),
    Study("A2", CIFAR, "gradient matching", MATCHING, 100, 20, TWELVE, published=_A2),
    Study("A5", CIFAR, "gradient matching", MATCHING, 100, 20, _A5_DEFENCES, published=_A5),
    Study("A2", CIFAR, "gradient matching, adaptive", MATCHING, 100, 20, ADAPTED, True, _A2_ADAPTIVE),
    Study("A6", CIFAR, "hidden trigger", "hidden-trigger", 50, 10, published=_five(60, 65, 55, 20, 10)),
    Study("A6", CIFAR, "clean label", "clean-label", 50, 10, transfer=True, published=_five(65, 60, 45, 25, 15)),
]
_LONGER = ["none", "cutmix"]
_CLOSE = ["none", "mixup:4", "cutmix", "maxup"]
# CutMix and MaxUp hold back less here than in the paper: one setting of the miniature is varied at a time.
ALONE = {
    "patch backdoor, the whole class": [
        (f"A1 {CIFAR} {_ALL}", "as above"),
        Study("alone", CIFAR, "every image mixed", PATCH, 200, 10, ["cutmix:1.0"]),
        Study("alone", CIFAR, "twice the epochs", PATCH, 200, 10, _LONGER, longer=2),
    ],
    "feature collision": [
        (f"A4 {CIFAR} feature collision", "as above"),
        Study("alone", CIFAR, "collision, every image mixed", COLLISION, 25, 20, ["cutmix:1.0"]),
        Study("alone", CIFAR, "collision, twice the epochs", COLLISION, 25, 10, _LONGER, longer=2),
    ],
    "gradient matching": [
        (f"A2 {CIFAR} gradient matching", "as above, within 32/255"),
        Study("alone", CIFAR, "within 16/255, as the paper", "gradient-matching:16,30,1,1", 100, 10, _CLOSE),
        Study("alone", CIFAR, "eight versions, every image mixed", MATCHING, 100, 10, ["cutmix:1.0", "maxup:8"]),
    ],
}


@cache
def images(data: str) -> tuple[VictimImages, VictimImages, VictimImages]:
    """The trainer's images, others that are called public, and test images."""
    found = []
    for split, wanted in (("train", FROM), ("test", TESTS)):
        encoded = {"classes": 10, "image_size": 32, "colour": "rgb"} if FOLDER[data] == "cifar10" else {}
        x: list[Any] = []
        y: list[Any] = []
        for batch in open_dataset(common.data_root() / FOLDER[data], split=split, **encoded).batches(1000):
            if sum(map(len, x)) >= wanted:
                break
            x.append(batch.x)
            y.append(batch.y)
        pixels = np.concatenate(x)[:wanted].astype(np.float32) / 255
        pixels = pixels[:, None] if pixels.ndim == 3 else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
        found.append(VictimImages.of(pixels, np.concatenate(y)[:wanted], classes=10))
    train, public = held_apart(found[0], records=RECORDS[data], public=FROM - RECORDS[data])
    return train, public, found[1]


def victim(study: Study) -> Victim:
    """How networks are trained; on an extractor of other images where the attack is on transfer learning."""
    if not study.transfer and parse_attack(study.attack).setting != "transfer":
        return Victim(longer(VICTIMS[study.data], study))
    return Victim(longer(TRANSFER, study), pretrained(images(study.data)[1], TRANSFER, work=CACHE))


def longer(config: VictimConfig, study: Study) -> VictimConfig:
    """A victim's settings with the study's number of epochs."""
    return replace(config, epochs=config.epochs * study.longer)


def same_trials(study: Study, runs: dict[str, Any]) -> list[dict[str, Any]]:
    """Kept results whose trials are the study's, also those of another table."""
    found = []
    for one in every_study():
        settings = (one.data, one.attack, one.poisoned, one.adaptive, one.transfer, one.longer)
        if settings == (study.data, study.attack, study.poisoned, study.adaptive, study.transfer, study.longer):
            found += runs.get(one.key, {"results": []})["results"]
    return found


def take_up(study: Study, config: TrialConfig, before: list[dict[str, Any]]) -> None:
    """Put the trials that results hold where trials are kept: a study goes on from them without its cache, too."""
    train, _, test = images(study.data)
    attack = parse_attack(study.attack)
    settings = {name: getattr(config, name) for name in ("poisoned", "seed", "adaptive")} | {"attack": repr(attack)}
    kept = KeptTrials(CACHE, attack.name, settings, train, test, victim(study))
    for result in before:
        for one in result["outcomes"]:
            trial = Trial(**one)
            kept.get(f"poisoned {parse_defence(result['defence'])!r} {trial.number}", lambda found=trial: found)


def run(study: Study, trials: int, before: list[dict[str, Any]]) -> dict[str, Any]:
    """The results of a study's first trials, those that are kept included."""
    train, _, test = images(study.data)
    config = TrialConfig(study.poisoned, trials, 0, study.adaptive)
    take_up(study, config, before)
    defences = [parse_defence(one) for one in study.defences]
    start = time.process_time()
    results = run_trials(parse_attack(study.attack), defences, train, test, victim(study), config, work=CACHE)
    seconds = time.process_time() - start
    names = dict(zip(map(str, defences), study.defences, strict=True))
    return {
        "attack": study.attack,
        "poisoned": study.poisoned,
        "cpu_seconds": seconds,
        "results": [{**one.to_dict(), "defence": names[one.defence]} for one in results],
    }


def without_poison(trials: int) -> None:
    """Train the victims of gradient matching's scenes on clean records, and ask them for the attacker's image."""
    runs: dict[str, list[bool]] = json.loads(CLEAN_RUNS.read_text()) if CLEAN_RUNS.exists() else {}
    train, _, test = images(CIFAR)
    for name in CLEAN:
        for number in range(len(runs.setdefault(name, [])), trials):
            scene = PoisoningScene.draw(train, test, Victim(VICTIMS[CIFAR]), seed=0, number=number)
            model = parse_defence(name).train(Case(scene.train, scene, 100)).model
            runs[name].append(bool(model.predict(scene.targets.pixels)[0] == scene.wanted))
            CLEAN_RUNS.write_text(json.dumps(runs) + "\n")
        print(name, sum(runs[name]), len(runs[name]), flush=True)


def loaded(found: dict[str, Any]) -> PoisoningResult:
    """A result as it was written."""
    known = {one.name: found[one.name] for one in fields(PoisoningResult)}
    return PoisoningResult(
        **{**known, "interval": tuple(found["interval"]), "outcomes": tuple(Trial(**one) for one in found["outcomes"])}
    )


def timed(repeats: int) -> None:
    """CPU seconds in which each defence trains a victim of clean records, in turns."""
    runs: list[dict[str, Any]] = json.loads(TIMES_RUNS.read_text()) if TIMES_RUNS.exists() else []
    train, _, test = images(CIFAR)
    for number in range(len(runs), repeats):
        scene = PoisoningScene.draw(train, test, Victim(VICTIMS[CIFAR]), seed=0, number=number)
        runs.append({})
        for name in (*TWELVE, "minibatch-dp-sgd"):
            start = time.process_time()
            parse_defence(name).train(Case(scene.train, scene, 100))
            runs[-1][name] = round(time.process_time() - start, 3)
        TIMES_RUNS.write_text(json.dumps(runs, indent=0) + "\n")
        print(runs[-1], flush=True)


@cache
def every_study() -> list[Study]:
    """Studies of tables, of figures, and of one setting varied alone."""
    alone = [one for found in ALONE.values() for one in found if isinstance(one, Study)]
    return [*STUDIES, *pictures.studies(Study, CIFAR, MATCHING), *alone]


def wanted(tables: set[str], data: str) -> Iterator[Study]:
    """Studies, in the order of STUDIES."""
    for study in every_study():
        if study.table in tables and data in study.data:
            yield study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="A1,A4,A2,A5,A6,1b,A.4,alone", help="tables and figures, with commas")
    parser.add_argument("--data", default="", help="only miniatures whose name holds this")
    parser.add_argument("--label", default="", help="only studies whose label holds this")
    parser.add_argument("--trials", type=int, default=10**6, help="at most as many of each study")
    parser.add_argument("--report", action="store_true", help="write the tables of what is there")
    parser.add_argument("--clean", action="store_true", help="only the success without poison, of Tables A2 and A5")
    parser.add_argument("--times", action="store_true", help="only the time that each defence takes")
    given = parser.parse_args()
    if given.times:
        timed(min(given.trials, 5))
        return
    if given.clean:
        without_poison(min(given.trials, 20))
        return
    runs: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    for study in wanted(set(given.table.split(",")), given.data):
        if given.report or given.label not in study.label:
            continue
        CACHE.mkdir(parents=True, exist_ok=True)
        CACHE.chmod(0o700)
        # What is broken off leaves the trials that all defences have.
        for trials in sorted({min(step, study.trials, given.trials) for step in (2, 5, 10, 15, 20)}):
            before = runs.get(study.key, {"results": [{"trials": 0, "defence": ""}], "cpu_seconds": 0.0})
            done = before["results"][0]["trials"]
            if trials < done or (trials == done and not lacks(study, before)):
                continue
            found = run(study, trials, same_trials(study, runs))
            # Another process may have finished another study meanwhile.
            runs = json.loads(RUNS.read_text()) if RUNS.exists() else {}
            before = runs.get(study.key, before)
            if before["results"][0]["trials"] > trials:
                continue
            runs[study.key] = {**found, "cpu_seconds": found["cpu_seconds"] + before["cpu_seconds"]}
            RUNS.write_text(json.dumps(runs, separators=(",", ":")).replace('},"', '},\n"') + "\n")
            shares = {one["defence"]: round(one["share"], 2) for one in found["results"]}
            print(study.key, trials, f"{found['cpu_seconds']:.0f} CPU s", shares, flush=True)
    if given.report:
        report(runs)


def lacks(study: Study, kept: dict[str, Any]) -> set[str]:
    """Defences of a study that its kept results do not know."""
    return set(study.defences) - {one["defence"] for one in kept["results"]}


def report(runs: dict[str, Any]) -> None:
    """Tables, verdicts and pictures of what was run."""
    tables, orders = [], []
    for study in STUDIES:
        if study.key in runs:
            results = [loaded(one) for one in runs[study.key]["results"]]
            tables.append(_table(study, results, runs[study.key]["cpu_seconds"]))
            orders += [(study, one) for one in check_order(results, study.published)]
    rows = [
        [
            study.key,
            f"{one.better} ({study.published[one.better]:g}%) < {one.worse} ({study.published[one.worse]:g}%)",
            f"{100 * one.difference:+.1f}",
            f"{one.fewer} : {one.more}",
            f"{one.p_value:.3g}",
            one.verdict,
        ]
        for study, one in orders
    ]
    failing = [row for row in rows if not row[-1].startswith("holds")]
    header = ["study", "the paper's order", "difference here, points", "trials for : against", "p", "verdict"]
    varied = "one table above varies some alone" if _alone(runs) else "none was varied alone"
    count = _counted([(study.label, one) for study, one in orders], varied)
    title = "## Where the paper's order of defences does not hold"
    tables[:0] = [_own(runs), _glance(runs), *_alone(runs), *_times()]
    tables.append(f"{title}\n\n{count}\n\n{common.table(header, failing)}")
    tables.append("## Where it holds\n\n" + common.table(header, [row for row in rows if row[-1].startswith("holds")]))
    tables += pictures.draw(runs, STUDIES)
    settings = {
        "records": RECORDS,
        "victims": {name: str(one) for name, one in VICTIMS.items()},
        "victim and extractor of attacks on transfer learning": str(TRANSFER),
        "success": "one image drawn before the attack gets the wanted label; Clopper-Pearson, 95%",
        "share": "of all goal inputs: all triggered images of the victim class for backdoors, the one image else",
        "extractor": f"{FROM - RECORDS[CIFAR]} other images, called public (attacks on transfer learning)",
        "25% of the class": "beside the paper's figures at 10%, whose undefended success is nearest",
        "kept trials": "most are of 23 November 2026; nine of them, run again on 29 November, were equal",
        "not here": "ImageNet (Table A3); a patch at random places on 10% of a class",
        "orders": "mean shares; two-sided sign test over trials with the same scene; ties left out",
        "CPU": "one core, times of the trials that were run last included",
    }
    summary = {
        key: [{name: value for name, value in one.items() if name != "outcomes"} for one in found["results"]]
        for key, found in runs.items()
    }
    results = {"studies": summary, "orders": [{"study": study.key, **one.to_dict()} for study, one in orders]}
    # One line a defence, for pages that take figures from here.
    results["rows"] = [
        {"study": key, **{name: one[name] for name in ("defence", "share", "accuracy", "successes", "trials")}}
        for key, found in summary.items()
        for one in found
    ]
    results["times"] = [{"defence": name, "ratio": ratio} for name, ratio in _ratios().items()]
    common.save("poisoning", "Poisoning and backdoors in miniature", settings, results, tables, again=True)


QUARTER = "patch backdoor, 25% of the class"


def _percents(one: dict[str, Any]) -> str:
    """Share of goal inputs, its standard deviation over trials, their number."""
    return common.told([100 * trial["share"] for trial in one["outcomes"]], 0)


def _own(runs: dict[str, Any]) -> str:
    """DP-InstaHide's training, its parts, and MaxUp with noise, against all attacks."""
    rows = []
    for study in STUDIES:
        known = {one["defence"]: one for one in runs.get(study.key, {"results": []})["results"]}
        if study.adaptive:
            known |= {name: one for name, one in pictures.points(runs, pictures.FIGURE_1B).items() if name != "none"}
        elif study.label == "gradient matching" and study.table == "A2":
            known |= {name: one for name, one in pictures.points(runs, pictures.FIGURE_A4).items() if name not in known}
        if "mixup:4+noise:16" in known and study.data != MNIST:
            cells = [_percents(known[name]) if name in known else "" for name in OWN]
            rows.append([f"{study.table}: {study.title}" + f", {study.data}" * (study.data == LARGE), *cells])
    words = (
        "Share of goal inputs that got the attacker's class, %: mean (standard deviation over trials, trials). "
        "`mixup:4+noise:16` is DP-InstaHide's training, `noise:16+maxup` what the paper reports to stop an adaptive "
        "attacker completely. Neither has a guarantee; releases with one are in "
        "[poisoning_releases](poisoning_releases.md)."
    )
    return f"## DP-InstaHide, its parts, and MaxUp\n\n{words}\n\n{common.table(['attack', *OWN], rows)}"


def _alone(runs: dict[str, Any]) -> list[str]:
    """CutMix and MaxUp with one setting of the miniature varied at a time."""
    rows = []
    for attack, entries in ALONE.items():
        for entry in entries:
            key, words = (entry.key, entry.label) if isinstance(entry, Study) else entry
            known = {one["defence"]: one for one in runs.get(key, {"results": []})["results"]}
            names = (("none",), ("mixup:4",), ("cutmix:1.0", "cutmix"), ("maxup:8", "maxup"))
            found = [next((_percents(known[name]) for name in options if name in known), "") for options in names]
            rows += [[attack, words.replace("collision, ", ""), *found]] if known else []
    header = ["attack", "varied", "none", "mixup:4", "CutMix", "MaxUp"]
    words = "Share of goal inputs, %: mean (standard deviation over trials, trials). One setting is varied at a time."
    title = "## CutMix and MaxUp, one setting varied alone"
    return [f"{title}\n\n{words}\n\n{common.table(header, rows)}"] if len(rows) > len(ALONE) else []


def _times() -> list[str]:
    """CPU seconds of each defence, and as a multiple of plain training."""
    runs = _timed()
    if not runs:
        return []
    rows = [
        [name, common.told([run[name] for run in runs], 2), common.told([run[name] / run["none"] for run in runs], 2)]
        for name in runs[0]
    ]
    words = (
        "The paper: augmentations need no additional training and so are cheaper than filters. Defences in turns, on "
        f"2,000 images of CIFAR-10: mean (standard deviation, runs). {_cheaper()}"
    )
    return [f"## Time of each defence\n\n{words}\n\n{common.table(['defence', 'CPU seconds', 'ratio to none'], rows)}"]


def _timed() -> list[dict[str, float]]:
    return json.loads(TIMES_RUNS.read_text()) if TIMES_RUNS.exists() else []


def _ratios() -> dict[str, float]:
    """Time of each defence, as a multiple of plain training."""
    runs = _timed()
    return {name: float(np.mean([run[name] / run["none"] for run in runs])) for name in (runs[0] if runs else ())}


def _cheaper() -> str:
    ratio = _ratios()
    changes, filters = ([ratio[name] for name in names] for names in ([*CHANGES[1:]], FILTERS))
    holds = "The claim holds" if max(changes) < min(filters) else "The claim holds in part"
    return (
        f"{holds}: augmentations take {min(changes):.2f} to {max(changes):.2f} times plain training, filters "
        f"{min(filters):.2f} to {max(filters):.2f} times."
    )


def _counted(orders: list[tuple[str, PairComparison]], varied: str) -> str:
    """How many pairs stand as the paper has them, and how many of these verdicts are more than chance."""

    def counts(pairs: list[PairComparison]) -> tuple[int, int, int]:
        verdicts = [one.verdict for one in pairs]
        return (
            sum(verdict.startswith("holds") for verdict in verdicts),
            verdicts.count("holds (p < 0.05)"),
            verdicts.count("reversed (p < 0.05)"),
        )

    everything = [one for _, one in orders]
    others = [one for label, one in orders if label != QUARTER]
    (stand, hold, turned), (stand_else, hold_else, turned_else) = counts(everything), counts(others)
    silent = len(everything) - hold - turned
    kept, lost = (sum(sign * one.difference < 0 for one in _corrected(everything)) for sign in (1, -1))
    return (
        f"{stand} of {len(everything)} pairs stand as the paper has them; coins would give half. Tested pair by pair "
        f"(two-sided sign test, p < 0.05: out of reach of 5 trials), {hold} hold beyond chance, {turned} are reversed "
        f"beyond chance, and {silent} say nothing either way. Were no defence better than another, some "
        f"{0.05 * len(everything):.0f} of so many tests would come out so by chance. Corrected for their number (Holm, "
        f"5%), {kept} hold and {lost} are reversed. Pairs of one study share trials: they are not as many experiments."
        "\n\nThe study with a quarter of the class poisoned stands beside the paper's figures at 10%, whose undefended "
        f"success is nearest. It gives {turned - turned_else} of the {turned} reversals, all of them of filters that "
        f"look for a cluster, which so many poisons are. Without it {stand_else} of {len(others)} pairs stand, "
        f"{hold_else} hold and {turned_else} are reversed beyond chance.\n\n"
        "CutMix and MaxUp hold back less here than in the paper, CutMix most clearly where the last layer alone is "
        f"trained. Networks, number of images, perturbations and training differ; {varied}."
    )


def _corrected(pairs: list[PairComparison]) -> list[PairComparison]:
    """Those whose test stands when all are taken together (Holm 1979), at 5%."""
    found = []
    for place, one in enumerate(sorted(pairs, key=lambda one: one.p_value)):
        if one.p_value > 0.05 / (len(pairs) - place):
            break
        found.append(one)
    return found


def _glance(runs: dict[str, Any]) -> str:
    """All studies in one table: mean shares, with the paper's success in brackets."""
    columns, rows = [*TWELVE, "minibatch-dp-sgd"], []
    for study in STUDIES:
        if study.key not in runs:
            continue
        known = {one["defence"]: one for one in runs[study.key]["results"]}
        trials = next(iter(known.values()))["trials"]
        cells = []
        for name in columns:
            paper = f" ({study.published[name]:g})" if name in study.published else ""
            cells.append(f"{100 * known[name]['share']:.0f}{paper}" if name in known else "")
        rows.append([f"{study.table}, {study.data}: {study.title}", f"{trials} of {study.trials}", *cells])
    words = (
        "Mean share of goal inputs that got the attacker's class, %; in brackets the paper's success. Trials: run, of "
        "those that are wanted."
    )
    return f"## All studies\n\n{words}\n\n{common.table(['study', 'trials', *columns], rows)}"


def _table(study: Study, results: list[PoisoningResult], seconds: float) -> str:
    rows, clean_known = [], bool(study.accuracies)
    clean = json.loads(CLEAN_RUNS.read_text()) if study.table in ("A2", "A5") and CLEAN_RUNS.exists() else {}
    for one in results:
        asked = clean.get(one.defence, [])
        low, high = (100 * limit for limit in one.interval)
        paper = study.published.get(one.defence)
        dropped = "" if not one.removed else f"{one.removed:.0f} ({one.removed_poisoned:.1f})"
        rows.append(
            [
                one.defence,
                f"{one.successes} of {one.trials} ({low:.0f} to {high:.0f}%)",
                f"{100 * one.share:.1f}%",
                f"{100 * one.accuracy:.1f}%",
                dropped,
                "" if paper is None else f"{paper:g}%",
                *([f"{study.accuracies[one.defence]:g}%" if one.defence in study.accuracies else ""] * clean_known),
                *([f"{sum(asked)} of {len(asked)}" if asked else ""] * bool(clean)),
            ]
        )
    header = ["defence", "success", "share", "accuracy", "dropped (poisoned)", "paper's success"]
    header += ["paper's accuracy"] * clean_known
    header += ["success without poison"] * bool(clean)
    title = f"## Table {study.table}, {study.data}: {study.title}"
    words = f"`{study.attack}`: {results[0].threat}. {seconds:.0f} CPU seconds."
    if clean_known:
        plain, cutmix = (100 * one.accuracy for name in ("none", "cutmix") for one in results if one.defence == name)
        words += (
            f" CutMix brings the accuracy from {plain:.1f} to {cutmix:.1f}; in the paper from "
            f"{study.accuracies['none']:g} to {study.accuracies['cutmix']:g}."
        )
    return f"{title}\n\n{words}\n\n{common.table(header, rows)}"


if __name__ == "__main__":
    main()
