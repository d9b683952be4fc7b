"""What guarantees say of poisoning, by formula alone: DP-InstaHide's Figure 1a, and the certified line.

Figure 1a of Borgnia et al. 2021 draws epsilon = T max(A, B) (Theorem 2) over the mixture width k, for n = T = 50,000
(CIFAR-10) and five noise levels, with the data's l1 diameter taken to be 1. Pixels in [0, 1] of 32 x 32 x 3 images lie
up to 3,072 apart: the same formula at that diameter stands beside it, and neither pays for the labels.

The second figure bounds the success of an attack that succeeds 1% of the time without poison, over the number of
changed records: from the stated (epsilon, delta) alone (Ma et al. 2019), from the best point of the release's curve,
and from the curve composed once a step (Dong, Roth, Su 2021).

The paper finds that theory predicts success surprisingly well (Figure 1a against 1b). Its epsilon stands next to the
success of gradient matching against mixup with noise, in trials of bench_poisoning.py, with their rank correlation.

    python benchmarks/bench_poisoning_theory.py
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import common
import poisoning_pictures as pictures
from privmix.accounting import Adjacency, FixedSizeSampled, Laplace, NeighbourCurve, Repeated, epsilon
from privmix.accounting.pure import published_instahide_epsilon
from privmix.designs import Fixed, Moments, Poisson
from privmix.planning import ReleaseConfig
from privmix.reports.pictures import COLOURS, new_figure, save_figure
from privmix.rounding import rounded_up

RECORDS, WIDTHS, LEVELS, PIXELS = 50_000, (1, 2, 4, 8, 16), (2, 4, 8, 16, 32), 3072
DELTA, BASE, CHANGED = 1e-5, 0.01, (1, 2, 5, 10, 20, 50, 100)
DESIGNS: dict[str, tuple[Any, float]] = {
    "Poisson mixup, m = 64": (Poisson(mixup_degree=64), DELTA),
    "second moments": (Moments(), DELTA),
    "DP-InstaHide, k = 4, pure": (Fixed(mixup_degree=4, noise="laplace"), 0.0),
}


def honest(width: int, level: int, diameter: float) -> float:
    """Theorem 2 at a diameter; the accountant doubles a record's bound, which is half of it."""
    noise = Laplace(2 * width * level / 255 / diameter)
    event = Repeated(FixedSizeSampled(RECORDS, width, noise), RECORDS)
    return epsilon(event, 0.0, accountant="pure", adjacency=Adjacency.REPLACE_ONE).epsilon


def figure_1a() -> list[dict[str, Any]]:
    return [
        {
            "level": level,
            "width": width,
            "published": published_instahide_epsilon(RECORDS, width, level / 255, RECORDS),
            "diameter_1": honest(width, level, 1.0),
            "diameter_3072": honest(width, level, float(PIXELS)),
        }
        for level in LEVELS
        for width in WIDTHS
    ]


def linear_bound() -> str:
    """What the paper reads off Theorem 2, k times stronger for k records, against the theorem itself."""
    width, scale = 4, 16 / 255
    exact, linear = published_instahide_epsilon(RECORDS, width, scale, RECORDS), RECORDS / (width * scale)
    return (
        "Epsilon is at most T D / (k sigma), at every sampling rate: a record that is in every row costs as much. "
        f"At k = {width}, noise 16/255 and D = 1 that is {rounded_up(linear, 6)} against {rounded_up(exact, 4)}, "
        f"{linear / exact:.0f} times as much: it bounds without telling anything."
    )


def lines() -> list[dict[str, Any]]:
    found = []
    for name, (design, delta) in DESIGNS.items():
        config = ReleaseConfig(
            records=RECORDS, dim=1, classes=tuple("0123456789"), design=design, rows=None, centre="none"
        )
        for target in (1.0, 8.0):
            plan = config.calibrate(target, delta)
            curve = NeighbourCurve.of_event(plan.event, plan.adjacency)
            point = NeighbourCurve.of_point(target, delta, plan.adjacency)
            for changed in CHANGED:
                row = {"design": name, "epsilon": target, "delta": delta, "adjacency": plan.adjacency.value}
                bounds = {
                    "by_guarantee": point.success(BASE, changed),
                    "by_points": curve.success_by_points(BASE, changed),
                    "by_curve": curve.success(BASE, changed),
                }
                found.append({**row, "changed": changed, **bounds})
    return found


def predicted() -> tuple[list[dict[str, Any]], list[str]]:
    """Figure 1a's epsilon next to the measured success at each (k, s), and how well one orders the other."""
    runs = json.loads((common.RESULTS / "poisoning_runs.json").read_text())
    rng, found, words = np.random.default_rng(0), [], []
    for name, key in (("adaptive", pictures.FIGURE_1B), ("not adaptive", pictures.FIGURE_A4)):
        points = pictures.points(runs, key)
        mine = []
        for level in LEVELS:
            for width in pictures.WAYS:
                if (result := points.get(pictures.mixed(width, level))) is not None:
                    price = published_instahide_epsilon(RECORDS, width, level / 255, RECORDS)
                    facts = {"attacker": name, "width": width, "level": level, "published": price}
                    counts = {one: result[one] for one in ("successes", "trials", "interval", "accuracy")}
                    mine.append((facts | counts, np.array([one["success"] for one in result["outcomes"]], float)))
        prices = [one["published"] for one, _ in mine]

        def agreement(means: list[float], prices: list[float] = prices) -> float:
            return float(spearmanr(prices, means).statistic) if len(set(means)) > 1 else 0.0

        here = agreement([float(trials.mean()) for _, trials in mine])
        again = [agreement([float(rng.choice(trials, len(trials)).mean()) for _, trials in mine]) for _ in range(2000)]
        low, high = np.quantile(again, (0.025, 0.975))
        found += [{**one, "rank_correlation": here, "interval_95": [low, high]} for one, _ in mine]
        words.append(f"{name}: {here:+.2f} (95% interval {low:+.2f} to {high:+.2f}, {len(mine)} points)")
    return found, words


