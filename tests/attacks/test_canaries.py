"""Canary audits: the correct engine passes, planted bugs are caught, and scores are the likelihood ratios.

Audits state 95% confidence. Here even the best guesses about a mechanism that meets its claim make a false proof with
chance below 1e-9, as :func:`false_alarm` computes: the theorems are far from tight for independent canaries.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from privmix.accounting import Adjacency, Event
from privmix.attacks import canaries as canary_audits
from privmix.attacks import canary_records, one_run_proof
from privmix.attacks.canaries import CanaryAudit, CanaryConfig, audit_release, release_mechanism
from privmix.attacks.canary_records import Blocks, CanaryBlock, Side, WithCanaries, blocks_of, make_canaries
from privmix.attacks.canary_scores import Filters, RowScores, contributions
from privmix.attacks.one_run import OneRun, is_refuted
from privmix.attacks.one_run_proof import Mechanism, OneRunProof, event_least
from privmix.attacks.training_canaries import audit_training_canaries, training_mechanism
from privmix.engine import rows as release_engine
from privmix.engine.records import ArrayTiles, tiles_of
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.rows import ReleasePlan
from privmix.publication import dataset as release_dataset
from privmix.publication.dataset import RecordTransform
from privmix.training.config import TrainingConfig
from privmix.training.facts import ModelFacts
from privmix.training.gradients.clipping import Clipping
from privmix.training.mechanisms import dp_sgd as mechanism
from privmix.training.plan import TrainingPlan
from privmix.training.records import TrainingRecords
from privmix.training.views.config import ViewConfig

DELTA = 1e-5
COUNT, DIM, CLASSES = 2500, 400, ("a", "b", "c", "d")
# Labels with much noise take little of the budget, and what they hide is hidden from canaries too.
STRONG: dict[str, Any] = {"centre": "none", "label_noise_ratio": 10.0}
# Of 600 blind guesses more are right with chance below 1e-6: half of them, and five standard deviations. Keys are
# fixed, so that correct code does not fail by chance.
BLIND = 300 + 2.5 * 600**0.5


def records(seed: int = 0) -> PrivateRecords:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CLASSES), COUNT)
    features = rng.normal(size=(COUNT, DIM)) + 0.5 + 3 * np.eye(len(CLASSES), DIM)[labels]
    return PrivateRecords(features.astype(np.float32), labels)


@cache
def plan_of(epsilon: float = 8.0, **choices: Any) -> ReleasePlan:
    choices.setdefault("mixup_degree", 1 if choices.get("full_batch") else 64)
    found = ReleaseConfig(records=COUNT, dim=DIM, classes=CLASSES, **choices).calibrate(epsilon, DELTA)
    assert isinstance(found, ReleasePlan)
    return found


def config_of(changes: dict[str, Any]) -> CanaryConfig:
    """Every coin is guessed, unless told otherwise."""
    found = {"canaries": 600, **changes}
    return CanaryConfig(**{"guesses": found["canaries"], **found})


def audited(plan: ReleasePlan, delta: float = DELTA, **changes: Any) -> CanaryAudit:
    streams, generator = SecretStreams.from_seed(1), np.random.default_rng(2)
    return audit_release(plan, records(), config_of(changes), delta=delta, streams=streams, generator=generator)


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is proven is known to a factor of the noise of 1.4 at most, which is all that a yes or no asks for."""
    monkeypatch.setattr(one_run_proof, "_HALVINGS", 1)


def passes(proof: OneRunProof, mechanism: Mechanism) -> bool:
    """Whether the claimed curve itself stands, which is more than that no larger epsilon is proven."""
    assert not proof.violated
    return not mechanism.is_refuted(proof.run, (1 - proof.confidence) / 2)


def false_alarm(mechanism: Mechanism, canaries: int) -> float:
    """How likely a false proof at 95% is where every coin is guessed as well as the claimed curve allows."""
    return _false_alarm(mechanism.event(1.0), mechanism.adjacency, canaries)


