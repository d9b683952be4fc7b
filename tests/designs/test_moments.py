"""Second moments: exact sums, the right noise on each part, and what is made of them."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.designs import MomentsPlan
from privmix.designs.moments import engine as moments_engine
from privmix.designs.moments.engine import MomentsEngine, MomentSums, row_panels
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.mechanisms.plan import ALL_RECORDS
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.registry import all_designs, plan_from_dict
from privmix.publication.dataset import RecordTransform
from privmix.publication.second_moments import SecondMoments, sample_rows, to_arrays
from tests.refusals import refuses
from tests.releases.helpers import CLASSES, TARGET, make_plan, make_records, release


def moments_plan(dim: int = 7, records: int = 600, **choices: object) -> MomentsPlan:
    return make_plan(records, dim, design="moments", **choices)


def assert_same(one: SecondMoments, other: SecondMoments) -> None:
    for name in ("second", "cross", "label_sums"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_sums_are_those_of_integer_arithmetic() -> None:
    plan, records = moments_plan(centre="none"), make_records()
    sums = MomentSums(plan)
    sums.add(RecordTransform(plan.clip_norm), records.features, records.labels)
    clipped = RecordTransform(plan.clip_norm)(records.features) / plan.clip_norm
    steps = np.trunc(clipped * 2.0**plan.lattice_bits).astype(object)
    assert (np.tril(sums._second) == np.tril((steps.T @ steps).astype(np.float64))).all()
    for label in range(len(CLASSES)):
        assert (sums._class_sums[label] == steps[records.labels == label].sum(axis=0)).all()
    assert (sums._counts == np.bincount(records.labels)).all()


@pytest.mark.parametrize("block", [1, 7, 4096])
def test_block_size_and_order_change_no_bit(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    plan, records = moments_plan(), make_records()
    whole = release(plan, records)
    monkeypatch.setattr(moments_engine, "_RECORDS_AT_ONCE", block)
    order = np.random.default_rng(3).permutation(len(records.labels))
    again = release(plan, PrivateRecords(records.features[order], records.labels[order]))
    assert_same(whole.moments, again.moments)
    np.testing.assert_array_equal(whole.x, again.x)


@pytest.mark.parametrize(("fewest", "ready"), [(1, 1), (7, 40), (64, 2**22)])
def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch, fewest: int, ready: int) -> None:
    """Records go to threads in parts of any size, and so many of them wait for their products."""
    plan, records = moments_plan(), make_records()
    whole = MomentsEngine(plan, records, SecretStreams.from_seed(2), workers=1)
    list(whole.rows())
    for name, value in {"_FEWEST_AT_ONCE": fewest, "_NUMBERS_AT_ONCE": 1, "_NUMBERS_READY": ready}.items():
        monkeypatch.setattr(moments_engine, name, value)
    threads = MomentsEngine(plan, records, SecretStreams.from_seed(2), workers=3)
    list(threads.rows())
    assert_same(whole.beside, threads.beside)
    with pytest.raises(RuntimeError):
        threads.rows()


def test_panels_change_no_bit() -> None:
    """X'X of 300 features in three panels of rows, each from a pass over the records, and all at once."""
    plan, records = moments_plan(dim=300, records=90), make_records(90, 300)
    assert [len(row_panels(300, memory)) for memory in (2**40, 1)] == [1, 3]
    whole, parts = (
        MomentsEngine(plan, records, SecretStreams.from_seed(2), workers=1, memory_bytes=memory)
        for memory in (2**40, 1)
    )
    rows = [np.concatenate([block.x for block in engine.rows()]) for engine in (whole, parts)]
    assert np.array_equal(rows[0], rows[1])
    assert_same(whole.beside, parts.beside)
    np.testing.assert_array_equal(whole.beside.second, whole.beside.second.T)
    in_panels = [MomentSums(plan, panel)._second.nbytes for panel in row_panels(300, 1)]
    assert max(in_panels) < MomentSums(plan)._second.nbytes / 2


def test_panels_fit_in_the_memory_that_is_left() -> None:
    for dim in (1, 127, 128, 129, 1000, 8192):
        for memory in (0, 2**29, 2**30, 2**34):
            panels = row_panels(dim, memory)
            assert [row for panel in panels for row in panel] == list(range(dim))
            room = max(128 * dim * 8, memory - 4 * dim**2 - 2**28)
            assert all(len(panel) * panel.stop * 8 <= room for panel in panels)
            assert all(panel.start % 128 == 0 for panel in panels)


def unlabelled(dim: int = 7, **choices: Any) -> MomentsPlan:
    return ReleaseConfig(600, dim, ALL_RECORDS, "moments", **choices).calibrate(*TARGET)


@pytest.mark.parametrize("centre", ["none", "private"])
def test_without_a_label_the_whole_query_is_of_second_moments(centre: str) -> None:
    plan = unlabelled(centre=centre)
    assert [one.name for one in plan.arrays] == ["second"]
    assert plan.second_noise_multiplier == plan.noise_multiplier
    assert plan.noise_std == {"second": plan.final_clip_norm**2 * plan.noise_multiplier}
    assert plan_from_dict(plan.to_dict()) == plan
    assert plan.event == moments_plan(centre=centre).event


