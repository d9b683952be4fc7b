"""Model inversion: it recovers what is there, fails where noise hides it, and measures both in the same way."""

from typing import Any

import numpy as np
import pytest
import torch

from privmix.data import embedded_digits
from privmix.engine.rows import PrivateRecords, ReleaseEngine
from privmix.features.scattering import Scattering
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.publication.dataset import RecordTransform
from privmix.research.inversion.search import InversionConfig, MixedFeatures, total_variation
from privmix.research.inversion.similarity import best_matches, match_order
from privmix.research.inversion.study import Attempt, InversionCase, study_inversion
from privmix.research.known_rows import draw_members, rows_of_members
from tests.releases.helpers import own_options

CLASSES = tuple("0123456789")


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits, each pixel doubled: 16 x 16."""
    data = embedded_digits("test").read()
    return data.x.repeat(2, axis=1).repeat(2, axis=2), data.y


def config(degree: int = 1, **changes: Any) -> ReleaseConfig:
    fields: dict[str, Any] = {"records": 60_000, "dim": 1296, "classes": CLASSES, "mixup_degree": degree}
    return ReleaseConfig(**own_options({**fields, "centre": "none", **changes}))


def test_likeness_of_equal_and_unequal_images() -> None:
    rng = np.random.default_rng(0)
    originals = rng.random((2, 3, 9, 9))
    same = best_matches(originals, originals[:, ::-1])
    assert (same.mse, same.lpips) == (0.0, None)
    assert same.ssim == pytest.approx(1)
    other = best_matches(originals, rng.random((2, 3, 9, 9)))
    assert other.mse > 0.05
    assert other.ssim < 0.5
    assert np.array_equal(match_order(originals, originals[:, ::-1]), [[2, 1, 0]] * 2)
    # Total variation is the length of edges.
    image = torch.zeros(1, 4, 6)
    image[:, :, 3:] = 0.5
    assert float(total_variation(image)) == pytest.approx(0.5 * 4, rel=1e-3)
    assert float(total_variation(image[..., None].expand(-1, -1, -1, 3))) == pytest.approx(3 * 0.5 * 4, rel=1e-3)


@pytest.mark.parametrize("centre", ["none", "private"])
def test_rows_of_known_members_are_the_engines(centre: str) -> None:
    """The same members and noise stream give the engine's rows, to the bit."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(300, 7)), rng.integers(0, 3, 300)
    plan = ReleaseConfig(300, 7, ("a", "b", "c"), mixup_degree=9, rows=12, centre=centre).with_noise(0.7)
    streams = SecretStreams.from_seed(3)
    engine = ReleaseEngine(plan, PrivateRecords(features, labels), streams)
    released = next(engine.rows()).x
    drawn = plan.sampler.draw(streams.derive("membership"), 0, 0, labels)
    members = np.split(drawn.indices, drawn.offsets[1:-1])
    noise = streams.generator("feature noise", 0)
    assert np.array_equal(rows_of_members(plan, engine.transform, features, members, noise), released)
    clean = rows_of_members(plan, engine.transform, features, members, None)
    assert np.abs(clean - [engine.transform(features[own]).sum(axis=0) / 9 for own in members]).max() < 1e-4


@pytest.mark.parametrize(
    ("changes", "classes"),
    [({}, None), ({"design": "hierarchical", "expected_classes": 3}, 3), ({"design": "classwise"}, 1)],
)
def test_members_are_drawn_as_the_design_mixes_them(changes: dict[str, Any], classes: int | None) -> None:
    plan = config(8, **changes).with_noise(1.0)
    labels = np.arange(600) % 10
    rows = draw_members(plan, labels, 5, 8, np.random.default_rng(0))
    assert [len(np.unique(row)) for row in rows] == [8] * 5
    assert len(np.unique(np.concatenate(rows))) == 40
    found = [len(np.unique(labels[row])) for row in rows]
    assert max(found) <= (classes or 10)
    assert classes is not None or max(found) > 3


def test_the_attackers_copy_of_the_mechanism_is_the_mechanism() -> None:
    rng = np.random.default_rng(0)
    images = rng.random((6, 8, 8), dtype=np.float32)
    plan = config(3, dim=324, centre="private").with_noise(1.0)
    centre = rng.normal(0, 0.02, 324).astype(np.float32)
    transform = RecordTransform(plan.clip_norm, plan.norm, centre, plan.residual_clip_norm)
    mixed = MixedFeatures(Scattering().differentiable((8, 8)), transform, plan.divisor)
    found = mixed(torch.from_numpy(images).view(2, 3, 8, 8)).numpy()
    members = [np.arange(3), np.arange(3, 6)]
    expected = rows_of_members(plan, transform, Scattering().transform(images), members, None)
    assert np.abs(found - expected).max() < 1e-4


def test_one_image_without_noise_is_recovered(digits: tuple[np.ndarray, np.ndarray]) -> None:
    cases = [InversionCase(config().with_noise(1.0), None)]
    effort: dict[str, Any] = {"config": InversionConfig(300), "attempts": [Attempt(1e-4, from_mean=True)]}
    study = study_inversion(cases, *digits, Scattering(), np.random.default_rng(0), originals=6, **effort)
    (case,) = study.cases
    assert case.recovered.ssim > 0.8
    assert case.recovered.mse < 0.4 * min(case.others.mse, case.mean_image.mse)
    assert case.recovered.ssim > 0.3 + max(case.others.ssim, case.mean_image.ssim)


def test_noise_of_a_real_budget_hides_the_image(digits: tuple[np.ndarray, np.ndarray]) -> None:
    """At epsilon 1, even with the best choice on public rows, other people's images are as close."""
    cases = [InversionCase(config().calibrate(1.0, 1e-5), 1.0)]
    effort = InversionConfig(steps=60)
    study = study_inversion(cases, *digits, Scattering(), np.random.default_rng(0), originals=6, config=effort)
    (case,) = study.cases
    assert case.recovered.mse > case.mean_image.mse
    assert case.recovered.ssim < case.others.ssim + 0.05
    assert case.noise_std > 0.5
