"""DPClassifier behaves as scikit-learn's classifiers do, and declares what it must not infer."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import privmix as pm
from privmix.accounting import epsilon, event_from_dict
from privmix.errors import NotPrivateWarning
from privmix.mechanisms.streams import SecretStreams
from privmix.training.classifier import DPClassifier
from privmix.training.models.networks import LinearHead
from privmix.training.views.config import ViewConfig
from tests.refusals import refuses


def blobs(n: int = 1500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    x = rng.normal(size=(n, 6)) + 3 * np.eye(3, 6)[y]
    return x, np.array(["ant", "bee", "cat"])[y]


def small(**changes: object) -> DPClassifier:
    return DPClassifier(**{"epsilon": 4.0, "classes": ["ant", "bee", "cat"], "epochs": 10, **changes})  # type: ignore[arg-type]


def test_fitted_weights_meet_the_target_by_pld() -> None:
    x, y = blobs()
    model = small().fit(x, y)
    guarantee = model.model_.certificate["guarantee"]
    again = epsilon(event_from_dict(model.model_.certificate["event"]), guarantee["delta"]).epsilon
    assert again == pytest.approx(model.epsilon_)
    assert model.epsilon_ <= 4.0
    assert model.score(x, y) > 0.8
    assert set(model.predict(x)) <= {"ant", "bee", "cat"}
    assert np.allclose(model.predict_proba(x).sum(axis=1), 1, atol=1e-5)


def test_classes_are_declared_and_never_inferred() -> None:
    x, y = blobs(50)
    with refuses("classes"):
        DPClassifier().fit(x, y)
    with refuses("y"):
        small(classes=["ant", "bee"]).fit(x, y)
    with refuses("classes"):
        small(classes=y).fit(x, y)
    said = set()
    for longest in ("a", "a" * 9):
        with refuses("x") as refused:
            small().fit(np.array([["a"], [longest]]), y[:2])
        said.add(str(refused.value))
    assert len(said) == 1


def test_a_class_without_records_stays_a_class() -> None:
    x, y = blobs(300)
    model = small(classes=["ant", "bee", "cat", "dog"]).fit(x, y)
    assert model.predict_proba(x).shape == (300, 4)


def test_images_and_views() -> None:
    digits = load_digits()
    x, y = digits.images[:400] / 16, digits.target[:400]
    model = DPClassifier(
        8.0,
        classes=range(10),
        model="wrn-10-1",
        input_shape=(8, 8),
        epochs=0.5,
        batch_size=40,
        views=ViewConfig.dp_mix_self(2, 1),
    ).fit(x, y, streams=SecretStreams.from_seed(0))
    assert model.predict(x).dtype == np.int64
    assert model.model_.certificate["insecure_seed"]


def test_noise_makes_no_probability_sure() -> None:
    """Weights that are noise alone, however large, say little; what they say of which class is larger stays."""
    head = LinearHead(dim=40, classes=5, norm=16.0)
    assert head.temperature == 1
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(500, 40, generator=rng)
    with torch.no_grad():
        for size in (10.0, 1000.0):
            head.head.weight.copy_(size * torch.randn(5, 40, generator=rng))
            chances = (head.temperature * head(x)).softmax(dim=1)
            # Logits with a standard deviation of 3.
            assert 0.5 < float(chances.max(dim=1).values.mean()) < 0.95
            assert (chances.argmax(dim=1) == head(x).argmax(dim=1)).all()
        head.head.weight.mul_(1e-6)
    assert head.temperature == 1


def test_probabilities_are_in_the_order_of_sorted_classes() -> None:
    """As scikit-learn's scorers take them, however classes were declared."""
    rng = np.random.default_rng(5)
    y = np.where(rng.random(300) < 0.5, "well", "ill")
    X = np.where(y == "ill", 1.0, -1.0)[:, None] * np.ones((1, 3)) + rng.normal(0, 0.1, (300, 3))
    found = DPClassifier(epsilon=50, delta=1e-3, classes=["well", "ill"]).fit(X, y)
    assert found.classes_.tolist() == ["ill", "well"]
    assert (found.predict(X) == y).mean() > 0.9
    assert (found.predict_proba(X)[y == "ill", 0] > 0.5).mean() > 0.9


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda x, y: small(settings={"epochs": 5}).fit(x, y), "settings"),
        (lambda x, y: small(class_weight="balanced"), "class_weight"),
        (lambda x, y: small().fit(x, y, sample_weight=np.ones(len(x))), "sample_weight"),
        (lambda x, y: small(settings={"class_weight": "balanced"}).fit(x, y), "class_weight"),
        (lambda x, y: pm.train((x, y), epsilon=1, delta=1e-3, classes=2, class_weight=[1, 2]), "class_weight"),
    ],
)
def test_what_others_take_is_refused_with_a_way(call: Any, field: str) -> None:
    with refuses(field):
        call(*blobs(60))


@pytest.mark.parametrize(
    ("call", "near"),
    [
        (lambda x, y: small(epoch=1), "epochs"),
        (lambda x, y: small().fit(x, y, stream=None), "streams"),
        (lambda x, y: small(settings={"batchsize": 1}).fit(x, y), "batch_size"),
    ],
)
def test_another_name_is_refused_with_the_nearest(call: Any, near: str) -> None:
    with pytest.raises(TypeError, match=f"did you mean {near}"):
        call(*blobs(60))


def test_steps_that_learn_before_it_are_warned_of() -> None:
    x, y = blobs(60)
    with pytest.warns(NotPrivateWarning, match="StandardScaler before a DPClassifier"):
        make_pipeline(StandardScaler(), small(epochs=1)).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotPrivateWarning)
        make_pipeline(FunctionTransformer(np.tanh), "passthrough", small(epochs=1)).fit(x, y)
        small(epochs=1).fit(StandardScaler().fit_transform(x), y)


def test_tensors_of_two_bytes_are_taken() -> None:
    x, y = blobs(60)
    for kind in (torch.bfloat16, torch.float16):
        tensor = torch.tensor(x).to(kind)
        model = small(epochs=1).fit(tensor, y)
        assert np.array_equal(model.predict(tensor), model.predict(tensor.float().numpy()))
