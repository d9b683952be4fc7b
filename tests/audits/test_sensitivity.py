"""What one record does on the real engines and trainers, beside what their noise is scaled to."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privmix.accounting import Adjacency
from privmix.audits.sensitivity import QuerySensitivity, release_sensitivity
from privmix.audits.worst_case import EngineFactory, real_engine
from privmix.engine import rows as engine
from privmix.engine import tiles
from privmix.engine.rows import PrivateRecords, ReleaseEngine
from privmix.mechanisms.membership import RECORD_TILE, Membership, offsets_of
from privmix.mechanisms.plan import ALL_RECORDS
from privmix.mechanisms.sampling import AllocationSampling, PoissonSampling
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.parts import SumPlan
from privmix.plans.plan import Plan
from privmix.plans.registry import all_designs
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform
from privmix.training.config import OptimiserConfig
from privmix.training.dp_sgd import DpSgd, Optimiser, StepObserver, TrainingRecords
from privmix.training.gradients.closed_form import ClosedFormGradients
from privmix.training.gradients.execution import Chunks
from privmix.training.gradients.parameters import Clipping, FlatParameters, SideInformation
from privmix.training.gradients.strategies import GradientStrategy, LoopGradients, VmapGradients
from privmix.training.models.networks import LinearHead
from privmix.training.plan import TrainingPlan
from privmix.training.public.base import ExtendedMethod
from privmix.training.views.config import ViewConfig
from privmix.training.views.pipeline import ViewPipeline
from tests.audits.step_sensitivity import training_sensitivity
from tests.refusals import refuses
from tests.releases.helpers import own_options

CLASSES = ("ant", "bee", "cat")
PLANS: dict[str, dict[str, Any]] = {
    "poisson": {"centre": "none"},
    "poisson-centred": {},
    "allocation": {"design": "allocation", "centre": "none"},
    "fixed": {"design": "fixed", "centre": "none"},
    "fixed-centred": {"design": "fixed"},
    "laplace": {"design": "fixed", "noise": "laplace", "centre": "none"},
    "hierarchical": {"design": "hierarchical", "expected_classes": 1.5},
    "classwise": {"design": "classwise"},
    "full-batch": {"design": "classwise", "full_batch": True, "centre": "none"},
    "random-weight": {"design": "random-weight", "max_weight": 0.5},
    "gaussian-mixing": {"design": "gaussian-mixing"},
    "moments": {"design": "moments", "centre": "none"},
    "moments-centred": {"design": "moments"},
    "moments-plain": {"design": "moments", "plain_labels": True},
    "moments-no-label": {"design": "moments", "centre": "none", "classes": ALL_RECORDS},
    "moments-no-label-centred": {"design": "moments", "classes": ALL_RECORDS},
    "class-moments": {"design": "class-moments", "centre": "none"},
    "class-moments-centred": {"design": "class-moments"},
    "moments-series": {"design": "moments-series", "steps": 4},
    "corrected-moments": {"design": "corrected-moments", "centre": "none"},
    "corrected-moments-centred": {"design": "corrected-moments"},
    "merf": {"design": "merf", "frequencies": 5},
    "hermite": {"design": "hermite", "order": 20, "pair_order": 20, "pairs": 3},
    "two-stage": {"design": "two-stage", "centre": "none"},
    "two-stage-centred": {"design": "two-stage"},
    "three-stage": {"design": "three-stage", "centre": "none"},
}
every_plan = pytest.mark.parametrize("name", PLANS)
# Values that arithmetic is apt to get wrong: huge, denormal, both zeros, and ordinary ones.
VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-3, 3e38, -3e38, 1e-45, 1e20, -7.5]) | st.floats(-5, 5, width=32)


def plan_of(name: str, *, count: int, dim: int, noise: float = 1.0, plans: Any = PLANS, **changes: Any) -> Plan:
    choices = own_options({"mixup_degree": count // 3, "rows": 12, "classes": CLASSES, **plans[name], **changes})
    return ReleaseConfig(records=count, dim=dim, **choices).with_noise(noise)


def worst_plan(name: str, **changes: Any) -> Plan:
    """For :func:`far_apart`: a mean under little noise, so that a record's residual points its own way."""
    plan = plan_of(name, **{"count": 9, "dim": 4, "rows": 60, **changes})
    return replace(plan, centre_noise_multiplier=0.01) if plan.centred else plan


def out_of_core(plan: Plan, records: PrivateRecords, streams: SecretStreams) -> Any:
    """Records read again for each chunk of rows, as from a disk."""
    if type(plan) is not ReleasePlan:
        return real_engine(plan, records, streams)
    return ReleaseEngine(plan, records, streams, workers=1, memory_bytes=1)


