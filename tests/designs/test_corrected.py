"""Corrected moments: errors of models are bounded for any model, exact, and follow from what was released before."""

import itertools
import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import softmax

from privmix.audits.empty_runs import UP_TO_ROUNDING
from privmix.designs import CorrectedPlan
from privmix.designs.corrected import engine as corrected_engine
from privmix.designs.corrected.engine import CorrectedEngine, ErrorSums
from privmix.designs.corrected.evidence import corrected_tests
from privmix.designs.corrected.learner import CorrectedClassifier
from privmix.designs.corrected.plan import CONSTANT, ERROR_BOUND
from privmix.designs.corrected.released import CorrectedSecondMoments, Model
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.learning import class_statistics
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.persons import RecordWeights
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.registry import plan_from_dict
from privmix.publication.second_moments import eigh_lower
from tests.refusals import refuses
from tests.releases.helpers import CLASSES, make_records, release

RECORDS, DIM = 400, 6


def make_plan(noise: float = 1.0, **choices: Any) -> CorrectedPlan:
    named = {"records": RECORDS, "dim": DIM, "classes": CLASSES, "design": "corrected-moments", **choices}
    return cast(CorrectedPlan, ReleaseConfig(**named).with_noise(noise))


def run(plan: CorrectedPlan, records: PrivateRecords) -> tuple[Any, NDArray[np.float32]]:
    engine = CorrectedEngine(plan, records, SecretStreams.from_seed(1), workers=1)
    return engine, np.concatenate([block.x for block in engine.rows()])


def some_model(kind: str, dim: int, classes: int, bits: int, rng: np.random.Generator) -> Model:
    """A model that no release need lead to."""
    matrix = rng.normal(size=(dim + 1, classes))
    matrix *= np.exp(rng.normal(size=matrix.shape) * 20) if kind == "uneven" else SCALES[kind]
    return Model.on_grid(np.clip(matrix, -1e38, 1e38), bits)


SCALES = {"none": 0.0, "tiny": 1e-30, "usual": 3.0, "sure": 1e4, "huge": 1e37}
KINDS, SEEDS = (*SCALES, "uneven"), st.integers(0, 2**32 - 1)