@cache
def _false_alarm(event: Event, adjacency: Adjacency, canaries: int) -> float:
    least = event_least(event, adjacency)
    # Of the best threshold; accuracies are concave in it, and between two of these hardly larger.
    accuracy = max(1 - (alpha + least(1 - alpha)) / 2 for alpha in np.linspace(0, 1, 101))
    low, high = canaries // 2, canaries
    while low < high:
        middle = (low + high) // 2
        refuted = is_refuted(OneRun(canaries, canaries, middle), least, 0.025)
        low, high = (low, middle) if refuted else (middle + 1, high)
    return float(stats.binom.sf(low - 1, canaries, accuracy))


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize(
    "choices",
    [
        {"design": "poisson"},
        STRONG,
        {"design": "hierarchical", "expected_classes": 1.5},
        {"design": "classwise"},
        {"design": "classwise", "full_batch": True},
        {"design": "fixed", "centre": "none"},
    ],
    ids=["poisson-centred", "poisson", "hierarchical", "classwise", "full-batch", "fixed"],
)
def test_the_real_engine_passes_and_better_guesses_than_blind_ones_are_made(choices: dict[str, Any]) -> None:
    plan = plan_of(**choices)
    assert false_alarm(release_mechanism(plan), 600) < 1e-9
    found = audited(plan).proof
    assert passes(found, release_mechanism(plan))
    assert found.run.correct > BLIND


@pytest.mark.usefixtures("coarse")
def test_valid_over_many_audits() -> None:
    """Of 30 audits at 95%, no more refute the claim than happens with chance 1e-10."""
    plan = ReleaseConfig(records=200, dim=40, classes=CLASSES, mixup_degree=32, rows=100, **STRONG).calibrate(1.0, 1e-3)
    some = PrivateRecords(records().features[:200, :40], records().labels[:200])
    false = 0
    for seed in range(30):
        streams, generator = SecretStreams.from_seed(seed), np.random.default_rng(seed)
        config = CanaryConfig(canaries=40, guesses=20)
        found = audit_release(plan, some, config, delta=1e-3, streams=streams, generator=generator)
        false += found.proof.violated or release_mechanism(plan).is_refuted(found.proof.run, 0.025)
    assert false <= stats.binom.isf(1e-10, 30, 0.05)


@pytest.mark.parametrize(
    "choices", [STRONG, {"design": "classwise", "full_batch": True}], ids=["poisson", "full-batch"]
)
def test_a_thousand_canaries_prove_a_third_of_a_strong_release(choices: dict[str, Any]) -> None:
    found = audited(plan_of(**choices), canaries=1000, guesses=None).proof
    assert found.claimed_epsilon / 3 < found.proven_epsilon < found.claimed_epsilon
    assert found.steinke < found.mahloujifar


@pytest.mark.usefixtures("coarse")
def test_mislabelled_records_are_canaries_too() -> None:
    plan = plan_of(**STRONG)
    found = audited(plan, kind="mislabelled").proof
    assert passes(found, release_mechanism(plan))
    assert found.run.correct > BLIND


def test_nobody_is_in_the_data_twice_where_mislabelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records that canaries are copies of give up their places."""
    plan, own = plan_of(**STRONG), tiles_of(records())
    canaries = make_canaries(plan, own, 50, "mislabelled", np.random.default_rng(0))
    x, y = own.tile(0)
    assert np.array_equal(canaries.features, x[-50:])
    assert (canaries.labels != y[-50:]).all()
    kept: list[int] = []

    def stopped(_plan: ReleasePlan, data: WithCanaries, _streams: SecretStreams) -> None:
        kept.append(data.kept)
        raise KeyboardInterrupt

    monkeypatch.setattr(canary_audits, "make_engine", stopped)
    with pytest.raises(KeyboardInterrupt):
        audited(plan, kind="mislabelled", canaries=50)
    assert kept == [COUNT - 50]


@pytest.mark.thorough
def test_half_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = release_engine.gaussian_on_lattice
    monkeypatch.setattr(
        release_engine, "gaussian_on_lattice", lambda generator, shape, scale: honest(generator, shape, scale / 2)
    )
    # With little noise, half of it shows each row that a canary is in.
    plan = ReleaseConfig(records=COUNT, dim=DIM, classes=CLASSES, mixup_degree=8, **STRONG).calibrate(1.0, 1e-3)
    assert isinstance(plan, ReleasePlan)
    assert audited(plan, 1e-3, canaries=1000).proof.violated
    monkeypatch.undo()
    # Of correct noise a yes or no is asked alone.
    monkeypatch.setattr(one_run_proof, "_HALVINGS", 1)
    assert false_alarm(release_mechanism(plan), 1000) < 1e-9
    assert passes(audited(plan, 1e-3, canaries=1000).proof, release_mechanism(plan))


@pytest.mark.usefixtures("coarse")
def test_clipping_entries_in_place_of_records_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every entry within the bound, and norms of ten times it: what canaries of that length are for."""
    monkeypatch.setattr(
        release_dataset, "clip_l2", lambda x, bound, **_: np.clip(np.asarray(x, float), -bound, bound) * 0.999
    )
    assert audited(plan_of(1.0, **STRONG), canaries=700).proof.violated


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("evidence", ["tiles", "neighbours"])
def test_noise_used_twice_is_caught(monkeypatch: pytest.MonkeyPatch, evidence: str) -> None:
    """Every row tile gets the noise of the first, or every second row that of the row before."""
    if evidence == "tiles":
        honest = release_engine.RowEngine._add_noise
        monkeypatch.setattr(
            release_engine.RowEngine, "_add_noise", lambda self, tile, *arrays: honest(self, 0, *arrays)
        )
    else:
        gaussian = release_engine.gaussian_on_lattice

        def repeated(generator: np.random.Generator, shape: tuple[int, ...], scale: float) -> np.ndarray:
            return np.repeat(gaussian(generator, shape, scale)[::2], 2, axis=0)[: shape[0]]

        monkeypatch.setattr(release_engine, "gaussian_on_lattice", repeated)
    assert audited(plan_of(1.0, **STRONG), canaries=700, evidence=evidence).proof.violated


