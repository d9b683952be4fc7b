"""DP-InstaHide at its true price, by k: what a model learns of rows that average k records under Laplace noise.

Borgnia et al. 2021 take k = 4 and 1 for the diameter of the data, and get both accuracy and a small epsilon. Here
records are clipped in l1, labels are noised and paid for, and the noise is what the true diameter asks for: 20,000
records of MNIST, images averaged down to 7 x 7 (49 numbers: the fewer, the less noise a record gets), as many rows as
records, the learner that `privmix fit` takes for these rows, MNIST's 10,000 test images. Pure (delta 0, by the paper's
Theorem 2) and at delta 1e-5, by PLD. Second moments of the same records (one added or removed) stand beside. All
values of k are shown; nothing was chosen.

The second part breaks the original InstaHide (Huang et al. 2020), which has no noise: rows mix four images with random
weights and get a random sign for each pixel. The attack follows Carlini et al. (2020), with simpler steps: drop signs,
find rows that share an image by their likeness, group them, and solve for images, weights and signs in turns by least
squares. It sees neither labels nor weights. The same attack, without the step for signs, meets rows that have Laplace
noise and no signs. A second attacker knows the weights of each row and solves least squares once.

Runs are kept in results/instahide_runs.json and results/instahide_break_runs.json, so a broken-off benchmark goes on
where it stopped. Ten CPU minutes.

    python benchmarks/bench_instahide.py [--seeds 5] [--report]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import cache
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import matplotlib.image
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import common
from privmix import accounting
from privmix.accounting import Adjacency, FixedSizeSampled, Laplace, Repeated
from privmix.accounting.pure import published_instahide_epsilon
from privmix.data import open_dataset
from privmix.designs import Fixed, Moments
from privmix.engine.rows import PrivateRecords
from privmix.learning.base import LEARNERS
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by
from privmix.releases.run import release_to_memory

RUNS = common.RESULTS / "instahide_runs.json"
BREAK_RUNS = common.RESULTS / "instahide_break_runs.json"
RECORDS, SIDE, BLOCK = 20_000, 7, 4
DEGREES = (1, 4, 16, 64, 256, 512, 1024)
EPSILONS, DELTAS = (1.0, 8.0), (0.0, 1e-5)
CLASSES = tuple("0123456789")
CACHE = common.RESULTS.parent / "cache" / "instahide"
# The break: images, rows, images of a row, the paper's noise, and how MNIST is standardised before signs are drawn.
OWNERS, ROWS, MIXED, SCALE = 100, 5000, 4, 16 / 255
MEAN, DEVIATION = 0.1307, 0.3081
SIGNS, PUBLISHED, VALID = "signs", "published noise", "valid epsilon"
LINES = {"InstaHide, random signs": (SIGNS, 0.0), "no signs, Laplace noise 16/255": (PUBLISHED, SCALE)}
LINES |= {f"DP-InstaHide, epsilon {target:g}, delta 1e-05": (VALID, target) for target in (8.0, 1.0)}
# In place of k: second moments of the same records, for comparison.
MOMENTS = 0


@cache
def pooled(split: str, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(n, 49) in [0, 1] and labels, of the first images."""
    found, labels = [], []
    for batch in open_dataset(common.data_root() / "mnist", split=split, classes=CLASSES).batches(1000):
        blocks = batch.x.reshape(-1, SIDE, BLOCK, SIDE, BLOCK).astype(np.float32) / 255
        found.append(blocks.mean(axis=(2, 4)).reshape(-1, SIDE**2))
        labels.append(batch.y)
        if len(found) * 1000 >= count:
            break
    return np.concatenate(found)[:count], np.concatenate(labels)[:count]


@cache
def planned(degree: int, epsilon: float, delta: float) -> Plan:
    design = Moments() if degree == MOMENTS else Fixed(mixup_degree=degree, noise="laplace")
    return ReleaseConfig(records=RECORDS, dim=SIDE**2, classes=CLASSES, design=design).calibrate(epsilon, delta)


