"""Class embeddings: maps of norm 1, exact sums, noise and rows; and what is learnt from them."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.audits.evidence import beside_tests
from privmix.audits.sensitivity import release_sensitivity
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.learning.model_io import load_model, save_model
from privmix.mechanisms.noise import Lattice
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.registry import made_by
from privmix.plans.setting import Setting
from privmix.publication.dataset import ReleasedDataset
from privmix.releases.run import release_to_memory
from privmix.research.rivals.embedding import feature_maps
from privmix.research.rivals.embedding.engine import EmbeddingEngine
from privmix.research.rivals.embedding.feature_maps import FeatureMap, feature_map, map_from, map_of_arrays
from privmix.research.rivals.embedding.hermite import Hermite
from privmix.research.rivals.embedding.learner import ClassEmbeddingClassifier
from privmix.research.rivals.embedding.merf import Merf
from privmix.research.rivals.embedding.plan import SIZES, EmbeddingPlan
from tests.refusals import refuses
from tests.releases.helpers import CLASSES, EMBEDDINGS, design_name, make_records

RECORDS, DIM = 300, 6
every_design = pytest.mark.parametrize("choices", EMBEDDINGS, ids=design_name)


def plan_of(choices: dict[str, Any], noise: float = 2.0, **changes: Any) -> EmbeddingPlan:
    plan = ReleaseConfig(RECORDS, DIM, CLASSES, rows=50, **{**choices, **changes}).with_noise(noise).priced(1e-3)
    assert isinstance(plan, EmbeddingPlan)
    return plan


def released(plan: EmbeddingPlan, seed: int = 0) -> ReleasedDataset:
    facts: dict[str, Any] = {"extractor": {"name": "identity"}, "input_shape": (DIM,)}
    return release_to_memory(plan, make_records(RECORDS, DIM), SecretStreams.from_seed(seed), **facts)


def unit_records(count: int, dim: int, seed: int = 0) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(seed).standard_normal((count, dim))
    return x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))


@every_design
def test_files_and_card_list_sums_as_they_did(choices: dict[str, Any]) -> None:
    """Folders of earlier builds still verify: rows of the file are classes, and the map comes last in the card."""
    plan = plan_of(choices)
    design = made_by(plan)
    assert design.beside(plan).rows == plan.num_classes
    lines = [line.split("`")[1] for line in design.card(plan, "identity").splitlines() if line.startswith("| `")]
    assert lines == [*plan.map_sizes, SIZES, *plan.map_arrays]


@pytest.mark.parametrize("bits", [8, 15, 24])
def test_no_angle_is_longer_than_one(bits: int) -> None:
    """All of the table, in whole numbers."""
    table = feature_maps._turn(bits).astype(object)
    lengths = (table**2).sum(axis=0)
    assert max(lengths) <= 4**bits
    assert min(lengths) > (2**bits - 2) ** 2


@pytest.mark.parametrize("width", [0.02, 0.3, 1.0, 50.0])
@pytest.mark.parametrize(("dim", "order"), [(1, 100), (7, 20), (4000, 5)])
def test_no_hermite_features_are_longer_than_one(width: float, dim: int, order: int) -> None:
    """All of the table: of every coordinate on the grid. Full at low orders, where the kernel is wide."""
    decay = Hermite(kernel_width=width).plan(Setting(9, dim, CLASSES), 1.0, None).decay
    table = feature_maps._hermite_table(decay, order, dim, 15).astype(np.int64)
    lengths = (table**2).sum(axis=1)
    assert lengths.max() <= 4**15
    assert lengths.max() > (0.3 if width >= 0.3 else 0.03) * 4**15


@every_design
@pytest.mark.parametrize("bits", [8, 15, 22])
def test_features_are_no_longer_than_their_norm(choices: dict[str, Any], bits: int) -> None:
    """In whole numbers, at corners, the origin and in between; products of pairs too."""
    plan = plan_of(choices)
    corners = np.concatenate([np.eye(DIM), -np.eye(DIM), np.zeros((1, DIM))])
    x = Lattice(bits).quantise(np.concatenate([unit_records(500, DIM), corners]))
    public = feature_map(plan)
    for name, steps in public.steps(x, bits).items():
        longest = max(int(value) for value in (steps.astype(np.int64) ** 2).sum(axis=1))
        assert longest <= round(public.norms(bits)[name] ** 2)
        assert steps.shape[1] == plan.map_sizes[name]
    assert public.size == sum(plan.map_sizes.values())


def test_fourier_features_stand_for_the_gaussian_kernel() -> None:
    """Within 7 standard errors of 20,000 frequencies (false alarm below 1e-9)."""
    x = unit_records(30, 4)
    plan = Merf(kernel_width=0.8, frequencies=20_000).plan(Setting(9, 4, CLASSES), 1.0, None)
    found = feature_map(plan)(x)["embedding"].astype(np.float64)
    kernel = np.exp(-np.square(x[:, None] - x).sum(-1) / (2 * 0.8**2))
    assert np.abs(found @ found.T - kernel).max() < 7 / math.sqrt(20_000)


def test_hermite_features_stand_for_the_gaussian_kernel() -> None:
    """Of a coordinate (the sum kernel is their average), and of a pair; Mehler's formula, order 60 of a wide kernel."""
    x, width, root = unit_records(30, 2), 0.7, math.sqrt(2)
    design = Hermite(kernel_width=width, order=60, pair_order=40, pairs=1, map_seed=1)
    public = feature_map(design.plan(Setting(9, 2, CLASSES), 1.0, None))
    found = {name: values.astype(np.float64) for name, values in public(x).items()}
    apart = np.square(root * (x[:, None] - x))
    kernels = np.exp(-apart / (2 * width**2))
    chosen = public.arrays()["chosen_pairs"][0].astype(int)
    pair = kernels[..., chosen[0]] * kernels[..., chosen[1]]
    np.testing.assert_allclose(found["coordinates"] @ found["coordinates"].T, kernels.mean(-1), atol=2e-3)
    np.testing.assert_allclose(found["pairs"] @ found["pairs"].T, pair, atol=2e-3)