@pytest.mark.usefixtures("coarse")
def test_correct_rows_pass_where_the_bugs_are_caught() -> None:
    plan = plan_of(1.0, **STRONG)
    assert false_alarm(release_mechanism(plan), 700) < 1e-9
    for evidence in ("rows", "tiles", "neighbours"):
        assert passes(audited(plan, canaries=700, evidence=evidence).proof, release_mechanism(plan))


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_expectations_are_those_of_every_possible_draw(factor: float) -> None:
    """log E[e^(t z)] without the canary, against the sum over all subsets of three records."""
    rng = np.random.default_rng(3)
    plan = ReleaseConfig(records=5, dim=6, classes=("x", "y"), mixup_degree=2, centre="none").with_noise(1.0)
    assert isinstance(plan, ReleasePlan)
    transform = RecordTransform(plan.clip_norm)
    others = rng.normal(size=(3, 6)).astype(np.float32), np.array([0, 1, 0])
    side = Side(rng.normal(size=(2, 6)).astype(np.float32), np.array([1, 0]))

    def known() -> Iterator[CanaryBlock]:
        yield CanaryBlock(*others, 1.0)

    filters = Filters.prepare(plan, transform, side, known)
    scores = RowScores(plan, transform, filters, known, "rows")
    scores._tune(factor)
    tilt = scores.tilt
    assert tilt is not None
    rate, shown = plan.record_rate, contributions(plan, transform, *others) @ filters.weights
    expected = np.zeros(2)
    for drawn in itertools.product((0, 1), repeat=3):
        chance = np.prod([rate if one else 1 - rate for one in drawn])
        centred = np.asarray(drawn) @ shown - rate * shown.sum(axis=0)
        expected += chance * np.exp(tilt * centred)
    # Canaries count half among the other records, and not in their own ratios; here they do not count at all.
    itself = tilt * filters.shift
    own = 0.5 * (np.log1p(rate * np.expm1(itself)) - rate * itself)
    found = scores._by_class.sum(axis=0) + own
    assert found == pytest.approx(np.log(expected), abs=1e-5)
    assert scores._constant == pytest.approx(tilt**2 * factor * filters.noise / 2, rel=1e-5)


def test_projections_have_the_planned_variance_and_no_bias() -> None:
    """z of the real engine's rows: its mean for canaries that are not there, and D more where one is."""
    plan, real = plan_of(**STRONG), tiles_of(records())
    canaries = make_canaries(plan, real, 200, "planted", np.random.default_rng(0))
    coins = np.arange(200) < 100
    mixed = WithCanaries(real, COUNT, *canaries.chosen(coins))
    engine = release_engine.ReleaseEngine(plan, mixed, SecretStreams.from_seed(5))

    def known() -> Iterator[CanaryBlock]:
        for x, y in blocks_of(mixed, mixed.count):
            yield CanaryBlock(x, y, 1.0)

    blocks: Blocks = known
    scores = None
    for block in engine.rows():
        if scores is None:
            filters = Filters.prepare(plan, engine.transform, canaries.sides[0], blocks)
            scores = RowScores(plan, engine.transform, filters, blocks, "rows")
        scores.add(block.start, block.x, block.y)
    assert scores is not None
    # All expectations are met: canaries that are there are among the known records here.
    deviation = np.sqrt(plan.rows * (filters.noise + filters.spread))
    z = scores.sums / deviation
    # Means of 100 normal variables: 6.5 standard deviations (of a tenth) have chance below 1e-9.
    assert abs(z[:100].mean()) < 0.65
    assert abs(z[100:].mean()) < 0.65
    assert 0.6 < z.std() < 1.5


