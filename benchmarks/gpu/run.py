"""Runs that need a GPU, as numbered entries of privmix commands.

A call runs the missing steps of an entry, in order, and starts none that would end after ``--minutes``. A step is done
when its result exists in ``--out``; an interrupted training resumes there. Datasets are in PRIVMIX_DATA.

    python benchmarks/gpu/run.py 1 --out KEPT [--minutes 8] [--report] [--dry-run]

``--report`` copies figures into results/gpu_entries.json. ``--dry-run`` runs the same commands in seconds, on drawn
images.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import common
from privmix.cli import main as privmix
from privmix.data import open_dataset


@dataclass(frozen=True)
class Step:
    """A command, its minutes on one H100 or H200, and the result that shows that it is done: OUT/NAME."""

    name: str
    minutes: float
    command: str


SEEDS: Final = range(5)
SIZES: Final[dict[str, str]] = {
    "cifar": "{data}/cifar10 --classes 10 --image-size 32 --colour rgb",
    "cifar-test": "{data}/cifar10",
    "mnist": "{data}/mnist --classes 10",
    "mnist-test": "{data}/mnist",
    "wrn": "wrn-16-4",
    "batch": "1024",
    "epochs": "10",
    "encoder": "efficientnet:224,lite2",
    "victim": "resnet18",
    "poisoned": "900 --records 10000 --epochs 30",
    "edm": "ddpm++ --precision bfloat16 --batch-size 256 --steps 1000000 --minutes 4",
    "share": "0.04",
    "images": "5000 --draw-batch 1000",
    "warm": "10",
    "rows": "10000",
    "degree": "64",
    "cnn": "200",
}
TINY: Final[dict[str, str]] = {
    "cifar": "{out}/drawn --classes 2",
    "cifar-test": "{out}/drawn",
    "mnist": "{out}/grey --classes 2",
    "mnist-test": "{out}/grey",
    "wrn": "wrn-10-1",
    "batch": "20",
    "epochs": "0.2",
    "encoder": "scattering",
    "victim": "cnn",
    "poisoned": "4 --records 60 --test-records 20 --epochs 1",
    "edm": "tiny --batch-size 8 --steps 2",
    "share": "0.2",
    "images": "10 --draw-batch 10 --sampler-steps 2",
    "warm": "1",
    "rows": "60",
    "degree": "4",
    "cnn": "1",
}
# The one step that is no command.
PUBLIC_SHARE: Final = "public-share"
PRIVATE: Final = "--epsilon 8 --delta 1e-5 --batch-size {batch} --epochs {epochs} --optimiser sgd:learning_rate=2"


def trained(name: str, minutes: float, line: str) -> Iterator[Step]:
    """A training, and its figures on the test split."""
    yield Step(name, minutes, f"train --data {line} --out {{out}}/{name}")
    yield Step(f"{name}.json", 0.3, f"evaluate {{out}}/{name} --data {{cifar-test}} --json")


def self_augmented() -> Iterator[Step]:
    for views in ("self-aug:k_base=4", "dp-mix-self:k_base=4,k_self=4"):
        name = views.partition(":")[0]
        yield from trained(name, 7.5, f"{{cifar}} --model {{wrn}} --views {views},augmentations=flip+crop {PRIVATE}")


def banked() -> Iterator[Step]:
    kept = "{cifar} --features {encoder} --bank 16 --store {out}/BANK --epsilon 1 --delta 1e-5 --epochs {epochs}"
    # The first of them makes the bank.
    for seconds, views in ((5, "plain:"), (2, "self-aug:k_base=8,"), (2, "dp-mix-self:k_base=8,k_self=8,")):
        yield from trained(views.partition(":")[0], seconds, f"{kept} --views {views}augmentations=flip+crop")


def poisoned() -> Iterator[Step]:
    line = "attack poisoning --data {cifar} --recipe patch-backdoor --network {victim} --poisoned {poisoned}"
    for trials, minutes in ((2, 6.5), (4, 6.5), (5, 3.5)):
        more = f"--defence none,mixup:2,cutmix --trials {trials} --work {{out}}/TRIALS --public-data --json"
        yield Step(f"trials-{trials}.json", minutes, f"{line} --attack patch-backdoor:4,random {more}")


def pictures() -> Iterator[Step]:
    drawn = "synthesise --public {out}/P.npz --network {edm} --mirror --images {images} --work {out}/EDM"
    yield Step("Q.npz", 0.5, f"{PUBLIC_SHARE} {{cifar}} {{share}}")
    yield Step("POOL", 7, f"{drawn} --out {{out}}/POOL")
    yield Step("GUIDED", 6, f"{drawn} --guidance 20 --out {{out}}/GUIDED")


def warmed() -> Iterator[Step]:
    warm = "--scenario warm-synthetic --warm-up sgd:epochs={warm},augmentations=flip+crop+cutout"
    for pool in ("POOL", "GUIDED"):
        line = f"{{out}}/Q.npz --model {{wrn}} --synthetic {{out}}/{pool} {warm} --views plain {PRIVATE}"
        yield from trained(f"warm-{pool}", 7, line)


def long_fits() -> Iterator[Step]:
    made = "release --data {mnist} --features pixels --design poisson:mixup_degree={degree} --centre none --rows {rows}"
    for epsilon in (1, 8):
        for seed in SEEDS:
            name = f"rows-{epsilon}-{seed}"
            yield Step(name, 0.5, f"{made} --epsilon {epsilon} --delta 1e-5 --seed {seed} --out {{out}}/{name}")
            learnt = "--learner generalized-kl --model cnn --epochs {cnn}"
            yield Step(f"cnn-{name}", 6, f"fit {{out}}/{name} {learnt} --seed {seed} --out {{out}}/cnn-{name}")
            yield Step(f"cnn-{name}.json", 0.3, f"evaluate {{out}}/cnn-{name} --data {{mnist-test}} --json")


ENTRIES: Final = {
    1: tuple(self_augmented()),
    2: tuple(banked()),
    3: tuple(poisoned()),
    4: tuple(pictures()),
    # Of the same folder as 4.
    5: tuple(warmed()),
    6: tuple(long_fits()),
}


def draw(out: Path) -> None:
    """Small drawn images of two classes, in both shapes."""
    random = np.random.default_rng(0)
    for name, shape in (("drawn", (16, 16, 3)), ("grey", (16, 16))):
        (out / name).mkdir(parents=True, exist_ok=True)
        for split, count in (("train", 100), ("test", 40)):
            y = np.arange(count) % 2
            x = random.integers(0, 128, (count, *shape), dtype=np.uint8)
            x[y == 1] += 100
            np.savez(out / name / f"{split}.npz", x=x, y=y)


def draw_public(words: list[str], out: Path) -> None:
    """Draw a share of the images of each class as public ones, P.npz; the others are private, Q.npz."""
    _, place, _, classes, *image, share = words
    shape = (32, 32, 3) if image else None
    found, random = open_dataset(place, classes=int(classes), input_shape=shape).read(), np.random.default_rng(0)
    public = np.zeros(len(found.y), dtype=bool)
    for label in range(int(classes)):
        own = np.flatnonzero(found.y == label)
        public[random.choice(own, round(float(share) * len(own)), replace=False)] = True
    for name, part in (("P", public), ("Q", ~public)):
        np.savez(out / f"{name}.npz", x=found.x[part], y=found.y[part], classes=list(map(str, range(int(classes)))))


def carry_out(step: Step, out: Path, sizes: dict[str, str]) -> None:
    """Run a step; raise SystemExit with privmix's code where it fails."""
    found = {key: value.format(data=common.data_root(), out=out) for key, value in sizes.items()}
    words = shlex.split(step.command.format(**found, out=out))
    if words[0] == PUBLIC_SHARE:
        draw_public(words, out)
        return
    if words[0] == "train" and (out / f".{step.name}.run").exists():
        words.append("--resume")
    text = io.StringIO()
    with contextlib.redirect_stdout(text) if "--json" in words else contextlib.nullcontext():
        code = privmix.run(words)
    if code:
        raise SystemExit(code)
    if "--json" in words:
        draft = out / f".{step.name}"
        draft.write_text(text.getvalue(), encoding="utf-8")
        draft.rename(out / step.name)


def report(number: int, out: Path) -> None:
    """Copy an entry's figures into the results, with machine, date and commit."""
    place = common.RESULTS / "gpu_entries.json"
    kept = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    files = [out / step.name for step in ENTRIES[number] if step.name.endswith(".json")]
    figures = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()}
    kept[str(number)] = {"machine": common.machine(), "figures": figures}
    place.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("number", type=int, choices=ENTRIES)
    parser.add_argument("--out", type=Path, required=True, help="folder that is kept between calls")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--report", action="store_true", help="copy figures into results/gpu_entries.json")
    parser.add_argument("--dry-run", action="store_true", help="the same commands on small drawn images")
    given = parser.parse_args(arguments)
    out, began = given.out.absolute(), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    if given.dry_run:
        draw(out)
    for step in ENTRIES[given.number]:
        if (out / step.name).exists():
            continue
        spent = (time.monotonic() - began) / 60
        if spent and not given.dry_run and spent + step.minutes > given.minutes:
            print(f"call again: {step.name} takes about {step.minutes:g} minutes")
            break
        carry_out(step, out, TINY if given.dry_run else SIZES)
    else:
        print("done")
    if given.report:
        report(given.number, out)


if __name__ == "__main__":
    main()