@every_design
def test_features_are_of_one_record_to_the_last_bit(choices: dict[str, Any]) -> None:
    """Whoever else is there, and in whatever order and number."""
    public, x = feature_map(plan_of(choices)), Lattice(15).quantise(unit_records(257, DIM))
    whole = public.steps(x, 15)
    for part in (slice(0, 1), slice(100, 200), slice(3, 257, 7)):
        for name, steps in public.steps(np.ascontiguousarray(x[part]), 15).items():
            np.testing.assert_array_equal(steps, whole[name][part])


def test_maps_come_back_from_their_arrays_and_strangers_are_refused() -> None:
    for choices in EMBEDDINGS:
        public = feature_map(plan_of(choices))
        again = map_from(public.whole(), DIM, public.size)
        x = Lattice(15).quantise(unit_records(9, DIM))
        for name, steps in again.steps(x, 15).items():
            np.testing.assert_array_equal(steps, public.steps(x, 15)[name])
        for wrong in (public.size + 1, 10**12):
            with pytest.raises(InvalidInput):
                map_from(public.whole(), DIM, wrong)
    pairs = {"chosen_pairs": np.array([[0, DIM]], np.float32), "hermite": np.array([0.5, 3, 2], np.float32)}
    with refuses("chosen_pairs"):
        map_from(pairs, DIM, 3 * DIM + 4)
    for order in (0, 10**6, np.nan, np.inf):
        with pytest.raises(InvalidInput):
            map_from({**pairs, "hermite": np.array([0.5, order, 2], np.float32)}, DIM, 3 * DIM + 4)
    with refuses("chosen_pairs"):
        map_from({**pairs, "chosen_pairs": np.zeros((0, 2), np.float32)}, DIM, 3 * DIM)
    with refuses("map"):
        map_from({"frequencies": np.zeros((0, DIM), np.float32)}, DIM, 0)