def test_canaries_stand_behind_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles with canaries hold what one long array would, also where records and canaries meet."""
    size = 8
    monkeypatch.setattr(canary_records, "RECORD_TILE", size)

    class Small(ArrayTiles):
        def tile(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            part = slice(index * size, (index + 1) * size)
            return self.features[part], self.labels[part]

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(29, 3)).astype(np.float32), rng.integers(0, 2, 29)
    for real, kept in ((13, 13), (16, 16), (5, 5), (13, 9), (16, 8)):
        mixed = WithCanaries(Small(x[:real], y[:real]), kept, x[real:], y[real:])
        whole = np.concatenate([x[:kept], x[real:]]), np.concatenate([y[:kept], y[real:]])
        assert mixed.count == len(whole[1])
        tiles = [mixed.tile(index) for index in range(-(-mixed.count // size))]
        assert all(len(labels) == size for _, labels in tiles[:-1])
        assert np.array_equal(np.concatenate([features for features, _ in tiles]), whole[0])
        assert np.array_equal(np.concatenate([labels for _, labels in tiles]), whole[1])


@pytest.mark.parametrize("choices", [STRONG, {}], ids=["uncentred", "centred"])
def test_planted_canaries_have_the_full_length_and_directions_of_their_own(choices: dict[str, Any]) -> None:
    plan, real = plan_of(**choices), tiles_of(records())
    canaries = make_canaries(plan, real, 300, "planted", np.random.default_rng(0))
    centre = None
    if plan.centred:
        centre = RecordTransform(plan.clip_norm).clip(records().features).mean(axis=0).astype(np.float32)
    mixed = RecordTransform(plan.clip_norm, plan.norm, centre, plan.residual_clip_norm)(canaries.features)
    assert np.linalg.norm(mixed, axis=1) == pytest.approx(plan.final_clip_norm, rel=1e-6)
    overlaps = mixed @ mixed.T / plan.final_clip_norm**2 - np.eye(300)
    assert np.abs(overlaps).max() < (0.1 if plan.centred else 1e-5)


@pytest.mark.usefixtures("coarse")
def test_figures_name_what_was_done_and_streams_are_used_up() -> None:
    streams = SecretStreams.from_seed(1)
    config = CanaryConfig(canaries=100, guesses=50)
    plan = plan_of(**STRONG)
    found = audit_release(
        plan, records(), config, delta=DELTA, streams=streams, generator=np.random.default_rng(0)
    ).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["canaries"], found["guesses"], found["delta"]) == (100, 50, DELTA)
    assert 20 < found["included"] < 80
    with pytest.raises(RuntimeError):
        streams.generator("anything")


@pytest.mark.usefixtures("coarse")
def test_canaries_and_coins_are_fixed_before_the_run() -> None:
    """Other noise and other members: the same canaries and as many guesses."""
    plan, found = plan_of(**STRONG), []
    for seed in (1, 2):
        config = CanaryConfig(canaries=50, guesses=50)
        streams, generator = SecretStreams.from_seed(seed), np.random.default_rng(3)
        audit = audit_release(plan, records(), config, delta=DELTA, streams=streams, generator=generator)
        found.append((audit.included, audit.proof.run.guesses, generator.integers(2**62)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CanaryConfig(canaries=5), "canaries: got 5; allowed: at least 6"),
        (lambda: CanaryConfig(canaries=20, confidence=1 - 1e-7), "at least 25"),
        (lambda: CanaryConfig(canaries=100, guesses=3), "guesses: got 3"),
        (lambda: CanaryConfig(kind="singing"), "kind"),
        (lambda: CanaryConfig(evidence="rumours"), "evidence"),
        (lambda: audited(plan_of(design="random-weight", max_weight=0.5, mixup_degree=4)), "design"),
        (lambda: audited(plan_of(design="fixed", noise="laplace", mixup_degree=4)), "noise"),
        (lambda: audited(plan_of(), kind="blank"), "planted, mislabelled"),
        (lambda: audited(plan_of(design="fixed", centre="none"), canaries=COUNT + 1), "canaries"),
        (lambda: audited(plan_of(), canaries=COUNT + 1, kind="mislabelled"), "whose places they take"),
    ],
    ids=["few", "few-for-sure", "guesses", "kind", "evidence", "weights", "laplace", "blank", "many", "mislabelled"],
)
def test_what_has_no_audit_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


FACTS = ModelFacts(tuple("0123"), {"name": "identity"}, (DIM,), dim=DIM)


def training(epsilon: float = 8.0, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> TrainingConfig:
    return TrainingConfig.for_model(
        "linear", records=COUNT, epsilon=epsilon, delta=DELTA, epochs=10.0, adjacency=adjacency, batch_size=250
    )


# Small batches with little noise: half of it shows each step that a canary is in.
SMALL = TrainingConfig.for_model("linear", records=COUNT, epsilon=1.0, delta=1e-3, epochs=4.0, batch_size=10)


def trained(config: TrainingConfig, **changes: Any) -> CanaryAudit:
    found = records()
    return audit_training_canaries(
        config,
        FACTS,
        TrainingRecords.of(found.features, found.labels, classes=4),
        config_of(changes),
        streams=SecretStreams.from_seed(1),
        generator=np.random.default_rng(2),
    )


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("adjacency", Adjacency)
def test_real_training_passes_and_planted_gradients_show(adjacency: Adjacency) -> None:
    config = training(adjacency=adjacency)
    assert false_alarm(training_mechanism(config.plan(COUNT)), 600) < 1e-9
    found = trained(config).proof
    assert 0 < found.proven_epsilon < found.claimed_epsilon


def test_a_thousand_planted_gradients_prove_two_fifths_of_the_claim() -> None:
    found = trained(training(), canaries=1000, guesses=None).proof
    assert 0.4 * found.claimed_epsilon < found.proven_epsilon < found.claimed_epsilon


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("kind", ["mislabelled", "blank"])
def test_odd_inputs_are_scored_by_the_final_model(kind: str) -> None:
    found = trained(training(), kind=kind).proof
    assert passes(found, training_mechanism(training().plan(COUNT)))
    if kind == "mislabelled":
        assert found.run.correct > BLIND


@pytest.mark.thorough
@pytest.mark.usefixtures("coarse")
def test_training_passes_where_the_bugs_are_caught() -> None:
    for config, evidence, canaries in (
        (SMALL, "rows", 1000),
        (training(1.0), "rows", 700),
        (training(1.0), "neighbours", 700),
    ):
        mechanism = training_mechanism(config.plan(COUNT))
        assert false_alarm(mechanism, canaries) < 1e-9
        assert passes(trained(config, canaries=canaries, evidence=evidence).proof, mechanism)


@pytest.mark.thorough
@pytest.mark.usefixtures("coarse")
def test_half_the_noise_of_training_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = mechanism.noisy_mean

    def half(total: torch.Tensor, plan: TrainingPlan, streams: SecretStreams, step: int) -> torch.Tensor:
        exact = total.float() / plan.units
        return exact + 0.5 * (honest(total, plan, streams, step) - exact)

    monkeypatch.setattr(mechanism, "noisy_mean", half)
    assert trained(SMALL, canaries=1000).proof.violated


@pytest.mark.usefixtures("coarse")
def test_training_without_clipping_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clipping, "factors", lambda self, norms: torch.full_like(norms, 0.5))
    assert trained(training(1.0), canaries=700).proof.violated


@pytest.mark.usefixtures("coarse")
def test_noise_that_training_repeats_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = mechanism.noisy_mean
    monkeypatch.setattr(
        mechanism, "noisy_mean", lambda total, plan, streams, step: honest(total, plan, streams, step // 2)
    )
    assert trained(training(1.0), canaries=700, evidence="neighbours").proof.violated


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        ({}, {"canaries": 10_000}, "canaries: got 10000; allowed: at most 1604"),
        ({}, {"canaries": COUNT, "kind": "mislabelled"}, "fewer than there are records"),
        ({}, {"evidence": "tiles"}, "evidence"),
        ({"adjacency": Adjacency.REPLACE_ONE}, {"kind": "blank"}, "planted under replace_one"),
        ({"microbatch_size": 2}, {}, "microbatch_size"),
        ({"scenario": "warm"}, {}, "scenario"),
        ({"views": ViewConfig(k_base=1, k_diff=1)}, {}, "views"),
    ],
    ids=["weights", "records", "evidence", "replaced", "microbatches", "warm", "views"],
)
def test_training_that_has_no_audit_is_refused(settings: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        trained(replace(training(), **settings), **changes)
