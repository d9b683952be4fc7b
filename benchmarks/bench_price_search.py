"""Random settings of every design and of DP-SGD: is each plan's price right, its noise no more than needed?

Each setting ends in a plan, whose price is held against an exact value from without (tests/accounting/exact.py:
analytic Gaussians, and integrals over the characteristic function), or in a refusal, of which is shown that no noise
meets the target. Setting number i is the same whenever and wherever it is drawn. Results are kept in
results/price_search_runs.json and what is there is not repeated.

    python benchmarks/bench_price_search.py [SETTINGS] [SECONDS]   # go on until there are so many, or time is up
    python benchmarks/bench_price_search.py again                  # take longer over what had no reference
    python benchmarks/bench_price_search.py tables                 # write the page of what is there
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import common
from privmix.accounting import Adjacency, Event, Laplace, Repeated, delta
from privmix.accounting.events import FixedSizeSampled
from privmix.accounting.pld import forget
from privmix.accounting.pricing import budget_after_count, count_noise, price
from privmix.errors import InvalidInput
from privmix.planning import ReleaseConfig
from privmix.plans import all_designs
from privmix.training.plan import plan_training

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.accounting import exact

RUNS = common.RESULTS / "price_search_runs.json"
SETTINGS, SEED = 20_000, 20_26
SAVE_EVERY = 100
DP_SGD, LAPLACE = "dp-sgd", "fixed, Laplace, pure"
# The largest noise multiplier that calibration tries.
MOST_NOISE = 1e9
# Of a hundred settings. Designs whose price is that of one Gaussian query need few.
SHARES = {
    "poisson": 25,
    "hierarchical": 18,
    DP_SGD: 16,
    "classwise": 12,
    "fixed": 9,
    "random-weight": 5,
    "gaussian-mixing": 6,
    "moments": 2,
    "two-stage": 2,
    "three-stage": 1,
    "merf": 1,
    "hermite": 1,
    LAPLACE: 2,
}
# A price may be above the exact epsilon by so much, or its delta by so much; calibrated epsilons are this close.
CLOSE = 0.01
# References leave out a millionth of delta, and are good to what they say beside it.
LEFT_OUT = 5e-6
# Errors that a reference may have: the rest is said to have none.
DOUBT = 1e-3
OUTCOMES = ("right", "capped", "refused", "below", "above", "loose", "refused wrongly", "no reference", "failed")
WRONG = ("below", "above", "loose", "refused wrongly", "failed")


@dataclass(frozen=True)
class Asked:
    """A setting: whose plan, and its target."""

    design: str
    epsilon: float
    delta: float
    options: dict[str, Any]


def drawn(index: int) -> Asked:
    """Setting number ``index``."""
    rng = np.random.default_rng([SEED, index])

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(math.log(low), math.log(high)))) if high > low else float(low)

    names = list(SHARES)
    design = names[rng.choice(len(names), p=np.array(list(SHARES.values())) / sum(SHARES.values()))]
    epsilon = float(f"{log_uniform(0.01, 20):.4g}")
    target = float(f"{log_uniform(1e-12, 1e-3):.4g}")
    # Sums with normal weights are exact up to 2^24 records; beyond, they are refused.
    records = round(log_uniform(1e2, 1.6e7 if design == "gaussian-mixing" else 1e9))
    classes = min(round(log_uniform(2, 200)), records // 10)
    if design == DP_SGD:
        batch = max(1, round(records * log_uniform(max(1e-6, 1 / records), 1)))
        steps = round(log_uniform(1, 1e6))
        micro = int(rng.choice([1, 1, 1, 2, 8]))
        options = {
            "records": records,
            "batch_size": batch,
            "epochs": steps * batch / records,
            "microbatch_size": min(batch, micro),
            "adjacency": str(rng.choice(["add_remove", "add_remove", "add_remove", "replace_one"])),
        }
        return Asked(design, epsilon, target, options)
    options = {"records": records, "classes": classes, "count": bool(rng.random() < 0.1)}
    options["centre"] = str(rng.choice(["private", "none"]))
    if rng.random() < 0.4:
        options["rows"] = round(log_uniform(1, 1e9))
    expected = float(f"{rng.uniform(0.1, 1) * classes:.4g}")
    most = {"classwise": records / classes, "hierarchical": records * expected / classes}.get(design, records)
    degree = max(1, math.floor(log_uniform(1, max(1, min(4096, most)))))
    ratio = float(f"{log_uniform(0.1, 10):.4g}")
    match design:
        case "poisson" | "fixed" | "random-weight" | "fixed, Laplace, pure":
            options |= {"mixup_degree": degree, "label_noise_ratio": ratio}
            if design == "random-weight":
                options["max_weight"] = float(f"{rng.uniform(0.1, 1):.4g}")
            elif design == LAPLACE:
                options |= {"noise": "laplace", "centre": "none"}
                target = 0.0
        case "hierarchical":
            options |= {"mixup_degree": degree, "label_noise_ratio": ratio, "expected_classes": expected}
        case "classwise":
            options |= {"full_batch": True} if rng.random() < 0.1 else {"mixup_degree": degree}
        case "gaussian-mixing":
            options["label_noise_ratio"] = ratio
        case "merf" | "hermite":
            options["centre"] = "none"
    if design in ("fixed", "random-weight", LAPLACE):
        # Draws of a fixed size need the real count.
        options["count"] = False
    return Asked(design, epsilon, target, options)


def calibrated(asked: Asked) -> tuple[Event, Adjacency, float, float, float]:
    """What the plan does once the count is known, adjacency, noise, and what epsilon and delta are left for it."""
    if asked.design == DP_SGD:
        options = dict(asked.options)
        options["adjacency"] = Adjacency(options["adjacency"])
        plan = plan_training(epsilon=asked.epsilon, delta=asked.delta, **options)
        return plan.event, plan.adjacency, plan.noise_multiplier, asked.epsilon, asked.delta
    config, rest = configured(asked)
    found = config.calibrate(asked.epsilon, asked.delta)
    return found.event_after_count, found.adjacency, found.noise_multiplier, *rest


def configured(asked: Asked) -> tuple[ReleaseConfig, tuple[float, float]]:
    """A release as asked, and what is left of epsilon and delta once the count is known."""
    options = dict(asked.options)
    rest = asked.epsilon, asked.delta
    noise = None
    if options.pop("count"):
        noise = count_noise(*rest)
        rest = budget_after_count(noise, *rest)
    names = tuple(f"class {number}" for number in range(options.pop("classes")))
    kind = "fixed" if asked.design == LAPLACE else asked.design
    config = ReleaseConfig(
        options.pop("records"), 8, names, kind, lattice_bits=8, records_noise_multiplier=noise, **options
    )
    return config, rest


def pure_epsilon(event: Event) -> float:
    """Sampled Laplace queries under replace-one: DP-InstaHide's Theorem 2 at twice the record's bound."""
    assert isinstance(event, Repeated)
    inner = event.event
    assert isinstance(inner, FixedSizeSampled)
    assert isinstance(inner.event, Laplace)
    share, loss = inner.sample_size / inner.population, 2 / inner.event.noise_multiplier
    grow = math.log1p(share * math.expm1(loss)) if loss < 700 else math.log(share) + loss
    return event.count * max(grow, -math.log1p(share * math.expm1(-loss)))


def judged(asked: Asked, *, patient: bool = False) -> tuple[str, float, float, str]:
    """Outcome; price over exact epsilon, less 1; priced epsilon over its target, less 1; and words."""
    try:
        event, adjacency, noise, target, at = calibrated(asked)
    except InvalidInput as refusal:
        return "refused", 0.0, 0.0, f"{refusal.field}: {refusal.allowed}"
    priced = price(event, at, adjacency).epsilon
    gap = priced / target - 1
    if priced > target:
        return "below", 0.0, gap, "costs more than its target"
    if at == 0:
        over = priced / pure_epsilon(event) - 1
        found = (1.0, 0.0)
    elif priced == 0:
        # The record is in no sample, but for a chance that delta allows.
        square, sampled, spread = exact.parts_of(event, adjacency)
        if square or spread or math.fsum(one.runs * one.cluster * one.rate for one in sampled) > at:
            return "no reference", 0.0, gap, "of an epsilon of 0"
        over, found = 0.0, (1.0, 0.0)
    else:
        near = priced / (1 + CLOSE)
        try:
            reference = exact.deltas(event, adjacency, (priced, near), at, patient=patient)
        except exact.NoReference as reason:
            return "no reference", 0.0, gap, str(reason)
        if reference.error > DOUBT:
            return "no reference", 0.0, gap, f"good to {reference.error:.1g} only"
        here, there = reference.deltas
        if not 0 < here < there:
            return "no reference", 0.0, gap, f"{here:.3g} and {there:.3g}"
        over = math.log(at / here) / math.log(there / here) * CLOSE / (1 + CLOSE)
        found = (here / at, reference.error + LEFT_OUT)
    if found[0] > 1 + found[1] or (at == 0 and over < -1e-12):
        return "below", over, gap, f"delta {found[0]:.8g} of what is stated"
    if over > CLOSE and found[0] < 1 - CLOSE:
        return "above", over, gap, f"delta {found[0]:.4g} of what is stated"
    if gap < -CLOSE:
        # Noise has a least value, and delta moves more than epsilon where that is tiny.
        if noise <= 1.001e-3:
            return "capped", over, gap, "the least noise"
        if at == 0 or delta(event, target, adjacency=adjacency).epsilon is None:
            return "loose", over, gap, ""
        if delta(event, target, adjacency=adjacency).delta < (1 - CLOSE) * at:
            return "loose", over, gap, f"noise {noise:.6g}"
    return "right", over, gap, ""


def kept() -> dict[int, list[Any]]:
    return {row[0]: row for row in json.loads(RUNS.read_text())} if RUNS.exists() else {}


def save(found: dict[int, list[Any]]) -> None:
    """Add ``found`` to what is kept, by this process or another."""
    runs = {**kept(), **found}
    text = "[\n" + ",\n".join(json.dumps(runs[index], separators=(",", ":")) for index in sorted(runs)) + "\n]\n"
    beside = RUNS.with_suffix(".part")
    beside.write_text(text)
    os.replace(beside, RUNS)


def searched(most: int, seconds: float) -> None:
    """Judge settings that were not judged before: one row each of number, outcome, two ratios in ppm, ms, words."""
    runs, until = kept(), time.monotonic() + seconds
    for done, index in enumerate([index for index in range(most) if index not in runs], start=1):
        forget()
        start = time.process_time()
        try:
            outcome, over, gap, words = judged(drawn(index))
        except Exception as error:
            outcome, over, gap, words = "failed", 0.0, 0.0, f"{type(error).__name__}: {error}"
        spent = round(1000 * (time.process_time() - start))
        row = [index, OUTCOMES.index(outcome), round(1e6 * over, 2), round(1e6 * gap), spent]
        runs[index] = [*row, words[:120]] if words else row
        if outcome in WRONG:
            print(index, outcome, over, gap, words, drawn(index), flush=True)
        if done % SAVE_EVERY == 0:
            save(runs)
        if time.monotonic() > until:
            break
    save(runs)
    print(len(runs), Counter(OUTCOMES[row[1]] for row in runs.values()), flush=True)


def judged_again(runs: dict[int, list[Any]]) -> None:
    """Take longer over what had no reference."""
    for index in sorted(index for index, row in runs.items() if OUTCOMES[row[1]] == "no reference"):
        outcome, over, gap, words = judged(drawn(index), patient=True)
        row = [index, OUTCOMES.index(outcome), round(1e6 * over, 2), round(1e6 * gap), runs[index][4]]
        runs[index] = [*row, words[:120]] if words else row
        print(runs[index], flush=True)
        save(runs)


def refused_rightly(index: int) -> tuple[bool, str]:
    """Whether no noise that is allowed meets the target of a setting that was refused, and the kind of reason.

    What is independent of the noise (the mean query, the private count) already costs more, by the analytic Gaussian;
    or the setting is one that the design does not have.
    """
    asked = drawn(index)
    try:
        calibrated(asked)
    except InvalidInput as refusal:
        words = f"{refusal.field}: {refusal.allowed}"
    else:
        return False, "it is not refused"
    if words.startswith("records: fewer for design gaussian-mixing"):
        return asked.options["records"] >= 2**24, "sums of so many records are not exact"
    if asked.design == LAPLACE:
        most = configured(asked)[0].with_noise(MOST_NOISE)
        return pure_epsilon(most.event) > asked.epsilon, "so many rows cost more at the largest noise that is allowed"
    if asked.design == DP_SGD or not asked.options.get("count"):
        return False, words[:100]
    least = exact.gaussian_delta(1 / count_noise(asked.epsilon, asked.delta), asked.epsilon)
    return least > asked.delta, "the private count alone costs more"


# What earlier rounds of this search found wrong, all mended, each with its setting in tests/accounting.
FOUND = """Wrong prices that the search found on its way, mended since, each with its setting in
tests/accounting/test_price_search.py: one run of a wide Gaussian query beside very rare rows, 0.004 to 0.01% too LOW
(frequencies hidden by rounding were left out, unpaid); very rare rows beside a Gaussian query, up to 2.2 times too
high; few records of very many in samples of fixed size, 1.6%; windows that ended above the answer, or took what came
around for it, up to 60%; few large losses that rule the tilted law, 3.5%; noise a million times a record in 10^8 rows,
up to 10%; losses next to the least one, 7%; sums with normal weights in 10^8 rows, 2%. Settings whose price was right
before the last of these were not all judged again. One setting of the 20,000 looked 0.007% too low: there the reference
was 0.008% off, as a count of the samples that have the record showed, and was mended.""".replace("\n", " ")


def tables() -> None:
    runs = kept()
    designs: dict[str, list[list[Any]]] = defaultdict(list)
    for index, row in runs.items():
        designs[drawn(index).design].append(row)
    rows = []
    for design in SHARES:
        mine = designs.get(design, [])
        count = Counter(OUTCOMES[row[1]] for row in mine)
        over = sorted(row[2] / 1e4 for row in mine if OUTCOMES[row[1]] == "right")
        spent = [row[4] / 1e3 for row in mine]
        wrong = sum(count[outcome] for outcome in WRONG)
        figures = [f"{value:.4f}" for value in (over[0], over[len(over) // 2], over[-1])] if over else ["-"] * 3
        others = [count[name] for name in ("right", "capped", "refused", "no reference")]
        rows.append([design, len(mine), *others, wrong, *figures, f"{np.mean(spent):.2f}" if spent else "-"])
    sums = [sum(int(row[place]) for row in rows) for place in range(1, 7)]
    rows.append(["all", *sums, "", "", "", f"{sum(row[4] for row in runs.values()) / 1e3 / max(1, len(runs)):.2f}"])
    head = ["design", "settings", "right", "least noise does", "refused", "no reference", "wrong"]
    first = common.table([*head, "above by %: least", "median", "most", "CPU s"], rows)
    refusals: Counter[tuple[str, bool]] = Counter()
    for index, row in runs.items():
        if OUTCOMES[row[1]] == "refused":
            true, words = refused_rightly(index)
            refusals[(words, true)] += 1
    second = common.table(
        ["refusal", "shown to be true", "settings"], [[words, true, count] for (words, true), count in refusals.items()]
    )
    counts = {name: sum(OUTCOMES[row[1]] == name for row in runs.values()) for name in OUTCOMES}
    gaps = [row[3] / 1e4 for row in runs.values() if OUTCOMES[row[1]] == "right"]
    # In per cent. Further below than this a setting is only right where delta hardly moves.
    flat = sum(gap < -100 * CLOSE for gap in gaps)
    target = min((gap for gap in gaps if gap >= -100 * CLOSE), default=0.0)
    settings = {
        "settings": f"{len(runs)} of {SETTINGS}, each by its number and seed {SEED}",
        "drawn": "records 1e2 to 1e9, epsilon 0.01 to 20, delta 1e-12 to 1e-3, all log-uniform; 0 for pure DP",
        "time": f"{sum(row[4] for row in runs.values()) / 6e4:.0f} processor minutes, one thread",
    }
    text = [
        "A price is right where it is no less than the exact epsilon, and at most 1% above it or its delta at most 1% "
        "too large. Exact values: analytic Gaussians; integrals over characteristic functions, good to a millionth of "
        "delta (tests hold them against 60 digits); Theorem 2 of Borgnia et al. 2021. Without a reference: records "
        "drawn so seldom that float64 does not give the integral in a second.",
        first,
        f"Calibrated epsilons lie at most {-target:.3f}% below their targets, but for {flat} in which delta "
        "hardly falls with epsilon: there it is within 1% of the one asked at the target.",
        *(["Refusals:", second] if refusals else []),
        FOUND,
    ]
    common.save("price_search", "Random settings against exact prices", settings, counts, text)


def main() -> None:
    missing = {design.name for design in all_designs()} - set(SHARES)
    if missing:
        raise SystemExit(f"designs without a share of the settings: {missing}")
    if "tables" in sys.argv:
        tables()
    elif "again" in sys.argv:
        judged_again(kept())
    else:
        numbers = [float(one) for one in sys.argv[1:]]
        searched(int(numbers[0]) if numbers else SETTINGS, numbers[1] if len(numbers) > 1 else math.inf)


if __name__ == "__main__":
    main()
