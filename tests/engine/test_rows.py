"""The engine does what the plan says, exactly, and nothing else."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privmix.engine.records import ArrayTiles
from privmix.engine.rows import PrivateRecords, ReleaseEngine
from privmix.engine.tiles import TileSummer, empty_sums
from privmix.errors import InvalidInput
from privmix.mechanisms.membership import RECORD_TILE, ROW_TILE
from privmix.mechanisms.noise import Lattice, gaussian_on_lattice, laplace_on_lattice
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform
from tests.refusals import refuses
from tests.releases.helpers import ALL_DESIGNS, design_name, make_plan, make_records, release


def naive_rows(plan: ReleasePlan, records: PrivateRecords, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Every row on its own, in Python integers: the reference for the engine."""
    streams = SecretStreams.from_seed(seed)
    unit = Lattice(plan.lattice_bits)
    centre = None
    if plan.centred:
        first = unit.quantise(RecordTransform(plan.clip_norm)(records.features) / plan.clip_norm).sum(axis=0)
        assert plan.centre_noise_multiplier is not None
        noise = gaussian_on_lattice(
            streams.generator("centre noise"), (plan.dim,), plan.centre_noise_multiplier / unit.step
        )
        centre = ((first + noise) * (unit.step * plan.clip_norm / plan.records)).astype(np.float32)
    transform = RecordTransform(
        plan.clip_norm, "l1" if plan.noise == "laplace" else "l2", centre, plan.residual_clip_norm
    )
    steps = unit.quantise(transform(records.features) / transform.final_clip_norm).astype(np.int64)
    offset = round(plan.label_offset / unit.step)
    targets = np.eye(plan.num_classes, dtype=np.int64)[records.labels] * round(1 / unit.step) - offset
    draw = laplace_on_lattice if plan.noise == "laplace" else gaussian_on_lattice
    step = unit.step * plan.weight_step
    xs, ys = [], []
    for tile in range(-(-plan.rows // ROW_TILE)):
        members = plan.sampler_for(len(records.labels)).draw(streams.derive("membership"), tile, 0, records.labels)
        x, y = np.zeros((members.rows, plan.dim)), np.zeros((members.rows, plan.num_classes))
        for row in range(members.rows):
            part = slice(members.offsets[row], members.offsets[row + 1])
            for position, index in enumerate(members.indices[part]):
                weight = 1 if members.weights is None else int(members.weights[part][position] / plan.weight_step)
                x[row] += weight * steps[index]
                y[row] += weight * targets[index]
        heaviest = plan.max_weight or 1.0
        x += draw(streams.generator("feature noise", tile), x.shape, heaviest * plan.feature_noise_multiplier / step)
        xs.append(x * (step * plan.final_clip_norm / plan.divisor))
        if plan.public_labels:
            numbers = (tile * ROW_TILE + np.arange(members.rows)) % plan.num_classes
            ys.append(np.eye(plan.num_classes)[numbers] - plan.label_offset)
        else:
            scale = plan.label_bound * plan.label_noise_multiplier / step
            y += draw(streams.generator("label noise", tile), y.shape, scale)
            ys.append(y * (step / plan.divisor))
    return np.concatenate(xs).astype(np.float32), np.concatenate(ys).astype(np.float32)


@pytest.mark.parametrize("choices", ALL_DESIGNS, ids=design_name)
def test_rows_equal_the_naive_reference_bit_for_bit(choices: dict[str, Any]) -> None:
    plan, records = make_plan(rows=None if choices.get("full_batch") else 1_040, **choices), make_records()
    released = release(plan, records, seed=5)
    x, y = naive_rows(plan, records, seed=5)
    np.testing.assert_array_equal(released.x, x)
    np.testing.assert_array_equal(released.y, y)


@pytest.mark.parametrize("choices", ALL_DESIGNS, ids=design_name)
def test_chunks_and_workers_change_no_bit(choices: dict[str, Any]) -> None:
    plan, records = make_plan(rows=None if choices.get("full_batch") else 2_500, **choices), make_records()

    def run(tiles: int, workers: int) -> tuple[np.ndarray, np.ndarray]:
        engine = ReleaseEngine(plan, records, SecretStreams.from_seed(2), tiles_at_once=tiles, workers=workers)
        blocks = list(engine.rows())
        assert [block.start for block in blocks] == [i * tiles * ROW_TILE for i in range(len(blocks))]
        return np.concatenate([block.x for block in blocks]), np.concatenate([block.y for block in blocks])

    first = run(1, 1)
    for tiles, workers in ((2, 2), (64, 3)):
        for one, other in zip(first, run(tiles, workers), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "choices",
    [
        {"design": "poisson"},
        {"design": "allocation", "mixup_degree": 64},
        {"design": "hierarchical", "expected_classes": 1.5},
        {"design": "classwise", "full_batch": True},
        {"design": "random-weight", "max_weight": 0.5},
    ],
    ids=design_name,
)
def test_memory_budgets_workers_and_streaming_change_no_bit(choices: dict[str, Any], tmp_path: Path) -> None:
    count = 2 * RECORD_TILE + 300
    records = make_records(count, 3)
    np.save(tmp_path / "features.npy", records.features)
    mapped = PrivateRecords(np.load(tmp_path / "features.npy", mmap_mode="r"), records.labels)
    plan = make_plan(count, 3, rows=None if choices.get("full_batch") else 2_100, **choices)

    def run(source: PrivateRecords, **options: Any) -> tuple[bool, np.ndarray]:
        engine = ReleaseEngine(plan, source, SecretStreams.from_seed(2), **options)
        return engine._out_of_core, np.concatenate([np.hstack([block.x, block.y]) for block in engine.rows()])

    kept, expected = run(records, workers=2)
    assert not kept
    for options in ({"memory_bytes": 2**20}, {"memory_bytes": 2**20, "tiles_at_once": 3}, {"memory_bytes": 2**27}):
        streamed, rows = run(mapped, workers=3, **options)
        assert streamed
        np.testing.assert_array_equal(rows, expected)


def test_any_tile_of_rows_may_be_the_first() -> None:
    plan, records = make_plan(rows=3_500), make_records()
    whole = np.concatenate([block.x for block in ReleaseEngine(plan, records, SecretStreams.from_seed(2)).rows()])
    for first in (0, ROW_TILE, 3 * ROW_TILE):
        engine = ReleaseEngine(plan, records, SecretStreams.from_seed(2))
        rest = np.concatenate([block.x for block in engine.rows(first=first)])
        np.testing.assert_array_equal(rest, whole[first:])
    for bad in (1, -ROW_TILE):
        with refuses("first row"):
            ReleaseEngine(plan, records, SecretStreams.from_seed(2)).rows(first=bad)


def test_membership_is_drawn_without_the_key_to_the_noise() -> None:
    """Sums of the engine are those made from the derived key alone."""
    plan, records = make_plan(centre="none"), make_records()
    child = SecretStreams.of_shared(SecretStreams.from_seed(2).derive("membership").share())
    summer = TileSummer(plan, ArrayTiles(records.features, records.labels), child)
    sums = empty_sums(plan, range(1))
    lattice = summer.quantise(0, RecordTransform(plan.clip_norm), summer.empty_tile(0))
    summer.add(sums, range(1), 0, lattice)
    noise = release(plan, records, seed=2).x.astype(np.float64)
    noise -= sums.x * (2.0**-plan.lattice_bits * plan.clip_norm / plan.divisor)
    statistic = float((noise**2).sum() / plan.noise_std_x**2)
    assert 1e-10 < stats.chi2.cdf(statistic, noise.size) < 1 - 1e-10


def test_several_record_tiles_are_all_summed() -> None:
    count = RECORD_TILE + 500
    records = PrivateRecords(np.ones((count, 1), np.float32), np.zeros(count, np.int64))
    plan = make_plan(count, 1, rows=600, mixup_degree=count // 4, centre="none")
    sums = release(plan, records).x[:, 0] * plan.divisor
    # The last 500 records weigh 0.8% of a row; the mean of 600 rows knows the sum to 0.02%.
    assert sums.mean() == pytest.approx(count * plan.record_rate, rel=2e-3)


@pytest.mark.parametrize("choices", ALL_DESIGNS, ids=design_name)
def test_noise_has_the_planned_size(choices: dict[str, Any]) -> None:
    """Records of zeros leave the noise alone. A chi-square test at 1e-10; 2/3 and 3/2 of sigma are rejected."""
    dim = 4_000 if choices.get("full_batch") else 40
    plan = make_plan(dim=dim, **{**choices, "centre": "none"})
    records = PrivateRecords(np.zeros((600, dim), np.float32), make_records().labels)
    noise = release(plan, records).x.ravel().astype(np.float64)

    def fits(std: float) -> bool:
        if plan.noise == "laplace":  # |noise| / scale is a standard exponential: twice their sum is chi-square
            statistic, freedom = 2 * np.abs(noise).sum() / (std / np.sqrt(2)), 2 * noise.size
        else:
            statistic, freedom = float((noise**2).sum() / std**2), noise.size
        return bool(1e-10 < stats.chi2.cdf(statistic, freedom) < 1 - 1e-10)

    assert fits(plan.noise_std_x)
    assert not fits(plan.noise_std_x * 2 / 3)
    assert not fits(plan.noise_std_x * 3 / 2)


def test_label_noise_has_the_planned_size() -> None:
    plan = make_plan(rows=4_000, centre="none", label_noise_ratio=2.0)
    zeros = PrivateRecords(np.zeros((600, 7), np.float32), np.zeros(600, np.int64))
    other = release(plan, zeros).y[:, 1:].astype(np.float64).ravel()  # classes that no record has: only noise
    statistic = float((other**2).sum())
    for factor, accepted in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        tail = stats.chi2.cdf(statistic / (factor * plan.noise_std_y) ** 2, other.size)
        assert (1e-10 < tail < 1 - 1e-10) == accepted


def test_noise_is_never_added_to_other_sums() -> None:
    """One stream object serves one run: two runs' difference would be free of noise."""
    streams = SecretStreams.from_seed(0)
    engine = ReleaseEngine(make_plan(), make_records(), streams)
    list(engine.rows())
    with pytest.raises(RuntimeError, match="served a run"):
        engine.rows()
    with pytest.raises(RuntimeError, match="served a run"):
        ReleaseEngine(make_plan(), make_records(seed=9), streams).rows()


def test_one_record_moves_a_row_by_at_most_its_bound() -> None:
    """A record of any size against one of zeros, under one key: the attack that a missing clip would lose to."""
    for choices in ALL_DESIGNS:
        plan = make_plan(**{**choices, "centre": "none"})
        base = make_records()
        quiet, loud = base.features.copy(), base.features.copy()
        quiet[17], loud[17] = 0.0, 1e6
        moved = release(plan, PrivateRecords(loud, base.labels)).x - release(plan, PrivateRecords(quiet, base.labels)).x
        order = 1 if plan.noise == "laplace" else 2
        norms = np.linalg.norm(moved * plan.divisor, ord=order, axis=1)
        # Normal weights are cut at 16, and priced as they are; all other weights are at most 1.
        most = plan.feature_bound * (1 if plan.kind.averages else 16)
        assert norms.max() <= most * (1 + 1e-3)
        assert norms.max() > 0


def test_residuals_are_clipped_after_centring() -> None:
    plan = make_plan(residual_clip_norm=0.3)
    transform = release(plan, make_records()).transform
    assert np.linalg.norm(transform(make_records().features), axis=1).max() <= 0.3


def test_rows_without_members_are_released() -> None:
    plan = make_plan(mixup_degree=1, rows=2_000, centre="none")
    assert release(plan, make_records()).x.shape == (2_000, 7)
    members = plan.sampler.draw(SecretStreams.from_seed(1), 0, 0, make_records().labels)
    assert (members.counts == 0).sum() > 200  # about e^-1 of the rows


@pytest.mark.parametrize("bad", [-1, 3])
def test_labels_outside_the_classes_are_refused_without_naming_them(bad: int) -> None:
    records = make_records()
    labels = records.labels.copy()
    labels[123] = bad
    private = PrivateRecords(records.features, labels)
    assert repr(private) == "<PrivateRecords>"
    with pytest.raises(InvalidInput) as caught:
        ReleaseEngine(make_plan(), private, SecretStreams.from_seed(0))
    assert "123" not in str(caught.value)
    assert "private" in str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused_without_naming_them(bad: float) -> None:
    records = make_records()
    features = records.features.copy()
    features[5, 3] = bad
    with refuses("features"):
        release(make_plan(), PrivateRecords(features, records.labels))


def test_wrong_width_is_refused() -> None:
    with refuses("features"):
        release(make_plan(), make_records(dim=8))


def test_a_declared_count_replaces_the_real_one() -> None:
    plan = make_plan(records=500)
    released = release(plan, make_records(count=613))
    assert released.x.shape == (500, 7)
    assert plan.event == dataclasses.replace(plan).event
    with refuses("records"):
        release(make_plan(records=500, design="fixed"), make_records(count=613))


def test_the_key_is_destroyed_after_the_run() -> None:
    streams = SecretStreams.from_entropy()
    from privmix.releases.run import release_to_memory

    plan = make_plan()
    release_to_memory(plan, make_records(), streams, extractor={"name": "identity"}, input_shape=(7,))
    with pytest.raises(RuntimeError, match="destroyed"):
        streams.generator("feature noise", 0)
