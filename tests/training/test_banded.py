"""Banded matrix factorisation: price, batches, noise, audit, and whole runs."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import linalg, stats

from privmix.accounting import Adjacency
from privmix.attacks.noise_scale import AS_CERTIFIED, audit_noise
from privmix.audits.bounds import proven_epsilon
from privmix.errors import InvalidInput
from privmix.mechanisms.noise import square_root
from privmix.mechanisms.plan import check_price
from privmix.mechanisms.streams import SecretStreams
from privmix.training.batches import PoissonBatches
from privmix.training.certificate import read_certificate
from privmix.training.mechanisms.banded import mechanism as banded
from privmix.training.mechanisms.banded.mechanism import (
    BandedNoise,
    CyclicBatches,
    best_factor,
    errors,
    mean_error,
    normalised,
)
from privmix.training.mechanisms.banded.options import BandedOptions
from privmix.training.mechanisms.banded.plan import BandedPlan
from privmix.training.mechanisms.base import plan_from_dict
from privmix.training.noise import grid_of, noise_scale
from privmix.training.plan import TrainingPlan
from privmix.training.verify import _check_settings, verify_trained
from privmix.training.worst_case import attack_training
from privmix.world import World
from tests.attacks.test_canaries import trained, training
from tests.audits.test_sensitivity import far_apart, step_of, trainer_of
from tests.refusals import refuses
from tests.training.runs import config_of, files, job_of, private, run_to, weights_of

STEPS, FALSE_ALARM = 12, 1e-10
Changes = dict[str, Any]


def plan_of(bands: int, **changes: Any) -> BandedPlan:
    given: Changes = {
        "records": 400,
        "batch_size": 40,
        "steps": STEPS,
        "noise_multiplier": 1.0,
        "clip_norm": 0.3,
        "delta": 0.01,
        "coefficients": best_factor(STEPS, bands),
        **changes,
    }
    return BandedPlan(**given)


def matrix(plan: BandedPlan, steps: int) -> Any:
    column = np.zeros(steps)
    column[: plan.bands] = plan.coefficients
    return linalg.toeplitz(column, np.zeros(steps))


# The factor


@pytest.mark.parametrize(("steps", "bands", "momentum"), [(40, 4, 0.0), (40, 40, 0.0), (300, 2, 0.9), (25, 7, 0.9)])
def test_the_factor_is_banded_of_norm_one_and_no_change_of_a_coefficient_is_better(
    steps: int, bands: int, momentum: float
) -> None:
    found = best_factor(steps, bands, momentum)
    assert len(found) == bands
    assert math.hypot(*found) == pytest.approx(1, abs=1e-12)
    least = mean_error(found, steps, momentum)
    assert least < mean_error(normalised(square_root(bands)), steps, momentum) * (1 + 1e-9)
    for place in range(bands):
        for change in (-1e-2, 1e-2):
            other = [value + change * (number == place) for number, value in enumerate(found)]
            assert mean_error(normalised(other), steps, momentum) >= least * (1 - 1e-6)


def test_errors_are_those_of_the_matrices() -> None:
    plan = plan_of(3)
    triangle = np.tril(np.ones((STEPS, STEPS)))
    found = triangle @ np.linalg.inv(matrix(plan, STEPS))
    np.testing.assert_allclose(errors(plan.coefficients, STEPS), (found**2).sum(axis=1))
    momentum = np.tril(0.9 ** (np.arange(STEPS)[:, None] - np.arange(STEPS)))
    found = triangle @ momentum @ np.linalg.inv(matrix(plan, STEPS))
    np.testing.assert_allclose(errors(plan.coefficients, STEPS, 0.9), (found**2).sum(axis=1))


# The price


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_band_costs_what_dp_sgd_costs(adjacency: Adjacency) -> None:
    plan = plan_of(1, adjacency=adjacency)
    same = TrainingPlan(400, 40, STEPS, 1.0, clip_norm=0.3, delta=0.01, adjacency=adjacency)
    assert plan.event == same.event
    assert plan.cost() == same.cost()
    assert plan.cost(5) == same.cost(5)


def test_as_many_bands_as_steps_of_one_pass_are_one_gaussian_query() -> None:
    plan = plan_of(10, steps=10, coefficients=best_factor(10, 10))
    mu = 1 / plan.noise_multiplier
    epsilon = plan.cost().epsilon
    delta = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(0.01, rel=1e-2)
    assert delta <= 0.01


@pytest.mark.parametrize(("bands", "steps", "turns"), [(3, 12, 4), (3, 13, 5), (5, 12, 3), (4, 1, 1)])
def test_a_record_is_priced_for_the_turns_of_the_group_with_most(bands: int, steps: int, turns: int) -> None:
    plan = plan_of(bands, steps=steps)
    assert plan.event.count == turns  # type: ignore[union-attr]
    assert plan.event.event.sampling_rate == pytest.approx(bands * 0.1)  # type: ignore[union-attr]
    assert turns == max(len(range(group, steps, bands)) for group in range(bands))


def test_price_bounds_the_delta_of_simulated_losses() -> None:
    """Losses of the worst case, with the group known, by Monte Carlo: the mean stays below, up to seven deviations."""
    plan, rng = plan_of(3), np.random.default_rng(0)
    turns, rate, draws = 4, plan.group_rate, 200_000
    joined = rng.random((draws, turns)) < rate
    shown = joined + rng.normal(size=(draws, turns)) * plan.noise_multiplier
    losses = np.log1p(rate * np.expm1((2 * shown - 1) / (2 * plan.noise_multiplier**2))).sum(axis=1)
    share = np.maximum(0, -np.expm1(plan.cost().epsilon - losses))
    assert abs(share.mean() - plan.delta) < 7 * share.std() / draws**0.5 + 0.01 * plan.delta


def test_calibrated_plans_meet_their_target_and_come_back_from_json() -> None:
    config = config_of(mechanism="banded:bands=3", epsilon=2.0)
    plan = config.plan(200)
    assert isinstance(plan, BandedPlan)
    assert plan.cost().epsilon <= 2.0
    again = plan_from_dict(plan.to_dict())
    assert again == plan
    assert type(again) is BandedPlan
    assert type(config).from_settings(config.settings()) == config
    for odd in ({"coefficients": [2.0, 0.0]}, {"mechanism": "other"}):
        with pytest.raises(InvalidInput):
            plan_from_dict({**plan.to_dict(), **odd})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"mechanism": "banded:bands=0"}, "bands"),
        ({"mechanism": "banded:bands=7"}, "bands"),
        ({"mechanism": "banded:bands=4", "batch_size": 60}, "records over batch size"),
        ({"mechanism": "banded:bands=2", "microbatch_size": 2}, "microbatch_size"),
        ({}, "bands: got None"),
        ({"mechanism": "dp-sgd:bands=2"}, "dp-sgd"),
        ({"mechanism": "other:bands=2"}, "mechanism"),
    ],
)
def test_what_does_not_hold_is_refused(changes: Changes, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        config_of(**{"mechanism": "banded", **changes}).plan(200)


def test_several_processes_are_refused() -> None:
    job = job_of(config_of(mechanism="banded:bands=2"))
    with refuses("mechanism"):
        job.check_world(World(rank=0, size=2))


# The batches


def test_a_record_joins_in_its_own_turns_alone_and_with_the_right_chance() -> None:
    plan = plan_of(4, records=4000, batch_size=200, steps=400, coefficients=best_factor(400, 4))
    batches = CyclicBatches(plan, SecretStreams.from_seed(0), 4000)
    joined = np.zeros((400, 4000), bool)
    for step in range(400):
        joined[step, batches.draw(step).indices] = True
    by_group = np.stack([joined[group::4].sum(axis=0) for group in range(4)])
    assert ((by_group > 0).sum(axis=0) <= 1).all()
    groups = by_group.argmax(axis=0)
    assert stats.chisquare(np.bincount(groups, minlength=4)).pvalue > FALSE_ALARM
    total = int(joined.sum())
    assert stats.binomtest(total, 4000 * 100, plan.group_rate).pvalue > FALSE_ALARM
    # Nothing ties a group to a record's place.
    assert (
        stats.chi2_contingency(np.stack([np.bincount(half, minlength=4) for half in np.split(groups, 2)])).pvalue
        > FALSE_ALARM
    )


def test_shards_split_the_batch() -> None:
    plan = plan_of(3)
    whole = CyclicBatches(plan, SecretStreams.from_seed(0), 400)
    parts = [CyclicBatches(plan, SecretStreams.from_seed(0), 400, *cut) for cut in ((0, 150), (150, 400))]
    for step in (5, 0, 7):
        found = np.concatenate([part.draw(step).indices for part in parts])
        np.testing.assert_array_equal(found, whole.draw(step).indices)


# The noise


def test_what_is_released_follows_from_the_priced_query_alone() -> None:
    """r_t = round((y_t - sum of c_k r_{t-k}) / c_0) of y = C x + z, with x on the grid: in exact arithmetic, here."""
    plan, size = plan_of(3), 5
    rng, streams = np.random.default_rng(0), SecretStreams.from_seed(1)
    grid = grid_of(size, plan.clip_norm)
    x = rng.integers(-1000, 1000, (STEPS, size))
    add = BandedNoise(plan, streams)
    released = np.stack([add(torch.from_numpy(x[t] * grid), t).double().numpy() for t in range(STEPS)])
    c = [Fraction(value) for value in plan.coefficients]
    z = [
        [
            Fraction(float(value))
            for value in streams.generator("gradient noise", t).standard_normal(size) * (noise_scale(plan) / grid)
        ]
        for t in range(STEPS)
    ]
    y = [
        [sum(c[k] * int(x[t - k][i]) for k in range(min(3, t + 1))) + z[t][i] for i in range(size)]
        for t in range(STEPS)
    ]
    made: list[list[int]] = []
    for t in range(STEPS):
        made.append(
            [round((y[t][i] - sum(c[k] * made[t - k][i] for k in range(1, min(3, t + 1)))) / c[0]) for i in range(size)]
        )
    wanted = (np.array(made, dtype=np.float64) * (grid / plan.units)).astype(np.float32)
    np.testing.assert_array_equal(released.astype(np.float32), wanted)


def test_the_noise_is_the_inverse_of_c_times_independent_draws() -> None:
    plan, size = plan_of(4), 20_000
    add = BandedNoise(plan, SecretStreams.from_seed(0))
    rows = np.stack(
        [add(torch.zeros(size, dtype=torch.float64), t).double().numpy() * plan.units for t in range(STEPS)]
    )
    white = matrix(plan, STEPS) @ rows / noise_scale(plan)
    covariance = white @ white.T / size
    assert np.abs(covariance - np.eye(STEPS)).max() < 6 * (2 / size) ** 0.5
    inverse = np.linalg.inv(matrix(plan, STEPS))
    np.testing.assert_allclose(rows @ rows.T / size / noise_scale(plan) ** 2, inverse @ inverse.T, atol=0.2)


def test_any_step_out_of_turn_has_the_noise_of_its_turn() -> None:
    plan, zero = plan_of(3), torch.zeros(7, dtype=torch.float64)
    add = BandedNoise(plan, SecretStreams.from_seed(0))
    rows = [add(zero, step) for step in range(STEPS)]
    for step in (5, 6, 0, 11, 11, 3):
        assert torch.equal(add(zero, step), rows[step])
        assert torch.equal(BandedNoise(plan, SecretStreams.from_seed(0))(zero, step), rows[step])


# The audit


AUDITED = plan_of(2, noise_multiplier=0.8)
# A record's one turn in eight steps hides behind little, if it is one.
ONE_TURN = plan_of(8, steps=8, batch_size=25, coefficients=best_factor(8, 8))
RUNS = 8000


def proven(plan: BandedPlan = AUDITED, runs: int = RUNS) -> float:
    thresholds = plan.cost().epsilon * np.linspace(0.2, 1.2, 9)
    found = attack_training(plan, runs, seed=0)
    return proven_epsilon(found.without, found.present, thresholds, plan.delta, FALSE_ALARM)


def test_the_right_run_passes_audits() -> None:
    assert proven() <= AUDITED.cost().epsilon
    assert proven() > 0
    assert proven(ONE_TURN, RUNS // 2) <= ONE_TURN.cost().epsilon
    assert not audit_noise(AUDITED, samples=2**15, seed=0).violated


@pytest.mark.parametrize("bands", [1, 2, 5])
def test_two_thirds_of_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch, bands: int) -> None:
    plan = plan_of(bands)
    assert [one.verdict for one in audit_noise(plan, samples=2**15, seed=0).noises] == [AS_CERTIFIED]
    monkeypatch.setattr(banded, "noise_scale", lambda plan: noise_scale(plan) * 2 / 3)
    assert audit_noise(plan, samples=2**15, seed=0).violated


def test_a_factor_whose_norm_is_forgotten_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """C scaled so that its diagonal is 1: noise C^-1 z is then too small by the norm of its columns."""
    monkeypatch.setattr(banded, "noise_scale", lambda plan: noise_scale(plan) * plan.coefficients[0])
    assert audit_noise(AUDITED, samples=2**15, seed=0).violated


def test_noise_that_is_not_correlated_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """z in place of C^-1 z: as private, but not what the plan says."""

    def advance(self: BandedNoise, step: int, size: int, grid: float) -> Any:
        self._rows.clear()
        return honest(self, step, size, grid)

    honest = BandedNoise.advance
    monkeypatch.setattr(BandedNoise, "advance", advance)
    assert audit_noise(AUDITED, samples=2**15, seed=0).violated


def test_a_wrong_rate_within_a_group_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody of a group in its step, priced at the rate of the plan."""

    def members(self: CyclicBatches, step: int) -> Any:
        return np.flatnonzero(self._groups(self.plan.bands) == step % self.plan.bands)  # type: ignore[attr-defined]

    monkeypatch.setattr(CyclicBatches, "members", members)
    assert proven() > AUDITED.cost().epsilon


