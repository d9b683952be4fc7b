"""Model inversion: it recovers what is there, fails where noise hides it, and measures both in the same way."""

from __future__ import annotations

import base64
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from privmix.data import embedded_digits
from privmix.engine import PrivateRecords, ReleaseEngine
from privmix.errors import MissingExtra
from privmix.features import ModuleEncoder, Pixels, Scattering, Tabular
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.publication import RecordTransform
from privmix.research.inversion import similarity
from privmix.research.inversion.search import InversionConfig, MixedFeatures, inversion_loss, invert, total_variation
from privmix.research.inversion.similarity import best_matches, match_order
from privmix.research.inversion.study import Attempt, InversionCase, case_name, study_inversion
from privmix.research.known_rows import draw_members, rows_of_members
from tests.refusals import refuses
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


# What is measured


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (np.full((4, 5), 0.3), 0.0),
        (np.repeat([[0.0, 0.0, 1.0]], 6, axis=0), 6.0),  # an edge of length 6 and height 1
        (np.pad([[1.0]], 1), 2 + 2**0.5),  # a point: its own corner, one edge from the left, one from above
        (np.repeat([[[0.0] * 3, [0.5] * 3]], 4, axis=0), 4 * 3 * 0.5),  # three colours
    ],
)
def test_total_variation_of_known_images(image: np.ndarray, expected: float) -> None:
    assert float(total_variation(torch.from_numpy(image)[None])) == pytest.approx(expected, abs=2e-3)


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


def test_a_match_is_looked_for_in_the_own_row_only() -> None:
    originals = np.random.default_rng(0).random((2, 1, 9, 9))
    assert best_matches(originals, originals[::-1]).mse > 0.05
    assert best_matches(originals, np.concatenate([originals[::-1], originals], axis=1)).mse == 0


