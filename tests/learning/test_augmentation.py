"""Flips and crops move pixels and change none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from privmix.learning.kl import GeneralizedKLClassifier, ImageRows, augmentations
from tests.refusals import refuses

from .mixing import digits, mix

SHAPE = (6, 7, 3)
DIM = 6 * 7 * 3
ROWS = torch.arange(400 * DIM, dtype=torch.float32).reshape(400, DIM)


def changed(*which: str, seed: int = 0) -> np.ndarray:
    found = ImageRows(frozenset(which), SHAPE, DIM)(ROWS, torch.Generator().manual_seed(seed))
    return found.reshape(-1, *SHAPE).numpy()


def test_a_flip_mirrors_left_and_right_or_nothing() -> None:
    """400 fair coins: outside of 130 to 270 with probability below 1e-11."""
    images = ROWS.reshape(-1, *SHAPE).numpy()
    same = (changed("flip") == images).all(axis=(1, 2, 3))
    mirrored = (changed("flip") == images[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (same ^ mirrored).all()
    assert 130 < same.sum() < 270


def test_a_crop_is_a_window_of_the_mirrored_image() -> None:
    """Each is one of 81 windows; of 400 rows, fewer than 40 of them with probability below 1e-12."""
    images, found = ROWS.reshape(-1, *SHAPE).numpy(), changed("crop")
    wide = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="reflect")
    places = set()
    for one, margin in zip(found, wide, strict=True):
        windows = {(top, left): margin[top : top + 6, left : left + 7] for top in range(9) for left in range(9)}
        fits = [place for place, window in windows.items() if (window == one).all()]
        assert len(fits) == 1
        places |= set(fits)
    assert len(places) > 40
    assert {0, 8} <= {top for top, _ in places} & {left for _, left in places}


def test_the_seed_decides_and_rows_differ() -> None:
    np.testing.assert_array_equal(changed("flip", "crop", seed=3), changed("flip", "crop", seed=3))
    assert (changed("flip", "crop", seed=3) != changed("flip", "crop", seed=4)).any()


def test_of_a_centred_release_images_are_moved_and_not_what_is_left_of_them() -> None:
    image, centre = torch.arange(4.0)[None], torch.tensor([9.0, 1.0, 5.0, 7.0])
    flips = ImageRows(frozenset({"flip"}), (1, 4), 4, centre)
    found = flips((image - centre).repeat(64, 1), torch.Generator().manual_seed(0)) + centre
    assert {tuple(row) for row in found.tolist()} == {(0, 1, 2, 3), (3, 2, 1, 0)}


def test_only_images_are_augmented() -> None:
    x, y = digits()[0]
    for shape in ((64,), (4, 4), (8, 8, 2)):
        with refuses("augment"):
            GeneralizedKLClassifier(epochs=1, augment="flip").fit(mix(x, y, rows=20, input_shape=shape))
    with refuses("augment"):
        GeneralizedKLClassifier(epochs=1, augment="crop").fit(mix(x[:, :16], y, rows=20, input_shape=(4, 4)))
    for text in ("", "turn", "flip,flip", "flip, crop"):
        with refuses("augment"):
            augmentations(text)


def test_a_learner_of_augmented_rows_knows_mirrored_records() -> None:
    """Two classes, told apart by the side that is lit; half of the rows are never of one side unless mirrored."""
    rng = np.random.default_rng(0)
    lit = np.zeros((300, 8, 8), np.float32)
    labels = np.arange(300) % 2
    # Class 0 is dark; class 1 is lit, on the left alone.
    lit[labels == 1, :, :3] = 1
    x = (lit + 0.1 * rng.normal(size=lit.shape)).reshape(300, 64).astype(np.float32)
    release = mix(x.astype(np.float64), labels, rows=300, degree=1, noise=0.0, design="fixed", input_shape=(8, 8))
    mirrored = x.reshape(300, 8, 8)[:, :, ::-1].reshape(300, 64)
    settings = {"epochs": 30, "batch_size": 32, "learning_rate": 0.02}
    plain = GeneralizedKLClassifier(**settings).fit(release)
    flipped = GeneralizedKLClassifier(**settings, augment="flip").fit(release)
    assert flipped.score(mirrored, labels) > 0.95
    assert plain.score(mirrored, labels) < 0.9
    again = GeneralizedKLClassifier(**settings, augment="flip").fit(replace(release, release_id="again"))
    np.testing.assert_array_equal(again.decision_function(x), flipped.decision_function(x))