def draw_1a(points: list[dict[str, Any]], figure: Any) -> None:
    axes = figure.subplots()
    for colour, level in zip(COLOURS, LEVELS, strict=False):
        mine = [one for one in points if one["level"] == level]
        widths = [one["width"] for one in mine]
        axes.loglog(widths, [one["published"] for one in mine], "--", color=colour)
        axes.loglog(widths, [one["diameter_3072"] for one in mine], color=colour, label=f"noise {level}/255")
    axes.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
    axes.set_xlabel("mixture width k")
    axes.set_ylabel("ε, pure")
    axes.set_title(
        "DP-InstaHide, n = T = 50,000\ndashed: as published, l1 diameter 1; lines: pixels in [0, 1], diameter 3,072",
        fontsize=9,
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def draw_lines(found: list[dict[str, Any]], figure: Any) -> None:
    for axes, target in zip(figure.subplots(1, 2, sharey=True), (1.0, 8.0), strict=True):
        for colour, name in zip(COLOURS, DESIGNS, strict=False):
            mine = [one for one in found if one["design"] == name and one["epsilon"] == target]
            changed = [one["changed"] for one in mine]
            axes.semilogx(changed, [one["by_guarantee"] for one in mine], ":", color=colour)
            axes.semilogx(changed, [one["by_curve"] for one in mine], color=colour, label=name)
        axes.axhline(BASE, color="grey", linewidth=1)
        axes.set_xlabel("records changed")
        axes.set_title(f"ε = {target:g}\ndotted: from ε and δ alone; lines: whole curve", fontsize=9)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("success at most")
    figure.axes[0].legend(fontsize=8, loc="lower right")


def main() -> None:
    points, found = figure_1a(), lines()
    for name, draw, data in (("figure1a", draw_1a, points), ("lines", draw_lines, found)):
        figure = new_figure(8, 4)
        draw(data, figure)
        save_figure(figure, common.RESULTS / f"poisoning_theory_{name}.svg")
    header = ["noise", *(f"k = {width}" for width in WIDTHS)]
    by_level = {level: [one for one in points if one["level"] == level] for level in LEVELS}
    tables = [
        "## DP-InstaHide, Figure 1a: pure epsilon, n = T = 50,000\n\n"
        "![Pure epsilon against noise](poisoning_theory_figure1a.svg)"
    ]
    for key, title in (
        ("published", "As published (l1 diameter 1): no bound for images"),
        ("diameter_3072", "Pixels in [0, 1], l1 diameter 3,072"),
    ):
        rows = [[f"{level}/255", *(rounded_up(one[key], 3) for one in mine)] for level, mine in by_level.items()]
        tables += [f"### {title}", common.table(header, rows)]
    tables.append(linear_bound())
    tables.append(
        "## Success at most, 1% without poison, records changed\n\n"
        "![Success against changed records](poisoning_theory_lines.svg)"
    )
    rows = [
        [
            one["design"],
            f"{one['epsilon']:g}",
            one["adjacency"],
            one["changed"],
            *(f"{rounded_up(100 * one[key], 3)}%" for key in ("by_guarantee", "by_points", "by_curve")),
        ]
        for one in found
        if one["changed"] in (1, 2, 5, 10, 100)
    ]
    titles = ["release", "eps", "adjacency", "changed", "from eps and delta", "best point of the curve", "whole curve"]
    tables.append(common.table(titles, rows))
    measured, words = predicted()
    cells = [
        [
            one["attacker"],
            one["width"],
            f"{one['level']}/255",
            rounded_up(one["published"], 3),
            f"{one['successes']} of {one['trials']}",
            f"{100 * one['interval'][0]:.0f} to {100 * one['interval'][1]:.0f}%",
            f"{100 * one['accuracy']:.1f}%",
        ]
        for one in sorted(measured, key=lambda one: (one["attacker"], one["published"]))
    ]
    titles = ["attacker", "k", "s", "epsilon, Figure 1a", "success", "95% interval", "accuracy"]
    tables.append(
        "## Figure 1a against Figure 1b: does epsilon order the attack's success?\n\n"
        "Gradient matching on 2,000 images of CIFAR-10 ([trials](poisoning.md)); epsilon as Figure 1a has it, n = T = "
        "50,000, diameter 1. Spearman's rank correlation of epsilon and success; +1 is what the paper's sentence asks "
        f"for. {'; '.join(words)}. Trials of each point are drawn again for the interval. As a bound on success, each "
        "of these epsilons allows 100%.\n\n" + common.table(titles, cells)
    )
    assert all(math.isclose(one["published"], one["diameter_1"]) for one in points)
    settings = {
        "records": RECORDS,
        "rows": f"{RECORDS} (moments: one statistic)",
        "delta": f"{DELTA}; DP-InstaHide 0",
        "base rate": f"{BASE}, taken as known",
        "accounting": "PLD; DP-InstaHide's noise meets its epsilon by Theorem 2 at the true diameter",
    }
    common.save(
        "poisoning_theory",
        "What guarantees say of poisoning",
        settings,
        {"figure_1a": points, "lines": found, "predicted": measured},
        tables,
    )


if __name__ == "__main__":
    main()
