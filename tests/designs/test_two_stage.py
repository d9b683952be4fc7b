"""Releases in two stages: what the second stage adds to what moments do."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from privmix.accounting import Gaussian
from privmix.designs import TwoStagePlan
from privmix.designs.stages import engine as two_stage_engine
from privmix.designs.stages.engine import Scatter, TwoStageEngine
from privmix.designs.stages.learner import TwoStageClassifier
from privmix.designs.stages.released import ResidualMap, TwoStageMoments, norm_bins, residual_bound, residual_map
from privmix.designs.stages.two_plan import NORM_EDGES
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.publication.second_moments import Spectrum
from tests.releases.helpers import CLASSES, make_records, release

RECORDS, DIM = 400, 6


def make_plan(noise: float = 1.0, **choices: Any) -> TwoStagePlan:
    plan = ReleaseConfig(**{"records": RECORDS, "dim": DIM, "classes": CLASSES, "design": "two-stage", **choices})
    return plan.with_noise(noise)


def run(plan: TwoStagePlan, records: PrivateRecords, seed: int = 1) -> tuple[TwoStageMoments, NDArray[np.float32]]:
    engine = TwoStageEngine(plan, records, SecretStreams.from_seed(seed), workers=1)
    rows = np.concatenate([block.x for block in engine.rows()])
    return engine.beside, rows


def test_the_event_is_of_all_queries_at_their_own_noise() -> None:
    plan = make_plan(2.0)
    multipliers = [query.noise_multiplier for query in plan.event.events if isinstance(query, Gaussian)]
    assert len(multipliers) == len(plan.event.events) == 4
    assert sum(1 / s**2 for s in multipliers[1:]) == pytest.approx(1 / 4)
    joint = replace(plan, centre_noise_multiplier=None, residual_clip_norm=None).cost(1e-5).epsilon
    alone = ReleaseConfig(RECORDS, DIM, CLASSES, "moments", centre="none").with_noise(2.0).cost(1e-5).epsilon
    assert alone <= joint < alone * (1 + 1e-3)


@pytest.mark.parametrize("options", [{"first_share": 0.0}, {"first_share": 0.995}, {"channels": 4}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        make_plan(**options)


def test_a_second_stage_without_noise_is_the_scatter_of_clipped_residuals() -> None:
    plan, records = make_plan(1e-5), make_records(RECORDS, DIM)
    engine = TwoStageEngine(plan, records, SecretStreams.from_seed(1), workers=1)
    list(engine.rows())
    found = engine.beside
    z = engine.transform(records.features) / plan.final_clip_norm
    residuals = z @ found.directions.T - found.means[records.labels]
    sums = [plan.final_clip_norm * z[records.labels == label].sum(axis=0) for label in range(3)]
    np.testing.assert_allclose(found.cross.T, sums, atol=0.02)
    assert plan.label_offset == plan.first.label_offset == 0
    norms = np.linalg.norm(residuals, axis=1)
    assert found.norms.tolist() == np.bincount(norm_bins(residuals), minlength=len(NORM_EDGES)).tolist()
    assert (norms <= found.bound).mean() >= plan.clip_quantile
    assert found.bound == residual_bound(plan, found.norms)
    clipped = residuals * np.minimum(1, found.bound / norms)[:, None] / found.bound
    np.testing.assert_allclose(found.within, clipped.T @ clipped, atol=0.02)
    # Classes' means are near enough that residuals are shorter than records.
    assert np.square(residuals).sum() < 0.8 * np.square(z @ found.directions.T).sum()


@given(st.integers(0, 2**32 - 1), st.integers(8, 24), st.floats(-30, 30))
def test_a_residual_has_the_same_bits_in_any_company(seed: int, bits: int, size: float) -> None:
    """In blocks of any shape, among any neighbours, in any order of adding: sums of products are exact."""
    rng = np.random.default_rng(seed)
    plan = make_plan(1.0, dim=33, lattice_bits=bits, directions=17)
    moments, _ = run(plan, make_records(50, 33, seed=seed % 7))
    first = residual_map(plan, moments)
    mapped = ResidualMap(first.directions * np.float32(2.0 ** round(size)), first.means, plan.lattice_bits)
    records = rng.normal(size=(40, 33))
    steps = plan.lattice.quantise(records / np.linalg.norm(records, axis=1, keepdims=True) * (1 - 1e-9))
    labels = rng.integers(0, 3, 40)
    together = mapped.residuals(steps, labels)
    alone = np.concatenate([mapped.residuals(steps[[row]], labels[[row]]) for row in range(40)])
    turned = mapped.residuals(np.asfortranarray(steps[::-1]), labels[::-1])[::-1]
    assert together.tobytes() == alone.tobytes() == np.ascontiguousarray(turned).tobytes()
    exact = [sum(int(a) * int(b) for a, b in zip(steps[0], column, strict=True)) for column in mapped._steps.T]
    assert [int(value) for value in steps[0] @ mapped._steps] == exact


def test_directions_that_rounding_makes_longer_are_on_their_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight a hair below a power of 2 becomes one, and its own grid is then coarser than the one it was rounded to.

    What is asked next would else end in an error, once the first stage is paid for.
    """
    plan = make_plan(1.0, dim=2, directions=2, whitening=0.0)
    moments, _ = run(plan, make_records(50, 2, seed=0))
    variance = 1 / (2.6 * (1 - 2.0**-26) ** 2)
    values = np.full(2, variance * moments.records * plan.final_clip_norm**2)
    basis = np.float32([[1.0, 0.0], [3 * 2.0**-23, 1.0]])
    monkeypatch.setattr(type(moments), "spectrum", lambda _: Spectrum(values, basis, 0.0))
    assert residual_map(plan, moments).directions.max() == 1


