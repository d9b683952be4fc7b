"""DPClassifier behaves as scikit-learn's classifiers do, and declares what it must not infer."""

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
from privmix.errors import InvalidInput, NotPrivateWarning
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
    # A class without records stays a class.
    assert small(classes=["ant", "bee", "cat", "dog"], epochs=1).fit(x, y).predict_proba(x).shape == (1500, 4)


def test_classes_are_declared_and_never_inferred() -> None:
    x, y = blobs(50)
    for classes, field in ((None, "classes"), (["ant", "bee"], "y"), (y, "classes")):
        with refuses(field):
            small(classes=classes).fit(x, y)
    said = set()
    for longest in ("a", "a" * 9):
        with refuses("x") as refused:
            small().fit(np.array([["a"], [longest]]), y[:2])
        said.add(str(refused.value))
    assert len(said) == 1


def test_images_and_views() -> None:
    x, y = load_digits().images[:400] / 16, load_digits().target[:400]
    given = {"model": "wrn-10-1", "input_shape": (8, 8), "views": ViewConfig.dp_mix_self(2, 1)}
    model = small(classes=range(10), epochs=0.5, batch_size=40, **given).fit(x, y)
    assert model.predict(x).dtype == np.int64


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
    found = DPClassifier(epsilon=50, delta=1e-3, classes=["well", "ill"]).fit(X, y, streams=SecretStreams.from_seed(0))
    assert found.model_.certificate["insecure_seed"]
    assert found.classes_.tolist() == ["ill", "well"]
    assert (found.predict(X) == y).mean() > 0.9
    assert (found.predict_proba(X)[y == "ill", 0] > 0.5).mean() > 0.9


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, y: small(settings={"epochs": 5}).fit(x, y), "^settings: "),
        (lambda x, y: small(class_weight="balanced"), "^class_weight: "),
        (lambda x, y: small().fit(x, y, sample_weight=np.ones(len(x))), "^sample_weight: "),
        (lambda x, y: small(settings={"class_weight": "balanced"}).fit(x, y), "^class_weight: "),
        (lambda x, y: pm.train((x, y), epsilon=1, delta=1e-3, classes=2, class_weight=[1, 2]), "^class_weight: "),
        (lambda x, y: small(epoch=1), "did you mean epochs"),
        (lambda x, y: small().fit(x, y, stream=None), "did you mean streams"),
        (lambda x, y: small(settings={"batchsize": 1}).fit(x, y), "did you mean batch_size"),
    ],
)
def test_what_others_take_and_other_names_are_refused_with_a_way(call: Any, words: str) -> None:
    with pytest.raises((InvalidInput, TypeError), match=words):
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
