"""Canary audits of trainings of persons: honest runs pass, faults are caught. False alarms: as in ``test_canaries``."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from privmix.attacks import one_run_proof
from privmix.attacks.canaries import CanaryAudit, CanaryConfig, canaries_in_words
from privmix.attacks.one_run_proof import OneRunProof
from privmix.attacks.training_canaries import _joined, audit_training_canaries, training_mechanism
from privmix.engine.rows import PrivateRecords
from privmix.mechanisms.plan import PERSON, RECORD
from privmix.mechanisms.streams import SecretStreams
from privmix.training import records as training_records
from privmix.training.config import TrainingConfig
from privmix.training.gradients.clipping import Clipping
from privmix.training.records import TrainingRecords
from tests.attacks.test_canaries import CLASSES, DELTA, FACTS, config_of, passes
from tests.audits.test_sensitivity import STRATEGIES
from tests.refusals import refuses

PERSONS, DIM = 2500, 400


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is proven is known to a factor of the noise of 1.4 at most, which is all that a yes or no asks for."""
    monkeypatch.setattr(one_run_proof, "_HALVINGS", 1)


def records(most: int = 3, persons: int = PERSONS) -> PrivateRecords:
    """Persons of one to ``most`` records of two classes, in no order."""
    rng = np.random.default_rng(0)
    whose = rng.permutation(np.repeat(np.arange(persons), rng.integers(1, most + 1, persons)))
    labels = (whose + rng.integers(0, 2, len(whose))) % len(CLASSES)
    features = rng.normal(size=(len(whose), DIM)) + 0.5 + 3 * np.eye(len(CLASSES), DIM)[labels]
    return PrivateRecords(features.astype(np.float32), labels, whose)


def trained(per_person: int = 1, epsilon: float = 8.0, most: int = 3, **changes: Any) -> CanaryAudit:
    found = records(most)
    return audit_training_canaries(
        training(per_person, epsilon),
        FACTS,
        TrainingRecords.of(found.features, found.labels, classes=4, persons=found.persons),
        config_of(changes),
        streams=SecretStreams.from_seed(1),
        generator=np.random.default_rng(2),
    )


def training(per_person: int, epsilon: float) -> TrainingConfig:
    config = TrainingConfig.for_model(
        "linear", records=PERSONS, epsilon=epsilon, delta=DELTA, epochs=10.0, batch_size=250
    )
    return dataclasses.replace(config, per_person=per_person)


@pytest.mark.parametrize(
    ("kind", "per_person", "each"),
    [("planted", 1, 100), ("planted", 4, None), ("planted", 4, 2), ("mislabelled", 4, None), ("blank", 4, 400)],
)
def test_trainings_of_persons_pass(kind: str, per_person: int, each: int | None) -> None:
    found = trained(per_person, kind=kind, canary_records=each, canaries=300)
    assert found.unit == "person"
    assert passes(found.proof, training_mechanism(training(per_person, 8.0).plan(PERSONS)))
    assert "canary persons" in found.method
    if kind == "planted":
        assert found.proof.proven_epsilon > 1


def a_group_a_record(patch: pytest.MonkeyPatch) -> None:
    """A person is in as many groups as they have records: each is a unit."""
    honest = training_records.grouped
    patch.setattr(training_records, "grouped", lambda whose, labels, most=0: honest(np.arange(len(whose)), labels))


def test_a_person_in_several_groups_is_caught_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not trained(1, 2.0, 1, canary_records=8, guesses=300).proof.violated
    a_group_a_record(monkeypatch)
    assert trained(1, 2.0, 1, canary_records=8, guesses=300).proof.violated


def mislabelled(strategy: str) -> OneRunProof:
    """200 persons of two records, half of them with a wrong label by a coin; a few noisy steps. None may be learnt."""
    rng, persons = np.random.default_rng(0), 200
    features = rng.normal(size=(2 * persons, DIM)).astype(np.float32)
    labels = rng.integers(0, len(CLASSES), persons).repeat(2)
    config = TrainingConfig.for_model(
        "linear", records=persons, epsilon=1.0, delta=DELTA, epochs=5.0, batch_size=50, strategy=strategy
    )
    return audit_training_canaries(
        dataclasses.replace(config, per_person=2),
        FACTS,
        TrainingRecords.of(features, labels, classes=len(CLASSES), persons=np.arange(persons).repeat(2)),
        CanaryConfig(kind="mislabelled", canaries=100, guesses=100),
        streams=SecretStreams.from_seed(1),
        generator=np.random.default_rng(2),
    ).proof


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
    own = dataclasses.replace(own, units=(np.array([0, 2, 3]), np.array([0, 1, 3])))
    assert own.whose().tolist() == [0, -1, 1, 1]
    assert len(own.kept(np.arange(4)).x) == 3
    joined = _joined(own, np.ones((1, 2), np.float32), np.ones(1, np.int64), np.zeros(1, np.int64), 2)
    assert (len(joined), len(joined.x)) == (3, 5)
    assert joined.whose().tolist() == [0, 1, 1, 2, 2]


def test_options_that_do_not_go_together_are_refused() -> None:
    with refuses("canary_records"):
        CanaryConfig(kind="mislabelled", canary_records=3)
    with refuses("canary_records"):
        CanaryConfig(canary_records=3).records_each(None)
    with refuses("canary_records"):
        CanaryConfig(canary_records=0)
    assert canaries_in_words(CanaryConfig(), RECORD) == "planted canaries"
    assert canaries_in_words(CanaryConfig(), PERSON) == "planted canary persons with 1 record each"
