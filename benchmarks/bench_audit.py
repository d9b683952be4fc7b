"""Worst-case audits: claimed, published and proven epsilon of every design and of DP-SGD, and what a minute proves.

Finished cells are kept in results/audit_runs.json and not repeated. Arguments: ``tables`` only writes what is there;
the name of a cell runs that one alone.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import common
from privmix.audits.audit import MOST_RUNS, Stopping, audit_plan
from privmix.audits.worst_case import attack, worst_case_of
from privmix.errors import InvalidInput
from privmix.jobs.audit import published_plan
from privmix.planning import ReleaseConfig
from privmix.reports.pictures import COLOURS, new_figure, save_figure
from privmix.training.plan import plan_training
from privmix.training.worst_case import audit_training

RUNS = common.RESULTS / "audit_runs.json"
DELTA, CONFIDENCE = 1e-5, 0.95
SPEED_RUNS, SPEED_ROWS = 10_000, 1_000


@dataclass(frozen=True)
class Cell:
    """One design under one claim."""

    design: str
    choices: dict[str, Any]
    epsilon: float
    published: bool
    runs: int
    records: int = 60_000
    classes: int = 10
    seconds: float | None = None

    @property
    def name(self) -> str:
        minute = "" if self.seconds is None else f"-{self.seconds:g}s"
        return f"{self.design}-eps{self.epsilon:g}-{'published' if self.published else 'honest'}{minute}"

    @property
    def config(self) -> ReleaseConfig:
        names = tuple(str(number) for number in range(self.classes))
        return ReleaseConfig(
            self.records, 1, names, centre="none", **common.degree_64(self.choices["design"]), **self.choices
        )


# Designs, and runs: fewer where one engine run is one trial, or where rows hold many companions.
DESIGNS: list[tuple[str, dict[str, Any], int]] = [
    ("poisson", {"design": "poisson"}, 10_000),
    ("hierarchical", {"design": "hierarchical"}, 10_000),
    ("classwise", {"design": "classwise"}, 10_000),
    ("full-batch", {"design": "classwise", "full_batch": True}, 10_000),
    ("fixed", {"design": "fixed"}, 5000),
    ("laplace", {"design": "fixed", "noise": "laplace"}, 5000),
    ("random-weight", {"design": "random-weight"}, 600),
    ("moments", {"design": "moments"}, 10_000),
    ("two-stage", {"design": "two-stage"}, 10_000),
    ("three-stage", {"design": "three-stage"}, 10_000),
    ("merf", {"design": "merf"}, 10_000),
    ("hermite", {"design": "hermite"}, 10_000),
    ("gaussian-mixing", {"design": "gaussian-mixing"}, 10_000),
]
DP_SGD = "DP-SGD"
MINUTES: list[tuple[str, dict[str, Any]]] = [
    ("moments", {"design": "moments"}),
    ("full-batch", {"design": "classwise", "full_batch": True}),
    (DP_SGD, {}),
]
HEADLINE = {"design": "hierarchical", "expected_classes": 3.0}


def cells() -> list[Cell]:
    found = [Cell("hierarchical-100", HEADLINE, 1.0, published, 10_000, 50_000, 100) for published in (True, False)]
    for epsilon in (1.0, 8.0):
        for design, choices, runs in DESIGNS:
            # The others have no formula of the papers', or one that equals the price.
            kinds = (True, False) if design in ("poisson", "hierarchical", "classwise", "fixed") else (False,)
            found += [Cell(design, choices, epsilon, published, runs) for published in kinds]
        found.append(Cell(DP_SGD, {}, epsilon, False, 10_000))
        # As many runs as a minute allows, where runs are cheap.
        found += [Cell(name, choices, epsilon, False, MOST_RUNS, seconds=60) for name, choices in MINUTES]
    return found


def run(cell: Cell) -> dict[str, Any]:
    start = time.perf_counter()
    stopping = Stopping(cell.seconds)
    if cell.design == DP_SGD:
        plan: Any = plan_training(
            cell.records, epsilon=cell.epsilon, delta=DELTA, batch_size=8192, epochs=60, clip_norm=0.1
        )
        ready = time.perf_counter()
        audit = audit_training(plan, cell.epsilon, runs=cell.runs, confidence=CONFIDENCE, stopping=stopping)
    else:
        release = published_plan(cell.config, cell.epsilon, DELTA) if cell.published else None
        plan = release or cell.config.calibrate(cell.epsilon, DELTA)
        ready = time.perf_counter()
        how: dict[str, Any] = {"runs": cell.runs, "confidence": CONFIDENCE, "stopping": stopping}
        audit = audit_plan(plan, cell.epsilon, DELTA, own_price=not cell.published, **how)
    found = audit.to_dict()
    facts = {"name": cell.name, "noise_multiplier": plan.noise_multiplier, "published": cell.published}
    times = {"planning_seconds": ready - start, "seconds": time.perf_counter() - ready}
    return {**facts, **{key: value for key, value in found.items() if key != "points"}, **times}


def speed() -> dict[str, Any]:
    """Ten thousand runs of T = 1,000 rows: the slowest common case, centred (one trial a run), and the usual one."""
    found: dict[str, Any] = {"name": "speed"}
    for centre in ("none", "private"):
        config = ReleaseConfig(60_000, 784, tuple("0123456789"), mixup_degree=64, rows=SPEED_ROWS, centre=centre)
        case = worst_case_of(config.with_noise(1.2))
        start = time.perf_counter()
        attack(case, SPEED_RUNS)
        found[f"centre_{centre}_seconds"] = time.perf_counter() - start
    return found


def write(kept: dict[str, dict[str, Any]]) -> None:
    rows = [_row(cell, kept[cell.name]) for cell in cells() if cell.name in kept]
    header = ["design", "noise from", "claimed", "published formula", "PLD", "proven", "refuted", "runs", "time"]
    tables = [common.table(header, rows)]
    if found := kept.get("speed"):
        tables.append(
            common.table(
                ["10,000 worst-case runs at T = 1,000", "time"],
                [
                    [name, f"{found[key]:.1f} s"]
                    for name, key in (
                        ("poisson", "centre_none_seconds"),
                        ("poisson, privately centred", "centre_private_seconds"),
                    )
                ],
            )
        )
    settings = {
        "delta": DELTA,
        "confidence": CONFIDENCE,
        "MNIST's constants": "n = T = 60,000, K = 10, m = 64, no centring; hierarchical-100: n = T = 50,000, K = 100; "
        "3 expected classes",
        "published formula": "the papers' epsilon for the noise that ran: no bound",
        "proven": "Clopper-Pearson, valid for every mechanism; half of the runs hold the canary, a third choose the "
        "threshold",
        "a minute": "bounds that hold at any stop; cells of 60 s ran as long as that, with as many runs as fit",
        "DP-SGD": "n = 60,000, batches of 8,192, 60 epochs, C = 0.1",
        "time": "seconds, on two cores shared with other work, or on sixteen where twelve cells ran side by side; ten "
        "thousand runs of 1,000 rows were timed alone",
    }
    common.save("audit", "Worst-case audits of every design", settings, kept, tables)
    draw([(cell, kept[cell.name]) for cell in cells() if cell.name in kept])


def _row(cell: Cell, found: dict[str, Any]) -> list[str]:
    def text(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}"

    return [
        cell.design,
        "the papers" if cell.published else "PLD",
        text(cell.epsilon),
        text(found["published_epsilon"]),
        text(found["priced_epsilon"]),
        text(found["proven_epsilon"]),
        "**yes**" if found["violated"] else "no",
        f"{found['runs']:,}",
        f"{found['seconds']:.0f}",
    ]


def draw(found: list[tuple[Cell, dict[str, Any]]]) -> None:
    """One panel a claim: for each design what PLD, the papers' formula and the attack say of what ran."""
    figure = new_figure(10.0, 0.5 * len(found) / 2 + 2.2)
    panels = figure.subplots(1, 2)
    marks = [
        ("upper bound, by PLD", "priced_epsilon", "|", COLOURS[0]),
        ("papers' formula, no bound", "published_epsilon", "x", COLOURS[1]),
        ("attack, proven", "proven_epsilon", "D", COLOURS[2]),
    ]
    for axes, epsilon in zip(panels, (1.0, 8.0), strict=True):
        shown = [(cell, item) for cell, item in found if cell.epsilon == epsilon and cell.seconds is None]
        for label, key, marker, colour in marks:
            points = [(item[key], place) for place, (_, item) in enumerate(shown) if item[key] is not None]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    linestyle="none",
                    marker=marker,
                    color=colour,
                    # A tall bar stays in sight behind other marks.
                    markersize=15 if marker == "|" else 7,
                    markeredgewidth=2.4 if marker == "|" else 2,
                    label=label,
                )
        axes.axvline(epsilon, color=COLOURS[6], linewidth=1, linestyle=":", label="claimed")
        axes.set_yticks(range(len(shown)))
        axes.set_yticklabels([f"{cell.design}{', as published' if cell.published else ''}" for cell, _ in shown])
        axes.invert_yaxis()
        # Up to the claim by numbers, beyond it by powers of two.
        axes.set_xscale("symlog", base=2, linthresh=epsilon, linscale=3)
        ticks = [epsilon * share for share in (0, 0.25, 0.5, 0.75, 1, 4, 16)]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlim(-0.06 * epsilon, 20 * epsilon)
        axes.set_xlabel("epsilon")
        axes.set_title(f"claimed epsilon {epsilon:g}", fontsize=10)
        axes.grid(True, axis="x", alpha=0.3)
    handles, labels = panels[0].get_legend_handles_labels()
    # Above the panels: whoever opens the picture sees first what the marks are.
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=9, columnspacing=1.2)
    save_figure(figure, common.RESULTS / "audit.svg")
    if "png" in sys.argv:
        save_figure(figure, common.RESULTS / "audit.png")


def main() -> None:
    kept: dict[str, dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    wanted = [cell for cell in cells() if cell.name in sys.argv] or ([] if "speed" in sys.argv else cells())
    if not {"tables", "png"} & set(sys.argv):
        for cell in wanted:
            if cell.name not in kept:
                try:
                    kept[cell.name] = run(cell)
                except InvalidInput as error:
                    print(f"{cell.name}: {error}", flush=True)
                    continue
                print(cell.name, {key: kept[cell.name][key] for key in ("proven_epsilon", "seconds")}, flush=True)
                RUNS.write_text(json.dumps(kept, indent=1) + "\n")
        if "speed" not in kept and ("speed" in sys.argv or len(wanted) == len(cells())):
            kept["speed"] = speed()
            RUNS.write_text(json.dumps(kept, indent=1) + "\n")
    write(kept)


if __name__ == "__main__":
    main()
