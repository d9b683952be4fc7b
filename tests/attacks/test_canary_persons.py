"""Canary audits with persons: honest runs pass, faults are caught. False alarms: as in ``test_canaries``."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from privmix.attacks import one_run_proof
from privmix.attacks.canaries import CanaryAudit, CanaryConfig, audit_release, canaries_in_words, release_mechanism
from privmix.attacks.canary_records import make_canaries, person_blocks, persons_vectors, standing, with_persons
from privmix.attacks.one_run_proof import OneRunProof
from privmix.attacks.training_canaries import _joined, audit_training_canaries, training_mechanism
from privmix.engine import records as tiles
from privmix.engine.records import PersonTiles
from privmix.engine.rows import PrivateRecords
from privmix.mechanisms.membership import Membership, offsets_of
from privmix.mechanisms.persons import Givers
from privmix.mechanisms.plan import PERSON, RECORD
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.rows import ReleasePlan
from privmix.training import records as training_records
from privmix.training.config import TrainingConfig
from privmix.training.gradients.clipping import Clipping
from privmix.training.records import TrainingRecords
from tests.attacks.test_canaries import BLIND, CLASSES, DELTA, FACTS, STRONG, config_of, false_alarm, passes
from tests.audits.test_person_sensitivity import weights_forgotten
from tests.audits.test_sensitivity import STRATEGIES
from tests.refusals import refuses

PERSONS, DIM = 2500, 400
FULL: dict[str, Any] = {"design": "classwise", "full_batch": True}


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


@cache
def plan_of(epsilon: float = 8.0, per_person: int | None = 1, **choices: Any) -> ReleasePlan:
    choices.setdefault("mixup_degree", 1 if choices.get("full_batch") else 64)
    config = ReleaseConfig(records=PERSONS, dim=DIM, classes=CLASSES, per_person=per_person, **choices)
    found = config.calibrate(epsilon, DELTA)
    assert isinstance(found, ReleasePlan)
    return found


def audited(plan: ReleasePlan, found: PrivateRecords | None = None, **changes: Any) -> CanaryAudit:
    streams, generator = SecretStreams.from_seed(1), np.random.default_rng(2)
    found = records() if found is None else found
    return audit_release(plan, found, config_of(changes), delta=DELTA, streams=streams, generator=generator)


@pytest.mark.parametrize(
    ("choices", "changes"),
    [
        ({"design": "poisson"}, {"canary_records": 100}),
        ({"design": "poisson", "person_mean": True, "per_person": 4}, {"canary_records": 100}),
        ({"design": "hierarchical", "expected_classes": 1.5}, {}),
        ({"design": "classwise"}, {"canary_records": 3}),
        (FULL, {"canary_records": 100}),
        ({**FULL, "per_person": 4}, {}),
        ({**FULL, "per_person": 4}, {"canary_records": 400}),
        ({"design": "fixed", "centre": "none"}, {"canary_records": 2}),
        (STRONG, {"kind": "mislabelled"}),
    ],
    ids=["poisson", "means", "hierarchical", "classwise", "sums", "sums-4", "sums-4-many", "fixed", "mislabelled"],
)
def test_honest_runs_pass_and_canaries_are_seen(choices: dict[str, Any], changes: dict[str, Any]) -> None:
    plan = plan_of(**choices)
    assert false_alarm(release_mechanism(plan), 600) < 1e-9
    found = audited(plan, **changes)
    assert found.unit == "person"
    assert passes(found.proof, release_mechanism(plan))
    assert found.proof.run.correct > BLIND


@pytest.mark.parametrize("choices", [STRONG, FULL], ids=["poisson", "sums"])
def test_persons_of_one_record_are_as_records(choices: dict[str, Any]) -> None:
    """The same figures: nothing else of an audit knows of persons."""
    own = records(most=1)
    one = audited(plan_of(**choices), own)
    other = audited(plan_of(**choices, per_person=None), PrivateRecords(own.features, own.labels))
    assert one.included == other.included
    # Sums are added in another order.
    assert abs(one.proof.run.correct - other.proof.run.correct) <= 2


def test_many_records_are_seen_no_better_than_one() -> None:
    """100 K records add what K do, to the last bit of the lattice, and rows hold one of them."""
    for choices in (FULL, STRONG):
        few, many = (audited(plan_of(**choices), canary_records=each).proof.run.correct for each in (1, 100))
        assert abs(few - many) <= 2


def test_canaries_with_fewer_records_than_count_show_less() -> None:
    """One of four: a quarter of the weight."""
    plan = plan_of(8.0, **FULL, per_person=4)
    shown = [audited(plan, canary_records=each).proof.run.correct for each in (1, 4)]
    assert shown[1] - shown[0] > 2.5 * 600**0.5


# Faults in what a person adds to rows. Off by one, and what is clipped apart in a step, are caught by replay.


def a_group_a_record(patch: pytest.MonkeyPatch) -> None:
    """A person is in as many groups as they have records: each is a unit."""
    honest = tiles.grouped
    patch.setattr(tiles, "grouped", lambda whose, labels, most=0: honest(np.arange(len(whose)), labels))
    patch.setattr(training_records, "grouped", lambda whose, labels, most=0: honest(np.arange(len(whose)), labels))


def every_record_joins(patch: pytest.MonkeyPatch) -> None:
    """A person that is drawn gives a row all records."""

    def given(self: Givers, members: Membership, row_tile: int) -> Membership:
        first, counts = self._runs
        rows = np.repeat(np.repeat(np.arange(members.rows), members.counts), counts[members.indices])
        found = [np.arange(start, start + count) for start, count in zip(first, counts, strict=True)]
        indices = np.concatenate([found[member] for member in members.indices])
        return Membership(offsets_of(np.bincount(rows, minlength=members.rows)), indices, None)

    patch.setattr(Givers, "given", given)


@pytest.mark.parametrize(
    ("plant", "choices"),
    [
        (a_group_a_record, FULL),
        (a_group_a_record, STRONG),
        (every_record_joins, STRONG),
        (every_record_joins, {"design": "classwise", "centre": "none"}),
    ],
    ids=["groups-sums", "groups-poisson", "rows-poisson", "rows-classwise"],
)
def test_a_planted_bug_is_caught(plant: Any, choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plan, own = plan_of(2.0, **choices), records(most=1)
    how: dict[str, Any] = {"canaries": 400, "guesses": 300, "canary_records": 6}
    assert passes(audited(plan, own, **how).proof, release_mechanism(plan))
    plant(monkeypatch)
    assert audited(plan, own, **how).proof.violated


def test_forgotten_weights_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person with 100 K records adds 100 times the bound, which does not fit the lattice."""
    plan = plan_of(1.0, **FULL, per_person=4)
    weights_forgotten(monkeypatch)
    with refuses("lattice records"):
        audited(plan, canary_records=400)


