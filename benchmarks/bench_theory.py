"""DPFMix's Figure 2 and NeuroMixGDP's Figure 11: the best mixup degree for linear regression, predicted and simulated.

Settings of Li et al. 2022, section 3.2 (Li et al. 2024, appendix J.1 has the same ones): X has rows N(0, S) with S_ij =
0.3^|i - j| and 100 columns, b ~ N(0, I) (here of norm 10, its expected one), unit residuals, T = 2 n^gamma, mu = 2, C_x
= 14, C_y = 36, and X and y centred. The papers take mu-GDP for granted; here a release meets (epsilon(mu), 1e-5), by
their formula and by the noise that it needs. NeuroMixGDP's plots state sizes only in the figure, so n and T of ours are
our own.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy.linalg import toeplitz

import common
from privmix.accounting import gdp_epsilon, published_noise_multiplier
from privmix.planning.theory import (
    LinearTask,
    best_mixup_degree,
    expected_error,
    honest_noise_multiplier,
    optimal_degree_order,
    published_optimal_degree,
)
from privmix.reports.pictures import COLOURS, new_figure, save_figure
from privmix.research.linear_regression import error_bound, simulate_linear_regression

MARKERS = "os^"
DIM, MU, DELTA = 100, 2.0, 1e-5
TASK = LinearTask(tuple(np.linalg.eigvalsh(toeplitz(0.3 ** np.arange(DIM)))), 10.0, 1.0, 14.0, 36.0)
# gamma -> log2 n; the product T d bounds what fits a few minutes.
FIGURE_2 = {1.0: range(10, 15), 1.25: range(10, 14), 1.5: range(9, 13)}
STEPS = 2.0 ** np.arange(-1.5, 1.51, 0.5)
FIGURE_11_SIZES, FIGURE_11_MUS, RUNS = (2048, 4096, 8192), (1.0, 2.0, 4.0), 20


def published(records: int, rows: int, degree: int, epsilon: float, delta: float) -> float:
    """The papers' noise: not private enough at these sizes, here to compare."""
    return published_noise_multiplier(degree / records, rows, epsilon, delta)


NOISES = {"papers' noise (no bound)": published, "noise by PLD": honest_noise_multiplier}


def simulated(records: int, rows: int, degree: int, multiplier: float, runs: int) -> list[float]:
    """Errors of ``runs`` releases; the same data and b at every degree, so that degrees compare."""
    return [
        simulate_linear_regression(TASK, records, rows, degree, multiplier, np.random.default_rng(seed)).l2
        for seed in range(runs)
    ]


def vertex(degrees: list[int], errors: list[float]) -> float:
    """Degree at the minimum of a parabola through log error over log degree, within the degrees tried."""
    x = np.log2(degrees)
    curve, slope, _ = np.polyfit(x, np.log(errors), 2)
    return float(2 ** np.clip(-slope / (2 * curve), x[0], x[-1])) if curve > 0 else float("nan")


