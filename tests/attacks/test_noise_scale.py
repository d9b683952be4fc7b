"""Noise audits: honest noise passes and planted faults are caught; either errs with chance below 1e-9 a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privmix.attacks import noise_scale
from privmix.attacks.noise_scale import DEFAULT_SAMPLES, NoiseAudit, audit_noise, measure
from privmix.audits import empty_runs
from privmix.audits.empty_runs import GAUSSIAN, LAPLACE, PureNoise, release_noises
from privmix.designs.moments import engine as moments_engine
from privmix.engine import rows as engine
from privmix.mechanisms.plan import ALL_RECORDS
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.plans.registry import all_designs
from privmix.training.plan import TrainingPlan
from privmix.training.worst_case import training_noise
from tests.refusals import refuses
from tests.releases.helpers import own_options

SAMPLES = 2**15
SMALL: dict[str, Any] = {"records": 1000, "dim": 5, "classes": ("ant", "bee", "cat"), "mixup_degree": 20, "rows": 60}
PLANS: dict[str, dict[str, Any]] = {
    "poisson": {},
    "allocation": {"design": "allocation"},
    "fixed": {"design": "fixed"},
    "laplace": {"design": "fixed", "noise": "laplace", "centre": "none"},
    "hierarchical": {"design": "hierarchical", "expected_classes": 1.5},
    "classwise": {"design": "classwise"},
    "full-batch": {"design": "classwise", "full_batch": True, "rows": None},
    "random-weight": {"design": "random-weight", "max_weight": 0.5},
    "gaussian-mixing": {"design": "gaussian-mixing"},
    "moments": {"design": "moments"},
    "moments-no-label": {"design": "moments", "classes": ALL_RECORDS},
    "moments-series": {"design": "moments-series", "steps": 3},
    "merf": {"design": "merf", "frequencies": 64},
    "hermite": {"design": "hermite", "order": 4, "pairs": 3, "pair_order": 4},
    "class-moments": {"design": "class-moments"},
    "corrected-moments": {"design": "corrected-moments"},
    "two-stage": {"design": "two-stage"},
    "three-stage": {"design": "three-stage"},
}
TRAINING = TrainingPlan(1000, 100, 50, 1.3, clip_norm=0.7, delta=1e-5)
# Which stream each noise is drawn from, and a plan that has it.
NOISES = {
    "mean": ("poisson", "centre noise"),
    "features": ("poisson", "feature noise"),
    "labels": ("random-weight", "label noise"),
    "second moments: diagonal": ("moments", "second moment noise: diagonal"),
    "second moments: off diagonal": ("moments", "second moment noise"),
    "second moments of each class: diagonal": ("class-moments", "class second moment noise: diagonal"),
    "second moments of each class: off diagonal": ("class-moments", "class second moment noise"),
    "cross moments": ("moments", "cross moment noise"),
    "label sums": ("moments", "label sum noise"),
    "class embeddings": ("merf", "embedding noise"),
    "class sizes": ("hermite", "class size noise"),
    "errors": ("corrected-moments", "error noise"),
    "norms": ("two-stage", "norm count noise"),
    "scatter within classes: diagonal": ("two-stage", "scatter noise: diagonal"),
    "scatter within classes: off diagonal": ("two-stage", "scatter noise"),
    "scatter of each class: diagonal": ("three-stage", "class scatter noise: diagonal"),
    "scatter of each class: off diagonal": ("three-stage", "class scatter noise"),
}


def plan_of(name: str, **changes: Any) -> Plan:
    return ReleaseConfig(**own_options({**SMALL, **PLANS[name], **changes})).with_noise(2.0)


def audit(plan: Plan | TrainingPlan, seed: int = 0) -> NoiseAudit:
    return audit_noise(plan, samples=SAMPLES, seed=seed)


def verdicts(found: NoiseAudit) -> dict[str, str]:
    return {noise.name: noise.verdict for noise in found.noises if noise.verdict != "as certified"}


@pytest.fixture(autouse=True)
def rare_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 600 audits a test, together below 1e-9."""
    monkeypatch.setattr(noise_scale, "FALSE_ALARM", 1e-12)


class Scaled:
    """A generator whose draws are ``factor`` times as long."""

    def __init__(self, honest: np.random.Generator, factor: float) -> None:
        self._honest, self._factor = honest, factor

    def standard_normal(self, size: Any = None, out: Any = None) -> Any:
        drawn = self._honest.standard_normal(size, out=out)
        drawn *= self._factor
        return drawn

    def standard_exponential(self, size: Any = None) -> Any:
        return self._factor * self._honest.standard_exponential(size)


