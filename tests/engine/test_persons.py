"""Persons with many records: one contribution each, whatever they hold, and the record's when they hold one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.designs.moments.engine import MomentSums
from privmix.designs.rows.poisson import Poisson
from privmix.engine.engines import make_engine
from privmix.engine.records import PersonTiles, tiles_of
from privmix.engine.rows import PrivateRecords
from privmix.engine.tiles import TileSummer, empty_sums
from privmix.mechanisms import membership
from privmix.mechanisms.membership import Membership
from privmix.mechanisms.persons import Givers, RecordWeights, grouped
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.plans.registry import check_plan, design_named, plan_from_dict, takes_persons
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform
from privmix.research.rivals.embedding.engine import EmbeddingSums
from tests.refusals import refuses

CLASSES = ("ant", "bee", "cat")
ROWS: dict[str, Any] = {"mixup_degree": 8}
DESIGNS: dict[str, dict[str, Any]] = {
    **{name: {"design": name} for name in ("moments", "class-moments", "two-stage", "three-stage", "gaussian-mixing")},
    "corrected-moments": {"design": "corrected-moments"},
    **{name: {"design": name, **ROWS} for name in ("poisson", "allocation", "fixed", "random-weight", "hierarchical")},
    **{f"{one}-means": {"design": one, **ROWS, "person_mean": True} for one in ("poisson", "fixed", "random-weight")},
    "classwise": {"design": "classwise", **ROWS},
    "full-batch": {"design": "classwise", "full_batch": True},
}
every_design = pytest.mark.parametrize("name", DESIGNS)


def plan_of(name: str, persons: int, dim: int, per_person: int | None = 1, noise: float = 1.0) -> Plan:
    options = dict(DESIGNS[name])
    if per_person is None:
        options.pop("person_mean", None)
    return ReleaseConfig(
        records=persons, dim=dim, classes=CLASSES, rows=60, per_person=per_person, **options
    ).with_noise(noise)


def some(persons: int, records: int, dim: int = 5, seed: int = 0) -> PrivateRecords:
    """Each person has a record at least."""
    rng = np.random.default_rng(seed)
    whose = np.concatenate([np.arange(persons), rng.integers(0, persons, records - persons)])
    return PrivateRecords(rng.normal(size=(records, dim)), rng.integers(0, 3, records), rng.permutation(whose))


def released(plan: Plan, records: PrivateRecords, **options: Any) -> list[Any]:
    """Rows' features and labels, and what stands beside them."""
    made = make_engine(plan, records, SecretStreams.from_seed(0), **options)
    blocks = list(made.rows())
    beside = [] if made.beside is None else list(vars(made.beside).values())
    return [np.concatenate([block.x for block in blocks]), np.concatenate([block.y for block in blocks]), *beside]


def equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@every_design
def test_persons_of_one_record_are_records(name: str) -> None:
    records = some(50, 50)
    alone = PrivateRecords(records.features, records.labels)
    one, other = released(plan_of(name, 50, 5), records), released(plan_of(name, 50, 5, None), alone)
    # Counts of norms have finer steps, on which their noise is drawn; what is before them is the same.
    exact = 5 if "stage" in name else len(other)
    assert equal(one[:exact], other[:exact])


@every_design
def test_what_persons_are_called_and_how_their_records_are_ordered_changes_nothing(name: str) -> None:
    records = some(40, 200)
    assert records.persons is not None
    plan, names = plan_of(name, 40, 5), np.random.default_rng(1).permutation(40) * 7 - 90
    assert equal(released(plan, records), released(plan, replace(records, persons=names[records.persons])))