@every_design
def test_released_sums_are_those_of_the_records(choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With next to no noise: class by class, to the last bit whatever the blocks."""
    plan, records = ReleaseConfig(RECORDS, DIM, CLASSES, **choices).with_noise(1e-4), make_records(RECORDS, DIM)
    assert isinstance(plan, EmbeddingPlan)
    found = []
    for most in (1024, 7):
        monkeypatch.setattr("privmix.research.rivals.embedding.engine.MOST_RECORDS_AT_ONCE", most)
        engine = EmbeddingEngine(plan, records, SecretStreams.from_seed(0))
        assert not list(engine.rows(first=plan.rows))
        found.append(engine.beside.sums)
    x = engine.transform(records.features)
    for name, values in feature_map(plan)(x).items():
        wanted = np.stack([values[records.labels == label].sum(axis=0) for label in range(3)], axis=1)
        np.testing.assert_allclose(found[0][name], wanted, atol=0.03)
        np.testing.assert_array_equal(found[0][name], found[1][name])
    np.testing.assert_allclose(engine.beside.sizes, np.bincount(records.labels), atol=0.01)


@every_design
def test_a_small_map_has_the_same_noise(choices: dict[str, Any]) -> None:
    """What the audit of noise draws is what the plan's own map would get."""
    with refuses("centre"):
        plan_of(choices, centre="private")
    plan = plan_of(choices)
    small = plan.with_small_map()
    assert (small.noise_std, small.event) == (plan.noise_std, plan.event)
    assert sum(small.map_sizes.values()) <= sum(plan.map_sizes.values())


@every_design
def test_a_map_that_is_not_its_seeds_is_refused(choices: dict[str, Any]) -> None:
    """It is released without noise: there would be room for a record in it."""
    plan = plan_of(choices)
    engine = EmbeddingEngine(plan, make_records(RECORDS, DIM), SecretStreams.from_seed(0), workers=1)
    # From the row after the last on: no generator is fitted.
    assert not list(engine.rows(first=plan.rows))
    found = engine.beside
    assert beside_tests(plan, found)
    for name, values in found.map.arrays().items():
        arrays = {**found.map.arrays(), name: (values + 1) % 2}
        with pytest.raises(InvalidInput, match=f"{name}.*map_seed"):
            beside_tests(plan, replace(found, map=map_of_arrays(plan, arrays)))


@every_design
def test_rows_and_embeddings_teach_the_classes(choices: dict[str, Any], tmp_path: Path) -> None:
    """Three classes two standard deviations and more apart; chance is 1/3. A saved model predicts the same."""
    release, records = released(plan_of(choices, 0.5)), make_records(RECORDS, DIM, seed=5)
    model = ClassEmbeddingClassifier().fit(release)
    assert (model.predict(records.features) == records.labels).mean() > 0.7
    centres = np.stack([release.x[release.y.argmax(axis=1) == label].mean(axis=0) for label in range(3)])
    x = release.transform(records.features)
    nearest = np.square(x[:, None] - centres).sum(axis=-1).argmin(axis=1)
    assert (nearest == records.labels).mean() > 0.6
    again = load_model(save_model(model, tmp_path / "M"))
    np.testing.assert_array_equal(again.decision_function(records.features), model.decision_function(records.features))


def test_a_map_that_looks_at_other_records_moves_more_than_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A width by the median distance of private records, as published code takes it: the sensitivity audit finds it."""
    plan = plan_of({"design": "merf", "frequencies": 24})
    rng = np.random.default_rng(0)
    # Two places: whoever is the odd one out decides where the median lies.
    x = np.repeat(np.array([[0.9, 0, 0, 0, 0, 0], [0.1, 0, 0, 0, 0, 0]]), [21, 20], axis=0)
    records = PrivateRecords(x.astype(np.float32), rng.integers(0, 3, 41))
    assert not any(one.exceeded for one in release_sensitivity(plan, records, 0))
    honest = feature_maps.FourierMap.steps

    def by_median(self: FeatureMap, found: np.ndarray[Any, Any], bits: int) -> Any:
        middle = np.median(found[:, 0]) / 2**bits
        return honest(self, np.trunc(found / (0.5 + middle)), bits)  # type: ignore[arg-type]

    monkeypatch.setattr(feature_maps.FourierMap, "steps", by_median)
    moved = {one.query: one for one in release_sensitivity(plan, records, 0)}
    assert moved["class embeddings"].exceeded
    assert moved["all parts"].exceeded
