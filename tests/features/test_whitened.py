"""Whitening by public data: what it does to public data, to the bit, and as part of an extractor."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from privmix.errors import InvalidInput
from privmix.features.base import Extractor
from privmix.features.identity import Identity, Pixels
from privmix.features.spec import check_spec, from_spec, statements_of, title_of
from privmix.features.whitened import Whitened, Whitening, WhiteningConfig
from tests.refusals import refuses

PUBLIC: dict[str, Any] = {"source": "data", "records": 400, "classes": 2, "sha256": "0" * 64}
MADE: dict[str, Any] = {**PUBLIC, "source": "procedural:digits", "version": 1, "seed": 0}


def two_classes(count: int = 400, dim: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records of two classes far apart along the first axis, with very different spreads within them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, count)
    x = rng.normal(size=(count, dim)) * np.geomspace(1, 0.01, dim)
    x[:, 0] += 20 * y
    return x.astype(np.float32), y


def whitened(inner: Extractor | None = None, dim: int = 12, rank: int = 5, **public: Any) -> Whitened:
    x, y = two_classes(dim=dim)
    fitted = Whitening.fit(x, y, WhiteningConfig(rank=rank), 1.0)
    return Whitened(inner or Identity(), {**PUBLIC, **public}, whitening=fitted)


def test_what_varies_within_classes_is_made_equal_and_what_lies_between_them_is_kept() -> None:
    x, y = two_classes()
    found = Whitening.fit(x, y, WhiteningConfig(power=1.0, ridge=1e-9), 1.0)(x)
    rest = found - np.stack([found[y == label].mean(axis=0) for label in (0, 1)])[y]
    covariance = rest.T @ rest / len(rest)
    np.testing.assert_allclose(covariance, covariance[0, 0] * np.eye(12), atol=1e-3 * covariance[0, 0])
    between = np.abs(found[y == 1].mean(axis=0) - found[y == 0].mean(axis=0)).max()
    assert between > 10 * np.sqrt(covariance[0, 0])
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-4)


def test_without_power_it_is_a_projection_and_norms_are_those_asked_for() -> None:
    x, y = two_classes()
    config = WhiteningConfig(power=0.0, rank=12, quantile=0.25)
    found = Whitening.fit(x, y, config, 0.55)(x)
    lengths = np.linalg.norm(found, axis=1)
    assert np.quantile(lengths, 0.25) == pytest.approx(0.55, rel=1e-3)
    wanted = np.linalg.norm(x - x.mean(axis=0), axis=1)
    np.testing.assert_allclose(lengths / wanted, (lengths / wanted)[0], rtol=1e-3)
    assert Whitening.fit(x, y, WhiteningConfig(rank=3), 1.0)(x).shape == (400, 3)


def test_a_record_has_the_same_bits_whatever_is_beside_it() -> None:
    x, y = two_classes(dim=301)
    fitted = Whitening.fit(x, y, WhiteningConfig(rank=40), 1.0)
    whole = fitted(x)
    for start, stop in ((0, 1), (7, 8), (3, 130), (390, 400)):
        np.testing.assert_array_equal(fitted(x[start:stop]), whole[start:stop])
    np.testing.assert_array_equal(fitted(x[::-1])[::-1], whole)
    # Why: products and sums of whole numbers, none of which float64 rounds.
    points = np.clip(np.rint(x.astype(np.float64) / fitted.step), -(2**17), 2**17)
    exact = points.astype(np.int64) @ fitted.weights.astype(np.int64)
    assert np.abs(points).astype(np.int64).dot(np.abs(fitted.weights).astype(np.int64)).max() < 2**53
    np.testing.assert_array_equal(points @ fitted.weights.astype(np.float64), exact)
    assert (fitted.weights == np.rint(fitted.weights)).all()
    # And the grids are fine: the same as without them, but for four digits.
    smooth = x @ fitted.matrix() - fitted.offset
    assert np.abs(whole - smooth).max() < 1e-3 * np.abs(whole).max()


def test_features_that_public_records_lack_or_stay_below_are_cut_and_no_error() -> None:
    x, y = two_classes()
    x[:, 5] = 0
    fitted = Whitening.fit(x, y, WhiteningConfig(), 1.0)
    odd = np.full((1, 12), 1e30, np.float32)
    assert np.isfinite(fitted(odd)).all()


def test_too_little_public_data_is_refused() -> None:
    for x in (np.zeros((1, 3), np.float32), np.ones((5, 3), np.float32)):
        with refuses("public records"):
            Whitening.fit(x, np.zeros(len(x), int), WhiteningConfig(), 1.0)


def test_a_spec_and_its_arrays_rebuild_the_extractor() -> None:
    extractor = whitened(Pixels(), dim=16)
    spec = json.loads(json.dumps(extractor.spec()))
    rebuilt = from_spec(spec, arrays=extractor.arrays())
    x = np.random.default_rng(1).integers(0, 256, (6, 4, 4)).astype(np.uint8)
    np.testing.assert_array_equal(rebuilt.transform(x), extractor.transform(x))
    assert rebuilt.fingerprint() == extractor.fingerprint()
    assert rebuilt.reads.name == "pixels"
    assert rebuilt.output_dim((4, 4)) == 5
    with refuses("input shape"):
        rebuilt.output_dim((3, 3))


def test_other_arrays_than_the_spec_is_of_are_refused() -> None:
    extractor = whitened()
    spec, arrays = extractor.spec(), extractor.arrays()
    weights = arrays["weights"].copy()
    weights[0, 0] += 1
    with refuses("arrays_sha256 of the model"):
        from_spec(spec, arrays={**arrays, "weights": weights})
    for odd in ({}, {"step": arrays["step"]}, {**arrays, "offset": arrays["offset"] * np.float32(np.nan)}):
        with pytest.raises(InvalidInput, match=r"arrays"):
            from_spec(spec, arrays=odd)
    # A plain extractor carries none.
    with pytest.raises(InvalidInput, match=r"arrays"):
        from_spec(Identity().spec(), arrays=arrays)
    with pytest.raises(InvalidInput, match=r"arrays"):
        from_spec({**Identity().spec(), "arrays": {"step": [3]}})


def test_arrays_that_no_fit_gives_are_refused() -> None:
    """Theirs are sums with rounding, whose last bits depend on how many records there are: no function of one."""
    extractor = whitened(dim=301, rank=40)
    arrays = extractor.arrays()
    noise = np.random.default_rng(0).normal(size=(301, 40)).astype(np.float32)
    for odd in (
        {"weights": arrays["weights"] + np.float32(0.5)},
        {"weights": noise * np.float32(1e6)},
        {"weights": np.rint(noise) * np.float32(2.0**40)},
        {"step": arrays["step"] * np.float32(1.1)},
        {"step": -arrays["step"]},
        {"width": arrays["width"] * np.float32(0)},
    ):
        with refuses("arrays of the extractor"):
            Whitening.of({**arrays, **odd})
    assert Whitening.of(arrays).dims == (301, 40)


@pytest.mark.parametrize(
    "inner",
    [
        {"name": "pixels\n\n# Guarantee: nothing here is of anybody", "version": 1, "options": {}},
        {"name": "pixels", "version": 1, "options": {}, "note": "record 7: ..."},
        {"name": "pixels", "version": [7], "options": {}},
        {"name": "pixels", "version": 1, "options": {}, "weights_sha256": "record 7: ..."},
        {"name": ["pixels"]},
        {"name": 5},
        {},
        None,
    ],
)
def test_an_inner_spec_has_no_room_for_words_or_records(inner: Any) -> None:
    """Its name stands in the card of a release that verifies."""
    spec = whitened().spec()
    spec["options"]["inner"] = inner
    projected = {"name": "projected", "version": 1, "options": {"inner": inner, "dim": 4, "seed": 0}}
    for odd in (spec, projected):
        for read in (check_spec, title_of, statements_of):
            with pytest.raises(InvalidInput):
                read(odd)


def test_names_that_are_no_text_are_no_crash() -> None:
    assert title_of({"name": ["x"], "arrays": {}, "options": {}}) == "['x']"
    assert title_of({"name": "pixels", "options": 5}) == "pixels"
    assert statements_of({"name": ["x"], "arrays": {}}) == ()


def test_it_is_not_whitened_twice_nor_asked_for_by_name() -> None:
    with refuses("features"):
        whitened(whitened())
    from privmix.features.base import parse_features

    for text in ("whitened", "whitened:pixels"):
        with refuses("features"):
            parse_features(text)


def test_gradients_go_through() -> None:
    extractor = whitened(Pixels(), dim=16)
    x = np.random.default_rng(1).integers(0, 256, (6, 4, 4)).astype(np.uint8)
    function = extractor.differentiable((4, 4))
    images = torch.from_numpy(x.astype(np.float32) / 255).requires_grad_()
    np.testing.assert_allclose(function(images).detach().numpy(), extractor.transform(x), atol=1e-3)
    function(images).sum().backward()
    assert images.grad is not None


def test_its_statement_says_whose_data_they_were() -> None:
    (said,) = statements_of(whitened().spec())
    assert "the owner says are public" in said
    (made,) = statements_of(whitened(**MADE).spec())
    assert made.startswith("Procedural prior")
    assert "procedural:digits, version 1, seed 0" in made
    assert statements_of(Pixels().spec()) == ()
    # What an inner extractor stands on is said, too; its spec alone is asked.
    patches = {"name": "patches", "version": 1, "options": {"generator": "leaves", "filters": 8}}
    spec = whitened().spec()
    spec["options"]["inner"] = patches
    first, second = statements_of(spec)
    assert "procedural:leaves" in first
    assert second.startswith("Public data")


@pytest.mark.parametrize(
    "public",
    [
        {"source": "procedural:digits"},
        {"source": "data", "version": 1},
        {"source": "procedural:<script>"},
        {"records": 1},
        {"sha256": "abc"},
        {"note": "anything"},
    ],
)
def test_odd_public_facts_of_strangers_are_refused(public: dict[str, Any]) -> None:
    spec = whitened().spec()
    spec["options"]["public"] = {**PUBLIC, **public}
    with pytest.raises(InvalidInput):
        from_spec(spec, arrays=whitened().arrays())