def figure_2_point(gamma: float, exponent: int, noise: str) -> dict[str, Any]:
    """Predicted and simulated best degree at n = 2^exponent, T = 2 n^gamma."""
    n, target = 2**exponent, (gdp_epsilon(MU, DELTA), DELTA)
    rows = round(2 * n**gamma)
    choice = best_mixup_degree(n, rows, DIM, *target, task=TASK, noise=NOISES[noise])
    degrees = sorted({max(1, round(choice.mixup_degree * step)) for step in STEPS})
    runs = max(2, min(16, 2**17 // rows))
    errors = [float(np.mean(simulated(n, rows, m, NOISES[noise](n, rows, m, *target), runs))) for m in degrees]
    predictions = [expected_error(TASK, n, rows, m, NOISES[noise](n, rows, m, *target)).l2 for m in degrees]
    return {
        "gamma": gamma,
        "n": n,
        "T": rows,
        "noise": noise,
        "chosen": choice.mixup_degree,
        "predicted": round(vertex(degrees, predictions), 2),
        "equation_3": round(published_optimal_degree(n, rows, *target), 2),
        "order": round(optimal_degree_order(n, rows), 1),
        "simulated": round(vertex(degrees, errors), 2),
        "runs": runs,
        "degrees": degrees,
        "errors": [round(e, 4) for e in errors],
    }


def figure_11_curve(records: int, mu: float) -> dict[str, Any]:
    """Median simulated error, prediction and bound over m, at the noise that the release needs."""
    rows, target = 2 * records, (gdp_epsilon(mu, DELTA), DELTA)
    degrees = [2**k for k in range(records.bit_length() - 3)]
    noises = [honest_noise_multiplier(records, rows, m, *target) for m in degrees]
    pairs = list(zip(degrees, noises, strict=True))
    return {
        "n": records,
        "T": rows,
        "mu": mu,
        "epsilon": round(target[0], 2),
        "degrees": degrees,
        "simulated": [round(float(np.median(simulated(records, rows, m, s, RUNS))), 3) for m, s in pairs],
        "predicted": [round(expected_error(TASK, records, rows, m, s).l2, 3) for m, s in pairs],
        "bound": [round(error_bound(TASK, records, rows, m, s), 1) for m, s in pairs],
        "best": best_mixup_degree(records, rows, DIM, *target, task=TASK).mixup_degree,
    }


def draw_figure_2(points: list[dict[str, Any]], figure: Any) -> None:
    for axes, noise in zip(figure.subplots(1, 2, sharey=True), NOISES, strict=True):
        for colour, marker, gamma in zip(COLOURS, MARKERS, FIGURE_2, strict=False):
            mine = [p for p in points if p["gamma"] == gamma and p["noise"] == noise]
            sizes = [np.log2(p["n"]) for p in mine]
            theory = [p["equation_3"] if noise.startswith("papers") else p["predicted"] for p in mine]
            axes.plot(sizes, np.log2(theory), color=colour, label=f"γ = {gamma:g}: slope {slope(mine, theory):.2f}")
            axes.plot(sizes, np.log2([p["simulated"] for p in mine]), marker, color=colour, mfc="none")
        axes.set_xlabel("log2 n")
        axes.set_title(f"{noise}\nlines: theory, marks: simulated", fontsize=9)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        axes.label_outer()
    figure.axes[0].set_ylabel("log2 of the best mixup degree m*")


def slope(points: list[dict[str, Any]], values: list[float]) -> float:
    """Of log m* over log n."""
    return float(np.polyfit(np.log2([p["n"] for p in points]), np.log2(values), 1)[0])


def draw_figure_11(curves: list[dict[str, Any]], figure: Any) -> None:
    panels = figure.subplots(1, 2, sharey=True)
    for axes, name in zip(panels, ("n", "mu"), strict=True):
        mine = [c for c in curves if (c["mu"] == MU if name == "n" else c["n"] == FIGURE_11_SIZES[1])]
        for colour, marker, curve in zip(COLOURS, MARKERS, mine, strict=False):
            label = f"n = {curve['n']:,}" if name == "n" else f"μ = {curve['mu']:g} (ε = {curve['epsilon']:.1f})"
            axes.semilogx(curve["degrees"], curve["predicted"], color=colour, label=f"{label}, m* = {curve['best']}")
            axes.semilogx(curve["degrees"], curve["simulated"], marker, color=colour, mfc="none")
            axes.axvline(curve["best"], color=colour, linestyle=":", linewidth=1)
        fixed = f"μ = {MU:g}" if name == "n" else f"n = {FIGURE_11_SIZES[1]:,}"
        axes.set_title(f"{fixed}, T = 2n, noise by PLD\nlines: predicted, marks: median of {RUNS} runs", fontsize=9)
        axes.set_xlabel("mixup degree m")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        axes.label_outer()
    panels[0].set_ylabel("|| b~ - b ||, where || b || = 10")


def main() -> None:
    jobs = [(g, k, noise) for g, exponents in FIGURE_2.items() for k in exponents for noise in NOISES]
    settings = sorted({(n, MU) for n in FIGURE_11_SIZES} | {(FIGURE_11_SIZES[1], mu) for mu in FIGURE_11_MUS})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        points = list(pool.map(lambda job: figure_2_point(*job), jobs))
        curves = list(pool.map(lambda setting: figure_11_curve(*setting), settings))
    for name, draw, results in (("figure2", draw_figure_2, points), ("figure11", draw_figure_11, curves)):
        figure = new_figure(9, 4.2)
        draw(results, figure)
        save_figure(figure, common.RESULTS / f"theory_{name}.svg")
    common.save(
        "theory",
        "The best mixup degree for linear regression: Li et al. 2022, Figure 2 and Li et al. 2024, Figure 11",
        {"d": DIM, "delta": DELTA, "mu": MU, "epsilon": round(gdp_epsilon(MU, DELTA), 3), "C_x": 14, "C_y": 36},
        {"figure_2": points, "figure_11": curves},
        tables(points, curves),
    )


def tables(points: list[dict[str, Any]], curves: list[dict[str, Any]]) -> list[str]:
    """What the Markdown record shows."""
    names = ("gamma", "n", "T", "noise", "order", "equation_3", "chosen", "predicted", "simulated", "runs")
    slopes = []
    for gamma in FIGURE_2:
        for noise in NOISES:
            mine = [p for p in points if p["gamma"] == gamma and p["noise"] == noise]
            fitted = [f"{slope(mine, [p[key] for p in mine]):.3f}" for key in ("equation_3", "predicted", "simulated")]
            slopes.append((gamma, noise, f"{(2 - gamma) / 2:.3f}", *fitted))
    rows = [
        (c["n"], c["mu"], c["epsilon"], m, simulated, predicted, bound)
        for c in curves
        for m, simulated, predicted, bound in zip(c["degrees"], c["simulated"], c["predicted"], c["bound"], strict=True)
    ]
    best = [(c["n"], c["T"], c["mu"], c["epsilon"], c["best"], round(vertex_near_least(c), 1)) for c in curves]
    return [
        "## Best degree against n (Li et al. 2022, Figure 2)",
        "`order` is n / sqrt(T); `equation_3` the minimum of DPFMix's Eq. 3 under the papers' noise; `chosen` what "
        "`best_mixup_degree` returns under the noise of the row. `predicted` and `simulated` are read off alike: the "
        "vertex of a parabola through the logarithm of the expected, or mean simulated, error at degrees within a "
        "factor 2.8 of the choice.",
        common.table(names, [tuple(p[name] for name in names) for p in points]),
        "Slope of log m* against log n:",
        common.table(("gamma", "noise", "Corollary 3.2", "Equation 3", "predicted", "simulated"), slopes),
        "![best degree against n](theory_figure2.svg)",
        "The paper's figure (by its caption and text): log2 m* is linear in log2 n with slope (2 - gamma) / 2, and "
        "simulated degrees are close to those of Theorem 3.1. Ours shows the same, under the papers' noise and under "
        "the noise that a release needs. At the paper's C_x and d the error stays near the norm of b, which is 10.",
        "## Error against m (Li et al. 2024, Figure 11)",
        "The paper's figure (by Remark 3.3 and appendix J.1): the error is U-shaped in m, the theorem finds its "
        "minimum, and m* grows with mu. So does ours. The bound has the right shape and is some 30 to 130 times the "
        "error; the expected error has the right size too.",
        common.table(("n", "T", "mu", "epsilon", "m* predicted", "m* simulated"), best),
        common.table(("n", "mu", "epsilon", "m", "simulated (median)", "predicted", "Theorem 3.1's bound"), rows),
        "![error against m](theory_figure11.svg)",
    ]


def vertex_near_least(curve: dict[str, Any]) -> float:
    """Best degree by the simulated errors at the least one and its two neighbours each side."""
    least = int(np.argmin(curve["simulated"]))
    part = slice(max(0, least - 2), least + 3)
    return vertex(curve["degrees"][part], curve["simulated"][part])


if __name__ == "__main__":
    main()
