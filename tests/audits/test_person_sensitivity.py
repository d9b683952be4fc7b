"""What one person does with all records on the real engines, beside what their noise is scaled to."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privmix.accounting import Adjacency
from privmix.audits.empty_runs import release_noises
from privmix.audits.worst_case import attack, worst_case_of
from privmix.engine import records as stored
from privmix.engine.engines import make_engine
from privmix.engine.rows import PrivateRecords
from privmix.mechanisms.membership import Membership, offsets_of
from privmix.mechanisms.persons import Givers, RecordWeights
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import Plan
from privmix.plans.registry import all_designs, takes_persons
from privmix.research.rivals.embedding.engine import EmbeddingSums
from privmix.training.dp_sgd import DpSgd, TrainingRecords
from privmix.training.plan import TrainingPlan
from privmix.training.worst_case import attack_training, training_noise
from tests.audits.step_sensitivity import training_sensitivity
from tests.audits.test_sensitivity import PLANS as OF_RECORDS
from tests.audits.test_sensitivity import STRATEGIES, VALUES, exceeded, measured, trainer_of
from tests.audits.test_sensitivity import plan_of as plan_of_records
from tests.refusals import refuses

PLANS: dict[str, dict[str, Any]] = {
    **{name: choices for name, choices in OF_RECORDS.items() if name != "fixed-centred"},
    "moments-series-again": {"design": "moments-series", "steps": 4, "steps_per_person": 3},
    "poisson-means": {"person_mean": True},
    "laplace-means": {"design": "fixed", "noise": "laplace", "centre": "none", "person_mean": True},
    "random-weight-means": {"design": "random-weight", "max_weight": 0.5, "person_mean": True},
    "full-batch-twice": {"design": "classwise", "full_batch": True, "rows": 6},
    "merf": {"design": "merf", "rows": 1, "frequencies": 5},
    "hermite": {"design": "hermite", "rows": 1, "kernel_width": 1.0, "order": 20, "pair_order": 20, "pairs": 1},
}
# Designs that weigh persons by their records take a K.
WEIGHING = {name for name in PLANS if "means" in name or "full-batch" in name} | {
    *(name for name in PLANS if name.startswith(("moments", "class-moments", "corrected", "two-stage", "three-stage"))),
    *("gaussian-mixing", "merf", "hermite"),
}
every_plan = pytest.mark.parametrize("name", PLANS)


def plan_of(name: str, *, per_person: int = 1, **more: Any) -> Plan:
    return plan_of_records(name, plans=PLANS, per_person=per_person, **more)


def test_every_design_is_here() -> None:
    assert {plan_of(name, count=9, dim=2).design for name in PLANS} == {
        one.name for one in all_designs() if takes_persons(one)
    }


@every_plan
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_no_person_moves_a_query_by_more_than_its_noise_is_scaled_to(name: str, data: st.DataObject) -> None:
    count, dim = data.draw(st.integers(3, 7), "persons"), data.draw(st.integers(1, 4), "dim")
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 3, 40]), min_size=count, max_size=count), "records of each")
    whose = np.repeat(np.arange(count), sizes)
    rows = np.array([[data.draw(VALUES) for _ in range(dim)] for _ in range(4)], np.float64)
    seed = data.draw(st.integers(0, 1000), "which")
    rng = np.random.default_rng(seed)
    features, labels = rows[rng.integers(0, 4, len(whose))], rng.integers(0, 3, len(whose))
    order = rng.permutation(len(whose))
    records = PrivateRecords(features[order], labels[order], whose[order])
    per_person = data.draw(st.sampled_from([1, 1, 3] if name in WEIGHING else [1]), "K")
    clip = data.draw(st.sampled_from([1.0, 0.05, 37.0]), "clip norm")
    plan = plan_of(name, count=count, dim=dim, clip_norm=clip, per_person=per_person, mixup_degree=1)
    found = measured(plan, records, data.draw(st.integers(0, count - 1), "person"))
    assert not exceeded(found), found


@pytest.mark.parametrize("many", [1, 3, 5000])
def test_a_person_is_counted_once_however_many_records_they_have(many: int) -> None:
    changes = {"records_noise_multiplier": 0.5, "per_person": 3, "person_quantile": 0.9}
    plan = plan_of("moments", count=9, dim=4, **changes)
    found = measured(plan, far_apart(many))
    assert (found["records of persons"].measured, found["record count"].measured) == (1.0, float(many >= 3))
    assert not exceeded(found)


def far_apart(many: int) -> PrivateRecords:
    """The first person has ``many`` long records in one direction, and of one class; eight others have two small."""
    rng = np.random.default_rng(0)
    features = np.concatenate([np.zeros((many, 4)), rng.normal(size=(16, 4)) * 0.01])
    features[:many, 0] = 50.0
    labels = np.concatenate([np.zeros(many, np.int64), np.arange(16) % 3])
    return PrivateRecords(features, labels, np.concatenate([np.zeros(many, np.int64), np.repeat(np.arange(1, 9), 2)]))


@every_plan
@pytest.mark.parametrize("many", [1, 100])
def test_a_person_of_long_records_does_all_that_is_allowed(name: str, many: int) -> None:
    """So the bounds that noise is scaled to are no looser than they need be, within 2 percent."""
    plan = plan_of(name, count=9, dim=4, mixup_degree=3, **({} if "rows" in PLANS[name] else {"rows": 60}))
    plan = replace(plan, centre_noise_multiplier=0.01) if plan.centred else plan
    found = measured(plan, far_apart(many))
    assert not exceeded(found)
    query = next(one for one in ("second moments", "features", "all parts") if one in found)
    assert found[query].share > (0.45 if plan.adjacency is Adjacency.REPLACE_ONE else 0.98)


def one_record_too_many(weights: RecordWeights) -> NDArray[Any]:
    """The cap is off by one: a person with k records counts as one with k - 1."""
    return np.repeat(1 / np.maximum(weights._counts - 1, weights.most), weights._counts)


def means_not_divided(weights: RecordWeights, x: NDArray[Any], starts: NDArray[Any], shares: NDArray[Any]) -> Any:
    return np.add.reduceat(x, starts, axis=0)


def every_record_joins(givers: Givers, members: Membership, row_tile: int) -> Membership:
    """A person that is drawn gives a row two records."""
    first, counts = givers._runs
    row = np.repeat(np.arange(members.rows), members.counts)
    own = first[members.indices]
    again = own + np.minimum(1, counts[members.indices] - 1)
    order = np.argsort(np.concatenate([row, row]), kind="stable")
    weights = None if members.weights is None else np.concatenate([members.weights] * 2)[order]
    counted = np.bincount(np.concatenate([row, row]), minlength=members.rows)
    return Membership(offsets_of(counted), np.concatenate([own, again])[order], weights)


def features_of_every_record(sums: EmbeddingSums, records: PrivateRecords, weights: RecordWeights) -> None:
    """A person adds the features of all records, each as if it were a person."""
    sums.add(records, weights.labels)


STAGES = ("moments", "class-moments", "corrected-moments", "two-stage", "three-stage")
# Bugs: what each takes the place of, and the plans in which it must show.
PLANTED: list[tuple[type[Any], str, Any, tuple[str, ...]]] = [
    (RecordWeights, "records", property(lambda weights: np.ones(len(weights.labels))), STAGES),
    (RecordWeights, "records", property(one_record_too_many), STAGES),
    (RecordWeights, "means", means_not_divided, (*STAGES, "full-batch", "poisson-centred", "gaussian-mixing")),
    (Givers, "given", every_record_joins, ("poisson", "hierarchical", "classwise")),
    (EmbeddingSums, "add_persons", features_of_every_record, ("merf", "hermite")),
]


@pytest.mark.parametrize(
    ("kind", "what", "bug", "name"), [(*planted, name) for *planted, names in PLANTED for name in names]
)
def test_a_planted_bug_is_caught(
    kind: type[Any], what: str, bug: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(name, count=9, dim=4, mixup_degree=1, rows=60)
    monkeypatch.setattr(kind, what, bug)
    if (bug, name) == (means_not_divided, "full-batch"):
        # More than the bound does not fit the lattice.
        with refuses("lattice records"):
            measured(plan, far_apart(20))
        return
    assert exceeded(measured(plan, far_apart(20)))


def test_a_person_in_two_tiles_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removing a person that counts twice, as if the records lay in two tiles, moves sums twice as far."""
    honest = stored.grouped

    def two(whose: NDArray[Any], labels: NDArray[Any], most: int = 0) -> Any:
        return honest(np.asarray(whose) * 2 + np.arange(len(whose)) % 2, labels)

    monkeypatch.setattr(stored, "grouped", two)
    records = far_apart(20)
    plan = plan_of("moments", count=18, dim=4)
    assert stored.tiles_of(records).units > len(np.unique(records.persons))
    # How far the first person moves X'X, without the help of anything that knows of persons.
    plain, seconds = replace(plan, centre_noise_multiplier=None, residual_clip_norm=None), []
    for kept in (records.persons >= 0, records.persons > 0):
        part = PrivateRecords(records.features[kept], records.labels[kept], records.persons[kept])
        engine = make_engine(plain, part, SecretStreams.from_seed(0))
        list(engine.rows())
        seconds.append(engine.beside.second.astype(np.float64))
    assert np.linalg.norm(seconds[0] - seconds[1]) > plan.final_clip_norm**2 * 1.5