def one_run(degree: int, epsilon: float, delta: float, seed: int) -> dict[str, Any]:
    start = time.process_time()
    plan = planned(degree, epsilon, delta)
    facts = {"extractor": {"name": "identity"}, "input_shape": (SIDE**2,)}
    released = release_to_memory(
        plan, PrivateRecords(*pooled("train", RECORDS)), SecretStreams.from_seed(seed), **facts
    )
    x, y = pooled("test", 10_000)
    accuracy = float((LEARNERS[made_by(plan).learner]().fit(released).predict(x) == y).mean())
    return {
        "degree": degree,
        "epsilon": epsilon,
        "delta": delta,
        "seed": seed,
        "accuracy": round(100 * accuracy, 2),
        "noise_multiplier": plan.noise_multiplier,
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def unit(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows without their mean, of norm 1: products are correlations."""
    rows = rows - rows.mean(-1, keepdims=True)
    return rows / (np.linalg.norm(rows, axis=-1, keepdims=True) + 1e-12)


@cache
def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(n, 784) in [0, 1] and labels."""
    batch = next(iter(open_dataset(common.data_root() / "mnist", split="train", classes=CLASSES).batches(20_000)))
    return batch.x.reshape(len(batch.x), -1) / 255.0, batch.y


def mixing(rng: np.random.Generator, equal: bool) -> NDArray[np.float64]:
    """(rows, images): each image meets three others an epoch; random weights are at most 0.65."""
    found = np.zeros((ROWS, OWNERS))
    for row in range(ROWS):
        others = rng.choice(OWNERS - 1, MIXED - 1, replace=False) + 1
        weights = np.full(MIXED, 1 / MIXED)
        while not equal and (weights[0] == 1 / MIXED or weights.max() > 0.65):
            weights = rng.random(MIXED)
            weights /= weights.sum()
        found[row, (np.r_[0, others] + row) % OWNERS] = weights
    return found


def encoded(line: str, seed: int, pixels: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows of a line, and the weights of images in them."""
    (kind, amount), rng = LINES[line], np.random.default_rng(seed)
    weights = mixing(rng, equal=kind != SIGNS)
    if kind == SIGNS:
        mixed = weights @ ((pixels - MEAN) / DEVIATION)
        return mixed * rng.choice([-1.0, 1.0], mixed.shape), weights
    if kind == VALID:
        # Clipped as the release clips; its noise.
        design = Fixed(mixup_degree=MIXED, noise="laplace")
        config = ReleaseConfig(records=OWNERS, dim=pixels.shape[1], classes=CLASSES, design=design, rows=ROWS)
        pixels = pixels / pixels.sum(1, keepdims=True)
        amount = config.calibrate(amount, DELTAS[1]).noise_std_x / np.sqrt(2)
    mixed = weights @ pixels
    return mixed + rng.laplace(0, amount, mixed.shape), weights


def groups(varied: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Mean of the rows of each group that shares an image, by likeness alone."""
    share, found = MIXED * ROWS // OWNERS, []
    rows = varied.astype(np.float32)
    alike = unit(rows)
    for start in rng.permutation(ROWS)[:700]:
        near = alike @ alike[start]
        near[start] = -1
        other = int(near.argmax())
        both = np.minimum(near, alike @ alike[other])
        both[[start, other]] = 2
        group = np.argpartition(-both, share // 8)[: share // 8]
        for _ in range(5):
            middle = unit(rows[group].mean(0))
            group = np.argpartition(-(alike @ middle), share // 4)[: share // 4]
        middle = unit(rows[group].mean(0))
        found.append((float((alike[group] @ middle).mean()), middle))
    kept: list[NDArray[Any]] = []
    for _, middle in sorted(found, key=lambda one: -one[0]):
        if len(kept) < 2 * OWNERS and (not kept or (np.array(kept) @ middle).max() < 0.9):
            kept.append(middle)
    return np.array(kept, dtype=np.float64)


def fitted(target: NDArray[np.float64], images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of the four images that explain each row best, none negative."""
    everything = np.linalg.lstsq(images.T, target.T, rcond=None)[0].T
    found = np.zeros_like(everything)
    for row, chosen in enumerate(np.argsort(-everything, 1)[:, :MIXED]):
        gram = images[chosen] @ images[chosen].T
        gram += 1e-6 * np.trace(gram) * np.eye(len(gram))
        found[row, chosen] = np.maximum(np.linalg.solve(gram, images[chosen] @ target[row]), 0)
    return found


def most_used(images: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """As many images as there are, no two of them alike."""
    alike, kept = unit(images) @ unit(images).T, []
    for image in np.argsort(-weights.sum(0)):
        if len(kept) < OWNERS and (not kept or alike[image, kept].max() < 0.95):
            kept.append(image)
    return np.array(kept)


def recovered(rows: NDArray[np.float64], signs: bool, rng: np.random.Generator) -> NDArray[np.float64]:
    """Images, from rows alone."""
    size = np.abs(rows)
    # Signs leave squares as they are, and a mean of squares still shows a shared image.
    power = size**2 if signs else rows
    varied = power - power.mean(0)
    weights = fitted(varied, groups(varied, rng))
    weights = np.sqrt(weights) if signs else weights
    low, high = -MEAN / DEVIATION, (1 - MEAN) / DEVIATION
    images = np.zeros(0)
    for turn in range(6):
        weights = weights / (weights.sum(1, keepdims=True) + 1e-12)
        target = rows
        if signs:
            if turn == 0:
                squares = np.linalg.lstsq(weights**2, power, rcond=None)[0]
                images = np.sqrt(np.maximum(squares, 0))
                # Values further from zero than black are bright.
                images = np.clip(np.where(images > -low, images, -images), low, high)
            target = np.sign(weights @ images) * size
        images = np.linalg.lstsq(weights, target, rcond=1e-3)[0]
        images = np.clip(images, low, high) if signs else images
        target = np.sign(weights @ images) * size if signs else rows
        weights = fitted(target, images)
    return images[most_used(images, weights)]


def break_run(line: str, seed: int) -> dict[str, Any]:
    """Both attackers' success on one draw of images."""
    start, rng = time.process_time(), np.random.default_rng(1000 + seed)
    pixels, labels = digits()
    order = rng.permutation(len(pixels))
    mine, others = order[:OWNERS], order[OWNERS : OWNERS + 10_000]
    rows, weights = encoded(line, seed, pixels[mine])
    signs = LINES[line][0] == SIGNS
    known = np.linalg.lstsq(weights, rows, rcond=None)[0]
    found = {"line": line, "seed": seed}
    attackers = {"blind": recovered(rows, signs, rng)}
    attackers |= {} if signs else {"knows weights": known}
    attackers |= {"has no rows": rng.normal(size=known.shape)} if line == list(LINES)[-1] else {}
    for attacker, images in attackers.items():
        # Each true image gets the recovered one that suits it, no two the same.
        true, place = linear_sum_assignment(-(unit(pixels[mine]) @ unit(images).T))
        chosen = np.zeros((OWNERS, pixels.shape[1]))
        chosen[true] = images[place]
        correlation = (unit(pixels[mine]) * unit(chosen)).sum(1)
        near = unit(chosen) @ unit(pixels[np.r_[mine, others]]).T
        found[attacker] = {
            "correlation": round(float(correlation.mean()), 4),
            "recognised": round(float((labels[others][near[:, OWNERS:].argmax(1)] == labels[mine]).mean()), 4),
            "identified": round(float((near.argmax(1) == np.arange(OWNERS)).mean()), 4),
        }
        if seed == 0 and attacker == "blind":
            CACHE.mkdir(parents=True, exist_ok=True)
            np.save(CACHE / f"{list(LINES).index(line)}.npy", np.stack([pixels[mine][:12], chosen[:12]]))
    return {**found, "cpu_seconds": round(time.process_time() - start, 1)}


def draw_break() -> None:
    """True images, and below them what the blind attack makes of the rows of each line."""
    kept = [np.load(CACHE / f"{number}.npy") for number in range(len(LINES))]
    strips = []
    for images in (kept[0][0], *(one[1] for one in kept)):
        low, high = np.quantile(images, 0.01, axis=1)[:, None], np.quantile(images, 0.995, axis=1)[:, None]
        scaled = np.clip((images - low) / np.maximum(high - low, 1e-9), 0, 1).reshape(-1, 28, 28)
        strips.append(np.hstack(list(np.pad(scaled, ((0, 0), (1, 1), (1, 1)), constant_values=1))))
    picture = np.kron(np.vstack(strips), np.ones((2, 2)))
    matplotlib.image.imsave(common.RESULTS / "instahide_break.png", picture, cmap="gray", vmin=0, vmax=1)


def bought(line: str) -> str:
    """Guarantee of a line's rows."""
    kind, amount = LINES[line]
    if kind == SIGNS:
        return "none: no noise"
    if kind == VALID:
        return f"epsilon {amount:g}, delta {DELTAS[1]:g}, one record replaced"
    event = Repeated(FixedSizeSampled(OWNERS, MIXED, Laplace(2 * MIXED * amount / 28**2)), ROWS)
    true = accounting.epsilon(event, 0.0, accountant="pure", adjacency=Adjacency.REPLACE_ONE).epsilon
    return f"epsilon {true:,.0f}; as published {published_instahide_epsilon(OWNERS, MIXED, amount, ROWS):,.0f}"


def broken(runs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Means of both attackers by line, and their section."""
    found, rows = [], []
    for line in LINES:
        for attacker in ("blind", "knows weights", "has no rows"):
            mine = [run[attacker] for run in runs if run["line"] == line and attacker in run]
            if not mine:
                continue
            means = {key: float(np.mean([one[key] for one in mine])) for key in mine[0]}
            found.append({"line": line, "attacker": attacker, "runs": len(mine), **means})
            percents = [common.told([100 * one[key] for one in mine]) for key in ("recognised", "identified")]
            correlation = common.told([one["correlation"] for one in mine], 2)
            guessed = attacker == "has no rows"
            rows.append(["" if guessed else line, "" if guessed else bought(line), attacker, correlation, *percents])
    header = ["rows", "guarantee", "attacker", "correlation", "recognised, %", "identified, %"]
    seconds = np.mean([run["cpu_seconds"] for run in runs])
    words = (
        f"{OWNERS} images of MNIST, {ROWS:,} rows of {MIXED} images; {seconds:.0f} CPU seconds a run. Correlation: of "
        "each true image with the recovered one assigned to it. Recognised: the nearest of 10,000 other digits has its "
        "label. Identified: among those and the true ones, the true one is nearest. Mean (standard deviation, runs). "
        "The blind attacker sees rows alone. The second knows which images are in each row, with their weights. The "
        "last one draws noise: chance."
    )
    picture = "![True images; recovered from InstaHide, from noise 16/255, at epsilon 8 and 1](instahide_break.png)"
    below = f"First line: true images. Below: recovered by the blind attacker, in the table's order.\n\n{picture}"
    return found, f"## Original InstaHide, and its break\n\n{words}\n\n{common.table(header, rows)}\n\n{below}"


def report(runs: list[dict[str, Any]], breaks: list[dict[str, Any]]) -> None:
    rows = []
    for degree in (*DEGREES, MOMENTS):
        cells = []
        for epsilon, delta in ((epsilon, delta) for epsilon in EPSILONS for delta in DELTAS):
            mine = [r for r in runs if (r["degree"], r["epsilon"], r["delta"]) == (degree, epsilon, delta)]
            values = [run["accuracy"] for run in mine]
            cells.append(
                f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f}, {len(values)})" if mine else "-"
            )
        rows.append(["second moments, for comparison" if degree == MOMENTS else degree, *cells])
    header = ["k", *(f"eps {e:g}, {'pure' if d == 0 else f'delta {d:g}'}" for e in EPSILONS for d in DELTAS)]
    plan = planned(DEGREES[0], EPSILONS[0], DELTAS[0])
    facts = {
        "records": f"{RECORDS:,} of MNIST, averaged down to {SIDE} x {SIDE}, clipped to l1 norm 1; {plan.rows:,} rows",
        "cells": "test accuracy, %: mean (least to greatest, runs); guessing has about 10",
        "guarantee": f"one record replaced, {plan.adjacency.value}; labels noised and paid for",
        "learner": made_by(plan).learner,
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs)),
    }
    note = (
        "Only k was varied. Image size, clipping and learner were not tuned: rows are no best that the method reaches."
    )
    found, section = broken(breaks)
    results = {"runs": runs, "break": found, "break_runs": breaks}
    title = "DP-InstaHide at its true price, by k, and the break of InstaHide"
    common.save("instahide", title, facts, results, [note, common.table(header, rows), section])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each cell")
    parser.add_argument("--report", action="store_true", help="run nothing more")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["degree"], run["epsilon"], run["delta"], run["seed"]) for run in runs}
    breaks: list[dict[str, Any]] = json.loads(BREAK_RUNS.read_text()) if BREAK_RUNS.exists() else []
    broken_off = {(run["line"], run["seed"]) for run in breaks}
    seeds = range(0 if asked.report else asked.seeds)
    for line, seed in ((line, seed) for seed in seeds for line in LINES if (line, seed) not in broken_off):
        breaks.append(break_run(line, seed))
        print(breaks[-1], flush=True)
        BREAK_RUNS.write_text(json.dumps(breaks, indent=0) + "\n")
        if len([run for run in breaks if run["seed"] == 0]) == len(LINES) and seed == 0:
            draw_break()
    for seed in seeds:
        for epsilon, delta in ((epsilon, delta) for epsilon in reversed(EPSILONS) for delta in reversed(DELTAS)):
            # Moments have no pure form.
            for degree in (*DEGREES, *([MOMENTS] if delta else [])):
                if (degree, epsilon, delta, seed) not in done:
                    runs.append(one_run(degree, epsilon, delta, seed))
                    print(runs[-1], flush=True)
                    RUNS.write_text(json.dumps(runs, indent=0) + "\n")
    report(runs, breaks)


if __name__ == "__main__":
    main()