def test_groups_that_share_their_turns_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """All records in each step, at the rate of a group: a record has b times its turns, and they overlap."""
    monkeypatch.setattr(CyclicBatches, "members", PoissonBatches.members)
    assert proven(ONE_TURN, RUNS // 2) > ONE_TURN.cost().epsilon


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_record_moves_a_step_of_its_turn_by_more_than_the_noise_is_scaled_to(adjacency: Adjacency) -> None:
    plan = plan_of(
        2,
        records=12,
        batch_size=6,
        clip_norm=0.4,
        coefficients=best_factor(12, 2),
        adjacency=adjacency,
        records_declared=True,
    )
    features, labels = far_apart(count=12)
    shares = []
    for position in range(12):
        found = step_of(trainer_of(plan, "closed-form"), features, labels, position, plan)
        assert not found.exceeded, found
        shares.append(found.share)
    # At rate 1 a record takes each of its turns; one that is classified right has no gradient.
    assert sum(share > 0.3 for share in shares) >= 9


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_canaries_audit_a_run_and_find_noise_that_is_too_small(
    adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(training(adjacency=adjacency), mechanism="banded", mechanism_options=BandedOptions(2))
    proof = trained(config).proof
    assert proof.proven_epsilon <= proof.claimed_epsilon
    with refuses("evidence"):
        trained(config, evidence="neighbours")
    monkeypatch.setattr(banded, "noise_scale", lambda plan: noise_scale(plan) / 8)
    assert trained(config).proof.proven_epsilon > proof.claimed_epsilon


# Whole runs


def test_a_run_is_certified_verified_and_resumed_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(mechanism="banded:bands=3")
    whole = run_to(tmp_path / "whole", job_of(config))
    honest, asked = BandedNoise.__call__, []

    def killed(self: BandedNoise, total: torch.Tensor, step: int) -> torch.Tensor:
        asked.append(step)
        if step == 4 and asked.count(4) == 1:
            raise KeyboardInterrupt
        return honest(self, total, step)

    monkeypatch.setattr(BandedNoise, "__call__", killed)
    with pytest.raises(KeyboardInterrupt):
        run_to(tmp_path / "model", job_of(config))
    resumed = run_to(tmp_path / "model", job_of(config), resume=True)
    assert torch.equal(weights_of(whole), weights_of(resumed))
    assert files(tmp_path / "whole")["weights.safetensors"] == files(tmp_path / "model")["weights.safetensors"]
    assert verify_trained(tmp_path / "model").recomputed_epsilon <= 8.0
    certificate = read_certificate(tmp_path / "model")
    assert certificate["plan"]["mechanism"] == "banded"
    assert certificate["settings"]["bands"] == 3
    assert any("3 secret groups" in statement for statement in certificate["statements"])
    plan = plan_from_dict(certificate["plan"])
    assert plan.event == job_of(config).plan.event
    assert not audit_noise(plan, samples=2**13, seed=0).violated


def test_settings_that_are_not_the_plans_are_refused() -> None:
    config = config_of(mechanism="banded:bands=3")
    plan, settings = config.plan(200), job_of(config).settings()
    settings = {name: value for name, value in settings.items() if name not in ("plan", "public_data")}
    _check_settings(settings, plan)
    plain = {name: value for name, value in settings.items() if name not in ("mechanism", "bands")}
    for other in ({**settings, "bands": 2}, plain):
        with pytest.raises(InvalidInput, match="as in the plan"):
            _check_settings(other, plan)
    # Options of a mechanism come with it, and with no other.
    for other in ({**plain, "bands": 3}, {**plain, "mechanism": "banded"}, {**settings, "bands": 0}):
        with pytest.raises(InvalidInput, match="bands"):
            _check_settings(other, plan)


def test_one_band_trains_the_weights_of_dp_sgd() -> None:
    runs = [
        job_of(config).run(private(), streams=SecretStreams.from_seed(3))
        for config in (config_of(), config_of(mechanism="banded:bands=1"))
    ]
    assert torch.equal(*map(weights_of, runs))


def test_the_certificate_of_another_price_is_refused() -> None:
    plan = replace(plan_of(2), epsilon=1.0)
    with refuses("plan epsilon"):
        check_price(plan, {BandedPlan})
