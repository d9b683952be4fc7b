"""What the papers sweep of a release, at a valid epsilon: degree, label noise and weights of a row, and more.

Sweeps (Li et al. 2022 and 2024 by table or figure), each on sets of features that two cores can mix in seconds:

* ``degree``: accuracy over the mixup degree m, with and without noise, on sentences also by the papers' own learner
  (2024, Figure 3; 2022, Figure 3);
* ``label-noise``: over lambda, the label's share of the noise (2024, Figure 12; 2022, Figure 7);
* ``weights``: Dirichlet weights against averages (2024, Figures 1 and 13);
* ``best`` and ``network``: accuracy at the end of training next to the best of any epoch (2024, Table 7; 2022, Table
  6), the papers' network for their 200 epochs on fewer rows, also on uniform draws (2022, Table 1; priced by RDP). The
  best epoch is chosen on test data, so it is no result: the table shows how much the papers' column flatters;
* ``mixed-pixels``: pixels are mixed and the released rows are scattered afterwards (2024, Table 8; 2022, Table 7),
  next to DPPro as bench_rivals.py ran it (2022, Table 3);
* ``mixed-photographs``: the same on CIFAR-10 by a public image encoder, next to mixed features of that encoder, each at
  the m that did best on held-out training records (2024, Table 1; 2022, Table 2);
* ``collapse``: neural collapse and the least distance of a mixture to a record of another class (2024, equations 29 and
  30 and section I.5);
* ``geometry``: NC2 to NC4 (2024, appendix A.2);
* ``limit``: the exact trade-off function next to the limit theorem's (2024, Figures 8 and 9; 2022, Figures 5 and 6).

Finished runs are kept in results/release_sweeps_runs.json, so a stopped benchmark goes on.

    python benchmarks/bench_release_sweeps.py [--only degree,best] [--seeds 5] [--report]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifier

import common
from bench_membership import NoiselessTrainer
from bench_photographs import STAGES
from bench_utility import features as stored_features
from privmix import fit
from privmix.accounting import (
    Adjacency,
    FixedSizeSampled,
    Gaussian,
    PoissonSampled,
    Repeated,
    calibrate,
    gdp_epsilon,
    gdp_tradeoff,
    tradeoff_curve,
)
from privmix.accounting import epsilon as price
from privmix.data import open_dataset
from privmix.designs import Fixed, Poisson, RandomWeight
from privmix.engine.rows import PrivateRecords
from privmix.features.base import get_extractor, parse_features
from privmix.jobs.fitting import encoded
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.kl import GeneralizedKLClassifier
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.planning.theory import best_mixup_degree
from privmix.publication.dataset import ReleasedDataset
from privmix.releases.run import release_to_memory
from privmix.reports.pictures import COLOURS, new_figure, save_figure
from privmix.research.collapse.measures import measure_collapse

RUNS = common.RESULTS / "release_sweeps_runs.json"
DELTA = 1e-5
# Features of CIFAR-10 by the public image encoder of bench_photographs.py.
ENCODED = "cifar10-encoder"
# Images without their margin, averaged over 2 x 2 pixels: what the papers' network can learn from in minutes.
SMALL, SMALL_COLOUR = "mnist-small", "cifar10-small"
CLASSES = {
    "banking77": 77,
    "mnist-pixels": 10,
    "mnist-scattering": 10,
    "cifar10-pixels": 10,
    "cifar10-scattering": 10,
    ENCODED: 10,
    SMALL: 10,
    SMALL_COLOUR: 10,
}
# Pixels of a digit have a norm of about 9, those of a photograph of about 29; sentence embeddings have norm 1.
CLIP = {"banking77": 1.0, "mnist-pixels": 10.0, SMALL: 5.0, "cifar10-pixels": 32.0, SMALL_COLOUR: 12.0}
DEGREES = (4, 16, 64, 256, 1024)
# Features of which NC2 to NC4 are measured.
GEOMETRY = ("mnist-pixels", "banking77", ENCODED)
# p sqrt(T) of the limit theorem, held fixed.
SPREAD = 0.5
RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
MIXED_ROWS = 10_000
# The papers' network: fewer rows and smaller batches, the papers' epochs; the best epoch by this many test images.
NETWORK_ROWS, NETWORK_BATCH, NETWORK_EPOCHS, WATCHED = 2_000, 128, 200, 1_000
# Its sweeps: name, data and epsilon.
NETWORKS = (
    ("network", SMALL, 1.0),
    ("network", SMALL, 8.0),
    ("network-uniform", SMALL, 1.0),
    ("network-uniform", SMALL, 8.0),
    ("network-photographs", SMALL_COLOUR, 1.0),
)
# Mixed photographs: rows, degrees that are searched, the part of the training records that judges them, epochs.
PHOTOGRAPHS, PHOTOGRAPH_DEGREES, HELD_OUT, PHOTOGRAPH_EPOCHS = 2_000, (16, 64, 256), 5, 200
# What is mixed there, and its name in the table.
WAYS = {"cifar10-pixels": "pixels, through the encoder after their release", ENCODED: "features of the encoder"}
# Mixtures that collapse is measured on, and features.
MIXED, MEASURED = 1000, tuple(name for name in CLASSES if name not in (SMALL, SMALL_COLOUR))
# Inputs that are images; others are vectors.
IMAGES = {"mnist-pixels": (28, 28), SMALL: (12, 12), "cifar10-pixels": (32, 32, 3), SMALL_COLOUR: (12, 12, 3)}
# The papers' own learner.
KL, EPOCHS = "generalised KL", 50
ALPHAS = (0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Point:
    """One release of a sweep."""

    sweep: str
    data: str
    setting: str
    value: float
    epsilon: float | None
    design: Any
    # 0: the project's learner of that sweep; else the papers' own for so many epochs, without centring, as they do.
    epochs: int = 0

    @property
    def key(self) -> tuple[Any, ...]:
        return self.sweep, self.data, self.setting, self.value, self.epsilon


def points(sweep: str) -> Iterator[Point]:
    """Every setting of a sweep; what is not a release has a runner of its own."""
    if sweep == "degree":
        for data in ("banking77", "mnist-pixels"):
            for degree in DEGREES:
                for epsilon in (1.0, 8.0, None):
                    yield Point(sweep, data, "", degree, epsilon, Poisson(mixup_degree=degree))
                    if data == "banking77" or (epsilon is None and degree in (4, 64, 1024)):
                        yield Point(sweep, data, KL, degree, epsilon, Poisson(mixup_degree=degree), epochs=EPOCHS)
    if sweep == "label-noise":
        for data in ("banking77", "mnist-pixels"):
            for ratio in RATIOS:
                for epsilon in (1.0, 8.0):
                    yield Point(sweep, data, "", ratio, epsilon, Poisson(mixup_degree=64, label_noise_ratio=ratio))
    if sweep == "weights":
        for degree in (4, 16, 64):
            yield Point(sweep, "banking77", f"m = {degree}", np.inf, 8.0, Fixed(mixup_degree=degree))
            for alpha in ALPHAS:
                # Weights above their 99% quantile are cut: sensitivity is the largest weight.
                cut = float(beta.ppf(0.99, alpha, alpha * (degree - 1)))
                design = RandomWeight(mixup_degree=degree, dirichlet_alpha=alpha, max_weight=cut)
                yield Point(sweep, "banking77", f"m = {degree}", alpha, 8.0, design)


@cache
def data(name: str, split: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Features and labels."""
    if name == "banking77":
        from bench_designs import data as sentences

        return sentences(name, split)
    if name == ENCODED:
        from bench_photographs import data as photographs

        return photographs(split)
    if name == SMALL:
        pixels, y = data("mnist-pixels", split)
        whole = pixels.reshape(-1, 28, 28)[:, 2:26, 2:26]
        return whole.reshape(-1, 12, 2, 12, 2).mean((2, 4)).reshape(len(y), -1), y
    if name == SMALL_COLOUR:
        images, y = photographs_of(split)
        whole = get_extractor("pixels").transform(images).reshape(-1, 32, 32, 3)[:, 4:28, 4:28]
        return whole.reshape(-1, 12, 2, 12, 2, 3).mean((2, 4)).reshape(len(y), -1), y
    dataset, extractor = name.split("-")
    x, y, _ = stored_features(dataset, extractor, split)
    return x, y