@pytest.mark.parametrize("name", ["moments", "poisson", "classwise"])
@pytest.mark.parametrize("copies", [1, 100])
def test_the_worst_case_shows_no_more_with_many_records(name: str, copies: int) -> None:
    """K and 100 K records prove less than the epsilon: 4,000 trials, 7 deviations (false alarm 1e-10)."""
    plan = replace(plan_of(name, count=1000, dim=9, mixup_degree=16, rows=40, centre="none"), noise_multiplier=2.0)
    plan = plan.priced(1e-3)
    scores = attack(worst_case_of(plan), 4000, seed=1, copies=copies)
    deviation = 0.5 / math.sqrt(2000)
    above = [float((part > 0).mean()) for part in (scores.present, scores.without)]
    assert above[0] - 7 * deviation <= math.exp(plan.epsilon) * (above[1] + 7 * deviation) + 1e-3
    assert scores.present.mean() > scores.without.mean()


# DP-SGD.

STEP = TrainingPlan(6, 6, 1, 0.5, clip_norm=0.4, delta=1e-3, records_declared=True, per_person=2)


def persons_of(features: NDArray[Any], labels: NDArray[np.int64], whose: NDArray[np.int64]) -> TrainingRecords:
    return TrainingRecords.of(features, labels, classes=3, persons=whose)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("many", [1, 2, 100])
