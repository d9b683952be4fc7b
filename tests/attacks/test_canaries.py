"""Canary audits of a training, of records and of persons: the correct engine passes, and planted bugs are caught.

Audits state 95% confidence. Here even the best guesses about a mechanism that meets its claim make a false proof with
chance below 1e-9, as :func:`false_alarm` computes: the theorems are far from tight for independent canaries.
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from privmix.accounting import Adjacency
from privmix.attacks import one_run_proof
from privmix.attacks.canaries import CanaryAudit, CanaryConfig, canaries_in_words
from privmix.attacks.one_run import OneRun, is_refuted
from privmix.attacks.one_run_proof import Mechanism, OneRunProof, event_least
from privmix.attacks.training_canaries import _joined, audit_training_canaries, training_mechanism
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.mechanisms.plan import PERSON, RECORD
from privmix.mechanisms.streams import SecretStreams
from privmix.training import dp_sgd as training_records
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts
from privmix.training.gradients.parameters import Clipping
from privmix.training.mechanisms import dp_sgd as mechanism
from privmix.training.plan import TrainingPlan
from privmix.training.views.config import ViewConfig
from tests.audits.test_sensitivity import STRATEGIES
from tests.refusals import refuses

DELTA = 1e-5
COUNT, DIM, CLASSES = 2500, 400, ("a", "b", "c", "d")
# Of 600 blind guesses more are right with chance below 1e-6: half of them, and five standard deviations. Keys are
# fixed, so that correct code does not fail by chance.
BLIND = 300 + 2.5 * 600**0.5


def records(seed: int = 0) -> PrivateRecords:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CLASSES), COUNT)
    features = rng.normal(size=(COUNT, DIM)) + 0.5 + 3 * np.eye(len(CLASSES), DIM)[labels]
    return PrivateRecords(features.astype(np.float32), labels)


def config_of(changes: dict[str, Any]) -> CanaryConfig:
    """Every coin is guessed, unless told otherwise."""
    found = {"canaries": 600, **changes}
    return CanaryConfig(**{"guesses": found["canaries"], **found})


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
    least = event_least(mechanism.event(1.0), mechanism.adjacency)
    # Of the best threshold; accuracies are concave in it, and between two of these hardly larger.
    accuracy = max(1 - (alpha + least(1 - alpha)) / 2 for alpha in np.linspace(0, 1, 101))
    low, high = canaries // 2, canaries
    while low < high:
        middle = (low + high) // 2
        refuted = is_refuted(OneRun(canaries, canaries, middle), least, 0.025)
        low, high = (low, middle) if refuted else (middle + 1, high)
    return float(stats.binom.sf(low - 1, canaries, accuracy))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"canaries": 5}, "canaries: got 5; allowed: at least 6"),
        ({"canaries": 20, "confidence": 1 - 1e-7}, "at least 25"),
        ({"canaries": 100, "guesses": 3}, "guesses: got 3"),
        ({"kind": "singing"}, "kind"),
        ({"evidence": "rumours"}, "evidence"),
    ],
    ids=str,
)
def test_settings_that_prove_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        CanaryConfig(**settings)


FACTS = ModelFacts(tuple("0123"), {"name": "identity"}, (DIM,), dim=DIM)


def training(epsilon: float = 8.0, per_person: int | None = None, **given: Any) -> TrainingConfig:
    given = {"records": COUNT, "delta": DELTA, "epochs": 10.0, "batch_size": 250, **given}
    return replace(TrainingConfig.for_model("linear", epsilon=epsilon, **given), per_person=per_person)


def audited(
    config: TrainingConfig, data: TrainingRecords, canaries: CanaryConfig, streams: SecretStreams | None = None
) -> CanaryAudit:
    streams, generator = streams or SecretStreams.from_seed(1), np.random.default_rng(2)
    return audit_training_canaries(config, FACTS, data, canaries, streams=streams, generator=generator)


# Small batches with little noise: half of it shows each step that a canary is in.
SMALL = training(1.0, delta=1e-3, epochs=4.0, batch_size=10)


def trained(config: TrainingConfig, streams: SecretStreams | None = None, **changes: Any) -> CanaryAudit:
    found = records()
    data = TrainingRecords.of(found.features, found.labels, classes=4)
    return audited(config, data, config_of(changes), streams)


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
        (SMALL, "steps", 1000),
        (training(1.0), "steps", 700),
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


@pytest.mark.usefixtures("coarse")
def test_figures_name_the_run_and_streams_are_used_up() -> None:
    streams = SecretStreams.from_seed(1)
    found = trained(training(), streams=streams, canaries=100, guesses=50).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["canaries"], found["guesses"], found["delta"]) == (100, 50, DELTA)
    assert 20 < found["included"] < 80
    with pytest.raises(RuntimeError):
        streams.generator("anything")


@pytest.mark.usefixtures("coarse")
def test_coins_are_fixed_before_the_run() -> None:
    """Other noise and other batches: the same coins and as many guesses."""
    runs = [trained(training(), SecretStreams.from_seed(seed), canaries=50, guesses=50) for seed in (1, 2)]
    assert len({(run.included, run.proof.run.guesses) for run in runs}) == 1


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        ({}, {"canaries": 10_000}, "canaries: got 10000; allowed: at most 1604"),
        ({}, {"canaries": COUNT, "kind": "mislabelled"}, "fewer than there are records"),
        ({"adjacency": Adjacency.REPLACE_ONE}, {"kind": "blank"}, "planted under replace_one"),
        ({"microbatch_size": 2}, {}, "microbatch_size"),
        ({"scenario": "warm"}, {}, "scenario"),
        ({"views": ViewConfig(k_base=1, k_diff=1)}, {}, "views"),
    ],
    ids=["weights", "records", "replaced", "microbatches", "warm", "views"],
)
def test_training_that_has_no_audit_is_refused(settings: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        trained(replace(training(), **settings), **changes)


def records_of_persons(most: int = 3, persons: int = COUNT) -> PrivateRecords:
    """Persons of one to ``most`` records of two classes, in no order."""
    rng = np.random.default_rng(0)
    whose = rng.permutation(np.repeat(np.arange(persons), rng.integers(1, most + 1, persons)))
    labels = (whose + rng.integers(0, 2, len(whose))) % len(CLASSES)
    features = rng.normal(size=(len(whose), DIM)) + 0.5 + 3 * np.eye(len(CLASSES), DIM)[labels]
    return PrivateRecords(features.astype(np.float32), labels, whose)


def trained_of_persons(per_person: int = 1, epsilon: float = 8.0, most: int = 3, **changes: Any) -> CanaryAudit:
    found = records_of_persons(most)
    data = TrainingRecords.of(found.features, found.labels, classes=4, persons=found.persons)
    return audited(training(epsilon, per_person), data, config_of(changes))


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize(
    ("kind", "per_person", "each"),
    [("planted", 1, 100), ("planted", 4, None), ("planted", 4, 2), ("mislabelled", 4, None), ("blank", 4, 400)],
)
def test_trainings_of_persons_pass(kind: str, per_person: int, each: int | None) -> None:
    found = trained_of_persons(per_person, kind=kind, canary_records=each, canaries=300)
    assert found.unit == "person"
    assert passes(found.proof, training_mechanism(training(8.0, per_person).plan(COUNT)))
    assert "canary persons" in found.method
    if kind == "planted":
        assert found.proof.proven_epsilon > 1


@pytest.mark.usefixtures("coarse")
def test_a_person_in_several_groups_is_caught_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """In as many groups as they have records: each is a unit."""
    assert not trained_of_persons(1, 2.0, 1, canary_records=8, guesses=300).proof.violated
    honest = training_records.grouped
    monkeypatch.setattr(
        training_records, "grouped", lambda whose, labels, most=0: honest(np.arange(len(whose)), labels)
    )
    assert trained_of_persons(1, 2.0, 1, canary_records=8, guesses=300).proof.violated


def mislabelled(strategy: str) -> OneRunProof:
    """200 persons of two records, half of them with a wrong label by a coin; a few noisy steps. None may be learnt."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, DIM)).astype(np.float32)
    labels, persons = rng.integers(0, len(CLASSES), 200).repeat(2), np.arange(200).repeat(2)
    config = training(1.0, 2, records=200, epochs=5.0, batch_size=50, strategy=strategy)
    data = TrainingRecords.of(features, labels, classes=len(CLASSES), persons=persons)
    return audited(config, data, CanaryConfig(kind="mislabelled", canaries=100, guesses=100)).proof


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_of_gradients_is_seen_by_persons_with_wrong_labels(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take the whole path, which planted gradients do not: a bound that is forgotten shows in the model."""
    honest = mislabelled(strategy)
    assert not honest.violated
    monkeypatch.setattr(Clipping, "factors", lambda self, norms: torch.ones_like(norms))
    assert mislabelled(strategy).violated


def test_records_that_do_not_count_are_no_members() -> None:
    """Of a person with more records than count the rest is left out, and not somebody else's."""
    whose = np.array([0, 0, 1, 1])
    own = TrainingRecords.of(np.arange(8.0).reshape(4, 2), np.zeros(4), classes=2, persons=whose)
    own = replace(own, units=(np.array([0, 2, 3]), np.array([0, 1, 3])))
    assert own.whose().tolist() == [0, -1, 1, 1]
    assert len(own.kept(np.arange(4)).x) == 3
    joined = _joined(own, np.ones((1, 2), np.float32), np.ones(1, np.int64), np.zeros(1, np.int64), 2)
    assert (len(joined), len(joined.x)) == (3, 5)
    assert joined.whose().tolist() == [0, 1, 1, 2, 2]


def test_options_that_do_not_go_together_are_refused() -> None:
    for settings in ({"kind": "mislabelled", "canary_records": 3}, {"canary_records": 3}, {"canary_records": 0}):
        with refuses("canary_records"):
            CanaryConfig(**settings).records_each(None)
    assert canaries_in_words(CanaryConfig(), RECORD) == "planted canaries"
    assert canaries_in_words(CanaryConfig(), PERSON) == "planted canary persons with 1 record each"