@every_design
def test_a_plan_of_persons_takes_persons_alone_and_one_of_records_records(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the engine itself looks at, as that of a stranger's design may not: none is made."""
    monkeypatch.setattr("privmix.engine.engines.behind", lambda *_: pytest.fail("an engine was asked for"))
    records = some(40, 200)
    for per_person, given in ((1, replace(records, persons=None)), (None, records)):
        with refuses("persons"):
            released(plan_of(name, 40, 5, per_person), given)


@pytest.mark.parametrize("name", ["poisson", "moments"])
def test_a_design_that_knows_no_persons_refuses_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is charged or read; and at each later door, whoever made the plan."""
    monkeypatch.setattr(design_named(name), "persons", False)
    with refuses("design"):
        ReleaseConfig(records=40, dim=5, classes=CLASSES, per_person=1, **DESIGNS[name])
    plan = ReleaseConfig(records=40, dim=5, classes=CLASSES, **DESIGNS[name]).with_noise(1.0).priced(1e-3)
    plan = replace(plan, per_person=1)
    for door in (
        lambda: check_plan(plan),
        lambda: plan_from_dict(plan.to_dict()),
        lambda: released(plan, some(40, 200)),
    ):
        with refuses("design"):
            door()


def test_what_a_design_does_with_persons_is_not_inherited() -> None:
    """An engine of one's own may take their records for units: a design must say that it does not."""

    class Heir(Poisson):
        name = "heir"

    assert takes_persons(Poisson)
    assert not takes_persons(Heir)


@pytest.mark.parametrize("per_person", [1, 3])
def test_moments_are_those_of_persons_contributions(per_person: int) -> None:
    """Beside a naive reference in floats: what the lattice rounds away is a few steps a number."""
    records, plan = some(60, 400, dim=4), plan_of("moments", 60, 4, per_person)
    sums, transform = MomentSums(plan), RecordTransform(plan.clip_norm)
    tiles = PersonTiles(records.features, records.labels, records.persons)
    x, y = tiles.tile(0)
    sums.add(transform, x, y, RecordWeights(tiles.starts(0), y, per_person))
    second, cross, labels = np.zeros((4, 4)), np.zeros((4, 3)), np.zeros(3)
    for person in range(60):
        own = records.persons == person
        z, hot = transform(records.features[own]), np.eye(3)[records.labels[own]]
        weight = min(1.0, own.sum() / per_person) / own.sum()
        second += weight * z.T @ z
        cross += weight * z.T @ (hot - plan.label_offset)
        labels += weight * (hot - plan.label_offset).sum(axis=0)
    step = 2.0**-plan.lattice_bits
    made = np.tril(sums._second) + np.tril(sums._second, -1).T
    assert np.allclose(made * step**2, second, atol=4 * 400 * step)
    one, offset = round(1 / step), round(plan.label_offset / step)
    linear = sums._class_sums.T * one - offset * sums._class_sums.sum(axis=0)[:, None]
    assert np.allclose(linear * step**2, cross, atol=4 * 400 * step)
    assert np.allclose(sums._label_steps * step, labels, atol=2 * 60 * step * 3)


@pytest.mark.parametrize("options", [{"design": "merf", "frequencies": 8}, {"design": "hermite", "pairs": 2}])
@pytest.mark.parametrize("per_person", [1, 3])
def test_embeddings_are_those_of_persons_contributions(options: dict[str, Any], per_person: int) -> None:
    """Wherever blocks and pieces of them are cut; of persons with one record and K = 1 they are those of records."""
    records = some(60, 400, dim=4)
    plan = ReleaseConfig(records=60, dim=4, classes=CLASSES, per_person=per_person, **options).with_noise(1.0)

    def sums(whose: NDArray[np.int64], at_once: int) -> EmbeddingSums:
        tiles, made = PersonTiles(records.features, records.labels, whose), EmbeddingSums(plan)
        (x, y), starts = tiles.tile(0), tiles.starts(0)
        made.records_at_once = at_once
        steps = plan.lattice.quantise(RecordTransform(plan.clip_norm)(x) / plan.clip_norm)
        for first in range(0, len(starts) - 1, 25):
            last = min(first + 25, len(starts) - 1)
            part = slice(starts[first], starts[last])
            made.add_persons(steps[part], RecordWeights(starts[first : last + 1] - starts[first], y[part], per_person))
        return made

    made, again, alone = sums(records.persons, 7), sums(records.persons, 1000), sums(np.arange(400), 1000)
    plain = EmbeddingSums(plan)
    z = plan.lattice.quantise(RecordTransform(plan.clip_norm)(records.features) / plan.clip_norm)
    plain.add(z, records.labels)
    assert np.array_equal(made._sizes, again._sizes)
    features = plain._map.steps(z, plan.lattice_bits)
    weights = np.minimum(1, np.bincount(records.persons) / per_person) / np.bincount(records.persons)
    for name, found in made._sums.items():
        assert np.array_equal(found, again._sums[name])
        assert per_person > 1 or np.array_equal(alone._sums[name], plain._sums[name])
        naive = np.zeros(found.shape)
        np.add.at(naive, records.labels, features[name] * weights[records.persons][:, None])
        assert np.abs(found - naive).max() <= 60 + 1e-6
    sizes = np.bincount(records.labels, weights[records.persons], 3)
    assert np.abs(made._sizes * plan.lattice.step - sizes).max() <= 60 * plan.lattice.step


def test_a_person_adds_the_same_whoever_is_beside_them() -> None:
    """To the last bit, wherever blocks are cut."""
    records, plan = some(300, 4000, dim=7), plan_of("moments", 300, 7)
    transform = RecordTransform(plan.clip_norm)

    def sums(of: NDArray[np.bool_]) -> Any:
        tiles = PersonTiles(records.features[of], records.labels[of], records.persons[of])
        made, (x, y) = MomentSums(plan), tiles.tile(0)
        made.add(transform, x, y, RecordWeights(tiles.starts(0), y))
        return made

    everybody = sums(np.ones(4000, bool))
    for person in range(0, 300, 37):
        own = records.persons == person
        without, alone = sums(~own), sums(own)
        assert np.array_equal(everybody._second, without._second + alone._second)
        assert np.array_equal(everybody._class_sums, without._class_sums + alone._class_sums)
        assert np.array_equal(everybody._label_steps, without._label_steps + alone._label_steps)


@pytest.mark.parametrize("many", [1, 2, 17, 5000])
def test_weights_of_a_person_sum_to_one_at_most(many: int) -> None:
    labels = np.sort(np.random.default_rng(0).integers(0, 3, many))
    for most in (1, 5, 10**6):
        weights = RecordWeights(np.array([0, many]), labels, most)
        assert weights.records.sum() <= 1 + 1e-12
        assert np.square(weights.roots).sum() <= 1 + 1e-12
        assert np.isclose(weights.groups.shares.sum(), min(1, many / most))
        one, offset = 2**15, 2**15 // 3
        bound = np.hypot(one - offset, offset * np.sqrt(2))
        assert np.linalg.norm(weights.label_steps(3, one, offset)) <= bound
        assert 0 <= weights.label_steps(3, one, 0).sum() <= one


def test_of_a_person_with_too_many_records_some_count() -> None:
    order, starts = grouped(np.repeat([5, 2], [1000, 10]), np.zeros(1010, np.int64), most=64)
    assert np.diff(starts).tolist() == [64, 10]
    gaps = np.diff(order[:64])
    assert set(gaps.tolist()) <= {15, 16}


def test_tiles_hold_whole_persons_and_end_in_the_same_release(monkeypatch: pytest.MonkeyPatch) -> None:
    records, plan = some(40, 300), plan_of("moments", 40, 5)
    whole = released(plan, records)
    for part in ("records", "tiles"):
        monkeypatch.setattr(f"privmix.engine.{part}.RECORD_TILE", 7)
    tiles = PersonTiles(records.features, records.labels, records.persons)
    assert sum(tiles.length(index) for index in range(6)) == 300
    assert [len(tiles.starts(index)) - 1 for index in range(6)] == [7, 7, 7, 7, 7, 5]
    assert equal(whole, released(plan, records))
    assert membership.RECORD_TILE == 65_536


@every_design
def test_memory_changes_no_bit(name: str) -> None:
    records, plan = some(40, 200), plan_of(name, 40, 5)
    assert equal(released(plan, records), released(plan, records, memory_gb=1e-6))


def test_a_row_gets_one_record_of_a_person_drawn_anew_for_each() -> None:
    """Uniformly: each of 4 records is given in a quarter of 20,000 rows, within 7 deviations (false alarm 1e-11)."""
    starts, labels = np.array([0, 4, 5]), np.array([0, 0, 1, 1, 0])
    givers = Givers(starts, labels, SecretStreams.from_seed(3).derive("membership"), 0, by_class=False)
    rows = 1000
    counts = np.zeros(5)
    for tile in range(20):
        drawn = givers.given(Membership(np.arange(rows + 1) * 2, np.tile([0, 1], rows)), tile)
        assert (drawn.indices[1::2] == 4).all()
        counts += np.bincount(drawn.indices, minlength=5)
    assert (np.abs(counts[:4] - 5000) < 7 * np.sqrt(20_000 * 3 / 16)).all()


@pytest.mark.parametrize("name", ["poisson-means", "fixed-means", "random-weight-means"])
@pytest.mark.parametrize("per_person", [1, 3])
def test_rows_of_means_are_sums_of_their_members_means(name: str, per_person: int) -> None:
    """Beside a naive reference in floats, of the members that were drawn; features and labels."""
    records, plan = some(60, 400, dim=4), plan_of(name, 60, 4, per_person)
    assert isinstance(plan, ReleasePlan)
    child = SecretStreams.from_seed(2).derive("membership")
    summer, transform = TileSummer(plan, tiles_of(records), child), RecordTransform(plan.clip_norm)
    sums = empty_sums(plan, range(1))
    summer.add(sums, range(1), 0, summer.quantise(0, transform, summer.empty_tile(0)))
    members, rows = summer.members(0, 0), plan.rows
    held = np.repeat(np.arange(rows), members.counts)
    weights = np.ones(len(held)) if members.weights is None else members.weights
    x, y = np.zeros((rows, 4)), np.zeros((rows, 3))
    # Persons are in the order in which their first records stand.
    _, first = np.unique(whose_of(records), return_index=True)
    for row, member, weight in zip(held, members.indices, weights, strict=True):
        own = whose_of(records) == whose_of(records)[np.sort(first)[member]]
        share = weight * min(1.0, own.sum() / per_person)
        x[row] += share * transform(records.features[own]).mean(axis=0)
        # With K above 1 the offset weighs what the person does, and comes off the row in full.
        full = plan.label_offset * (weight - share)
        y[row] += share * np.eye(3)[records.labels[own]].mean(axis=0) + (full if per_person > 1 else 0.0)
    step, most = 2.0**-plan.lattice_bits, max(1, members.counts.max())
    assert np.allclose(sums.x * step * plan.weight_step, x, atol=2 * most * step)
    assert np.allclose(sums.counts / plan.label_steps * plan.weight_step, y, atol=4 * most * step)
    assert np.allclose(sums.totals * plan.weight_step, np.bincount(held, weights, rows))


def whose_of(records: PrivateRecords) -> NDArray[np.int64]:
    assert records.persons is not None
    return records.persons


def test_means_are_of_persons_in_rows_that_draw_their_members_alone() -> None:
    with refuses("person_mean"):
        ReleaseConfig(records=40, dim=5, classes=CLASSES, mixup_degree=8, person_mean=True)
    plan = plan_of("hierarchical", 40, 5)
    with refuses("person_mean"):
        replace(plan, person_mean=True)
    with refuses("person_mean"):
        replace(plan_of("poisson-means", 40, 5), per_person=None)
    assert "person_mean" not in plan.to_dict()
    means = plan_of("poisson-means", 40, 5)
    assert plan_from_dict(means.to_dict()) == means


def test_where_rows_are_drawn_by_class_a_person_is_in_one() -> None:
    """In proportion to their records, 3 of class 0 and one of class 1: 4,000 persons, 7 deviations (below 1e-11)."""
    persons = 4000
    starts, labels = np.arange(persons + 1) * 4, np.tile([0, 0, 0, 1], persons)
    givers = Givers(starts, labels, SecretStreams.from_seed(3).derive("membership"), 0, by_class=True)
    assert abs((givers.classes == 1).mean() - 0.25) < 7 * np.sqrt(3 / 16 / persons)
    drawn = givers.given(Membership(np.arange(persons + 1), np.arange(persons)), 0)
    assert (labels[drawn.indices] == givers.classes).all()
