"""The learner of generalised KL divergence; flips and crops move pixels and change none."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.learning import kl, networks
from privmix.learning.base import ReleaseFacts
from privmix.learning.kl import GeneralizedKLClassifier, ImageRows, augmentations
from privmix.publication.dataset import RecordTransform, ReleasedDataset
from tests.refusals import refuses

from .mixing import digits, mix, mixed_digits


def naive_divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Equation 6 of Li et al. 2022, term by term, with 0 log 0 = 0."""
    return sum((a * math.log(a / b) if a > 0 else 0.0) - a + b for a, b in zip(p, q, strict=True))


def test_divergence_matches_the_naive_formula() -> None:
    rng = np.random.default_rng(0)
    p = rng.gamma(0.5, size=(50, 6)) * (rng.random((50, 6)) < 0.7)
    logits = rng.normal(0, 3, size=(50, 6))
    q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = kl.generalised_kl(torch.tensor(p), torch.tensor(logits)).numpy()
    np.testing.assert_allclose(found, [naive_divergence(a, b) for a, b in zip(p, q, strict=True)], rtol=1e-10)
    assert (found >= 0).all()


@pytest.mark.parametrize(("model", "rows", "epochs", "least"), [("linear", 2000, 60, 0.93), ("cnn", 1000, 10, 0.8)])
def test_learns_clean_digits(model: str, rows: int, epochs: int, least: float) -> None:
    test_x, test_y = digits()[1]
    # A row is a record.
    release = mixed_digits(rows, degree=1, noise=0.0, design="fixed", input_shape=(8, 8))
    rate = {"linear": 0.01}.get(model, 1e-3)
    found = GeneralizedKLClassifier(model, epochs=epochs, batch_size=64, learning_rate=rate).fit(release)
    assert found.score(test_x, test_y) > least
    assert found.loss_curve_[-1] < 0.5 * found.loss_curve_[0]
    np.testing.assert_allclose(found.predict_proba(test_x).sum(axis=1), 1, rtol=1e-5)


def coefficients(release: ReleasedDataset, **options: Any) -> NDArray[np.float32]:
    model = GeneralizedKLClassifier(**{"epochs": 3, **options}).fit(release)
    return np.concatenate([array.ravel() for array in model._arrays().values()])


def test_negative_labels_count_as_zero() -> None:
    release = mixed_digits()
    assert (release.y < 0).any()
    cut = replace(release, y=np.maximum(release.y, 0))
    np.testing.assert_array_equal(coefficients(release), coefficients(cut))


def test_label_offset_is_added_back_before_the_cut() -> None:
    release = mixed_digits()
    centred = replace(release, y=release.y - np.float32(0.125), label_offset=0.125)
    np.testing.assert_allclose(coefficients(centred), coefficients(release), atol=1e-4)