@given(st.lists(st.floats(-1e30, 1e30), min_size=4, max_size=4))
def test_a_residual_adds_at_most_one(values: list[float]) -> None:
    plan = make_plan(1.0, dim=4)
    scatter = Scatter(plan, "within", 0.25)
    scatter.add(np.array([values]), np.zeros(1, int))
    lower = scatter._sums[0] * plan.part("within").unit
    whole = lower + np.tril(lower, -1).T
    assert np.linalg.norm(whole) <= 1


def test_rows_show_nothing_of_the_second_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an interrupted run, which keeps rows, keeps none of a second stage that may be computed again."""
    plan, records = make_plan(), make_records(RECORDS, DIM)
    found, rows = run(plan, records)
    monkeypatch.setattr(two_stage_engine, "clip_l2", lambda residuals, bound: residuals * 0)
    other, same = run(plan, records)
    assert same.tobytes() == rows.tobytes()
    assert not np.array_equal(found.within, other.within)


def test_it_teaches_more_than_its_first_stage_where_directions_decide() -> None:
    """Classes lie apart where records vary least: the noise of one stage hides that, whitened scatter shows it."""
    rng = np.random.default_rng(0)
    dim, count = 40, 6000
    scale = np.geomspace(1.0, 0.02, dim)
    means = rng.normal(size=(3, dim)) * scale * 0.6
    draws = []
    for _ in range(2):
        labels = rng.integers(0, 3, count)
        draws.append((((means[labels] + rng.normal(size=(count, dim)) * scale) / 4), labels))
    (x, y), (test_x, test_y) = draws
    plan = ReleaseConfig(count, dim, CLASSES, "two-stage", rows=1).calibrate(2.0, 1e-5)
    made = release(plan, PrivateRecords(x, y), 0)
    again = (TwoStageClassifier().fit(made).predict(test_x) == test_y).mean()
    once = (DiscriminantClassifier().fit(made).predict(test_x) == test_y).mean()
    assert again > once + 0.02


def test_channels_that_share_their_covariance_are_cleaned_together() -> None:
    """Directions of noise that hides them in X'X, found by what twelve channels have in common."""
    rng = np.random.default_rng(0)
    channels, positions, count = 12, 10, 4000
    dim = channels * positions
    mix = np.kron(np.diag(np.linspace(1, 0.2, channels)), np.linalg.qr(rng.normal(size=(positions, positions)))[0])
    mix *= np.tile(np.geomspace(1, 0.05, positions), channels)
    x = (rng.normal(size=(count, dim)) @ mix.T).astype(np.float32)
    records = PrivateRecords(x / 8, rng.integers(0, 3, count))
    true = x.T @ x / count / 64
    angles = {}
    for told in (1, channels):
        plan = make_plan(8.0, records=count, dim=dim, channels=told, directions=30, whitening=0.0)
        found, _ = run(plan, records)
        basis = np.linalg.qr(found.directions.T.astype(np.float64))[0]
        angles[told] = np.trace(basis.T @ true @ basis) / np.trace(true)
    assert angles[channels] > angles[1] + 0.05
