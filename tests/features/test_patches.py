"""Patch features: equal to their definition, and a function of one image only."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.features.base import parse_features
from privmix.features.patches import Dictionary, Patches, PatchWeights, normal_patches
from privmix.features.spec import from_spec
from privmix.procedural.base import get_generator
from tests.features.models import check_per_record
from tests.refusals import refuses

SMALL = Patches(filters=5)


def photographs(count: int, height: int = 10, width: int = 9) -> NDArray[np.uint8]:
    return np.random.default_rng(count).integers(0, 256, size=(count, height, width, 3), dtype=np.uint8)


def by_definition(image: NDArray[np.uint8], weights: PatchWeights) -> NDArray[np.float64]:
    """Patch by patch, cell by cell, image and mirror image, in double precision."""
    dictionary = weights.dictionary
    sums = np.zeros((len(dictionary.filters), 3, 3))
    for view in (image, image[:, ::-1]):
        rows, columns = view.shape[0] - 5, view.shape[1] - 5
        codes = np.zeros((rows, columns, len(dictionary.filters)))
        for row in range(rows):
            for column in range(columns):
                patch = view[row : row + 6, column : column + 6].reshape(1, -1) / 255
                response = normal_patches(patch)[0] @ dictionary.filters.T.astype(np.float64)
                codes[row, column] = np.maximum(0, response - dictionary.bias)
        for i, j in np.ndindex(3, 3):
            down = slice(math.floor(i * rows / 3), math.ceil((i + 1) * rows / 3))
            across = slice(math.floor(j * columns / 3), math.ceil((j + 1) * columns / 3))
            sums[:, i, j] += codes[down, across].mean(axis=(0, 1)) / 2
    rest = np.sqrt(sums / sums.sum()).reshape(-1, 9) - weights.mean
    rest = weights.across.astype(np.float64) @ rest @ weights.between
    return (rest / np.linalg.norm(rest)).ravel()


def test_equals_the_definition() -> None:
    images = photographs(2)
    found = SMALL.transform(images)
    for image, row in zip(images, found, strict=True):
        np.testing.assert_allclose(row, by_definition(image, SMALL._weights), atol=2e-5)


def test_per_record_bits_do_not_depend_on_the_other_records() -> None:
    check_per_record(Patches(filters=65), photographs(9, 32, 32))


def test_public_the_dictionary_follows_from_generator_and_number_and_is_in_the_spec() -> None:
    """Formal guarantee: nothing is fitted to a call's images, and another dictionary is refused."""
    before = SMALL.spec()
    SMALL.transform(photographs(3))
    assert SMALL.spec() == before == Patches(filters=5).spec()
    assert from_spec(before).fingerprint() == SMALL.fingerprint()
    # A longer dictionary begins with a shorter one; its digest is its own.
    longer, shorter = (patches._weights.dictionary.filters for patches in (Patches(filters=7), SMALL))
    assert np.array_equal(longer[:5], shorter)
    assert Patches(filters=7).spec()["weights_sha256"] != before["weights_sha256"]
    with refuses("weights_sha256 of the model"):
        from_spec({**before, "weights_sha256": "0" * 64})


def test_filters_are_whitened_patches_of_the_generator() -> None:
    images = get_generator("leaves", (12, 12, 3)).draw(64, 1).x
    dictionary = Dictionary.of(images, 50, np.random.default_rng(0))
    windows = np.lib.stride_tricks.sliding_window_view(images, (6, 6), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
    responses = normal_patches(windows.reshape(-1, 108) / 255) @ dictionary.filters.T.astype(float)
    # Responses to directions that are whitened vary alike, whatever the filters' own lengths are.
    assert responses.std(axis=0).max() / responses.std(axis=0).min() < 2
    assert np.ptp(np.linalg.norm(dictionary.filters, axis=1)) > 0.1
    with refuses("filters"):
        Dictionary.of(images, 64 * 40, np.random.default_rng(0))


def test_codes_of_the_generators_images_are_decorrelated() -> None:
    rng = np.random.default_rng(0)
    codes = np.einsum("fg,ngc,cd->nfd", np.diag([1.0, 2, 4]), rng.normal(size=(900, 3, 9)), np.diag(np.arange(1.0, 10)))
    found = PatchWeights.of(SMALL._weights.dictionary, codes)
    variances = (found.across @ (codes - found.mean) @ found.between).var(axis=0)
    assert variances.max() / variances.min() < codes.var(axis=0).max() / codes.var(axis=0).min() / 10
    # Symmetric, and the same whatever eigenvectors a library finds.
    np.testing.assert_array_equal(found.across, found.across.T)
    np.testing.assert_array_equal(found.between, found.between.T)


def test_grey_images_are_colours_that_are_equal_and_empty_ones_are_nought() -> None:
    grey = photographs(3)[..., 0]
    np.testing.assert_array_equal(SMALL.transform(grey), SMALL.transform(np.repeat(grey[..., None], 3, axis=-1)))
    np.testing.assert_allclose(SMALL.transform(grey / np.float32(255)), SMALL.transform(grey), atol=1e-6)
    for level in (0, 255):
        flat = SMALL.transform(np.full((1, 8, 8), level, np.uint8))
        assert np.isfinite(flat).all()
    assert SMALL.transform(np.empty((0, 8, 8, 3), np.uint8)).shape == (0, 45)


def test_arguments() -> None:
    assert parse_features("patches:fields,16").options() == {"generator": "fields", "filters": 16}
    assert parse_features("patches").options()["generator"] == "leaves"
    for wrong in ("patches:ferns", "patches:0", "patches:5,6", "patches:-1", "patches:", "patches:99999"):
        with pytest.raises(InvalidInput):
            parse_features(wrong)
    for shape in ((7, 28), (28, 28, 1), (28,), (28, 28, 3, 3)):
        with refuses("input shape for patches"):
            SMALL.output_dim(shape)