def test_labels_change_nothing_that_is_released_without_a_label() -> None:
    """Nor are there other numbers than X'X, its mean and rows of it."""
    plan, x = unlabelled(), make_records().features
    made = release(plan, PrivateRecords(x, np.zeros(len(x), np.int64)))
    assert not made.moments.cross.any()
    assert not made.moments.label_sums.any()
    assert (made.moments.noise_std_cross, made.moments.noise_std_counts) == (0, 0)
    assert made.moments.class_shares(plan.label_offset).tolist() == [1]
    assert len(np.unique(made.y)) == 1
    assert to_arrays(plan, made.moments).keys() == {"second"}
    spread = made.moments.second / made.moments.records
    assert np.abs(made.x.T @ made.x / len(made.x) - spread).max() < 0.3 * np.abs(spread).max()


@pytest.mark.parametrize("name", ["label_share", "count_share"])
def test_shares_are_nought_without_a_label_alone(name: str) -> None:
    for plan in (unlabelled(), moments_plan()):
        with refuses(name):
            replace(plan, **{name: 0.1 if plan.num_classes == 1 else 0.0})
    with refuses("label_share, count_share, plain_labels"):
        unlabelled(**{name: 0.3})


def test_plain_labels_show_how_far_the_released_mean_is_off() -> None:
    """X'Y then adds up to X'1 and its noise, of a whole label; price and stored fields of other plans are the same."""
    plan, records = moments_plan(plain_labels=True), make_records()
    found = plan.label_offset, plan.label_norm, plan.event, plan_from_dict(plan.to_dict())
    assert found == (0, 1, moments_plan().event, plan)
    assert "plain_labels" not in moments_plan().to_dict()
    made = release(plan, records)
    total = made.transform.rows(records.features).sum(axis=0, dtype=np.float64)
    # Numbers that err by less than 6.5 deviations, but with chance 6e-10; rounding takes a step a record.
    assert np.abs(made.moments.cross.sum(axis=1) - total).max() < 6.5 * plan.noise_std["cross"] * len(CLASSES) ** 0.5


@pytest.mark.parametrize("design", [kind.name for kind in all_designs() if kind.name != "moments"])
def test_other_designs_need_a_label(design: str) -> None:
    with refuses("design") as caught:
        ReleaseConfig(600, 7, ALL_RECORDS, design)
    assert "moments" in caught.value.allowed
    with refuses("design"):
        replace(make_plan(design=design), classes=ALL_RECORDS)
    with refuses("classes"):
        ReleaseConfig(600, 7, ("all",), "moments")


def test_too_many_records_for_exact_sums_are_refused() -> None:
    plan = replace(moments_plan(centre="none"), lattice_bits=24)
    sums = MomentSums(plan)
    with refuses("lattice sums") as caught:
        sums.add(RecordTransform(1.0), np.ones((64, 7), np.float32), np.zeros(64, np.int64))
    assert "64" not in str(caught.value)


def test_more_records_get_fewer_lattice_bits() -> None:
    config = ReleaseConfig(records=10**9, dim=8, classes=CLASSES, design="moments")
    plan = config.calibrate(1.0, 1e-10)
    assert plan.records * 4**plan.lattice_bits < 2**53
    assert config.lattice_bits == 15 > plan.lattice_bits >= 8


def test_plans_that_make_no_sense() -> None:
    with pytest.raises(InvalidInput, match="8192"):
        replace(moments_plan(), dim=10_000)
    with refuses("design"):
        replace(moments_plan(), design="poisson")


def test_sampled_rows_have_the_released_moments() -> None:
    """Of a known mixture with three classes in five dimensions."""
    rng = np.random.default_rng(0)
    means = np.array([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [-1, -1, 0, 0, 0]], np.float64)
    y = np.arange(4000) % 3
    x = means[y] + rng.normal(0, [0.1, 0.2, 0.3, 0.4, 0.5], (4000, 5))
    onehot = np.eye(3)[y] - 1 / 3
    sums = (values.astype(np.float32) for values in (x.T @ x, x.T @ onehot, onehot.sum(axis=0)))
    moments = SecondMoments(*sums, 4000, 0.0, 0.0, 0.0)
    x, y = sample_rows(moments, 1 / 3, 60_000, np.random.default_rng(1))
    labels = y.argmax(axis=1)
    for label in range(3):
        # 20,000 rows with deviations of at most 0.6: their mean errs by 0.0042; the bound is 6 of that.
        assert np.abs(x[labels == label].mean(axis=0) - means[label]).max() < 0.03
    added = moments.spectrum().ridge / moments.records
    expected = moments.second / moments.records + added * np.eye(5)
    assert np.abs(x.T @ x / len(x) - expected).max() < 0.05


def test_noise_is_shrunk_out_of_the_spectrum() -> None:
    """Pure noise has no eigenvalues left; strong signal keeps its own; without noise nothing changes."""
    rng = np.random.default_rng(0)
    dim, deviation = 300, 2.0
    noise = np.tril(rng.normal(0, deviation, (dim, dim)))
    noise[np.diag_indices(dim)] *= math.sqrt(2)
    noise += np.tril(noise, -1).T
    signal = np.zeros(dim)
    signal[:3] = 1000.0, 500.0, 250.0

    def spectrum(matrix: NDArray[np.float64], std: float) -> NDArray[np.float64]:
        sums = matrix.astype(np.float32), np.zeros((dim, 2), np.float32), np.zeros(2, np.float32)
        return SecondMoments(*sums, 100, std, 0.0, 0.0).spectrum().values

    radius, std = 2 * deviation * math.sqrt(dim), deviation * math.sqrt(2)
    assert spectrum(noise, std).max() < 0.35 * radius  # unshrunk, it is the radius
    np.testing.assert_allclose(spectrum(np.diag(signal) + noise, std)[-3:], [250, 500, 1000], rtol=0.12)
    np.testing.assert_allclose(spectrum(np.diag(signal), 0.0)[-3:], [250, 500, 1000], rtol=1e-5)
