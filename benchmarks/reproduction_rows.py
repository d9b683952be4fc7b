"""Rows of ``reproduce.py``: claims of five papers, a small test of each, and the rules for verdicts.

Every accuracy is of five runs on one split of the records. Settings of each line are searched on a fifth of its
training records, which the search's runs do not train on; test records are looked at once a final run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import common
from privmix.accounting import (
    Adjacency,
    FixedSizeSampled,
    Laplace,
    Repeated,
    epsilon,
    gdp_epsilon,
    published_noise_multiplier,
)
from privmix.accounting.pure import published_instahide_epsilon
from privmix.audits.audit import audit_plan
from privmix.audits.bounds import clopper_pearson
from privmix.designs import Hierarchical, Poisson
from privmix.engine.rows import PrivateRecords
from privmix.features.base import get_extractor
from privmix.learning.kl import GeneralizedKLClassifier
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.planning.theory import LinearTask, best_mixup_degree, honest_noise_multiplier, published_optimal_degree
from privmix.plans.plan import Plan
from privmix.releases.run import release_to_memory
from privmix.research.linear_regression import simulate_linear_regression
from privmix.research.poisoning.base import Case, parse_attack, parse_defence
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.trials import TrialConfig, run_trials
from privmix.research.poisoning.victims.extractor import pretrained
from privmix.research.poisoning.victims.ordinary import Victim, VictimConfig
from privmix.rounding import rounded_down, rounded_up
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts, PublicData
from privmix.training.public.config import WarmUpConfig
from privmix.training.trainer import Trainer
from privmix.training.views.augment import Crop
from privmix.training.views.config import ViewConfig

HOLDS, PRICE_ONLY, NEARLY, FAILS = "holds", "holds at the paper's noise only", "holds within 5%", "does not hold"
UNDECIDED, UNTESTED = "not decided here", "not tested here"
RULES: Final = {
    HOLDS: "the 95% interval at a valid epsilon is above zero; of an epsilon: the claim is at least the true one",
    PRICE_ONLY: "only the interval at the paper's noise is above zero, and that epsilon is no bound",
    NEARLY: "the true epsilon is above the claim, by at most 5%",
    FAILS: "the interval at a valid epsilon is below zero; of an epsilon: the true one is larger by more than 5%",
    UNDECIDED: "the interval includes zero",
    UNTESTED: "it takes more than minutes, or the attack fails without any defence",
}
SAME: Final = "the paper's epsilon is a bound: as below"
DELTA, SEEDS, SEARCH_SEEDS = 1e-5, range(5), (100, 101)
_SLACK: Final = 0.05
Split = tuple[NDArray[Any], NDArray[np.int64]]


@dataclass(frozen=True)
class Gain:
    """Shares in [0, 1] of two lines, paired by seed, with the lines' names."""

    better: Sequence[float]
    other: Sequence[float]
    names: tuple[str, str]
    kind = "runs"

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the mean difference, in points (Student's t)."""
        gaps = 100 * (np.asarray(self.better) - np.asarray(self.other))
        half = float(stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5)
        return float(gaps.mean()) - half, float(gaps.mean()) + half

    def __str__(self) -> str:
        low, high = self.interval
        lines = [f"{name} {self._mean(one)}" for name, one in zip(self.names, (self.better, self.other), strict=True)]
        mean = 100 * (np.mean(self.better) - np.mean(self.other))
        size = f"{len(self.better)} {self.kind}"
        return f"{', '.join(lines)}; difference {mean:+.1f} points, 95% interval {low:+.1f} to {high:+.1f} ({size})"

    def _mean(self, shares: Sequence[float]) -> str:
        return f"{100 * np.mean(shares):.1f}% (sd {100 * np.std(shares, ddof=1):.1f})"


class TrialGain(Gain):
    """Successes, 0 or 1, of paired trials: the interval is exact, and wider than Student's t where all trials agree."""

    kind = "trials"

    @property
    def interval(self) -> tuple[float, float]:
        # Pairs where the first alone succeeds, and the second alone; four bounds, each wrong with chance 0.0125.
        gaps, size = np.asarray(self.better) - np.asarray(self.other), len(self.better)
        low, high = clopper_pearson([int((gaps > 0).sum()), int((gaps < 0).sum())], size, 0.0125)
        return float(100 * (low[0] - high[1])), float(100 * (high[0] - low[1]))

    def _mean(self, shares: Sequence[float]) -> str:
        return f"{100 * np.mean(shares):.0f}%"


def by_gain(valid: Gain | None, published: Gain | None = None) -> str:
    """Return whether the first line beats the second; ``valid`` is None where no usable model has a valid epsilon."""
    if valid is not None and valid.interval[0] > 0:
        return HOLDS
    if valid is not None and valid.interval[1] < 0:
        return FAILS
    if published is not None and published.interval[0] > 0:
        return PRICE_ONLY
    return FAILS if valid is None and published is not None and published.interval[1] < 0 else UNDECIDED


def by_price(claimed: float, true: float) -> str:
    """Return whether a claimed epsilon is at least the true one."""
    return HOLDS if true <= claimed else NEARLY if true <= (1 + _SLACK) * claimed else FAILS


def by_excess(low: float, high: float, most: float) -> str:
    """Return whether an excess, known by its interval, is at most ``most``."""
    return HOLDS if high <= most else FAILS if low > most else UNDECIDED


@dataclass(frozen=True)
class Finding:
    """Figures at the paper's noise and at a valid epsilon; ``differs``: from the paper's setting."""

    published: str
    valid: str
    verdict: str
    differs: str
    searched: tuple[str, ...] = ()
    lines: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A row: the table or figure, its figures, and the test; ``page``: the benchmark page with more."""

    where: str
    text: str
    run: Callable[[], Finding]
    page: str


def untested(why: str) -> Finding:
    return Finding("not run", "not run", UNTESTED, why)


@dataclass(frozen=True)
class Line:
    """Test accuracies of a method at its best setting."""

    shares: tuple[float, ...]
    best: Mapping[str, float]
    searched: str


@dataclass(frozen=True, eq=False)
class Task:
    """Records (n, d) and labels; the first fifth of the private ones judges the search."""

    private: Split
    test: Split
    classes: int

    @property
    def parts(self) -> tuple[Split, Split]:
        """The search's training records, and those that judge it."""
        (x, y), held = self.private, len(self.private[0]) // 5
        return (x[held:], y[held:]), (x[:held], y[:held])

    def line(self, name: str, axes: Mapping[str, Sequence[Any]], run: Callable[..., float]) -> Line:
        """Search from the middle of each axis uphill, then run the best setting; ``run``: setting, seed, splits."""
        tried: dict[tuple[Any, ...], float] = {}

        def score(setting: dict[str, Any]) -> float:
            key = tuple(setting.values())
            if key not in tried:
                tried[key] = float(np.mean([run(setting, seed, *self.parts) for seed in SEARCH_SEEDS]))
            return tried[key]

        best = common.walk(axes, {name: values[len(values) // 2] for name, values in axes.items()}, score)
        shares = tuple(run(best, seed, self.private, self.test) for seed in SEEDS)
        return Line(shares, best, in_words(name, axes, best))

    def released(self, name: str, axes: Mapping[str, Sequence[Any]], target: float, published: bool) -> Line:
        """Return the line of a release with the papers' learner; ``axes``: of the design and of the learner."""
        dim = self.private[0].shape[1]

        def run(setting: dict[str, Any], seed: int, own: Split, others: Split) -> float:
            plan = release_plan(design_of(setting), len(own[0]), dim, self.classes, target, published)
            streams, spec = SecretStreams.from_seed(seed), {"name": "identity"}
            release = release_to_memory(plan, PrivateRecords(*own), streams, extractor=spec, input_shape=(dim,))
            learner = GeneralizedKLClassifier(epochs=setting["epochs"], learning_rate=setting["rate"], seed=seed)
            return float(np.mean(learner.fit(release).predict(others[0]) == others[1]))

        return self.line(name, {**LEARNER, **axes}, run)

    def trained(
        self, name: str, model: str, facts: ModelFacts, axes: Mapping[str, Sequence[Any]], target: float, **options: Any
    ) -> Line:
        """Return the line of DP-SGD; options that are :class:`PublicData` go to the trainer."""
        data = {key: options.pop(key) for key in ("pool", "public") if key in options}
        warm_up = options.pop("warm_up", None)

        def run(setting: dict[str, Any], seed: int, own: Split, others: Split) -> float:
            more = dict(options)
            if warm_up is not None:
                public = {"epochs": setting["warm-up epochs"], "learning_rate": setting["warm-up rate"]}
                more["warm_up"] = replace(warm_up, **public)
            config = TrainingConfig.for_model(
                model,
                records=len(own[0]),
                epsilon=target,
                delta=DELTA,
                model_seed=seed,
                optimiser=f"sgd:learning_rate={setting['rate']:g}",
                epochs=setting["epochs"],
                **more,
            )
            trainer = Trainer(config, facts, len(own[0]), network=network(seed) if model == "module" else None, **data)
            records = TrainingRecords.of(*own, classes=self.classes)
            found = trainer.run(records, streams=SecretStreams.from_seed(seed))
            return float(np.mean(found.predict(others[0]) == others[1]))

        return self.line(name, axes, run)


LEARNER: Final = {"rate": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3), "epochs": (10, 30, 60)}
AXES: Final = {"rate": "learning rate", "classes": "classes in a row"}


def in_words(name: str, axes: Mapping[str, Sequence[Any]], best: Mapping[str, Any]) -> str:
    parts = []
    for axis, values in axes.items():
        edge = ", the edge" if best[axis] in (values[0], values[-1]) else ""
        parts.append(f"{AXES.get(axis, axis)} {values[0]:g} to {values[-1]:g} (took {best[axis]:g}{edge})")
    return f"{name}: {', '.join(parts)}"


def design_of(setting: Mapping[str, Any]) -> Any:
    if "classes" in setting:
        return Hierarchical(mixup_degree=setting["m"], expected_classes=setting["classes"])
    return Poisson(mixup_degree=setting["m"])


@cache
def release_plan(design: Any, records: int, dim: int, classes: int, target: float, published: bool) -> Plan:
    """Return a release of n rows as the papers make it; ``published``: at the limit formula's noise and true cost."""
    names = tuple(map(str, range(classes)))
    config = ReleaseConfig(records=records, dim=dim, classes=names, design=design, clip_norm=1.0, centre="none")
    if not published:
        return config.calibrate(target, DELTA)
    return config.with_noise(published_noise_multiplier(design.mixup_degree / records, records, target, DELTA)).priced(
        DELTA
    )


@cache
def digits() -> tuple[Task, PublicData]:
    """Return scikit-learn's digits: 1,297 private ones, 400 of the test, and 100 others that are public."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order].astype(np.int64)
    public = PublicData.of(x[1297:1397].reshape(-1, 8, 8), y[1297:1397], classes=10)
    return Task((x[:1297], y[:1297]), (x[1397:], y[1397:]), 10), public


def digit_facts() -> ModelFacts:
    return ModelFacts(tuple("0123456789"), get_extractor("pixels").spec(), (8, 8), 64)


def network(seed: int) -> Any:
    """Return a convolution with tanh and a linear layer for digits: 2,730 weights."""
    import torch
    from torch import nn

    from privmix.training.models.own import OwnNetwork

    torch.manual_seed(seed)
    convolution, last = nn.Conv2d(1, 16, 3, padding=1), nn.Linear(256, 10)
    return OwnNetwork.of(nn.Sequential(convolution, nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), last), digit_facts())


def compared(
    better: str,
    other: str,
    lines: Mapping[str, Line],
    published: Mapping[str, Line] | None,
    words: Sequence[str],
    differs: str,
) -> Finding:
    """Return the finding on two lines; ``words``: of the epsilon, at the paper's noise and at the valid one."""
    valid = Gain(lines[better].shares, lines[other].shares, (better, other))
    before = None if published is None else Gain(published[better].shares, published[other].shares, (better, other))
    searched = [one.searched for one in ({} if published is None else published).values()]
    searched += [one.searched for one in lines.values() if one.searched not in searched]
    kept = {name: one.shares for name, one in lines.items()}
    kept |= {f"{name}, paper's noise": one.shares for name, one in (published or {}).items()}
    first = SAME if before is None else f"{before}; {words[0]}"
    return Finding(first, f"{valid}; {words[1]}", by_gain(valid, before), differs, tuple(searched), kept)


# DP-Mix (Bao et al. 2023)

SMALL: Final = "scikit-learn's digits (1,297 records, 8 x 8 pixels); the paper: CIFAR-10, a WRN-16-4"
RATES: Final = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32)
LINEAR_RATES: Final = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128)
CROP: Final = (Crop(padding=1),)


def microbatches() -> Finding:
    train = partial(digits()[0].trained, axes={"rate": RATES, "epochs": (1, 2, 4)}, target=8.0)
    plain = train("DP-SGD", "linear", digit_facts())
    mixed = {"microbatch_size": 2, "microbatch_mixes": 1, "microbatch_keep": False}
    lines = {"DP-SGD": plain, "mixup in microbatches": train("mixup in microbatches", "linear", digit_facts(), **mixed)}
    differs = f"a linear model for at most 4 epochs, {SMALL}"
    return compared("DP-SGD", "mixup in microbatches", lines, None, ("", "epsilon 8, delta 1e-5"), differs)


def self_mixup() -> Finding:
    axes, views = {"rate": RATES, "epochs": (3, 6, 12)}, {}
    views["DP-MIX_SELF"] = ViewConfig.dp_mix_self(4, 4, CROP)
    views["Self-Aug"] = ViewConfig.self_aug(4, CROP)
    train = partial(digits()[0].trained, model="module", facts=digit_facts(), axes=axes, target=1.0, batch_size=130)
    lines = {name: train(name, views=one) for name, one in views.items()}
    differs = f"a small network (2,730 weights), 4 crops and 4 mixes; {SMALL}, 16 and 16"
    return compared("DP-MIX_SELF", "Self-Aug", lines, None, ("", "epsilon 1, delta 1e-5"), differs)


# DP-InstaHide (Borgnia et al. 2021)

COLLISION, MATCHING = "feature-collision:128,120", "gradient-matching:192,60,1,1"
PLAIN, MIXUP_2, MIXUP_4, OWN, VALID = "none", "mixup:2", "mixup:4", "mixup:4+noise:16", "dp-instahide:8,0"
VICTIM_AXES: Final = {"rate": (0.01, 0.03, 0.1), "epochs": (4, 8, 16)}
# Poisoned records and trials; the seed of trials is none of those that chose the attacks' strength.
POISONED: Final = {COLLISION: 40, MATCHING: 75}
TRIALS: Final = {COLLISION: 20, MATCHING: 10}
TRIAL_SEED: Final = 1
NAMES: Final = {
    PLAIN: "no defence",
    MIXUP_2: "mixup of 2",
    MIXUP_4: "mixup of 4",
    OWN: "mixup of 4 with noise 16/255",
    VALID: "DP-InstaHide release",
}


def instahide_epsilon() -> Finding:
    records, degree, noise, pixels = 50_000, 4, 16 / 255, 3072
    claimed = published_instahide_epsilon(records, degree, noise, records)
    # An image counts 1/k in a mean of k. Two images lie up to `pixels` apart, as records of l1 norm `pixels` / 2 do.
    event = Repeated(FixedSizeSampled(records, degree, Laplace(2 * degree * noise / pixels)), records)
    true = epsilon(event, 0.0, accountant="pure", adjacency=Adjacency.REPLACE_ONE).epsilon
    return Finding(
        f"epsilon {rounded_up(claimed, 4)} by the paper's formula: no bound",
        f"epsilon {float(rounded_up(true)):,.0f}, delta 0, for images with pixels in [0, 1]",
        by_price(claimed, true),
        "CIFAR-10's sizes as in the paper, no data. The theorem needs records of l1 diameter 1; these have 3,072",
        lines={"claimed epsilon": (claimed,), "true epsilon": (true,)},
    )


def images(attack: str) -> tuple[VictimImages, VictimImages, Callable[[VictimConfig], Victim]]:
    """Return training images, test images and the victim; feature collision: on the extractor of 597 other digits."""
    task = digits()[0]
    train, test = (VictimImages.of(x.reshape(-1, 1, 8, 8), y, classes=10) for x, y in (task.private, task.test))
    if attack == MATCHING:
        return train.take(slice(900)), test, Victim
    body = pretrained(train.take(slice(700, None)), VictimConfig(epochs=12), seed=0)
    # The extractor fixes nothing but features: a victim's own rate and epochs are of its last layer.
    return train.take(slice(700)), test, lambda config: Victim(config, body)


@cache
def at_best(attack: str, defence: str) -> tuple[Any, Victim, str]:
    """Return the defence and the victim at the settings with the best clean accuracy, and what was searched."""
    train, _, victim_of = images(attack)
    held = len(train) // 5
    judge, clean = train.take(slice(held)), train.take(slice(held, None))
    axes = {"m": (4, 16, 64)} if defence == VALID else VICTIM_AXES

    def parts(setting: Mapping[str, Any]) -> tuple[Any, Victim]:
        if defence == VALID:
            return parse_defence(f"{VALID},{setting['m']}"), victim_of(VictimConfig())
        return parse_defence(defence), victim_of(VictimConfig(epochs=setting["epochs"], learning_rate=setting["rate"]))

    @cache
    def accuracy(*values: Any) -> float:
        found, victim = parts(dict(zip(axes, values, strict=True)))
        scenes = [PoisoningScene.draw(clean, judge, victim, seed=seed, number=0) for seed in SEARCH_SEEDS]
        models = [found.train(Case(clean, scene, POISONED[attack])).model for scene in scenes]
        return float(np.mean([model.predict(judge.pixels) == judge.labels for model in models]))

    start = {name: values[len(values) // 2] for name, values in axes.items()}
    best = common.walk(axes, start, lambda setting: accuracy(*setting.values()))
    return *parts(best), in_words(f"victim with {NAMES[defence]}", axes, best)


@cache
def trials(attack: str, adaptive: bool, *defences: str) -> list[tuple[tuple[float, ...], float]]:
    """Successes trial by trial and mean accuracy against each defence; all have the first one's victim."""
    train, test, _ = images(attack)
    config = TrialConfig(POISONED[attack], TRIALS[attack], seed=TRIAL_SEED, adaptive=adaptive)
    found, victim = [at_best(attack, one)[0] for one in defences], at_best(attack, defences[0])[1]
    results = run_trials(parse_attack(attack), found, train, test, victim, config)
    return [(tuple(float(one.success) for one in result.outcomes), result.accuracy) for result in results]


def defended(attack: str, defence: str, adaptive: bool, differs: str, other: str) -> Finding:
    """Return whether a defence lowers the attack's success; the row shows the success against ``other``, too."""
    # A release has no victim of its own: it meets the poisons of the undefended one.
    (plain, plain_accuracy), (valid, valid_accuracy) = trials(attack, False, PLAIN, VALID)
    searched = [at_best(attack, one)[2] for one in (PLAIN, defence, other, VALID)]
    if np.mean(plain) < 0.5:
        words = f"the attack succeeds in {np.mean(plain):.0%} of {len(plain)} trials without a defence: too few"
        return replace(untested(differs), published=words, searched=tuple(searched), lines={NAMES[PLAIN]: plain})
    ((found, accuracy),), ((more, more_accuracy),) = (trials(attack, adaptive, one) for one in (defence, other))
    own = TrialGain(plain, found, (NAMES[PLAIN], NAMES[defence]))
    released = TrialGain(plain, valid, (NAMES[PLAIN], NAMES[VALID]))
    usable = valid_accuracy >= plain_accuracy / 2
    return Finding(
        f"attack succeeds: {own}; {NAMES[other]} {np.mean(more):.0%}. Accuracy without a defence {plain_accuracy:.1%}, "
        f"{NAMES[defence]} {accuracy:.1%}, {NAMES[other]} {more_accuracy:.1%}. No bound",
        f"attack succeeds: {released}; epsilon 8, delta 0. Accuracy {valid_accuracy:.1%}"
        + ("" if usable else ": less than half of the accuracy without a defence, so it does not count"),
        by_gain(released if usable else None, own),
        differs,
        tuple(searched),
        {NAMES[PLAIN]: plain, NAMES[defence]: found, NAMES[other]: more, NAMES[VALID]: valid},
    )


def collision() -> Finding:
    differs = "scikit-learn's digits, 40 of 700 records moved by up to 128/255; the paper: CIFAR-10, 8/255"
    return defended(COLLISION, MIXUP_2, False, differs, OWN)


def adaptive_attack() -> Finding:
    differs = "scikit-learn's digits, 75 of 900 records moved by up to 192/255; the paper: CIFAR-10, 16/255. "
    differs += "Releases meet an attacker who is unaware of them"
    return defended(MATCHING, OWN, True, differs, MIXUP_4)


# DPFMix (Li et al. 2022)

# Records, rows and features of the simulation, and the excess of its error that still counts as the least error.
N, T, FEATURES, CLOSE, SIMULATIONS = 1024, 2048, 100, 2.0, range(20)


def best_degree() -> Finding:
    from scipy.linalg import toeplitz

    spectrum = np.linalg.eigvalsh(toeplitz(0.3 ** np.arange(FEATURES)))
    task, target = LinearTask(tuple(spectrum), 10.0, 1.0, 14.0, 36.0), (gdp_epsilon(2.0, DELTA), DELTA)

    def by_formula(records: int, rows: int, degree: int, target_epsilon: float, delta: float) -> float:
        return published_noise_multiplier(degree / records, rows, target_epsilon, delta)

    def errors(degree: int, noise: float, seeds: Sequence[int]) -> NDArray[np.float64]:
        runs = [simulate_linear_regression(task, N, T, degree, noise, np.random.default_rng(seed)).l2 for seed in seeds]
        return np.array(runs)

    texts, intervals, lines = [], [], {}
    predictions = {
        "paper's noise": (by_formula, round(published_optimal_degree(N, T, *target))),
        "valid": (honest_noise_multiplier, best_mixup_degree(N, T, FEATURES, *target, task=task).mixup_degree),
    }
    for name, (noise, predicted) in predictions.items():
        degrees = sorted({predicted, *(2**k for k in range(1, 9))})
        noises = {m: noise(N, T, m, *target) for m in degrees}
        tried = {m: errors(m, noises[m], SEARCH_SEEDS).mean() for m in degrees}
        least, worst = min(tried, key=tried.__getitem__), max(tried, key=tried.__getitem__)
        ours, lowest = (errors(m, noises[m], SIMULATIONS) for m in (predicted, least))
        excess = Gain(ours / lowest.mean(), lowest / lowest.mean(), ("", ""))
        intervals.append(excess.interval)
        lines |= {f"m = {predicted}, {name}": tuple(ours), f"m = {least}, {name}": tuple(lowest)}
        texts.append(
            f"predicted m = {predicted}, best simulated m = {least}; error {ours.mean():.2f} and {lowest.mean():.2f}: "
            f"excess {100 * (ours.mean() / lowest.mean() - 1):+.2f}%, 95% interval {excess.interval[0]:+.2f} to "
            f"{excess.interval[1]:+.2f}% ({len(SIMULATIONS)} runs); worst m = {worst}: error {tried[worst]:.2f}"
        )
    verdict = by_excess(*intervals[1], CLOSE)
    if verdict != HOLDS and by_excess(*intervals[0], CLOSE) == HOLDS:
        verdict = PRICE_ONLY
    valid = f"{texts[1]}; epsilon {rounded_up(target[0])}, delta 1e-5; holds if the excess is at most {CLOSE:g}%"
    searched = ("best simulated m: 2 to 256 by factors of 2 and the predicted one, on two other seeds",)
    return Finding(texts[0], valid, verdict, f"n = {N:,}, T = {T:,}, {FEATURES} features", searched, lines)


def features_against_pixels() -> Finding:
    pixels, target = digits()[0], 8.0
    extract = get_extractor("scattering").extract

    def scattered(split: Split) -> Split:
        return extract((255 * split[0]).astype(np.uint8).reshape(-1, 8, 8)), split[1]

    tasks = {"features": replace(pixels, private=scattered(pixels.private), test=scattered(pixels.test))}
    tasks["pixels"] = pixels
    axes = {"m": (1, 2, 4, 8, 16, 32, 64), "epochs": (10, 30, 60, 120, 240)}
    lines = [
        {name: task.released(f"{name}, {how}", axes, target, how != "valid") for name, task in tasks.items()}
        for how in ("paper's noise", "valid")
    ]
    true = [
        release_plan(design_of(line.best), 1297, task.private[0].shape[1], 10, target, True).epsilon
        for line, task in zip(lines[0].values(), tasks.values(), strict=True)
    ]
    words = (
        f"claimed epsilon 8; true epsilon: features {rounded_up(true[0])}, pixels {rounded_up(true[1])}",
        "epsilon 8, delta 1e-5",
    )
    differs = "scikit-learn's digits (1,297 records), scattering of 8 x 8 pixels, a linear model on both; the paper: "
    differs += "MNIST (60,000), epsilon 1, a network on pixels"
    return compared("features", "pixels", lines[1], lines[0], words, differs)


def limit_theorem() -> Finding:
    degrees = (64, 4)
    plans = {
        (m, published): release_plan(Poisson(mixup_degree=m), 60_000, 64, 10, 1.0, published)
        for m in degrees
        for published in (True, False)
    }
    true = [plans[m, True].epsilon for m in degrees]
    extra = [plans[m, False].noise_multiplier / plans[m, True].noise_multiplier for m in degrees]
    return Finding(
        "; ".join(f"m = {m}: true epsilon {rounded_up(one)}" for m, one in zip(degrees, true, strict=True)),
        "; ".join(f"m = {m}: epsilon 1 takes {one:.2f} times the noise" for m, one in zip(degrees, extra, strict=True))
        + "; delta 1e-5",
        by_price(1.0, max(true)),
        "MNIST's size, n = T = 60,000, no data; the verdict is of the worse m",
        lines={f"true epsilon, m = {m}": (one,) for m, one in zip(degrees, true, strict=True)},
    )


# NeuroMixGDP (Li et al. 2024)

CLASSES, DIM, RECORDS, SPREAD = 50, 64, 4000, 1.5
HS, POISSON, DP_SGD = "HS", "plain sampling", "DP-SGD"
DRAWN: Final = f"drawn data: {CLASSES} classes, {RECORDS:,} records, {DIM} features; the paper: MNIST, CIFAR-100"


@cache
def drawn_task() -> Task:
    """Return records of norm 1 around the means of equally likely classes."""
    means = np.random.default_rng(0).normal(size=(CLASSES, DIM))

    def drawn(records: int, seed: int) -> Split:
        generator = np.random.default_rng([1, seed])
        labels = generator.integers(0, CLASSES, records)
        x = (means / np.linalg.norm(means, axis=1, keepdims=True))[labels]
        x = x + SPREAD / DIM**0.5 * generator.normal(size=x.shape)
        return x / np.linalg.norm(x, axis=1, keepdims=True), labels

    return Task(drawn(RECORDS, 0), drawn(3000, 1), CLASSES)


@cache
def mixed_line(name: str, published: bool) -> Line:
    task, how = drawn_task(), "paper's noise" if published else "valid"
    if name == DP_SGD:
        facts = ModelFacts(tuple(map(str, range(CLASSES))), {"name": "identity"}, (DIM,), DIM)
        return task.trained(DP_SGD, "linear", facts, {"rate": LINEAR_RATES, "epochs": (4, 8, 15, 30)}, 1.0)
    axes: dict[str, Sequence[Any]] = {"m": (2, 4, 8, 16, 32, 64)}
    if name == HS:
        axes["classes"] = (1.5, 3.0, 10.0, 30.0)
    return task.released(f"{name}, {how}", axes, 1.0, published)


def against(other: str) -> Finding:
    published, lines = ({name: mixed_line(name, how) for name in (HS, other)} for how in (True, False))
    if other == DP_SGD:
        # The paper's epsilon of DP-SGD is a bound, too.
        published[other] = lines[other]
    true = [
        f"{name} {rounded_up(release_plan(design_of(line.best), RECORDS, DIM, CLASSES, 1.0, True).epsilon)}"
        for name, line in published.items()
        if name != DP_SGD
    ]
    words = (f"claimed epsilon 1; true epsilon: {', '.join(true)}", "epsilon 1, delta 1e-5")
    return compared(HS, other, lines, published, words, DRAWN)


def hierarchical_price() -> Finding:
    design = Hierarchical(mixup_degree=64, expected_classes=3.0)
    plan, valid = (release_plan(design, RECORDS, DIM, CLASSES, 1.0, published) for published in (True, False))
    proven = audit_plan(plan, 1.0, DELTA, own_price=False, runs=4000, seed=0).proven_epsilon
    return Finding(
        f"true epsilon {rounded_up(plan.epsilon)}; an attack proves at least {rounded_down(proven)}",
        f"epsilon 1, delta 1e-5 takes {valid.noise_multiplier / plan.noise_multiplier:.1f} times the noise",
        by_price(1.0, plan.epsilon),
        f"n = T = {RECORDS:,}, {CLASSES} classes, m = 64, 3 classes in a row; the paper: n = T = 50,000, 100 classes",
        lines={"true epsilon": (plan.epsilon,), "proven epsilon": (proven,)},
    )


# Public data synthesis (Park et al. 2024)

COLD, WARM, AUGMENTED = "cold", "warm", "warm with crops"


@cache
def started(name: str) -> Line:
    task, public = digits()
    axes: dict[str, Sequence[Any]] = {"rate": (*RATES, 64, 128), "epochs": (3, 6, 12)}
    train = partial(task.trained, name, "module", digit_facts(), target=2.0, batch_size=130)
    if name == COLD:
        return train(axes)
    axes |= {"warm-up epochs": (30, 60, 120), "warm-up rate": (0.025, 0.05, 0.1, 0.2)}
    warm_up = WarmUpConfig(optimiser="sgd", augmentations=() if name == WARM else CROP)
    return train(axes, public=public, scenario="warm", warm_up=warm_up)


def step(better: str, other: str) -> Finding:
    lines = {name: started(name) for name in (better, other)}
    differs = (
        "scikit-learn's digits, 1,297 private and 100 public, a small network (2,730 weights); the paper: CIFAR-10, "
    )
    differs += "2,000 public images, a WRN-16-4" + ("" if better == WARM else ", with images by EDM")
    return compared(better, other, lines, None, ("", "epsilon 2, delta 1e-5"), differs)


PAPERS: Final[Mapping[str, Mapping[str, Claim]]] = {
    "dp-mix": {
        "table-1": Claim(
            "Table 1: mixup of records in microbatches",
            "DP-SGD 72.5%, mixup in microbatches of 2 records 50.1% (CIFAR-10, epsilon 8)",
            microbatches,
            "microbatches",
        ),
        "table-2": Claim(
            "Table 2: mixup of a record's own views",
            "DP-MIX_SELF 57.2%, Self-Aug 56.8% (CIFAR-10, epsilon 1)",
            self_mixup,
            "training_ablation",
        ),
        "table-3": Claim(
            "Table 3: mixup with a public pool",
            "DP-MIX_DIFF 89.7%, Self-Aug 80.4% (Caltech256, a ViT, epsilon 1)",
            lambda: untested("needs a public pool of photographs and a pretrained network"),
            "photograph_views",
        ),
    },
    "dp-instahide": {
        "figure-1a": Claim(
            "Figure 1a: pure epsilon of mixup with noise",
            "epsilon 210 for means of 4 images with Laplace noise 16/255 (n = T = 50,000)",
            instahide_epsilon,
            "poisoning_theory",
        ),
        "table-a4": Claim(
            "Table A4: feature collision",
            "the attack succeeds in 80% of trials without a defence, in 5% with mixup of 2 (CIFAR-10)",
            collision,
            "poisoning",
        ),
        "table-a2": Claim(
            "Table A2, Figure 1b: gradient matching by an attacker who knows the defence",
            "mixup of 4 lets 55% succeed (5% if the attacker is unaware); added noise stops more (CIFAR-10)",
            adaptive_attack,
            "poisoning",
        ),
        "table-a1": Claim(
            "Table A1: patch backdoor",
            "the attack succeeds in 45.6% without a defence, in 23.9% with mixup of 2 (CIFAR-10, 10% of a class)",
            lambda: untested("on digits of 8 x 8 pixels the patch fails without any defence"),
            "poisoning",
        ),
    },
    "dpfmix": {
        "figure-2": Claim(
            "Figure 2: the best number m of mixed records",
            "theory predicts the m with the least error of simulated regressions",
            best_degree,
            "theory",
        ),
        "table-3": Claim(
            "Tables 1 and 3: mixed features against mixed pixels",
            "features 89.8%, pixels 79.2% (MNIST, epsilon 1)",
            features_against_pixels,
            "utility",
        ),
        "accounting": Claim(
            "Tables 1 to 3: epsilon by the limit theorem", "epsilon 1", limit_theorem, "noise_comparison"
        ),
    },
    "neuromixgdp": {
        "table-2": Claim(
            "Table 2: hierarchical sampling (HS) against plain sampling",
            "HS 92.7%, plain sampling 89.8% (MNIST, epsilon 1)",
            lambda: against(POISSON),
            "hierarchical",
        ),
        "figure-5": Claim(
            "Figure 5: HS against DP-SGD",
            "HS is more accurate than DP-SGD with many classes at small epsilon (CIFAR-100, a plot)",
            lambda: against(DP_SGD),
            "hierarchical",
        ),
        "accounting": Claim(
            "Table 2, Figure 5: epsilon of HS, as of plain sampling at the product of both rates",
            "epsilon 1",
            hierarchical_price,
            "audit",
        ),
    },
    "public-synthesis": {
        "table-1-warm": Claim(
            "Table 1: warm start on public records",
            "warm 68.1%, cold 64.0% (CIFAR-10, epsilon 2)",
            lambda: step(WARM, COLD),
            "ladder",
        ),
        "table-1-augmentation": Claim(
            "Table 1: augmentation in the warm-up",
            "with crops and cutout 84.9%, without 75.1% (CIFAR-10, images by EDM, epsilon 2)",
            lambda: step(AUGMENTED, WARM),
            "warm_up",
        ),
        "table-1-last": Claim(
            "Table 1: sharpness-aware warm-up (SAM), then weight multiplicity",
            "SAM adds 0.4 points, weight multiplicity 0.5 (CIFAR-10, images by EDM, epsilon 2)",
            lambda: untested("steps of half a point need more runs and records than minutes allow"),
            "ladder",
        ),
        "table-1-synthesis": Claim(
            "Table 1: synthetic images by a diffusion model",
            "with images by EDM 75.1%, without 68.1% (CIFAR-10, epsilon 2)",
            lambda: untested("a diffusion model trains for hours on two cores"),
            "synthesis",
        ),
    },
}
