"""Releases in three stages: what the third stage adds to what two do."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.designs import ThreeStagePlan
from privmix.designs.stages.engine import Scatter, ThreeStageEngine
from privmix.designs.stages.learner import ThreeStageClassifier, TwoStageClassifier
from privmix.designs.stages.released import ThreeStageMoments
from privmix.engine.rows import PrivateRecords
from privmix.learning.model_io import load_model, save_model
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.publication.dataset import ReleasedDataset
from tests.designs.test_two_stage import DIM, RECORDS
from tests.designs.test_two_stage import make_plan as two_stage_plan
from tests.refusals import refuses
from tests.releases.helpers import CLASSES, make_records, release

make_plan = partial(two_stage_plan, design="three-stage")


def run(plan: ThreeStagePlan, records: PrivateRecords) -> tuple[ThreeStageMoments, ThreeStageEngine]:
    engine = ThreeStageEngine(plan, records, SecretStreams.from_seed(1), workers=1)
    list(engine.rows())
    return engine.beside, engine


@pytest.mark.parametrize("share", [0.0, 0.65, 1.0])
def test_shares_that_do_not_add_up_are_refused(share: float) -> None:
    with refuses("class_share"):
        make_plan(class_share=share)


def test_directions_are_as_many_as_noise_allows() -> None:
    """Noise of the scatter of a class, scaled as it is, has a spectral radius of at most 1, and nearly that."""
    plan = make_plan(3.0, records=60_000, dim=1000)
    axes = plan.class_directions

    def radius(axes: int) -> float:
        return 2 * np.sqrt(axes) * plan.class_noise_multiplier / np.sqrt(2) * axes * plan.num_classes / plan.records

    assert radius(axes) <= 1 < radius(axes + 1)
    assert make_plan(3.0).class_directions < axes < make_plan(1.0, records=60_000, dim=1000).class_directions


def test_scatter_of_each_class_is_that_of_its_residuals() -> None:
    """With next to no noise it is what NumPy makes of the released map; a record moves its own class's alone."""
    plan = make_plan(1e-4, records=RECORDS)
    records = make_records(RECORDS, DIM)
    found, engine = run(plan, records)
    z = engine.transform(records.features) / engine.transform.final_clip_norm
    v = z @ found.class_directions.T - found.class_means[records.labels]
    v = v / np.maximum(1, np.linalg.norm(v, axis=1, keepdims=True))
    for number in range(len(CLASSES)):
        own = v[records.labels == number]
        np.testing.assert_allclose(found.class_within[number], own.T @ own, atol=0.02 * len(own))
    # What the map is for: clipped residuals about as long in all directions.
    lengths = np.linalg.norm(v, axis=1)
    assert 0.4 < np.square(lengths).mean() <= 1
    with refuses("lattice sums"):
        sums = Scatter(replace(plan, lattice_bits=24), "class_within")
        sums.add(np.zeros((64, plan.class_directions)), np.zeros(64, int))


def test_blocks_and_residuals_that_are_made_again_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, records = make_plan(), make_records(RECORDS, DIM)
    whole, _ = run(plan, records)
    monkeypatch.setattr("privmix.designs.stages.engine._RECORDS_AT_ONCE", 7)
    # More than memory should hold is made twice.
    monkeypatch.setattr("privmix.designs.stages.engine._KEPT", 1000)
    again, _ = run(plan, records)
    for name in whole.arrays:
        np.testing.assert_array_equal(whole.arrays[name], again.arrays[name])


def shaped(count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Two classes of one mean that differ in shape, and a third that lies apart."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 3
    x = rng.normal(size=(count, 4)) * np.array([[0.3, 0.05, 0.1, 0.1], [0.05, 0.3, 0.1, 0.1], [0.1] * 4])[y]
    x[y == 2, 2] += 0.5
    return x.astype(np.float32), y


def released(design: str = "three-stage") -> ReleasedDataset:
    plan = ReleaseConfig(6000, 4, ("flat", "tall", "far"), design, rows=1).calibrate(4.0, 1e-5)
    return release(plan, PrivateRecords(*shaped(6000, 0)), 0)


def test_few_records_of_classes_of_one_shape_show_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Almost without noise: what 100 records of a class differ by in 12 directions is no shape, unless ignored."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 12)).astype(np.float32), np.arange(300) % 3
    options: dict[str, Any] = {"rows": 1, "clip_norm": 9.0, "design": "three-stage", "class_share": 0.4}
    plan = ReleaseConfig(300, 12, CLASSES, **options).calibrate(2000.0, 1e-5)
    made = release(plan, PrivateRecords(x, y), 0)
    found = np.linalg.norm(ThreeStageClassifier().fit(made).shapes_)
    ignored = "privmix.designs.stages.learner.class_deviation"
    monkeypatch.setattr(ignored, lambda moments, counts: np.full(len(counts), 1e-9))
    assert found < 0.5 * np.linalg.norm(ThreeStageClassifier().fit(made).shapes_)


def test_classes_of_one_mean_are_told_by_their_shapes(tmp_path: Path) -> None:
    test_x, test_y = shaped(3000, 1)
    made = released()
    model = ThreeStageClassifier().fit(made)
    linear = (TwoStageClassifier().fit(made).predict(test_x) == test_y).mean()
    predicted = model.predict(test_x)
    # Chance among two of three is 0.67; by shapes 0.9.
    assert linear < 0.72
    assert (predicted == test_y).mean() > 0.85
    assert "for each class" in model.summary
    save_model(model, tmp_path / "MODEL")
    np.testing.assert_array_equal(load_model(tmp_path / "MODEL").predict(test_x), predicted)


def test_other_releases_and_numbers_that_are_none_are_refused() -> None:
    made = released()
    broken = replace(made.beside, class_within=np.full_like(made.beside.class_within, np.nan))
    with refuses("released moments"):
        ThreeStageClassifier().fit(replace(made, beside=broken))
    with refuses("release"):
        ThreeStageClassifier().fit(released("two-stage"))