def plant(monkeypatch: pytest.MonkeyPatch, purpose: str, factor: float) -> None:
    honest = SecretStreams.lent

    @contextmanager
    def lent(self: SecretStreams, name: str, *indices: int) -> Iterator[Any]:
        with honest(self, name, *indices) as found:
            yield Scaled(found, factor) if name == purpose else found

    monkeypatch.setattr(SecretStreams, "lent", lent)


def test_every_design_is_here() -> None:
    assert {plan_of(name).design for name in PLANS} == {design.name for design in all_designs()}


@pytest.mark.parametrize("changes", [{}, {"classes": ("ant", "bee")}], ids=["usual", "two classes"])
@pytest.mark.parametrize("name", PLANS)
def test_right_noise_passes(name: str, changes: dict[str, Any]) -> None:
    """Each figure is one of the certificate: what a label adds depends on the number of classes."""
    plan = plan_of(name, **changes)
    found = audit(plan)
    assert not found.violated, found
    names = {noise.name for noise in found.noises}
    assert ("mean" in names) == plan.centred
    assert len(found.noises) == len(names) >= (2 if name != "laplace" else 1)
    assert "no private record was read" in found.statements[0]
    content = {"plan": plan.to_dict(), "noise_std": plan.noise_std}
    for noise in found.noises:
        assert noise.low < noise.measured < noise.high
        assert noise.samples >= SAMPLES
        place, _, divided = noise.source.partition(" / ")
        group, _, field = place.partition(".")
        assert divided == ("sqrt 2" if "off diagonal" in noise.name else "")
        assert noise.certified == content[group][field] / (2**0.5 if divided else 1), noise


MORE = [("features", "laplace", "feature noise"), ("labels", "laplace", "label noise")]
MORE += [(name, "moments-no-label", NOISES[name][1]) for name in NOISES if NOISES[name][0] == "moments"][:2]


@pytest.mark.parametrize(("name", "design", "purpose"), [*((name, *NOISES[name]) for name in NOISES), *MORE])
def test_95_hundredths_of_a_noise_are_caught(
    name: str, design: str, purpose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, purpose, 0.95)
    assert verdicts(audit(plan_of(design))) == {name: "too little noise"}


@pytest.mark.parametrize("factor", [1.0, 0.95])
@pytest.mark.parametrize(
    ("name", "design", "persons", "certified"),
    [
        ("record count", "poisson", {}, 30.0),
        ("records of persons", "moments", {"per_person": 1, "person_quantile": 0.9}, 30 * 2**0.5),
    ],
)
def test_the_noise_of_private_counts(
    name: str, design: str, persons: Any, certified: float, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, name, factor)
    monkeypatch.setattr(empty_runs, "_COUNT_SHARE", 1)
    noise = next(release_noises(plan_of(design, records_noise_multiplier=30.0, **persons), 25_000, seed=0))
    assert (noise.name, noise.certified) == (name, certified)
    assert measure(noise, 0.95).verdict == ("as certified" if factor == 1 else "too little noise")


@pytest.mark.parametrize("factor", [1.0, 0.9])
def test_the_noise_of_a_trainings_count(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "record count", factor)
    monkeypatch.setattr(empty_runs, "_COUNT_SHARE", 1)
    found = audit(replace(TRAINING, records_declared=True, records_noise_multiplier=30.0))
    assert [noise.name for noise in found.noises] == ["record count", "gradients"]
    assert verdicts(found) == ({} if factor == 1 else {"record count": "too little noise"})


@pytest.mark.parametrize("microbatch_size", [1, 4])
@pytest.mark.parametrize("factor", [1.0, 0.95])
def test_the_noise_of_gradients(factor: float, microbatch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "gradient noise", factor)
    found = audit(replace(TRAINING, microbatch_size=microbatch_size))
    assert (found.noises[0].certified, found.noises[0].source) == (1.3, "plan.noise_multiplier")
    assert verdicts(found) == ({} if factor == 1 else {"gradients": "too little noise"})


def test_too_much_noise_is_no_right_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "feature noise", 1.05)
    assert verdicts(audit(plan_of("poisson"))) == {"features": "too much noise"}