@cache
def photographs_of(split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images of CIFAR-10, in the order of their features."""
    found = open_dataset(common.data_root() / "cifar10", split=split, classes=10, input_shape=(32, 32, 3)).read()
    return found.x, found.y.astype(np.int64)


def config_of(name: str, design: Any, **changes: Any) -> ReleaseConfig:
    x, _ = data(name, "train")
    classes = tuple(map(str, range(CLASSES[name])))
    return ReleaseConfig(
        records=len(x), dim=x.shape[1], classes=classes, design=design, clip_norm=CLIP.get(name, 1.0), **changes
    )


def made(
    config: ReleaseConfig, name: str, epsilon: float | None, seed: int, learner: Any, shape: tuple[int, ...]
) -> Any:
    """The learner, fitted on a release of the training records."""
    x, y = data(name, "train")
    streams, extractor = SecretStreams.from_seed(seed), {"name": name}
    if epsilon is None:
        # Mixing alone has no finite price: the least noise that a plan takes, and no certificate.
        return NoiselessTrainer(config.with_noise(1e-6), learner, extractor, shape)(x, y, streams)
    release = release_to_memory(
        config.calibrate(epsilon, DELTA), PrivateRecords(x, y), streams, extractor=extractor, input_shape=shape
    )
    return clone(learner).fit(release)


LEARNERS: Mapping[str, Callable[[], Any]] = {
    "discriminant": DiscriminantClassifier,
    "noise-aware-ridge": NoiseAwareRidgeClassifier,
    "generalized-kl": GeneralizedKLClassifier,
}


def run_point(point: Point, seed: int) -> dict[str, Any]:
    x, _ = data(point.data, "train")
    learner: Any = LEARNERS[learner_of(point)]()
    config = config_of(point.data, point.design)
    if point.epochs:
        learner = GeneralizedKLClassifier(epochs=point.epochs, seed=seed)
        config = config_of(point.data, point.design, centre="none")
    model = made(config, point.data, point.epsilon, seed, learner, (x.shape[1],))
    test_x, test_y = data(point.data, "test")
    return {"accuracy": 100 * float((model.predict(test_x) == test_y).mean())}


def learner_of(point: Point) -> str:
    """Weighted rows are not what the discriminant was made for: one learner for a whole sweep."""
    if point.epochs:
        return "generalized-kl"
    return "discriminant" if point.sweep in ("degree", "label-noise") else "noise-aware-ridge"


def run_best(name: str, model: str, epochs: int, epsilon: float, seed: int) -> dict[str, Any]:
    """Accuracy at the last epoch, and the best of all."""
    return watched(papers_release(name, epsilon, seed), name, model=model, epochs=epochs, seed=seed)


def papers_release(
    name: str, epsilon: float, seed: int, rows: int | None = None, *, uniform: bool = False
) -> ReleasedDataset:
    """As the papers have it: no centring, m = 64, Poisson draws, or uniform ones that are priced by RDP."""
    x, y = data(name, "train")
    shape = IMAGES.get(name, (x.shape[1],))
    config = config_of(name, (Fixed if uniform else Poisson)(mixup_degree=64), centre="none", rows=rows)
    if uniform:
        found = calibrate(
            lambda noise: Repeated(FixedSizeSampled(len(x), 64, Gaussian(noise)), rows or len(x)),
            epsilon,
            DELTA,
            accountant="rdp",
            adjacency=Adjacency.REPLACE_ONE,
        )
        plan = config.with_noise(found.noise_multiplier).priced(DELTA)
    else:
        plan = config.calibrate(epsilon, DELTA)
    return release_to_memory(
        plan,
        PrivateRecords(x, y),
        SecretStreams.from_seed(seed),
        extractor={"name": "pixels" if name in IMAGES else name},
        input_shape=shape,
    )


def watched(release: ReleasedDataset, name: str, **settings: Any) -> dict[str, Any]:
    """The papers' learner, looked at after every epoch on the test set."""
    model = GeneralizedKLClassifier(**settings).fit(release, validation=data(name, "test"))
    curve = model.accuracy_curve_
    return {"accuracy": 100 * curve[-1], "best": 100 * max(curve)}


def run_network(name: str, epsilon: float, seed: int, *, uniform: bool = False) -> dict[str, Any]:
    """The papers' network on released pixels: the last epoch by all test images, the best beyond it by some of them."""
    release = papers_release(name, epsilon, seed, rows=NETWORK_ROWS, uniform=uniform)
    test_x, test_y = data(name, "test")
    model = GeneralizedKLClassifier(model="cnn", epochs=NETWORK_EPOCHS, batch_size=NETWORK_BATCH, seed=seed)
    model.fit(release, validation=(test_x[:WATCHED], test_y[:WATCHED]))
    accuracy = 100 * float((model.predict(test_x) == test_y).mean())
    return {
        "accuracy": accuracy,
        "best": accuracy + 100 * (max(model.accuracy_curve_) - model.accuracy_curve_[-1]),
        "proven_epsilon": release.certificate["guarantee"]["epsilon"],
    }


def run_mixed_pixels(epsilon: float, seed: int, epochs: int = 30) -> dict[str, Any]:
    """Rows of mixed pixels, scattered after their release: fewer of them than records, which makes each less noisy."""
    release = papers_release("mnist-pixels", epsilon, seed, rows=MIXED_ROWS)
    model = fit(release, features="scattering", epochs=epochs, seed=seed)
    test_x, test_y = data("mnist-scattering", "test")
    return {"accuracy": 100 * float((model.classifier.predict(test_x) == test_y).mean())}


def run_photographs(name: str, degree: int, epsilon: float, seed: int, *, search: bool) -> dict[str, Any]:
    """The papers' learner on few rows of mixed photographs, encoded after their release, or of mixed features."""
    features, y = data(ENCODED, "train")
    x = photographs_of("train")[0] if name in IMAGES else features
    assert np.array_equal(y, photographs_of("train")[1])
    judged = np.arange(len(y)) < 0
    test_x, test_y = data(ENCODED, "test")
    if search:
        judged = np.random.default_rng(0).permutation(len(y)) < len(y) // HELD_OUT
        test_x, test_y = features[judged], y[judged]
    x = x[~judged] if name not in IMAGES else get_extractor("pixels").transform(x[~judged])
    classes = tuple(map(str, range(CLASSES[name])))
    design, clip = Poisson(mixup_degree=degree), CLIP.get(name, 1.0)
    config = ReleaseConfig(
        len(x), x.shape[1], classes, design, clip_norm=clip, centre="none", rows=PHOTOGRAPHS
    ).calibrate(epsilon, DELTA)
    release = release_to_memory(
        config,
        PrivateRecords(x, y[~judged]),
        SecretStreams.from_seed(seed),
        extractor={"name": "pixels" if name in IMAGES else STAGES},
        input_shape=IMAGES.get(name, (x.shape[1],)),
    )
    if name in IMAGES:
        release = encoded(release, parse_features(STAGES))
    # As `privmix fit --features` does it.
    model = GeneralizedKLClassifier(epochs=PHOTOGRAPH_EPOCHS, seed=seed, standardise=True).fit(release)
    return {"degree": degree, "accuracy": 100 * float((model.predict(test_x) == test_y).mean())}


def best_photographs(name: str, epsilon: float) -> int:
    """The degree that held-out records chose."""
    tried = of(json.loads(RUNS.read_text()), sweep="mixed-photographs", data=name, epsilon=epsilon, held_out=True)
    return int(max(tried, key=lambda run: run["accuracy"])["degree"])


def run_collapse(name: str) -> dict[str, Any]:
    x, y = data(name, "train")
    take = np.random.default_rng(0).permutation(len(x))[:10_000]
    # Every set is cut to norm 1, as the papers do before they measure.
    config = replace(config_of(name, Poisson(mixup_degree=64), centre="none"), clip_norm=1.0)
    found = measure_collapse([config.with_noise(1.0)], x[take], y[take], np.random.default_rng(1), rows=MIXED)
    return {"neural_collapse": found.neural_collapse, "least_distance": found.minimum_euclidean_distance}


def run_unmixed(name: str) -> dict[str, Any]:
    """The same distance of the same records before they are mixed: from one to the nearest of another class."""
    x, y = data(name, "train")
    take = np.random.default_rng(0).permutation(len(x))[:10_000]
    records, labels = clip_l2(x[take], 1.0), y[take]
    squares = np.einsum("ij,ij->i", records, records)
    apart = squares[:MIXED] + squares[:, None] - 2 * records @ records[:MIXED].T
    apart[labels[:, None] == labels[:MIXED]] = np.inf
    return {"least_distance": float(np.sqrt(max(0.0, float(apart.min()))))}


def run_geometry(name: str) -> dict[str, Any]:
    """NC2 to NC4 as Papyan et al. 2020 measure them, each 0 at collapse; the linear classifier is ridge regression."""
    (x, y), test_x, classes = data(name, "train"), clip_l2(data(name, "test")[0], 1.0), CLASSES[name]
    take = np.random.default_rng(0).permutation(len(x))[:10_000]
    x, y = clip_l2(x[take], 1.0), y[take]
    means = np.stack([x[y == one].mean(axis=0) for one in range(classes)])
    centred = means - means.mean(axis=0)
    norms = np.linalg.norm(centred, axis=1)
    angles = (centred @ centred.T) / np.outer(norms, norms)
    apart = angles[~np.eye(classes, dtype=bool)] + 1 / (classes - 1)
    linear = RidgeClassifier(alpha=1.0).fit(x, y)
    duality = linear.coef_ / np.linalg.norm(linear.coef_) - centred / np.linalg.norm(centred)
    nearest = (test_x @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1)
    return {
        "sweep": "geometry",
        "data": name,
        "norms": float(norms.std() / norms.mean()),
        "angles": float(np.abs(apart).mean()),
        "duality": float(np.linalg.norm(duality)),
        "disagreement": 100 * float((nearest != linear.predict(test_x)).mean()),
    }


def run_limit(rows: int, mu: float) -> dict[str, Any]:
    """Where the published trade-off function lies above the exact one, an attacker does better than claimed."""
    alphas = np.linspace(0.0, 1.0, 101)
    # mu = p sqrt(T) sqrt(exp(1/s^2) - 1): Li et al. 2022, Equation 2
    multiplier = 1 / np.sqrt(np.log1p((mu / SPREAD) ** 2))
    event = Repeated(PoissonSampled(SPREAD / np.sqrt(rows), Gaussian(float(multiplier))), rows)
    exact = tradeoff_curve(event, alphas, points=257)
    limit = gdp_tradeoff(mu, alphas)
    return {
        "rows": rows,
        "mu": mu,
        "alpha": alphas.tolist(),
        "exact": exact.tolist(),
        "limit": limit.tolist(),
        "gap": float((limit - exact).max()),
        "epsilon": price(event, DELTA).epsilon,
        "limit_epsilon": gdp_epsilon(mu, DELTA),
    }


def jobs(only: Sequence[str], seeds: int) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Names of runs and what makes them."""
    for mu in (1.0, 4.0) if "limit" in only else ():
        for rows in (10, 50, 200, 1000, 50_000):
            yield f"limit {rows} {mu:g}", lambda rows=rows, mu=mu: run_limit(rows, mu)
    for name in MEASURED if "collapse" in only else ():
        yield f"collapse {name}", lambda name=name: run_collapse(name)
    # Before mixing: those first whose features take no time.
    for name in sorted(MEASURED, key=lambda name: "scattering" in name) if "collapse" in only else ():
        yield f"unmixed {name}", lambda name=name: run_unmixed(name)
    for name in GEOMETRY if "geometry" in only else ():
        yield f"geometry {name}", lambda name=name: run_geometry(name)
    for seed in range(seeds):
        for sweep in ("degree", "label-noise", "weights"):
            for point in points(sweep) if sweep in only else ():
                if seed >= 3 and point.data != "banking77":
                    continue
                key = " ".join(map(str, (*point.key, seed)))
                yield key, lambda point=point, seed=seed: {**described(point), "seed": seed, **run_point(point, seed)}
        for epsilon in (1.0, 2.0, 4.0, 8.0) if "best" in only else ():
            facts = {"sweep": "best", "data": "banking77", "epsilon": epsilon, "seed": seed}
            yield (
                f"best banking77 linear 200 {epsilon} {seed}",
                lambda facts=facts: {**facts, **run_best("banking77", "linear", 200, facts["epsilon"], facts["seed"])},
            )
        for sweep, name, epsilon in NETWORKS:
            facts = {"sweep": sweep, "data": name, "epsilon": epsilon, "seed": seed}
            work = lambda facts=facts: {  # noqa: E731
                **facts,
                **run_network(
                    facts["data"], facts["epsilon"], facts["seed"], uniform=facts["sweep"] == "network-uniform"
                ),
            }
            if sweep in only:
                yield f"{sweep} {name} {epsilon} {seed}", work
        for epsilon in (1.0, 2.0, 4.0, 8.0) if "mixed-pixels" in only else ():
            facts = {"sweep": "mixed-pixels", "epsilon": epsilon, "seed": seed}
            work = lambda facts=facts: {**facts, **run_mixed_pixels(facts["epsilon"], facts["seed"])}  # noqa: E731
            yield f"mixed-pixels {epsilon} {seed}", work
    if "mixed-photographs" in only:
        yield from photograph_jobs(seeds)


def photograph_jobs(seeds: int) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """The search of degrees, and then releases at the best of them."""
    for name in reversed(WAYS):
        for epsilon in (1.0, 8.0):
            facts = {"sweep": "mixed-photographs", "data": name, "epsilon": epsilon}
            for degree in PHOTOGRAPH_DEGREES:
                yield (
                    f"mixed-photographs {name} {epsilon} held out {degree}",
                    lambda facts=facts, degree=degree: {
                        **facts,
                        "held_out": True,
                        **run_photographs(facts["data"], degree, facts["epsilon"], 100, search=True),
                    },
                )
            for seed in range(seeds):
                yield (
                    f"mixed-photographs {name} {epsilon} {seed}",
                    lambda facts=facts, seed=seed: {
                        **facts,
                        "seed": seed,
                        **run_photographs(
                            facts["data"],
                            best_photographs(facts["data"], facts["epsilon"]),
                            facts["epsilon"],
                            seed,
                            search=False,
                        ),
                    },
                )


SWEEPS = (
    *("limit", "collapse", "geometry", "degree", "label-noise", "weights", "best", "mixed-pixels"),
    *("mixed-photographs", "network", "network-uniform", "network-photographs"),
)


def described(point: Point) -> dict[str, Any]:
    value = None if np.isinf(point.value) else point.value
    return {
        "sweep": point.sweep,
        "data": point.data,
        "setting": point.setting,
        "value": value,
        "epsilon": point.epsilon,
        "learner": learner_of(point),
        **({"epochs": point.epochs} if point.epochs else {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SWEEPS), help="sweeps, separated by commas")
    parser.add_argument("--seeds", type=int, default=5, help="releases of each setting")
    parser.add_argument("--report", action="store_true", help="only write the page, from the runs that are kept")
    options = parser.parse_args()
    known = {key for key, _ in jobs(SWEEPS, options.seeds)}
    runs: dict[str, Any] = json.loads(RUNS.read_text())
    for key, work in () if options.report else jobs(options.only.split(","), options.seeds):
        if key not in runs:
            start = time.process_time()
            runs[key] = {**work(), "cpu_seconds": round(time.process_time() - start, 1)}
            print(key, runs[key].get("accuracy", ""), runs[key]["cpu_seconds"], flush=True)
            # Another process may have kept runs of other sweeps.
            runs = {**json.loads(RUNS.read_text()), key: runs[key]}
            RUNS.write_text(json.dumps(runs, indent=0) + "\n")
    report({key: run for key, run in runs.items() if key in known}, again=options.report)


def cell(found: Sequence[float]) -> str:
    return common.told(found) if found else "-"


def of(runs: Mapping[str, Any], **facts: Any) -> list[dict[str, Any]]:
    return [run for run in runs.values() if all(run.get(name) == value for name, value in facts.items())]


# sweep -> (title, what is swept, what the papers say of it)
ABOUT = {
    "degree": (
        "Mixup degree",
        "m",
        "Li et al. 2024: the best m is between 32 and 256, smaller at smaller epsilon; m = 64 loses at most 0.74 "
        "points on MNIST, 3.40 on CIFAR-100. Without noise they find accuracy falling with m. By their own learner "
        f"(generalised KL, {EPOCHS} epochs, no centring) it falls here, too; by the discriminant it does not: the "
        "second moments of rows are those of the records over m, but for what sampling adds, so that a learner of "
        "second moments undoes the mixing.",
    ),
    "label-noise": (
        "Noise on labels",
        "lambda",
        "Li et al. 2024: best in [1, 4] with 10 classes, [0.5, 2] with 100; lambda = 1 loses at most 1.49 points.",
    ),
    "weights": (
        "Dirichlet weights, fixed-size draws, replace-one, epsilon 8",
        "alpha",
        "Li et al. 2024: averages are best. Weights are cut at their 99% quantile, which is public.",
    ),
}


def report(runs: Mapping[str, Any], *, again: bool) -> None:
    tables = []
    for sweep, (title, name, says) in ABOUT.items():
        for dataset in dict.fromkeys(run["data"] for run in of(runs, sweep=sweep)):
            table = sweep_table(of(runs, sweep=sweep, data=dataset), name)
            more = f"\n\n{degree_costs(runs, dataset)}" if sweep == "degree" else ""
            tables.append(f"### {title}: {dataset}\n\n{says}\n\n{table}{more}")
    parts = (best_table, pixels_table, photographs_table, collapse_table, limit_table)
    tables += [text for part in parts if (text := part(runs))]
    draw(runs)
    tables.append("![Sweeps](release_sweeps.svg)")
    settings = {
        "delta": DELTA,
        "cells": "test accuracy, %: mean (standard deviation, runs)",
        "accounting": "PLD; add or remove one record, but for fixed-size draws (replace one)",
        "rows": "as many as records, but for mixed pixels, mixed photographs and the papers' network",
        "centring": "private, both queries paid for; none where the papers' learner is used",
        "learners": "discriminant for degree and label-noise, noise-aware-ridge for weights, generalised KL where that "
        "is said, for best, network, mixed-pixels and mixed-photographs; nothing was tuned on test data",
        "searched": "m of mixed photographs alone, "
        f"{', '.join(map(str, PHOTOGRAPH_DEGREES))}, one release each, on a fifth of the training records"
        if of(runs, sweep="mixed-photographs")
        else "nothing",
        "not run yet": ", ".join(
            sweep
            for sweep in ("mixed-photographs", "network-uniform", "network-photographs")
            if not of(runs, sweep=sweep)
        )
        or "none",
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs.values())),
    }
    title = "What the papers sweep of a release"
    common.save("release_sweeps", title, settings, list(runs.values()), tables, again=again)


def degree_costs(runs: Mapping[str, Any], dataset: str) -> str:
    """The best degree by theory, next to what m = 64 reaches."""
    x, _ = data(dataset, "train")
    told = []
    for epsilon in (1.0, 8.0):
        found = {
            degree: np.mean([run["accuracy"] for run in of(runs, sweep="degree", data=dataset, setting="", **at)])
            for degree in DEGREES
            for at in [{"value": degree, "epsilon": epsilon}]
        }
        best = max(found, key=found.__getitem__)
        theory = best_mixup_degree(len(x), len(x), 1, epsilon, DELTA).mixup_degree
        costs = "" if best == 64 else f", and m = 64 costs {found[best] - found[64]:.1f} points against it"
        told.append(f"at epsilon {epsilon:g} theory takes m = {theory}; of these degrees {best} is best{costs}")
    return (
        f"n = T = {len(x):,}: {'; '.join(told)}. The best m grows with n / sqrt(T) (Li et al. 2022, Corollary 3.2; "
        "[theory](theory.md)), and with epsilon: the papers' m = 64 suits their 50,000 records, not every set. "
        "`mixup_degree=auto`, the default, takes m by theory."
    )


def sweep_table(runs: Sequence[dict[str, Any]], name: str) -> str:
    columns = list(dict.fromkeys((run["setting"], run["epsilon"]) for run in runs))
    values = sorted({run["value"] for run in runs}, key=lambda value: np.inf if value is None else value)
    head = [
        f"{setting} " * bool(setting) + (f"eps {epsilon:g}" if epsilon else "no noise") for setting, epsilon in columns
    ]
    rows = []
    for value in values:
        found = [
            [r["accuracy"] for r in runs if (r["setting"], r["epsilon"], r["value"]) == (*c, value)] for c in columns
        ]
        rows.append(["average" if value is None else f"{value:g}", *map(cell, found)])
    return common.table([name, *head], rows)


def best_table(runs: Mapping[str, Any]) -> str:
    rows = []
    network = "the papers' network, 200 epochs"
    for name, sweep, paper in (
        ("banking77, linear, 200 epochs", "best", {}),
        (f"MNIST at 12 x 12 pixels, {network}", "network", {1.0: "79.2", 8.0: "85.7"}),
        (f"the same, uniform draws, noise by RDP, {network}", "network-uniform", {1.0: "20.4", 8.0: "73.8"}),
        (f"CIFAR-10 at 12 x 12 pixels, {network}", "network-photographs", {1.0: "24.4"}),
    ):
        for epsilon in (1.0, 2.0, 4.0, 8.0):
            found = of(runs, sweep=sweep, epsilon=epsilon)
            if found:
                gains = [run["best"] - run["accuracy"] for run in found]
                last = cell([run["accuracy"] for run in found])
                gain = common.gap(gains) if len(gains) > 1 else f"{gains[0]:+.2f}"
                rows.append([name, f"{epsilon:g}", last, gain, paper.get(epsilon, "")])
    costs = {
        epsilon: found[0]["proven_epsilon"]
        for epsilon in (1.0, 8.0)
        if (found := of(runs, sweep="network-uniform", epsilon=epsilon))
    }
    uniform = "; ".join(f"{epsilon:g} by RDP is {cost:.3g} by PLD" for epsilon, cost in costs.items())
    says = (
        "Li et al. 2024, Table 7: DPMix on CIFAR-10 gains 4 to 16 points by the choice, features at most 0.36. Two "
        f"cores cannot train the network as in the papers: here are {NETWORK_ROWS:,} rows where they have 60,000, 144 "
        f"pixels where they have 784, and batches of {NETWORK_BATCH}; {NETWORK_EPOCHS} epochs, m = 64 and no centring "
        "are theirs, and nothing was searched. Poisson draws are priced by PLD, in the paper by the limit formula. "
        f"The best epoch is that of {WATCHED:,} test images."
    ) + (f" Uniform draws, replace one record, have the paper's noise: {uniform}." if uniform else "")
    head = ["release, learner", "eps", "last epoch", "gain of the best epoch, chosen on test data, 95%"]
    head.append("Li et al. 2022, Table 1")
    return f"### The last epoch and the best\n\n{says}\n\n{common.table(head, rows)}" if rows else ""


def pixels_table(runs: Mapping[str, Any]) -> str:
    """Table 3 of Li et al. 2022 on MNIST, next to what was run here."""
    mixed = "DPMix: mixed pixels, then scattering"
    published = {
        "DPPro": {1.0: "", 8.0: ""},
        "DPPro by ridge regression": {1.0: "", 8.0: ""},
        "DPPro by logistic regression": {1.0: "11.4", 8.0: "17.3"},
        mixed: {1.0: "82.2", 2.0: "83.3", 4.0: "84.9", 8.0: "86.0"},
    }
    here: dict[str, dict[float, list[float]]] = {name: {} for name in published}
    rivals = common.RESULTS / "rivals_runs.json"
    for run in json.loads(rivals.read_text()) if rivals.exists() else ():
        name = run["design"].split(",")[0]
        if run["dataset"] == "mnist" and name in here:
            here[name].setdefault(float(run["epsilon"]), []).append(100 * run["accuracy"])
    for run in of(runs, sweep="mixed-pixels"):
        here[mixed].setdefault(run["epsilon"], []).append(run["accuracy"])
    rows = [
        [name, f"{epsilon:g}", cell(here[name].get(epsilon, [])), told]
        for name, cells in published.items()
        for epsilon, told in cells.items()
        if here[name] or told
    ]
    head = ["release, MNIST", "eps", "here, valid epsilon", "Li et al. 2022, Tables 3 and 7"]
    says = (
        f"Mixed pixels: {MIXED_ROWS:,} rows, m = 64, no centring, `fit --features scattering` (generalised KL, 30 "
        "epochs); the paper's DPMix is priced by the limit formula. DPPro releases projected scattering features with "
        "their labels as they are, here and there. Here features have norm 1 and noise is priced exactly; its first "
        "line has ridge regression and 400 dimensions, set beforehand; a line with the name of a learner has the "
        "dimension that did best on held-out training records ([rivals](rivals.md)). The paper gives the best of "
        "nine dimensions on test data, logistic regression by Adam, and its authors' noise. "
        + ("" if here["DPPro by logistic regression"] else "Which of these makes the difference was not looked into. ")
        + "P3GM, also in that table, is left out there."
    )
    return f"### Releases that are no mixtures of features\n\n{says}\n\n" + common.table(head, rows)


def photographs_table(runs: Mapping[str, Any]) -> str:
    """DPMix with a public network, as Li et al. have it by ResNets, and features mixed by the same learner."""
    rows, searched = [], []
    for name, way in WAYS.items():
        for epsilon in (1.0, 8.0):
            facts = {"sweep": "mixed-photographs", "data": name, "epsilon": epsilon}
            found = [run for run in of(runs, **facts) if "held_out" not in run]
            if found:
                degrees = ", ".join(str(degree) for degree in sorted({run["degree"] for run in found}))
                rows.append([way, f"{epsilon:g}", degrees, cell([run["accuracy"] for run in found])])
                tried = of(runs, **facts, held_out=True)
                searched.append(
                    [way, f"{epsilon:g}", "; ".join(f"{run['degree']}: {run['accuracy']:.1f}" for run in tried)]
                )
    says = (
        f"CIFAR-10 by the public encoder of [photographs](photographs.md), which has seen ImageNet: {PHOTOGRAPHS:,} "
        f"rows, no centring, generalised KL for {PHOTOGRAPH_EPOCHS} epochs on standardised columns. Both ways have the "
        "same encoder, rows, learner and search of m, by one release each on a fifth of the training records. In Li et "
        "al. 2022, mixed features of a pretrained network have 87.7 at epsilon 1 and 90.8 at 8 (Table 3), and mixed "
        "pixels by their network 24.4 and 31.9 (Table 1). The papers find that bigger networks do not help pixels."
    )
    text = common.table(["what is mixed", "eps", "m", "test accuracy, %"], rows)
    text += "\n\nAccuracy on held-out training records, %:\n\n"
    text += common.table(["what is mixed", "eps", "m: accuracy"], searched)
    return f"### Mixed photographs through a public network\n\n{says}\n\n{text}" if rows else ""


def collapse_table(runs: Mapping[str, Any]) -> str:
    rows = [
        [
            name,
            f"{run['neural_collapse']:.2f}",
            f"{runs[f'unmixed {name}']['least_distance']:.3f}" if f"unmixed {name}" in runs else "-",
            f"{run['least_distance']:.3f}",
        ]
        for name in MEASURED
        if (run := runs.get(f"collapse {name}"))
    ]
    says = (
        "Neural collapse, Li et al. 2024: MNIST 1.53 (pixels), 1.16 (scattering); CIFAR-10 45.34 (pixels), 0.49 "
        "(SimCLR). 10,000 training records, clipped to norm 1, one draw. Distances are of pairs of records, mixed "
        "nearly evenly: of 64 records of 10 classes hardly a mixture lacks a class. They fall as records grow: to be "
        "compared within the table alone. The encoder is that of [photographs](photographs.md). "
        "A least distance above 0 is the paper's condition NAC (assumption A.3) on these records: no class has a point "
        "on a mixture of others. NC2 to NC4 are those of Papyan et al. 2020, 0 at collapse, with ridge regression as "
        "the classifier; the paper gives no figures of them."
    )
    head = ["features", "neural collapse (smaller is more)"]
    head += [f"least distance of a {what} to another class" for what in ("record", "mixed pair")]
    more = [
        [name, *(f"{run[key]:.2f}" for key in ("norms", "angles", "duality")), f"{run['disagreement']:.1f}%"]
        for name in GEOMETRY
        if (run := runs.get(f"geometry {name}"))
    ]
    geometry = [
        "features",
        "NC2: spread of the class means' norms over their mean",
        "NC2: mean distance of their cosines from -1 / (K - 1)",
        "NC3: distance of classifier and class means",
        "NC4: test records on which classifier and nearest class mean differ",
    ]
    text = common.table(head, rows) + "\n\n" + common.table(geometry, more)
    return f"### Neural collapse and least distances\n\n{says}\n\n{text}" if rows else ""


def limit_table(runs: Mapping[str, Any]) -> str:
    rows = [
        [run["rows"], f"{run['mu']:g}", f"{run['gap']:.4f}", f"{run['limit_epsilon']:.2f}", f"{run['epsilon']:.2f}"]
        for name, run in runs.items()
        if name.startswith("limit")
    ]
    says = (
        f"p sqrt(T) = {SPREAD} throughout. Where the limit is above the exact function it promises what does not hold."
    )
    head = ["rows T", "mu", "largest excess of the limit, type II error", f"epsilon at {DELTA:g}: limit", "exact (PLD)"]
    title = "### The limit theorem's trade-off function against the exact one"
    return f"{title}\n\n{says}\n\n" + common.table(head, rows) if rows else ""


def draw(runs: Mapping[str, Any]) -> None:
    panels = [(s, d) for s in ABOUT for d in dict.fromkeys(run["data"] for run in of(runs, sweep=s))]
    figure = new_figure(12, 3.4 * ((len(panels) + 3) // 3))
    grid = figure.subplots((len(panels) + 3) // 3, 3).ravel()
    for axes, (sweep, dataset) in zip(grid, panels, strict=False):
        mine = [run for run in of(runs, sweep=sweep, data=dataset) if run.get("epochs", EPOCHS) == EPOCHS]
        columns = dict.fromkeys((run["setting"], run["epsilon"]) for run in mine)
        for colour, (setting, epsilon) in zip(COLOURS, columns, strict=False):
            line = [run for run in mine if (run["setting"], run["epsilon"]) == (setting, epsilon)]
            values = sorted({run["value"] for run in line if run["value"] is not None})
            means = [np.mean([run["accuracy"] for run in line if run["value"] == value]) for value in values]
            label = f"{setting} " * bool(setting) + (f"ε = {epsilon:g}" if epsilon else "no noise")
            axes.plot(values, means, "o-", color=colour, label=label)
            average = [run["accuracy"] for run in line if run["value"] is None]
            if average:
                axes.axhline(float(np.mean(average)), color=colour, linestyle=":", label=f"{label}, average")
        axes.set_xscale("log", base=2 if sweep != "weights" else 10)
        axes.set_xlabel(ABOUT[sweep][1])
        axes.set_ylabel("test accuracy (%)")
        axes.set_title(f"{ABOUT[sweep][0].split(',')[0]}: {dataset}", fontsize=9)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    draw_limit(grid[len(panels)], runs)
    for axes in grid[len(panels) + 1 :]:
        axes.set_axis_off()
    save_figure(figure, common.RESULTS / "release_sweeps.svg")


def draw_limit(axes: Any, runs: Mapping[str, Any]) -> None:
    found = [run for name, run in runs.items() if name.startswith("limit") and run["mu"] == 1.0]
    for colour, run in zip(COLOURS, found, strict=False):
        gap = np.subtract(run["limit"], run["exact"])
        axes.plot(run["alpha"], gap, color=colour, label=f"T = {run['rows']}")
    axes.axhline(0.0, color="#666666", linewidth=0.8)
    axes.set_xlabel("type I error of an attack")
    axes.set_ylabel("limit's type II error less the exact one")
    axes.set_title("The limit theorem, mu = 1", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


if __name__ == "__main__":
    main()