def measured(
    plan: Plan, records: PrivateRecords, position: int = 0, make: EngineFactory = real_engine
) -> dict[str, QuerySensitivity]:
    """By query; a replaced record is turned round, and of another class."""
    own = records.of_unit(position)[0]
    records = replace(records, labels=records.labels % plan.num_classes)
    replacement = None
    if plan.adjacency is Adjacency.REPLACE_ONE:
        replacement = (-records.features[own], (int(records.labels[own]) + 1) % 3)
    found = release_sensitivity(plan, records, position, replacement=replacement, seed=position, make=make)
    return {one.query: one for one in found}


def exceeded(found: dict[str, QuerySensitivity]) -> set[str]:
    return {name for name, one in found.items() if one.exceeded}


def far_apart(count: int = 9, length: float = 50.0) -> PrivateRecords:
    """Records of which the first is long, and the others are near the origin."""
    features = np.random.default_rng(0).normal(size=(count, 4)) * 0.01
    features[0] = length, 0, 0, 0
    return PrivateRecords(features, np.arange(count) % 3)


def test_every_design_is_here() -> None:
    assert {plan_of(name, count=8, dim=2).design for name in PLANS} == {design.name for design in all_designs()}


@every_plan
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_no_record_moves_a_query_by_more_than_its_noise_is_scaled_to(name: str, data: st.DataObject) -> None:
    count, dim = data.draw(st.integers(3, 9), "records"), data.draw(st.integers(1, 5), "dim")
    dtype = data.draw(st.sampled_from([np.float32, np.float64]), "dtype")
    rows = [[data.draw(VALUES) for _ in range(dim)] for _ in range(data.draw(st.integers(1, count)))]
    # Fewer rows than records: some are there several times.
    features = np.array([rows[index % len(rows)] for index in range(count)], dtype)
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count), "labels"))
    changes: dict[str, Any] = {
        "clip_norm": data.draw(st.sampled_from([1.0, 0.05, 37.0, 1e-6]), "clip norm"),
        "lattice_bits": data.draw(st.sampled_from([8, 15, 20]), "lattice bits"),
        # Where rows are of one class, or of few, a record's rate in its class is several times as high.
        "mixup_degree": data.draw(st.integers(1, count // 3 if "class" in name or "hier" in name else count), "degree"),
    }
    if not name.startswith("moments"):
        changes["label_noise_ratio"] = data.draw(st.sampled_from([0.3, 1.0, 20.0]), "label noise")
    plan = plan_of(name, count=count, dim=dim, noise=data.draw(st.sampled_from([0.05, 1.0, 30.0]), "noise"), **changes)
    make = data.draw(st.sampled_from([real_engine, out_of_core]), "engine")
    position = data.draw(st.integers(0, count - 1), "position")
    found = measured(plan, PrivateRecords(features, labels), position, make)
    assert exceeded(found) == set(), found


@every_plan
def test_the_worst_record_comes_within_a_hundredth(name: str) -> None:
    """Declared sensitivity is tight, except for labels (and so rows) of replaced records."""
    plan, records = worst_plan(name), far_apart()
    # A model may be right about the record, but not under each label.
    labels = range(3) if name.startswith("corrected") else records.labels[:1]
    tried = [measured(plan, replace(records, labels=np.append(one, records.labels[1:]))) for one in labels]
    found = max(tried, key=lambda one: min(query.share for query in one.values()))
    assert exceeded(found) == set()
    replaced = plan.adjacency is Adjacency.REPLACE_ONE
    for query, one in found.items():
        loose = (replaced and query in ("labels", "rows")) or query == "rows touched"
        if not loose:
            assert one.share > 0.99, one
    if name == "full-batch":
        assert found["rows touched"].share == 1
    if plan.centred:
        assert "mean" in found


def at_an_edge(dim: int) -> NDArray[np.float64]:
    """A record that the last bit of its norm moves by a lattice step in all entries but one."""
    # NumPy's norm of it alone leaves it above the edge, that next to another row below, or the other way round.
    record = np.full(dim, 0.37)

    def steps(rows: int) -> float:
        stacked = np.stack([record, *[np.zeros(dim)] * (rows - 1)])
        norm = np.sqrt(np.einsum("ij,ij->i", stacked, stacked))[0]
        hair = (dim + 8) * float(np.finfo(np.float64).eps)
        return float(np.trunc(record[0] * ((1 - 2 * hair) / norm) * 2**15))

    # Long enough for the other entries to pass an edge as the last one grows.
    low, high = 0.1 * math.sqrt(dim), 0.2 * math.sqrt(dim)
    record[-1] = high
    wanted = steps(1)
    for _ in range(60):
        record[-1] = middle = (low + high) / 2
        low, high = (low, middle) if steps(1) <= wanted else (middle, high)
    ulp = np.spacing(high)
    for offset in range(-2000, 2000):
        record[-1] = high + offset * ulp
        if steps(1) != steps(2):
            return record
    raise AssertionError("sums of NumPy no longer depend on neighbours")


# Second moments take 8,192 features at most, and are of records clipped in the same way.
@pytest.mark.parametrize("name", [name for name in PLANS if "moments" not in name and "stage" not in name])
def test_no_neighbour_decides_how_a_wide_record_is_clipped(name: str) -> None:
    """Beyond 8,192 features, the last of 65 records is alone in its clipping block; with one record more it is not."""
    dim, count = 16_500, 66
    record = at_an_edge(dim)
    features = np.zeros((count, dim))
    features[64] = record
    labels = np.zeros(count, np.int64)
    for sign in (1, -1):
        features[65] = sign * 2 * record
        few = {"order": 2, "pair_order": 2} if name == "hermite" else {}
        plan = plan_of(name, count=count, dim=dim, rows=6, **few)
        assert exceeded(measured(plan, PrivateRecords(features, labels), 65)) == set()


def test_a_private_count_moves_by_one() -> None:
    plan = plan_of("poisson", count=200, dim=4, records_noise_multiplier=5.0)
    assert measured(plan, far_apart(200), 7)["record count"].measured == 1


# Planted bugs.


DRAW, READ, ADD_NOISE = AllocationSampling.draw, tiles.TileReader._read, engine.RowEngine._add_noise


def unclipped(transform: RecordTransform, features: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(features, np.float64)


def unclipped_after_centring(transform: RecordTransform, features: NDArray[Any]) -> NDArray[np.float64]:
    return transform.clip(features) - (0 if transform.centre is None else transform.centre)


def divided(self: Any, tile: int, x: Any, counts: Any, totals: Any, out_x: Any, out_y: Any) -> None:
    """By the realised count: rows with few members are scaled up, whoever they are."""
    share = (self._plan.divisor / np.maximum(totals, 1))[:, None]
    ADD_NOISE(self, tile, x, counts, totals, out_x, out_y)
    out_x *= share
    out_y *= share


def of_any_class(plan: ReleasePlan, records: int) -> Any:
    """A class-wise record joins more rows than those of its class."""
    return PoissonSampling(records, plan.rows, 1.0)


def in_two_rows(self: Any, streams: SecretStreams, row_tile: int, record_tile: int, labels: Any = None) -> Membership:
    """A sampler that draws twice: most records are in two rows of every block."""
    drawn = [DRAW(self, one, row_tile, record_tile) for one in (streams, streams.derive("again"))]
    cells = [np.repeat(np.arange(one.rows), one.counts) * RECORD_TILE + one.indices for one in drawn]
    row, record = np.divmod(np.union1d(*cells), RECORD_TILE)
    return Membership(offsets_of(np.bincount(row, minlength=drawn[0].rows)), record)


def scaled(reader: tiles.TileReader, index: int) -> Any:
    """By the longest of the records: every row is moved, also those without the record."""
    features, labels = READ(reader, index)
    return features / np.linalg.norm(reader.records.tile(0)[0], axis=1).max(), labels


TRANSFORM, UNCENTRED, ROWS = (RecordTransform, "__call__"), {"centre": "none"}, {"features", "rows"}
SUMS = {"second moments", "cross moments", "all parts"}


@pytest.mark.parametrize(
    ("place", "bug", "name", "changes", "seen"),
    [
        *((TRANSFORM, unclipped, name, UNCENTRED, ROWS) for name in ("poisson", "fixed", "laplace", "hierarchical")),
        (TRANSFORM, unclipped, "classwise", UNCENTRED, ROWS),
        (TRANSFORM, unclipped, "moments", UNCENTRED, SUMS),
        (TRANSFORM, unclipped_after_centring, "poisson-centred", {"residual_clip_norm": 0.5}, ROWS),
        ((engine.RowEngine, "_add_noise"), divided, "poisson", {"rows": 200}, {*ROWS, "labels"}),
        ((ReleasePlan, "sampler_for"), of_any_class, "full-batch", {"rows": 9}, {"rows touched"}),
        ((AllocationSampling, "draw"), in_two_rows, "allocation", {"mixup_degree": 2}, {"rows touched"}),
        ((tiles.TileReader, "_read"), scaled, "poisson", {"mixup_degree": 2}, {"rows without the record"}),
    ],
)
def test_a_planted_bug_is_caught(
    place: tuple[Any, str], bug: Any, name: str, changes: Any, seen: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = worst_plan(name, **changes)
    assert not exceeded(measured(plan, far_apart()))
    monkeypatch.setattr(*place, bug)
    # What is longer than the bound has room on the lattice.
    monkeypatch.setattr(tiles, "largest_step", lambda plan: 2**22)
    assert exceeded(measured(plan, far_apart())) >= seen


def test_clipping_forgotten_in_the_mean_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def clipped_sum(self: tiles.TileReader, index: int, done: Any = None) -> NDArray[np.float64]:
        features, _ = self.read(index)
        return self._lattice.quantise(np.asarray(features, np.float64)).sum(axis=0)

    monkeypatch.setattr(tiles.TileReader, "clipped_sum", clipped_sum)
    for name in ("poisson-centred", "moments-centred"):
        assert exceeded(measured(worst_plan(name), far_apart(length=3.0))) == {"mean"}


@every_plan
def test_half_the_sensitivity_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise for a record that moves sums half as far as it does."""
    plan = worst_plan(name)
    kind = type(plan)
    rows = measured(plan, far_apart())
    joint = next((query for query in rows if query.startswith("all ")), "rows")
    if isinstance(plan, SumPlan):
        parts = {one.name: replace(one, noise_std=one.noise_std / 2) for one in plan.parts}
        halved = tuple(parts.get(one.name, one) for one in plan.arrays)
        monkeypatch.setattr(kind, "arrays", property(lambda self: halved))
    for part in ("noise_std_x", "noise_std_y"):
        if hasattr(kind, part):
            std: Any = getattr(kind, part).fget
            monkeypatch.setattr(kind, part, property(lambda self, std=std: std(self) / 2))
    assert not rows[joint].exceeded
    assert measured(plan, far_apart())[joint].exceeded


def test_bad_input() -> None:
    records, plan = far_apart(), worst_plan("poisson")
    with refuses("replacement"):
        release_sensitivity(plan, records, 0, replacement=(records.features[0], 1))
    with refuses("replacement"):
        release_sensitivity(worst_plan("fixed"), records, 0)
    with refuses("position"):
        release_sensitivity(plan, records, 9)
    with refuses("records"):
        release_sensitivity(plan, PrivateRecords(records.features[:1], records.labels[:1]), 0)


# DP-SGD.

STRATEGIES: dict[str, type[GradientStrategy]] = {
    "loop": LoopGradients,
    "vmap": VmapGradients,
    "closed-form": ClosedFormGradients,
}
TRAINING = TrainingPlan(12, 12, 1, 0.5, clip_norm=0.4, delta=1e-3, records_declared=True)


class Given(ExtendedMethod):
    """Public quantities as they are given."""

    def __init__(self, side: SideInformation) -> None:
        self.side = side

    def prepare(self, step: int) -> SideInformation:
        return self.side

    def fingerprint(self) -> dict[str, Any]:
        return {}


def two_views(x: torch.Tensor, labels: torch.Tensor, seeds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A record, and half of it."""
    targets = torch.nn.functional.one_hot(labels, 3).float()
    return torch.stack([x, x / 2], dim=1), torch.stack([targets, targets], dim=1)


def trainer_of(
    plan: TrainingPlan, strategy: str, views: Any = None, spread: float = 1.0, **options: Any
) -> Callable[[TrainingRecords, SecretStreams, Sequence[StepObserver]], DpSgd]:
    def make(records: TrainingRecords, streams: SecretStreams, observers: Sequence[StepObserver]) -> DpSgd:
        model = LinearHead(dim=records.dim, classes=3)
        torch.nn.init.normal_(model.head.weight, std=spread, generator=torch.Generator().manual_seed(1))
        flat = FlatParameters(model)
        return DpSgd(
            plan=plan,
            records=records,
            views=views or ViewPipeline(ViewConfig.plain(), classes=3),
            gradients=STRATEGIES[strategy](model, flat, Clipping(plan.clip_norm)),
            optimiser=Optimiser(flat, OptimiserConfig(learning_rate=1.0), plan.steps),
            streams=streams,
            chunks=Chunks(5),
            observers=observers,
            **options,
        )

    return make


def step_of(
    make: Any, features: NDArray[Any], labels: NDArray[np.int64], position: int, replaced: bool = False
) -> QuerySensitivity:
    replacement = (-features[position], (int(labels[position]) + 1) % 3) if replaced else None
    records = TrainingRecords.of(features, labels, classes=3)
    return training_sensitivity(make, records, position, replacement=replacement, seed=position)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_no_record_moves_a_step_by_more_than_its_noise_is_scaled_to(strategy: str, data: st.DataObject) -> None:
    dim = data.draw(st.integers(1, 4), "dim")
    rows = [[data.draw(VALUES) for _ in range(dim)] for _ in range(data.draw(st.integers(1, 12)))]
    features = np.array([rows[index % len(rows)] for index in range(12)], np.float32)
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=12, max_size=12)))
    plan = replace(
        TRAINING,
        clip_norm=data.draw(st.sampled_from([1e-3, 0.4, 20.0])),
        batch_size=data.draw(st.sampled_from([6, 12])),
        microbatch_size=data.draw(st.sampled_from([1, 1, 3])),
        adjacency=data.draw(st.sampled_from(list(Adjacency))),
    )
    replaced = plan.adjacency is Adjacency.REPLACE_ONE
    found = step_of(trainer_of(plan, strategy), features, labels, data.draw(st.integers(0, 11)), replaced)
    assert not found.exceeded, found


def worst_step(make: Any) -> QuerySensitivity:
    """Of a long record under each label: under one of them it is classified right, and its gradient is nothing."""
    records, others = far_apart(12), np.arange(1, 12) % 3
    found = [step_of(make, records.features, np.append(label, others), 0) for label in range(3)]
    return max(found, key=lambda one: one.share)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_worst_record_of_a_step_comes_within_a_hundredth(strategy: str) -> None:
    found = worst_step(trainer_of(TRAINING, strategy))
    assert not found.exceeded
    assert found.share > 0.99


def test_the_worst_replaced_record_of_a_step_moves_it_by_twice_the_bound() -> None:
    """It is turned round, where the weights are so small that all classes are as likely."""
    plan = replace(TRAINING, adjacency=Adjacency.REPLACE_ONE)
    far = far_apart(12)
    records = TrainingRecords.of(far.features, far.labels, classes=3)
    make = trainer_of(plan, "closed-form", spread=1e-6)
    found = training_sensitivity(make, records, 0, replacement=(-far.features[0], 0))
    assert not found.exceeded
    assert found.share > 0.99


@pytest.mark.parametrize("strategy", ["loop", "vmap", "closed-form"])
@pytest.mark.parametrize("what", ["scale", "centre", "perturbations"])
def test_public_quantities_move_no_bound(strategy: str, what: str) -> None:
    """Adaptive scales, centres (DOPE-SGD) and perturbed weights act before the clipping."""
    features = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    size = 3 * 4 + 3
    values = {
        "scale": torch.linspace(0.1, 40, size),
        "centre": torch.linspace(-9, 9, size),
        "perturbations": torch.linspace(-1, 1, 2 * size).reshape(2, size),
    }
    make = trainer_of(TRAINING, strategy, two_views, method=Given(SideInformation(**{what: values[what]})))
    for position in (0, 5, 11):
        found = step_of(make, features, np.arange(12) % 3, position)
        assert not found.exceeded, found
        assert found.share > 0.5


def test_a_record_of_a_microbatch_moves_it_by_up_to_twice_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """And noise for once the bound is caught: a long record turns the gradient of its group round."""
    plan = replace(TRAINING, microbatch_size=12)

    features = np.full((12, 4), 100, np.float32)
    features[0] = -1e6
    records = TrainingRecords.of(features, np.zeros(12, np.int64), classes=3)

    def worst() -> QuerySensitivity:
        return training_sensitivity(trainer_of(plan, "closed-form", spread=1e-6), records, 0)

    assert not worst().exceeded
    assert worst().share > 0.99
    monkeypatch.setattr(TrainingPlan, "sensitivity", property(lambda self: self.clip_norm))
    assert worst().exceeded


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_that_are_not_clipped_are_caught(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clipping, "factors", lambda self, norms: torch.ones_like(norms))
    monkeypatch.setattr("privmix.training.gradients.closed_form.CANCELLING", math.inf)
    assert worst_step(trainer_of(TRAINING, strategy)).exceeded


def test_a_mean_over_the_realised_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records are then scaled up. All are drawn where the batch is the dataset, so a larger one is declared."""
    honest = DpSgd._clipped_sum

    def divided(self: Any, batch: Any, side: SideInformation) -> Any:
        return honest(self, batch, side) * (self.plan.units / max(1, len(batch.indices)))

    monkeypatch.setattr(DpSgd, "_clipped_sum", divided)
    plan = replace(TRAINING, records=100, batch_size=100)
    assert worst_step(trainer_of(plan, "closed-form")).exceeded