# What the attacker knows of persons, against every draw.


def test_persons_of_several_records_add_their_mean() -> None:
    starts, labels = np.array([0, 2, 5]), np.array([0, 1, 2, 2, 3])
    made = np.eye(5, dtype=np.float32)
    mixed = persons_vectors(plan_of(**STRONG), made, starts, labels, 1)[0]
    assert mixed == pytest.approx(np.array([[0.5, 0.5, 0, 0, 0], [0, 0, 1 / 3, 1 / 3, 1 / 3]]))
    drawn, classes = persons_vectors(plan_of(design="classwise"), made, starts, labels, 1)
    assert classes.tolist() == [0, 2]
    assert drawn == pytest.approx(np.array([[1, 0, 0, 0, 0], [0, 0, 0.5, 0.5, 0]]))
    sums = persons_vectors(plan_of(**FULL, per_person=4), made, starts, labels, 1)[0]
    assert sums == pytest.approx(np.array([[0.25, 0, 0, 0, 0], [0, 0, 0.25, 0.25, 0]]))
    many = persons_vectors(plan_of(**FULL, per_person=4), made, starts, labels, 100)[0]
    assert many == pytest.approx(np.array([[0.5, 0, 0, 0, 0], [0, 0, 1 / 3, 1 / 3, 0]]))
    # A row may hold one of all records of a person, or, by class, of a class.
    assert standing(plan_of(**STRONG), starts, labels).first.tolist() == [0, 2]
    assert standing(plan_of(design="classwise"), starts, labels).first.tolist() == [0, 1, 2, 4]
    shown = np.log(np.array([[1.0], [3.0], [2.0], [2.0], [5.0]], np.float32))
    exponents = standing(plan_of(**STRONG), starts, labels).exponents(shown)
    assert np.exp(exponents[:, 0]) == pytest.approx([2.0, 3.0])


def test_canary_persons_stand_behind_the_others() -> None:
    """The run's own code groups them; the others lose no record."""
    real = tiles.tiles_of(records(persons=50))
    assert isinstance(real, PersonTiles)
    features, labels = np.full((3, DIM), 7.0, np.float32), np.array([1, 0, 2])
    mixed = with_persons(real, 40, features, labels, np.array([0, 0, 1]), 5)
    assert mixed.units == 42
    starts, (x, y) = mixed.starts(0), mixed.tile(0)
    assert np.diff(starts)[-2:].tolist() == [10, 5]
    assert (np.asarray(x[starts[40] :]) == 7).all()
    assert y[starts[40] :].tolist() == [0] * 5 + [1] * 5 + [2] * 5
    theirs, kept = real.tile(0), real.starts(0)[40]
    assert np.array_equal(np.asarray(x[: starts[40]]), np.asarray(theirs[0][:kept]))
    assert np.array_equal(y[: starts[40]], theirs[1][:kept])


def test_a_mislabelled_person_has_all_labels_shifted_by_as_much() -> None:
    real = tiles.tiles_of(records(persons=50))
    made = make_canaries(plan_of(**STRONG), real, 10, "mislabelled", np.random.default_rng(0))
    assert len(made) == 10
    first = real.starts(0)[40]
    x, y = (np.asarray(part)[first:] for part in real.tile(0))
    for person in range(10):
        own = slice(made.starts[person], made.starts[person + 1])
        true = [int(y[(x == row).all(axis=1)][0]) for row in made.features[own]]
        assert len(set((made.labels[own] - true) % len(CLASSES))) == 1
        assert (made.labels[own] != true).all()
        assert (np.diff(made.labels[own]) >= 0).all()


# DP-SGD.


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
    with refuses("persons"):
        audited(plan_of(**STRONG), PrivateRecords(np.zeros((9, DIM)), np.zeros(9, np.int64)))
    assert canaries_in_words(CanaryConfig(), RECORD) == "planted canaries"
    assert canaries_in_words(CanaryConfig(), PERSON) == "planted canary persons with 1 record each"


def test_blocks_part_no_person_and_hold_those_that_are_kept() -> None:
    found = tiles.tiles_of(records(persons=900))
    blocks = list(person_blocks(plan_of(**STRONG), found, 700))
    assert len(blocks) > 2
    assert sum(len(persons.first) for _, _, persons in blocks) == 700
    assert sum(persons.weights.sum() for _, _, persons in blocks) == pytest.approx(700)