def test_the_seed_alone_decides() -> None:
    release = mixed_digits()
    state = torch.random.get_rng_state()
    first = coefficients(release, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(99)
    np.testing.assert_array_equal(coefficients(release, seed=1), first)
    assert np.abs(coefficients(release, seed=2) - first).max() > 1e-3


@pytest.mark.parametrize(("epochs", "drops"), [(200, [80, 120, 160]), (30, [12, 18, 24]), (5, [2, 3, 4])])
def test_learning_rate_schedule(monkeypatch: pytest.MonkeyPatch, epochs: int, drops: list[int]) -> None:
    rates: list[float] = []

    def record(self: Any, network: Any, optimiser: torch.optim.Optimizer, *rest: Any) -> float:
        optimiser.step()  # torch wants one before the schedule moves
        rates.append(optimiser.param_groups[0]["lr"])
        return 0.0

    monkeypatch.setattr(GeneralizedKLClassifier, "_epoch", record)
    GeneralizedKLClassifier(epochs=epochs).fit(mixed_digits(20))
    expected = [1e-3 * 0.1 ** sum(epoch >= drop for drop in drops) for epoch in range(epochs)]
    np.testing.assert_allclose(rates, expected)


def test_every_row_is_seen_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    release = mixed_digits()
    release = replace(release, y=np.repeat(np.arange(300, dtype=np.float32)[:, None], 10, axis=1))
    seen: list[float] = []
    divergence = kl.generalised_kl

    def spy(p: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        seen.extend(p[:, 0].tolist())
        return divergence(p, logits)

    monkeypatch.setattr(kl, "generalised_kl", spy)
    GeneralizedKLClassifier(epochs=2, batch_size=128).fit(release)
    assert sorted(seen[:300]) == sorted(seen[300:]) == list(range(300))
    assert seen[:300] != seen[300:]


# The paper's 357,690 parameters are those of one channel of 32 x 32; three channels have 1,600 more.
@pytest.mark.parametrize(
    ("shape", "parameters"), [((32, 32), 357_690), ((32, 32, 1), 357_690), ((32, 32, 3), 359_290), ((28, 28), 285_690)]
)
def test_cnn_is_the_papers(shape: tuple[int, ...], parameters: int) -> None:
    release = mix(np.zeros((10, math.prod(shape))), np.arange(10), rows=1, input_shape=shape)
    network = networks.built("cnn", ReleaseFacts.of(release))
    assert sum(tensor.numel() for tensor in network.parameters()) == parameters


def test_cnn_sees_pixels_where_they_are() -> None:
    image = np.arange(4 * 8 * 3, dtype=np.float32).reshape(4, 8, 3)
    found = networks._ToImages(4, 8, 3)(torch.from_numpy(image.reshape(1, -1)))
    np.testing.assert_array_equal(found[0].numpy(), image.transpose(2, 0, 1))


def test_cnn_refuses_what_is_no_image() -> None:
    for shape in [(64,), (2, 32), (4, 4), (8, 8, 2), (2, 2, 4, 4)]:
        with refuses("input_shape"):
            GeneralizedKLClassifier("cnn", epochs=1).fit(mixed_digits(5, input_shape=shape))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "mlp"),
        ("epochs", 0),
        ("batch_size", 1.5),
        ("learning_rate", 0.0),
        ("seed", -1),
        ("epochs", "many"),
        ("standardise", 1),
    ],
)
def test_bad_parameters(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^{name}: got "):
        GeneralizedKLClassifier(**{name: value}).fit(mixed_digits(20))


def test_watched_records_change_nothing_and_their_accuracy_is_that_of_each_epoch() -> None:
    test_x, test_y = digits()[1]
    release = mixed_digits(400, degree=4, centred=True)
    watched = GeneralizedKLClassifier(epochs=4).fit(release, validation=(test_x, test_y))
    alone = GeneralizedKLClassifier(epochs=4).fit(release)
    np.testing.assert_array_equal(watched.decision_function(test_x), alone.decision_function(test_x))
    curve = watched.accuracy_curve_
    assert len(curve) == 4
    assert curve[-1] == pytest.approx(watched.score(test_x, test_y))
    assert watched.best_epoch == (int(np.argmax(curve)) + 1, max(curve))
    assert (alone.accuracy_curve_, alone.best_epoch) == ([], None)
    for features, labels in ((test_x[:, :5], test_y), (test_x, test_y[:3]), (test_x, test_y + 1)):
        with refuses("validation"):
            GeneralizedKLClassifier(epochs=1).fit(release, validation=(features, labels))


def test_standardised_columns_need_no_scale_of_their_own() -> None:
    test_x, test_y = digits()[1]
    release = mixed_digits(500, degree=1, noise=0.0, design="fixed")
    scales = np.logspace(-4, 4, 64).astype(np.float32)
    wide = replace(release, x=release.x * scales + 100 * scales, transform=RecordTransform(1e30))
    settings: dict[str, Any] = {"epochs": 40, "batch_size": 64, "learning_rate": 0.01}
    held = RecordTransform(4.0)(test_x) * scales + 100 * scales
    model = GeneralizedKLClassifier(**settings, standardise=True).fit(wide)
    assert model.score(held, test_y) > 0.85
    assert GeneralizedKLClassifier(**settings).fit(wide).score(held, test_y) < 0.7


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