def some_steps(plan: CorrectedPlan, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Records in lattice steps: of the full norm, along an axis, and of nothing."""
    records = rng.normal(size=(count, plan.dim))
    records[::3] = np.eye(plan.dim)[rng.integers(0, plan.dim, len(records[::3]))]
    records[1::7] = 0
    return plan.lattice.quantise(clip_l2(records * 1e6, 1.0))


@pytest.mark.parametrize("corrections", [1, 3, 20])
def test_the_event_is_of_all_queries_at_their_own_noise(corrections: int) -> None:
    plan = make_plan(2.0, corrections=corrections)
    mean, *queries = [query.noise_multiplier for query in cast(Any, plan.event).events]
    assert mean == plan.centre_noise_multiplier
    assert queries == [plan.moments_noise_multiplier, *[plan.error_noise_multiplier] * corrections]
    assert sum(1 / s**2 for s in queries) == pytest.approx(1 / 4, rel=1e-12)
    # Errors are scaled to what one record adds to one of the sums; the moments are those of a plan of their own.
    bound = plan.final_clip_norm * ERROR_BOUND * math.sqrt(17 / 16)
    assert plan.noise_std["errors"] == pytest.approx(bound * plan.error_noise_multiplier, rel=1e-12)
    assert plan.first.noise_std == {name: plan.noise_std[name] for name in plan.first.noise_std}
    with refuses("plan corrections"):
        plan_from_dict({**plan.to_dict(), "corrections": 10**9})


@given(seed=SEEDS, bits=st.integers(8, 21), kind=st.sampled_from(KINDS), classes=st.integers(2, 9))
def test_errors_have_the_same_bits_in_any_company(seed: int, bits: int, kind: str, classes: int) -> None:
    rng = np.random.default_rng(seed)
    plan = make_plan(dim=33, lattice_bits=bits, classes=tuple(map(str, range(classes))))
    model, labels = some_model(kind, 33, classes, bits, rng), rng.integers(0, classes, 40)
    steps = np.column_stack([some_steps(plan, 40, rng), np.full(40, CONSTANT * 2.0**bits)])
    together = model.errors(steps, labels)
    alone = np.concatenate([model.errors(steps[[row]], labels[[row]]) for row in range(40)])
    turned = model.errors(np.asfortranarray(steps[::-1]), labels[::-1])[::-1]
    assert together.tobytes() == alone.tobytes() == np.ascontiguousarray(turned).tobytes()
    # Log odds are exact, whatever their size.
    exact = steps[0].astype(int).astype(object) @ model._steps[0].astype(int).astype(object)
    assert [int(value) for value in steps[0] @ model._steps[0]] == exact.tolist()
    odds = steps @ model.matrix.astype(np.float64) * 2.0**-bits
    np.testing.assert_allclose(np.eye(classes)[labels] - together, softmax(odds, axis=1), atol=2**-8)
    assert (np.square(together).sum(axis=1) <= 2).all()


@settings(max_examples=60)
@given(seed=SEEDS, kind=st.sampled_from(KINDS), bits=st.sampled_from([8, 15, 21]), most=st.sampled_from([0, 1, 3]))
def test_nobody_adds_more_than_the_bound_under_any_model(seed: int, kind: str, bits: int, most: int) -> None:
    """In whole numbers: a record, or a person with up to 50 records that are alike; blocks change no bit."""
    rng = np.random.default_rng(seed)
    plan = make_plan(dim=4, lattice_bits=bits, **({"per_person": most} if most else {}))
    model = some_model(kind, 4, 3, bits, rng)
    counts = rng.choice([1, 2, 50], 12) if most else np.ones(12, int)
    starts = np.concatenate([[0], np.cumsum(counts)])
    steps, labels = np.repeat(some_steps(plan, 12, rng), counts, axis=0), np.repeat(rng.integers(0, 3, 12), counts)
    # 17/16 of 16^bits, the square of the bound.
    limit = 17 * 16 ** (bits - 1)
    whole, parts = ErrorSums(plan), ErrorSums(plan)
    whole.add(model, steps, labels, RecordWeights(starts, labels, most) if most else None)
    for first, end in itertools.pairwise(starts):
        own, part = ErrorSums(plan), slice(first, end)
        weights = RecordWeights(np.array([0, end - first]), labels[part], most) if most else None
        own.add(model, steps[part], labels[part], weights)
        assert sum(int(value) ** 2 for value in own._sums.ravel()) <= limit
        assert np.array_equal(own._sums, np.trunc(own._sums))
        parts.merge(own)
    assert np.array_equal(whole._sums, parts._sums)


@pytest.mark.parametrize("centre", ["none", "private"])
def test_sums_without_noise_are_what_numpy_says(centre: str) -> None:
    plan, records = make_plan(1e-5, centre=centre), make_records(RECORDS, DIM)
    engine = run(plan, records)[0]
    z = np.column_stack([engine.transform(records.features), np.full(RECORDS, CONSTANT * plan.final_clip_norm)])
    # Rounding of log odds moves errors by 2^-9 or so, one way or the other.
    for matrix, found in zip(engine.beside.models, engine.beside.errors, strict=True):
        errors = np.eye(3)[records.labels] - softmax(z / plan.final_clip_norm @ matrix, axis=1)
        errors *= np.minimum(1, ERROR_BOUND / np.linalg.norm(errors, axis=1))[:, None]
        np.testing.assert_allclose(found, z.T @ errors, atol=0.05 * plan.final_clip_norm)


def test_each_correction_has_noise_of_its_own_and_gets_it_once() -> None:
    plan, keys = make_plan(), [SecretStreams.from_seed(seed) for seed in (1, 1, 2)]
    drawn = [[ErrorSums(plan).released(key, number).ravel() for number in range(3)] for key in keys]
    assert np.array_equal(drawn[0], drawn[1])
    assert all(len(np.unique(values)) == 6 for values in zip(*drawn[0], *drawn[2], strict=True))


def test_rows_show_nothing_of_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted run keeps rows, so they must not depend on errors that may be computed again."""
    plan, records = make_plan(), make_records(RECORDS, DIM)
    honest, rows = run(plan, records)
    monkeypatch.setattr(corrected_engine, "clip_l2", lambda errors, bound: errors * 0)
    changed, same = run(plan, records)
    assert same.tobytes() == rows.tobytes()
    assert np.array_equal(changed.beside.models[0], honest.beside.models[0])
    assert not np.array_equal(changed.beside.errors, honest.beside.errors)


def names(plan: CorrectedPlan, moments: CorrectedSecondMoments) -> list[str]:
    return [one.name for one in corrected_tests(plan, moments) if one.name.startswith("models")]


# Fewer records than features, one feature, hardly any noise, and features that lie in two directions.
@pytest.mark.parametrize("case", [(600, 7, 4.0), (40, 120, 1.0), (600, 1, 4.0), (3000, 40, 1000.0)], ids=str)
def test_models_follow_from_earlier_numbers(case: tuple[int, int, float], monkeypatch: pytest.MonkeyPatch) -> None:
    (records, dim, epsilon), rng = case, np.random.default_rng(0)
    labels = rng.integers(0, 3, records)
    x = rng.normal(size=(records, 2)) @ rng.normal(size=(2, dim)) + 2 * np.eye(3, dim)[labels]
    plan: Any = ReleaseConfig(records, dim, CLASSES, "corrected-moments", rows=16).calibrate(epsilon, 1e-5)
    honest = release(plan, PrivateRecords(x.astype(np.float32), labels)).beside
    to_the_bit = "models from the moments and earlier errors"
    assert names(plan, honest) == [to_the_bit]
    one_entry = honest.models.copy()
    one_entry[-1, 0, 0] += 1e-3 * np.abs(one_entry[-1]).max()
    for forged in (rng.random(honest.models.shape), honest.models[::-1], one_entry):
        with pytest.raises(InvalidInput, match="released models"):
            corrected_tests(plan, replace(honest, models=np.asarray(forged, np.float32)))

    def elsewhere(lower: NDArray[np.float64]) -> Any:
        """Eigenvectors of a machine that rounds otherwise, by more than OpenBLAS's kernels differ."""
        values, basis = eigh_lower(lower + rng.normal(size=lower.shape) * 1e-15 * np.abs(lower).max())
        return values, basis * rng.choice([-1, 1], len(basis))

    monkeypatch.setattr(class_statistics, "eigh_lower", elsewhere)
    assert names(plan, honest) in ([to_the_bit], [to_the_bit + UP_TO_ROUNDING])
    for found, stated in zip(honest.following, honest.models, strict=False):
        assert np.abs(found - stated).max() < 1e-6 * np.abs(stated).max()
    last_bits = np.nextafter(honest.models, np.float32(np.inf))
    assert names(plan, replace(honest, models=last_bits)) == [to_the_bit + UP_TO_ROUNDING]


def test_it_teaches_more_than_its_moments_where_classes_are_no_gaussians_of_one_scatter() -> None:
    """One class lies in two places: the midpoint between means cuts the nearer one."""
    rng = np.random.default_rng(0)
    y, x = rng.integers(0, 2, 16_000), 0.06 * rng.normal(size=(16_000, 4))
    x[:, 0] += y * np.where(rng.random(16_000) < 0.4, 1, 0.25)
    plan: Any = ReleaseConfig(8000, 4, ("no", "yes"), "corrected-moments", rows=1, centre="none").calibrate(2.0, 1e-5)
    made = release(plan, PrivateRecords(x[:8000], y[:8000]), 0)
    last, first = (
        kind().fit(made).predict(x[8000:]) == y[8000:] for kind in (CorrectedClassifier, DiscriminantClassifier)
    )
    assert last.mean() > first.mean() + 0.08
