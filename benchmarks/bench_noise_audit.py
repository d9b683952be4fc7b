"""Audits of the noise itself: which faults they catch, beside worst-case audits, and how long they take."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from privmix.accounting.pricing import count_noise
from privmix.attacks.noise_scale import AS_CERTIFIED, DEFAULT_SAMPLES, FALSE_ALARM, audit_noise, measure, power
from privmix.audits.audit import audit_plan
from privmix.audits.empty_runs import PureNoise, release_noises
from privmix.engine import rows as engine
from privmix.planning import ReleaseConfig
from privmix.plans import Plan
from privmix.training.linear_steps import training_noise
from privmix.training.plan import TrainingPlan

FACTORS = (0.95, 0.98, 0.99)
TRIALS = 20
BASE: dict[str, Any] = {
    "records": 60_000,
    "dim": 3969,
    "classes": tuple("0123456789"),
    "rows": 60_000,
}
DESIGNS: dict[str, dict[str, Any]] = {
    "poisson": {},
    "hierarchical": {"design": "hierarchical"},
    "classwise": {"design": "classwise"},
    "fixed": {"design": "fixed"},
    "laplace": {"design": "fixed", "noise": "laplace", "centre": "none"},
    "random-weight": {"design": "random-weight", "max_weight": 0.5},
    "moments": {"design": "moments"},
    "poisson, private count": {"records_noise_multiplier": count_noise(1.0, 1e-5)},
}
TRAINING = TrainingPlan(60_000, 8192, 220, 4.0, clip_norm=0.1, delta=1e-5)
# Claims that a worst-case audit attacks, and shares of the noise that it is given.
CLAIMS = [(1.0, 1e-5), (8.0, 1e-5)]
SHARES = (0.95, 0.9, 0.8, 0.7, 0.5)
RUNS = 10_000


def plan_of(name: str) -> Plan:
    return ReleaseConfig(
        **BASE, **common.degree_64(DESIGNS[name].get("design", "poisson")), **DESIGNS[name]
    ).with_noise(3.0)


def kinds() -> list[tuple[str, PureNoise]]:
    """One of each kind of noise, by the design that it is of."""
    found: dict[str, tuple[str, PureNoise]] = {}
    for name in ("poisson", "laplace", "moments", "poisson, private count"):
        for noise in release_noises(plan_of(name), DEFAULT_SAMPLES, seed=0):
            found.setdefault(f"{noise.name} ({noise.law})", (name, noise))
    noise = training_noise(TRAINING, DEFAULT_SAMPLES, seed=0)
    return [*found.values(), ("dp-sgd", noise)]


def caught(noise: PureNoise, factor: float) -> int:
    """How many of TRIALS audits find fault with simulated noise of ``factor`` times the scale."""
    rng = np.random.default_rng(0)
    right = noise.expected / noise.certified
    hits = 0
    for _ in range(TRIALS):
        shape = noise.values.shape
        drawn = rng.laplace(size=shape) / 2**0.5 if noise.law == "laplace" else rng.normal(size=shape)
        values = drawn * (factor * right * noise.certified)
        if noise.step > 0:
            values = np.rint(values / noise.step) * noise.step
        hits += measure(replace(noise, values=values, beside=None), 0.95).verdict != AS_CERTIFIED
    return hits


def noises() -> list[dict[str, Any]]:
    found = []
    for design, noise in kinds():
        here = measure(noise, 0.95)
        cell = {
            "noise": f"{noise.name} ({noise.law})",
            "design": design,
            "draws": here.samples,
            "measured": here.measured / here.certified,
            "half_width": (here.high - here.low) / 2 / here.certified,
            "verdict": here.verdict,
            "power": {str(factor): power(here.samples, factor, noise.law) for factor in FACTORS},
            "caught": {str(factor): caught(noise, factor) for factor in (*FACTORS, 1.0)},
        }
        print(cell, flush=True)
        found.append(cell)
    return found


def times() -> dict[str, float]:
    found = {}
    for name in [*DESIGNS, "dp-sgd"]:
        plan = TRAINING if name == "dp-sgd" else plan_of(name)
        start = time.process_time()
        audit_noise(plan, seed=1)
        found[name] = time.process_time() - start
        print(name, found[name], flush=True)
    return found


def attacks() -> list[dict[str, Any]]:
    """Worst-case audits of rows with too little noise, of features and labels."""
    honest = engine.gaussian_on_lattice
    found = []
    for epsilon, delta in CLAIMS:
        config = ReleaseConfig(records=1000, dim=9, classes=("a", "b", "c"), mixup_degree=16, rows=50, centre="none")
        plan = config.calibrate(epsilon, delta)
        for share in SHARES:

            def weaker(
                generator: np.random.Generator, shape: Any, scale: float, share: float = share
            ) -> NDArray[np.float64]:
                return honest(generator, shape, share * scale)

            engine.gaussian_on_lattice = weaker  # type: ignore[attr-defined]
            try:
                violated = audit_plan(plan, epsilon, delta, runs=RUNS, seed=0, workers=1).violated
                measured = audit_noise(plan, seed=0).violated
            finally:
                engine.gaussian_on_lattice = honest  # type: ignore[attr-defined]
            found.append({"epsilon": epsilon, "share": share, "worst_case": violated, "noise": measured})
            print(found[-1], flush=True)
    return found


def main() -> None:
    results = {"noises": noises(), "seconds": times(), "attacks": attacks()}

    def chance(cell: dict[str, Any], factor: float) -> str:
        return f"{100 * cell['power'][str(factor)]:.4g}% ({cell['caught'][str(factor)]}/{TRIALS})"

    rows = [
        [
            cell["noise"],
            cell["draws"],
            f"{cell['measured']:.4f}",
            f"± {100 * cell['half_width']:.2f}%",
            *(
                f"{100 * cell['power'][str(factor)]:.4g}% ({cell['caught'][str(factor)]}/{TRIALS})"
                for factor in FACTORS
            ),
            f"{cell['caught']['1.0']}/{TRIALS}",
        ]
        for cell in results["noises"]
    ]
    header = [
        "noise",
        "draws",
        "measured",
        "95% interval",
        *(f"x {factor} caught" for factor in FACTORS),
        "right noise",
    ]
    timed = [[name, f"{seconds:.1f} s"] for name, seconds in results["seconds"].items()]
    told = {True: "caught", False: "missed"}
    attacked = [
        [f"{cell['epsilon']:g}", f"x {cell['share']}", told[cell["worst_case"]], told[cell["noise"]]]
        for cell in results["attacks"]
    ]
    settings = {
        "draws": f"{DEFAULT_SAMPLES} of each noise, a quarter of a record count",
        "false alarm": f"{FALSE_ALARM:g} an audit",
        "caught": f"chance by the chi-squared law, and of {TRIALS} simulated audits",
        "worst case": f"{RUNS} runs at 95% confidence, poisson, n = 1,000, m = 16, 50 rows, delta 1e-5",
        "time": "seconds of processor time, one core",
    }
    tables = [
        common.table(header, rows),
        common.table(["plan", "time of an audit of the noise"], timed),
        common.table(["claimed ε", "noise", "worst-case audit", "audit of the noise"], attacked),
    ]
    common.save("noise_audit", "Audits of the noise itself", settings, results, tables)


if __name__ == "__main__":
    main()
