"""Data that grow: MNIST in 12 months, released month by month for one budget.

Three ways to hand out second moments of scattering features so far, each month, for one (epsilon, delta): a series
(design `moments-series`; learnt from by its newest release, or by all so far), a release of each month's own records at
the whole budget, added up (each record is in one of them: fresh noise each month), and one release of all records,
which comes when the last month is over. Months are the records in the order of their file, 5,000 each. The mean that
the first two are centred by is the first month's. All are learnt from by the design's learner; no setting was chosen by
the test images. Runs are kept in results/series_runs.json, so that a broken-off benchmark goes on where it stopped.

    python benchmarks/bench_series.py [--seeds 5] [--most 1] [--ways "series, all releases"] [--epsilons 1]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any, Final

import matplotlib
import numpy as np
from numpy.typing import NDArray

import common
from bench_designs import data as stored_features
from privmix.designs import Moments, MomentsSeries
from privmix.designs.moments import engine as moments_engine
from privmix.designs.moments.engine import MomentsEngine
from privmix.designs.series.engine import Before, SeriesEngine
from privmix.designs.series.released import together
from privmix.engine import PrivateRecords
from privmix.learning import DiscriminantClassifier
from privmix.mechanisms.factorisation import SquareRoot
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.publication import ReleasedDataset
from privmix.publication.second_moments import SecondMoments

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RUNS: Final = common.RESULTS / "series_runs.json"
DELTA: Final = 1e-5
MONTHS: Final = 12
EPSILONS: Final = (1.0, 8.0)
# Fits take longer than all else: fresh noise is compared at these.
COMPARED: Final = (1, 2, 3, 6, 9, 12)
SERIES, TOGETHER = "series, newest release", "series, all releases"
FRESH, SINGLE = "fresh noise each month", "one release of all"
CLASSES: Final = tuple("0123456789")


def without_rows(moments: SecondMoments, *_: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """In place of rows sampled from moments, which the learner does not read."""
    return np.zeros((1, moments.dim), np.float32), np.eye(10, dtype=np.float32)[:1]


moments_engine.sample_rows = without_rows


def config(design: Any, records: int, dim: int) -> ReleaseConfig:
    return ReleaseConfig(records=records, dim=dim, classes=CLASSES, design=design, rows=1)


def accuracy(plan: Any, engine: MomentsEngine, moments: SecondMoments, test: tuple[Any, Any]) -> float:
    release = ReleasedDataset(
        x=np.zeros((1, plan.dim), np.float32),
        y=np.zeros((1, 10), np.float32),
        design="moments",
        mixup_degree=1,
        noise_std_x=0.0,
        noise_std_y=0.0,
        label_offset=plan.label_offset,
        classes=CLASSES,
        transform=engine.transform,
        extractor={"name": "scattering"},
        input_shape=(28, 28),
        release_id="benchmark",
        beside=moments,
    )
    model = DiscriminantClassifier().fit(release)
    x, y = test
    return float((model.predict(x) == y).mean())


def ran(engine: MomentsEngine) -> MomentsEngine:
    for _ in engine.rows():
        pass
    return engine


def steps(x: Any, y: Any, epsilon: float, seed: int) -> Iterator[tuple[Any, SeriesEngine]]:
    """Plan and engine of each month, once it ran."""
    size, before = len(x) // MONTHS, None
    plan: Any = config(MomentsSeries(steps=MONTHS), size, x.shape[1]).calibrate(epsilon, DELTA)
    for month in range(1, MONTHS + 1):
        own = slice((month - 1) * size, month * size)
        engine = SeriesEngine(plan, PrivateRecords(x[own], y[own]), SecretStreams.from_seed(seed), workers=1)
        if before is not None:
            engine.goes_on(before)
        ran(engine)
        yield plan, engine
        before = Before(engine.beside, engine.transform.centre)
        plan = plan if plan.is_last else plan.after(size)


def series(x: Any, y: Any, test: Any, epsilon: float, seed: int) -> dict[int, float]:
    return {plan.step: accuracy(plan, engine, engine.beside, test) for plan, engine in steps(x, y, epsilon, seed)}


def all_together(x: Any, y: Any, test: Any, epsilon: float, seed: int) -> dict[int, float]:
    """The same releases as those of the series: each month all so far are weighed."""
    made: list[SecondMoments] = []
    found = {}
    for plan, engine in steps(x, y, epsilon, seed):
        made.append(engine.beside)
        if plan.step in COMPARED[1:]:
            weighed = together(plan, lambda: made)
            print(plan.step, "noise variance of the newest's:", weighed.noise.round(3), flush=True)
            found[plan.step] = accuracy(plan, engine, weighed.moments, test)
    return found


def fresh(x: Any, y: Any, test: Any, epsilon: float, seed: int) -> dict[int, float]:
    """Each month's own release, at the whole budget; the centre is the first month's, as in the series."""
    size, found = len(x) // MONTHS, {}
    plan: Any = config(Moments(), size, x.shape[1]).calibrate(epsilon, DELTA)
    first: Any = None
    total: list[NDArray[np.float64]] = []
    for month in range(1, MONTHS + 1):
        own = slice((month - 1) * size, month * size)
        engine = Recentred(
            plan, PrivateRecords(x[own], y[own]), SecretStreams.from_seed(seed + 1000 * month), workers=1
        )
        engine.of_first = first
        one = ran(engine).beside
        first = engine.transform.centre
        parts = [part.astype(np.float64) for part in (one.second, one.cross, one.label_sums)]
        total = parts if not total else [a + b for a, b in zip(total, parts, strict=True)]
        if month in COMPARED:
            noise = [std * month**0.5 for std in (plan.noise_std_second, plan.noise_std_cross, plan.noise_std_counts)]
            moments = SecondMoments(*(part.astype(np.float32) for part in total), month * size, *noise)
            found[month] = accuracy(plan, engine, moments, test)
    return found


class Recentred(MomentsEngine):
    """Moments about a mean that an earlier release gave."""

    of_first: NDArray[np.float32] | None = None

    def _centre(self, tell: Any) -> Any:
        return super()._centre(tell) if self.of_first is None else self.of_first


def single(x: Any, y: Any, test: Any, epsilon: float, seed: int) -> dict[int, float]:
    plan: Any = config(Moments(), len(x), x.shape[1]).calibrate(epsilon, DELTA)
    engine = ran(MomentsEngine(plan, PrivateRecords(x, y), SecretStreams.from_seed(seed), workers=1))
    return {MONTHS: accuracy(plan, engine, engine.beside, test)}


WAYS: Final = {SERIES: series, SINGLE: single, FRESH: fresh, TOGETHER: all_together}


def jobs(seeds: int, ways: list[str], epsilons: list[float]) -> Iterator[tuple[str, float, int]]:
    for seed in range(seeds):
        for epsilon in epsilons:
            for way in ways:
                yield way, epsilon, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each way")
    parser.add_argument("--most", type=int, default=10**6, help="runs to make this time")
    parser.add_argument("--ways", default=";".join(WAYS), help="which of them, with semicolons between them")
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    asked = parser.parse_args()
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["way"], run["epsilon"], run["seed"]) for run in runs}
    asked_for = jobs(asked.seeds, asked.ways.split(";"), [float(epsilon) for epsilon in asked.epsilons.split(",")])
    left = [job for job in asked_for if job not in done][: asked.most]
    if left:
        (x, y), test = stored_features("mnist", "train"), stored_features("mnist", "test")
    for way, epsilon, seed in left:
        found = WAYS[way](x, y, test, epsilon, seed)
        runs.append({"way": way, "epsilon": epsilon, "seed": seed, "accuracy": {str(m): a for m, a in found.items()}})
        print(way, epsilon, seed, found, flush=True)
        RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    report(runs, again=not left)


def of(runs: list[dict[str, Any]], way: str, epsilon: float, month: int) -> list[float]:
    own = [run["accuracy"] for run in runs if (run["way"], run["epsilon"]) == (way, epsilon)]
    return [100 * one[str(month)] for one in own if str(month) in one]


def report(runs: list[dict[str, Any]], *, again: bool) -> None:
    ways = (SERIES, TOGETHER, FRESH, SINGLE)
    tables, summary = [], []
    for epsilon in EPSILONS:
        rows = []
        for month in range(1, MONTHS + 1):
            cells = [of(runs, way, epsilon, month) for way in ways]
            rows.append([month, *(common.told(cell, 2) if cell else "" for cell in cells)])
            summary += [
                {"epsilon": epsilon, "month": month, "way": way, "accuracies": cell}
                for way, cell in zip(ways, cells, strict=True)
                if cell
            ]
        tables.append(f"## Epsilon {epsilon:g}\n\n{common.table(['month', *ways], rows)}")
    lead = (
        "Accuracy on the 10,000 test images, in percent: mean, standard deviation and number of runs. The last month "
        f"of a series has {SquareRoot(MONTHS).growth(MONTHS) ** 2:.2f} times the noise variance of one release of all, "
        f"fresh noise each month {MONTHS} times. All releases of a series are weighed as their noise asks."
    )
    plot(runs)
    settings = {
        "data": "MNIST, 60,000 records in 12 months of 5,000; scattering features, 3,969 of them",
        "delta": DELTA,
        "design": "moments and moments-series at their defaults, learner discriminant",
    }
    save = (lead, *tables, "![accuracy month by month](series.svg)")
    common.save("series", "Releases of data that grow", settings, summary, save, again=again)


def plot(runs: list[dict[str, Any]]) -> None:
    figure, axes = plt.subplots(1, len(EPSILONS), figsize=(9, 3.4))
    for axis, epsilon in zip(axes, EPSILONS, strict=True):
        for way, mark in ((SERIES, "o-"), (TOGETHER, "^-"), (FRESH, "s--"), (SINGLE, "*")):
            shown = [(month, of(runs, way, epsilon, month)) for month in range(1, MONTHS + 1)]
            shown = [(month, values) for month, values in shown if values]
            months, means = [month for month, _ in shown], [np.mean(values) for _, values in shown]
            errors = [np.std(values) for _, values in shown]
            axis.errorbar(months, means, errors, fmt=mark, label=way, capsize=2)
        axis.set_xlabel("month")
        axis.set_title(f"epsilon {epsilon:g}")
    axes[0].set_ylabel("accuracy, %")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(common.RESULTS / "series.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