def test_noise_of_another_law_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the right deviation, and uniform: its tails end where a record can be told from no record."""

    def uniform(generator: np.random.Generator, shape: Any, std: float) -> Any:
        return np.rint(generator.uniform(-std, std, shape) * 3**0.5)

    for module in (engine, moments_engine):
        monkeypatch.setattr(module, "gaussian_on_lattice", uniform)
    for name in ("poisson", "moments"):
        assert set(verdicts(audit(plan_of(name))).values()) == {"another shape"}


def forgetful(monkeypatch: pytest.MonkeyPatch, purpose: str, instead: str | None = None) -> None:
    """Streams of ``purpose`` forget their index, or are those of another purpose."""
    honest = SecretStreams.lent

    def lent(self: SecretStreams, name: str, *indices: int) -> Any:
        if name != purpose:
            return honest(self, name, *indices)
        return honest(self, name) if instead is None else honest(self, instead, *indices)

    monkeypatch.setattr(SecretStreams, "lent", lent)


@pytest.mark.parametrize(
    ("name", "plan"),
    [("feature", plan_of("classwise")), ("error", plan_of("corrected-moments")), ("gradient", TRAINING)],
    ids=["tile", "correction", "step"],
)
def test_noise_of_one_tile_or_step_for_all_is_caught(name: str, plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful(monkeypatch, f"{name} noise")
    assert verdicts(audit(plan)) == {f"{name}s": "not independent"}


def test_labels_with_the_noise_of_features_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of each is drawn at once where rows are narrow: their first columns are then equal."""
    forgetful(monkeypatch, "label noise", "feature noise")
    found = verdicts(audit(plan_of("fixed", classes=tuple(map(str, range(256))))))
    assert found["features"] == "not independent"


def test_a_row_of_noise_used_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = engine.gaussian_on_lattice

    def repeated(generator: np.random.Generator, shape: Any, std: float) -> Any:
        noise = honest(generator, shape, std)
        if noise.ndim == 2:
            noise[1::2] = noise[: len(noise) // 2 * 2 : 2]
        return noise

    monkeypatch.setattr(engine, "gaussian_on_lattice", repeated)
    assert verdicts(audit(plan_of("poisson"))) == {"features": "not independent", "labels": "not independent"}


def measured(law: str, std: float, confidence: float, shape: tuple[int, int], seed: Any, stated: float = 1.0) -> Any:
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=shape) if law == GAUSSIAN else rng.laplace(size=shape) / 2**0.5
    return measure(PureNoise("x", law, stated * std, stated * std, 1.0, np.rint(std * drawn)), confidence)


@pytest.mark.parametrize(("law", "std"), [(GAUSSIAN, 9.0), (LAPLACE, 70.0)])
def test_intervals_hold_as_often_as_they_say_and_alarms_are_rare(law: str, std: float) -> None:
    """600 intervals of 90%, of coarse noise: the share that holds is within 7 standard errors (below 1e-11)."""
    found = [measured(law, std, 0.9, (20, 100), (0, run)) for run in range(600)]
    assert all(one.verdict == "as certified" for one in found)
    assert abs(sum(one.low <= std <= one.high for one in found) - 540) < 7 * (600 * 0.09) ** 0.5


@pytest.mark.parametrize(("law", "steps"), [(GAUSSIAN, 4.0), (LAPLACE, 64.0)])
def test_rounding_of_the_coarsest_noise_is_no_bias(law: str, steps: float) -> None:
    """Within 7 standard errors of the default's draws; Laplace noise of 4 steps, 6 of them off, is refused."""
    shape = DEFAULT_SAMPLES // 64, 64
    found = measured(law, steps, 1 - 1e-11, shape, 1)
    assert found.verdict == "as certified"
    assert found.low <= (steps**2 + 1 / 12) ** 0.5 <= found.high
    with refuses("noise"):
        measured(law, steps, 0.95, shape, 1, stated=0.9)


def test_what_can_not_be_judged_is_refused() -> None:
    coarse = ReleaseConfig(**{**SMALL, "centre": "none", "lattice_bits": 8}).with_noise(0.005)
    with refuses("noise"):
        audit(coarse)
    with refuses("samples"):
        audit_noise(TRAINING, samples=10)
    with refuses("confidence"):
        audit_noise(TRAINING, samples=SAMPLES, confidence=2.0)


def test_noise_is_fresh_without_a_seed() -> None:
    first, second = (training_noise(TRAINING, 5000).values for _ in range(2))
    assert (first != second).mean() > 0.99
