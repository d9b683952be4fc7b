"""Public random projections: what they keep, to the bit, and as part of an extractor and of a release."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import hadamard as reference

import privmix as pm
from privmix.errors import InvalidInput
from privmix.features.base import get_extractor, parse_features
from privmix.features.identity import Identity, Pixels
from privmix.features.projected import Projected, hadamard
from privmix.features.spec import from_spec, title_of, wanted_model
from tests.refusals import refuses

SIGNS = [-1, -1, 1, -1, -1, -1, -1, -1, 1, -1, 1, 1]
CHOSEN = [0, 5, 8, 9, 10, 15]


@pytest.mark.parametrize("size", [1, 2, 4, 8, 64, 512])
def test_the_fast_transform_is_the_matrix(size: int) -> None:
    x = np.random.default_rng(0).integers(-9, 10, (3, size)).astype(np.float32)
    np.testing.assert_array_equal(hadamard(x), x @ reference(size).astype(np.float32))


@pytest.mark.parametrize("dim", [5, 64, 100])
def test_it_is_the_product_of_signs_matrix_and_choice(dim: int) -> None:
    x = np.random.default_rng(0).normal(size=(7, dim)).astype(np.float32)
    projected = Projected(Identity(), 3, seed=4)
    signs, chosen = projected._constants(dim)
    size = len(reference(1 << (dim - 1).bit_length()))
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert len(set(chosen.tolist())) == 3
    assert chosen.max() < size
    expected = (x * signs) @ reference(size)[:dim][:, chosen] / np.sqrt(3)
    np.testing.assert_allclose(projected.transform(x), expected, rtol=1e-5, atol=1e-6)


def test_constants_never_change() -> None:
    """A spec means the same features in years to come: frozen here."""
    signs, chosen = Projected(Identity(), 6)._constants(12)
    assert signs.astype(int).tolist() == SIGNS
    assert chosen.tolist() == CHOSEN


def test_squared_lengths_are_kept_on_average_over_seeds() -> None:
    # 400 independent projections of a worst case, one long coordinate beside nothing, and of a usual record.
    x = np.stack([np.eye(1, 50, 17)[0], np.random.default_rng(0).normal(size=50)]).astype(np.float32)
    ratios = np.array(
        [np.square(Projected(Identity(), 10, seed).transform(x)).sum(axis=1) / np.square(x).sum(axis=1)
         for seed in range(400)]
    )  # fmt: skip
    # A ratio has a standard deviation below sqrt(2 / 10); seven of the mean's are passed by chance once in 1e10.
    assert np.abs(ratios.mean(axis=0) - 1).max() < 7 * np.sqrt(2 / 10 / 400)


def test_its_spec_rebuilds_it() -> None:
    projected = parse_features("projected:20:scattering")
    spec = json.loads(json.dumps(projected.spec()))
    again = from_spec(spec)
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    np.testing.assert_array_equal(again.transform(images), projected.transform(images))
    assert again.fingerprint() == projected.fingerprint()
    assert title_of(spec) == "scattering (projected to 20)"
    assert projected.reads.name == "scattering"
    assert Projected(Pixels(), 20, seed=1).fingerprint() != Projected(Pixels(), 20).fingerprint()


@pytest.mark.parametrize("argument", ["", ":", ":8", ":x:pixels", ":0:pixels", ":8:none"])
def test_arguments_that_are_none(argument: str) -> None:
    with pytest.raises(InvalidInput, match=r"features|projection"):
        parse_features(f"projected{argument}")


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 0}, {"dim": 2.5}, {"dim": 2**30}, {"seed": -1}, {"inner": 3}, {"more": 1},
        {"inner": {"name": "projected", "version": 1, "options": {}}}, {"inner": {"name": "none"}},
    ],
)  # fmt: skip
def test_specs_that_it_never_wrote_are_refused(change: dict[str, Any]) -> None:
    spec = Projected(Pixels(), 8).spec()
    spec["options"] = {**spec["options"], **change}
    with pytest.raises(InvalidInput):
        from_spec(spec)


def test_what_is_no_fewer_is_refused_and_a_model_that_must_be_named_is_the_inner_extractors() -> None:
    with refuses("dim of a projection"):
        Projected(Pixels(), 64).output_dim((8, 8))
    with refuses("features"):
        Projected(Projected(Pixels(), 8), 4)
    inner = {"name": "module", "version": 1, "options": {"model": "net.safetensors"}}
    found = wanted_model({"name": "projected", "version": 1, "options": {"inner": inner, "dim": 4, "seed": 0}})
    assert found is not None
    assert "net.safetensors" in found
    with refuses("extractor options"):
        get_extractor("projected", dim=3)


def test_wide_records_are_released_through_it(tmp_path: Path) -> None:
    """Classes that 10,000 numbers tell apart are told apart by 64 of their projection, also from raw inputs."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    x = rng.normal(size=(400, 10_000)).astype(np.float32)
    # 0.998 with a deviation of 0.003: the noise is fresh in every run.
    x[:, :100] += 12 * y[:, None]
    settings: dict[str, Any] = {"classes": 2, "features": "identity", "design": pm.designs.Moments(), "epsilon": 8}
    with refuses("dim"):
        pm.plan((x, y), delta=1e-3, **settings)
    release = pm.release((x, y), project=64, delta=1e-3, out=tmp_path / "REL", **settings)
    assert release.plan.dim == 64
    pm.fit(tmp_path / "REL", out=tmp_path / "MODEL")
    assert pm.load(tmp_path / "MODEL").score(x, y) > 0.9
    pm.verify(tmp_path / "REL")