def test_a_person_of_long_records_moves_a_step_by_its_bound_and_no_more(strategy: str, many: int) -> None:
    """Under each label, by all that is allowed under one of them."""
    rng, shares = np.random.default_rng(0), []
    features = np.concatenate([np.zeros((many, 4)), rng.normal(size=(10, 4)) * 0.01])
    features[:many, 0] = 50.0
    whose = np.concatenate([np.zeros(many, np.int64), np.repeat(np.arange(1, 6), 2)])
    for label in range(3):
        labels = np.concatenate([np.full(many, label), np.arange(10) % 3])
        found = training_sensitivity(trainer_of(STEP, strategy), persons_of(features, labels, whose), 0, seed=label)
        assert not found.exceeded
        shares.append(found.share)
    assert max(shares) > 0.99


def test_a_person_whose_records_are_clipped_one_by_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person that is as many units as records are drawn of them."""
    honest = DpSgd._views

    def apart(self: DpSgd, indices: NDArray[np.int64], seeds: NDArray[np.int64]) -> Any:
        views, targets = honest(self, indices, seeds)
        return views.flatten(0, 1)[:, None], targets.flatten(0, 1)[:, None]

    monkeypatch.setattr(DpSgd, "_views", apart)
    features = np.full((20, 4), 50.0)
    features[2:] = 0.01
    records = persons_of(features, np.ones(20, np.int64), np.concatenate([[0, 0], np.arange(1, 19) % 5 + 1]))
    assert training_sensitivity(trainer_of(STEP, "closed-form"), records, 0).exceeded


def test_records_of_a_person_are_as_likely_each() -> None:
    """Of 5 records with K = 2, over 20,000 draws, within 7 standard deviations (false alarm below 1e-10)."""
    # A person with one record gives it twice.
    records = persons_of(np.arange(24.0).reshape(6, 4), np.zeros(6, np.int64), np.array([0, 0, 0, 0, 0, 1]))
    starts = np.random.default_rng(0).random(20_000)
    drawn = records.of_persons(np.zeros(20_000, np.int64), starts, 2)
    assert (drawn[:, 0] != drawn[:, 1]).all()
    counts = np.bincount(drawn.reshape(-1), minlength=5)
    assert (np.abs(counts - 8000) < 7 * np.sqrt(20_000 * 0.4 * 0.6)).all()
    assert (records.of_persons(np.array([1]), np.array([0.7]), 3) == 5).all()


def test_a_plan_of_persons_trains_on_persons_alone() -> None:
    features, labels = np.zeros((6, 4)), np.zeros(6, np.int64)
    with refuses("persons"):
        trainer_of(STEP, "loop")(TrainingRecords.of(features, labels, classes=3), SecretStreams.from_seed(0), [])
    plan = replace(STEP, per_person=None)
    with refuses("persons"):
        trainer_of(plan, "loop")(persons_of(features, labels, np.arange(6)), SecretStreams.from_seed(0), [])


# Audits of what was made for persons.


@every_plan
def test_noise_of_persons_is_what_is_declared(name: str) -> None:
    """Its standard deviation over 3,000 draws and more, within 7 of its own deviations (false alarm 3e-12 each)."""
    plan = plan_of(name, count=30, dim=6, per_person=3 if name in WEIGHING else 1, rows=30)
    for noise in release_noises(plan, 3000, seed=0):
        room = 7 * math.sqrt((5 / 4 if plan.norm == "l1" else 1 / 2) / noise.values.size)
        assert abs(noise.values.std() / noise.certified - 1) < room, noise.name


@pytest.mark.parametrize("per_person", [1, 3])
def test_a_training_of_persons_can_be_audited(per_person: int) -> None:
    """By its worst case, and by its noise alone, within 7 deviations (false alarm 3e-12)."""
    plan = TrainingPlan(1000, 50, 5, 1.0, clip_norm=1.0, delta=1e-3, per_person=per_person)
    scores = attack_training(plan, 400, seed=0)
    assert np.array_equal(scores.present, attack_training(replace(plan, per_person=None), 400, seed=0).present)
    noise = training_noise(plan, 10_000, seed=0).values
    assert abs(noise.std() - 1) < 7 / math.sqrt(2 * noise.size)
