"""What a diffusion model does to rare points: a spiral learnt from 100, 250 and 2,500 of its points.

Park et al. (2024), Figure 1: a spiral whose radius is proportional to the angle, with fewer points the farther out, is
learnt by a small diffusion model, which draws 1,000 points. Their claim: the fewer points it learns from, the more
dense regions are overestimated and sparse ones underestimated. As they do, a support vector machine (Gaussian kernel,
C = 1000) that tells drawn from real points shows where; beside it stands a plain count of drawn points by radius, with
intervals over seeds. The network is theirs (layers of 64 units, Adam at 0.001, 10,000 steps), the model EDM with 20
noise levels. Where they leave the spiral and the batch open, they are: a turn and a half, the angle uniform, so that
the density along the curve falls as 1 / radius; noise of 0.02; batches of 250 at most. Runs are kept in
results/spiral_runs.json.

    python benchmarks/bench_spiral.py [--seeds 8]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.svm import SVC
from torch import Tensor, nn

import common
from privmix.research.synthesis.denoising import Denoiser, denoising_loss, own_noise, sample
from privmix.research.synthesis.edm import EdmConfig, SamplerConfig

RUNS = common.RESULTS / "spiral_runs.json"
SIZES = (100, 250, 2500)
DRAWN, STEPS, BATCH, LEVELS = 1000, 10_000, 250, 20
TURNS, THICKNESS = 1.5, 0.02
# Of the real points' radii: as many real ones in each fifth.
PARTS = 5


class PointNetwork(nn.Module):
    """Two blocks of linear layers for points in the plane (Park et al. 2024, appendix D.1)."""

    def __init__(self, dim: int = 2, width: int = 64) -> None:
        super().__init__()
        self.frequencies: Tensor
        self.register_buffer("frequencies", math.pi * 2.0 ** torch.arange(4))
        layers: list[nn.Module] = [nn.Linear(dim + 8, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, width), nn.SiLU(), nn.Linear(width, dim))

    def forward(self, x: Tensor, noise: Tensor, condition: Any = None) -> Tensor:
        """(b, dim) and (b,) -> (b, dim)."""
        angles = noise[:, None] * self.frequencies / 4
        found: Tensor = self.layers(torch.cat([x, angles.sin(), angles.cos()], dim=1))
        return found


def spiral(count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """(count, 2) points; the radius reaches 1."""
    part = rng.random(count)
    angle = 2 * math.pi * TURNS * part
    points = part[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    noisy: NDArray[np.float32] = (points + THICKNESS * rng.normal(size=points.shape)).astype(np.float32)
    return noisy


def learnt(points: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """(DRAWN, 2) points of a model of these."""
    torch.manual_seed(seed)
    process = EdmConfig(sigma_data=float(points.std()))
    denoiser, generator = Denoiser(PointNetwork(), process), torch.Generator().manual_seed(seed)
    optimiser, known = torch.optim.Adam(denoiser.parameters(), lr=1e-3), torch.from_numpy(points)
    for _ in range(STEPS):
        rows = torch.randint(len(known), (min(BATCH, len(known)),), generator=generator)
        loss = denoising_loss(denoiser, known[rows], None, process, generator)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        return sample(denoiser, own_noise(seed, range(DRAWN), (2,)), SamplerConfig(steps=LEVELS)).numpy()


def told_apart(drawn: NDArray[Any], real: NDArray[Any]) -> SVC:
    """Positive where drawn points are denser."""
    labels = np.r_[np.ones(len(drawn)), np.zeros(len(real))]
    return SVC(C=1000.0).fit(np.concatenate([drawn, real]), labels)


def measured(size: int, seed: int) -> dict[str, Any]:
    """One model."""
    rng = np.random.default_rng([seed, size])
    points, real, fresh = (spiral(count, rng) for count in (size, DRAWN, 20_000))
    begin = time.process_time()
    drawn = learnt(points, seed)
    seconds = time.process_time() - begin
    radius = np.linalg.norm(fresh, axis=1)
    edges = np.quantile(radius, np.linspace(0, 1, PARTS + 1)[1:-1])
    part, drawn_part = np.searchsorted(edges, radius), np.searchsorted(edges, np.linalg.norm(drawn, axis=1))
    over = told_apart(drawn, real).predict(fresh)
    near = np.sqrt(((drawn[:, None] - fresh[None, ::5]) ** 2).sum(2)).min(1)
    return {
        "drawn": [float((drawn_part == one).mean()) for one in range(PARTS)],
        "learnt": [
            float((np.searchsorted(edges, np.linalg.norm(points, axis=1)) == one).mean()) for one in range(PARTS)
        ],
        "overestimated": [float(over[part == one].mean()) for one in range(PARTS)],
        "off the spiral": float((near > 3 * THICKNESS).mean()),
        "cpu_seconds": seconds,
        **({"points": np.round(drawn, 3).tolist()} if seed == 0 else {}),
    }


def picture(runs: dict[str, Any]) -> None:
    """Drawn points of the first seed, on the machine's verdict."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(SIZES), figsize=(12, 4.2))
    x, y = np.meshgrid(np.linspace(-1.2, 1.2, 240), np.linspace(-1.2, 1.2, 240))
    for panel, size in zip(panels, SIZES, strict=True):
        drawn = np.array(runs[f"{size} 0"]["points"])
        rng = np.random.default_rng([0, size])
        points, real = spiral(size, rng), spiral(DRAWN, rng)
        verdict = told_apart(drawn, real).predict(np.stack([x.ravel(), y.ravel()], 1)).reshape(x.shape)
        panel.contourf(x, y, verdict, levels=[-0.5, 0.5, 1.5], colors=["#dbe9f6", "#fbe3d6"])
        panel.scatter(*drawn.T, s=2, color="#b04a1a", label="drawn")
        panel.scatter(*points[:250].T, s=5, color="#1f4e79", label="learnt from" + (" (250 of them)" * (size > 250)))
        panel.set(title=f"{size:,} points", xticks=[], yticks=[], xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
        panel.legend(loc="lower right", fontsize=7)
    figure.text(0.5, 0.02, "red: the machine takes points here for drawn ones; blue: for real ones", ha="center")
    figure.savefig(common.RESULTS / "spiral.png", dpi=80)


def interval(values: list[float]) -> str:
    """Mean of percentages with its 95% interval over seeds."""
    found = 100 * np.array(values)
    half = stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found)) if len(found) > 1 else 0
    return f"{found.mean():.1f} ± {half:.1f}"