@pytest.mark.parametrize("shape", [(5, 5), (8, 8), (16, 16, 3), (16, 16, 1)])
def test_likeness_of_small_and_coloured_images(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(1).random((1, 2, *shape))
    assert best_matches(images, images).ssim == pytest.approx(1)


def test_perceptual_distance_is_used_where_its_package_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Network:
        def __init__(self, net: str, verbose: bool) -> None:
            assert net == "alex"

        def __call__(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            assert one.shape == other.shape == (1, 3, 64, 64)
            assert one.min() >= -1.001
            return (one - other).abs().mean()

    package: Any = types.ModuleType("lpips")
    package.LPIPS = Network
    monkeypatch.setitem(sys.modules, "lpips", package)
    monkeypatch.setattr(similarity, "find_spec", lambda name: object())
    similarity._lpips.cache_clear()
    try:
        found = best_matches(np.zeros((1, 1, 8, 8)), np.full((1, 2, 8, 8), 0.25))
    finally:
        similarity._lpips.cache_clear()
    assert found.lpips == pytest.approx(0.5)


def test_without_scikit_image_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage.metrics", None)
    with pytest.raises(MissingExtra, match=r"\.\[inversion\]"):
        best_matches(np.zeros((1, 1, 8, 8)), np.zeros((1, 1, 8, 8)))


# Rows of known members


@pytest.mark.parametrize("centre", ["none", "private"])
def test_rows_of_known_members_are_the_engines(centre: str) -> None:
    """The same members and noise stream give the engine's rows, to the bit."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(300, 7)), rng.integers(0, 3, 300)
    plan = ReleaseConfig(
        records=300, dim=7, classes=("a", "b", "c"), mixup_degree=9, rows=12, centre=centre
    ).with_noise(0.7)
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


def test_designs_whose_rows_are_no_averages_are_refused() -> None:
    for design in ("moments", "random-weight"):
        plan = config(4, design=design).with_noise(1.0)
        with refuses("design"):
            study_inversion([InversionCase(plan, None)], *no_images(), Pixels(), np.random.default_rng(0))


# The attack


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


def test_gradients_of_the_loss_agree_with_finite_differences() -> None:
    """In double precision on a smooth extractor: relative error of central differences is far below 1e-5."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(20, 30, generator=generator, dtype=torch.float64)
    mixed = MixedFeatures(lambda x: torch.tanh(x.flatten(1) @ weights), RecordTransform(1.0), 2.0)
    images = torch.rand(1, 2, 4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(1, 30, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: inversion_loss(mixed, x, rows, 0.3), images, eps=1e-6, rtol=1e-4)


def test_rows_do_not_influence_each_other() -> None:
    """A row attacked in another block gives the same images up to rounding, given the same start."""
    mixed = MixedFeatures(Pixels().differentiable((4, 4)), RecordTransform(10.0), 2.0)
    rows = np.random.default_rng(0).random((5, 16))
    found = [
        invert(mixed, rows, (4, 4), 2, np.random.default_rng(1), config=InversionConfig(30, images_at_once=size))
        for size in (2, 64)
    ]
    assert np.abs(found[0] - found[1]).max() < 1e-3
    assert found[0].shape == (5, 2, 4, 4)


def test_one_image_without_noise_is_recovered(digits: tuple[np.ndarray, np.ndarray]) -> None:
    cases = [InversionCase(config().with_noise(1.0), None)]
    settings: dict[str, Any] = {
        "originals": 6,
        "config": InversionConfig(300),
        "attempts": [Attempt(1e-4, from_mean=True)],
    }
    study = study_inversion(cases, *digits, Scattering(), np.random.default_rng(0), **settings)
    (case,) = study.cases
    assert case.recovered.ssim > 0.8
    assert case.recovered.mse < 0.4 * min(case.others.mse, case.mean_image.mse)
    assert case.recovered.ssim > 0.3 + max(case.others.ssim, case.mean_image.ssim)


@pytest.mark.parametrize("given", [True, False], ids=["released-mean", "made-mean"])
def test_centred_rows_are_attacked_as_they_are_made(given: bool, digits: tuple[np.ndarray, np.ndarray]) -> None:
    centre = RecordTransform(1.0).clip(Scattering().transform(digits[0])).mean(axis=0).astype(np.float32)
    cases = [InversionCase(config(centre="private").with_noise(1.0), None)]
    settings: dict[str, Any] = {"config": InversionConfig(200), "attempts": [Attempt(1e-4, from_mean=True)]}
    generator, mean = np.random.default_rng(0), centre if given else None
    (case,) = study_inversion(cases, *digits, Scattering(), generator, originals=3, centre=mean, **settings).cases
    assert case.recovered.ssim > 0.3 + max(case.others.ssim, case.mean_image.ssim)


def test_any_extractor_on_torch_can_be_attacked(tmp_path: Path) -> None:
    """A random linear network of more outputs than pixels loses nothing but the scale, which the public images give."""
    data = embedded_digits("test").read()
    weights = torch.randn(200, 64, generator=torch.Generator().manual_seed(0)) / 8
    save_file({"0.weight": weights}, tmp_path / "net.safetensors")
    extractor = ModuleEncoder(str(tmp_path / "net.safetensors"))
    cases = [InversionCase(config(dim=200).with_noise(1.0), None)]
    settings: dict[str, Any] = {"originals": 4, "config": InversionConfig(200), "attempts": [Attempt(1e-4)]}
    (case,) = study_inversion(cases, data.x, data.y, extractor, np.random.default_rng(0), **settings).cases
    assert case.recovered.ssim > 0.8 > 0.5 > case.others.ssim


def test_noise_of_a_real_budget_hides_the_image(digits: tuple[np.ndarray, np.ndarray]) -> None:
    """At epsilon 1, even with the best choice on public rows, other people's images are as close."""
    cases = [InversionCase(config().calibrate(1.0, 1e-5), 1.0)]
    effort = InversionConfig(steps=60)
    study = study_inversion(cases, *digits, Scattering(), np.random.default_rng(0), originals=6, config=effort)
    (case,) = study.cases
    assert case.recovered.mse > case.mean_image.mse
    assert case.recovered.ssim < case.others.ssim + 0.05
    assert case.noise_std > 0.5


def test_equal_generators_give_equal_studies_and_pictures(digits: tuple[np.ndarray, np.ndarray]) -> None:
    plan = config(2, dim=256).with_noise(0.5)
    cases = [InversionCase(plan, None), InversionCase(plan, 3.0)]
    first, second = (
        study_inversion(
            cases,
            *digits,
            Pixels(),
            np.random.default_rng(5),
            originals=3,
            config=InversionConfig(steps=5),
            attempts=[Attempt(1e-3)],
        )
        for _ in range(2)
    )
    assert first.to_dict() == second.to_dict()
    content = first.to_dict()
    assert content["images"]["shape"] == [3, 3, 16, 16]
    assert content["images"]["row_labels"] == ["m = 2: raw", "m = 2: no noise", "m = 2: ε = 3"]
    raw = np.frombuffer(base64.b64decode(content["images"]["uint8"]), np.uint8).reshape(3, 3, 16, 16)[0]
    assert all((image == digits[0]).all(axis=(1, 2)).any() for image in raw)
    assert [case["epsilon"] for case in content["cases"]] == [None, 3.0]
    assert case_name(None) == "no noise"


# Bad input


def no_images() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((4, 8, 8), np.uint8), np.zeros(4, np.int64)


def test_bad_input_is_refused(digits: tuple[np.ndarray, np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    plan = config(64).with_noise(1.0)
    with refuses("mixup degree"):
        study_inversion([InversionCase(plan, None)], digits[0][:100], digits[1][:100], Scattering(), rng)
    with refuses("features"):
        study_inversion(
            [InversionCase(config().with_noise(1.0), None)], *digits, Tabular({"a": {"range": [0, 1]}}), rng
        )
    with refuses("images"):
        study_inversion([InversionCase(plan, None)], np.zeros((9, 4)), np.zeros(9, int), Scattering(), rng)
    with refuses("cases"):
        study_inversion([], *digits, Scattering(), rng)
    with refuses("features"):
        rows_of_members(plan, RecordTransform(1.0), np.zeros((4, 5)), [np.arange(2)], None)
    with refuses("transform"):
        rows_of_members(plan, RecordTransform(2.0), np.zeros((4, 1296)), [np.arange(2)], None)
    mixed = MixedFeatures(Pixels().differentiable((4, 4)), RecordTransform(1.0), 1.0)
    with refuses("start"):
        invert(mixed, np.zeros((1, 16)), (4, 4), 1, rng, start=np.zeros((3, 3)))
    with refuses("image shape"):
        invert(mixed, np.zeros((1, 16)), (16,), 1, rng)
    with refuses("rows"):
        invert(mixed, np.zeros((0, 16)), (4, 4), 1, rng)