def rows(runs: dict[str, Any], seeds: int, figure: str, beside: str | None = None) -> list[list[str]]:
    """A row a size, a column a fifth; of the differences from ``beside``, where there is one."""
    found = []
    for size in SIZES:
        values = np.array([runs[f"{size} {seed}"][figure] for seed in range(seeds)])
        if beside is not None:
            values = values - [runs[f"{size} {seed}"][beside] for seed in range(seeds)]
        found.append([f"{size:,}", *(interval(list(column)) for column in values.T)])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    common.RESULTS.mkdir(exist_ok=True)
    runs: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    for seed in range(seeds):
        for size in SIZES:
            if f"{size} {seed}" not in runs:
                runs[f"{size} {seed}"] = measured(size, seed)
                RUNS.write_text(json.dumps(runs) + "\n")
                print(size, seed, {name: value for name, value in runs[f"{size} {seed}"].items() if name != "points"})
    picture(runs)
    header = ["learnt from", "innermost fifth", "second", "third", "fourth", "outermost fifth"]
    spread = [
        [f"{size:,}", interval([runs[f"{size} {seed}"]["off the spiral"] for seed in range(seeds)])] for size in SIZES
    ]
    common.save(
        "spiral",
        "A spiral learnt from few points",
        {"seeds": seeds, "drawn": DRAWN, "steps": STEPS, "noise levels": LEVELS, "intervals": "95%, Student's t"},
        {key: {name: value for name, value in run.items() if name != "points"} for key, run in runs.items()},
        [
            "Share of drawn points by radius (%; of real points each fifth has 20):",
            common.table(header, rows(runs, seeds, "drawn")),
            "The same, less the share of the points that it was learnt from (what chance put there):",
            common.table(header, rows(runs, seeds, "drawn", "learnt")),
            "Real points that the support vector machine takes for drawn ones (%; 50 where it can't tell):",
            common.table(header, rows(runs, seeds, "overestimated")),
            "Drawn points more than three standard deviations off the spiral (%):",
            common.table(["learnt from", "share"], spread),
            "![drawn points](spiral.png)",
        ],
    )


if __name__ == "__main__":
    main()
