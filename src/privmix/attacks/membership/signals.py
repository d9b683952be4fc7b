"""What an attacker reads off a model about one record: the log-odds that it gives to the record's own class."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from privmix.errors import InvalidInput, check_integer, check_number

# The least probability that float32 holds; log-odds stay within +-88.
_TINY: Final = float(np.finfo(np.float32).tiny)
_LOG_TEMPERATURES: Final = (-7.0, 7.0)


def gives_probabilities(model: Any) -> bool:
    """Whether the model has probabilities of its own (``predict_proba``), and not scores only.

    Learners on releases make theirs of scores by a temperature that the release gives them; an attacker fits one.
    """
    return hasattr(model, "predict_proba") and not hasattr(type(model), "temperature_")


def class_scores(model: Any, features: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """(n, K) logarithms of the model's probabilities, or its scores where it has none.

    Args:
        model: has ``predict_proba`` or ``decision_function``, as learners on releases, trained models and classifiers
            of scikit-learn do. A class that the model has never seen (``classes_``) has the least probability.
        features: (n, d).
        classes: K.

    Raises:
        InvalidInput: the model has neither method, or answers in another shape or with numbers that are not finite.

    Example:
        >>> from sklearn.dummy import DummyClassifier
        >>> model = DummyClassifier(strategy="prior").fit(np.zeros((4, 1)), [0, 0, 2, 0])
        >>> np.exp(class_scores(model, np.zeros((1, 1)), 3)).round(2).tolist()
        [[0.75, 0.0, 0.25]]
    """
    if gives_probabilities(model):
        probabilities = np.asarray(model.predict_proba(features), dtype=np.float64)
        found = np.log(np.clip(probabilities, _TINY, None))
        least = np.log(_TINY)
    elif hasattr(model, "decision_function"):
        found = np.asarray(model.decision_function(features), dtype=np.float64)
        if found.ndim == 1:
            # Two classes have one score, that of the second.
            found = np.stack([np.zeros_like(found), found], axis=1)
        least = float(found.min(initial=0.0))
    else:
        raise InvalidInput("model", type(model).__name__, "one with predict_proba or decision_function")
    known = np.asarray(getattr(model, "classes_", np.arange(classes)), dtype=np.int64)
    if found.shape != (len(features), len(known)) or not np.isfinite(found).all():
        raise InvalidInput("model output", found.shape, f"finite numbers of shape (n, {classes})")
    if np.array_equal(known, np.arange(classes)):
        return found
    scores = np.full((len(features), classes), least)
    scores[:, known] = found
    return scores


def fit_temperature(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """The t for which softmax(scores / t) is likeliest (temperature scaling; Guo et al. 2017).

    Learners by regression give scores near 0 and 1, which are no log-probabilities. An attacker who has records of the
    same kind, of which none need be members, can scale them so that they are.

    Args:
        scores: (n, K).
        labels: (n,).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(4000, 3))
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        >>> bool(0.08 < fit_temperature(logits / 10, labels) < 0.125)
        True
    """
    rows = np.arange(len(labels))

    def loss(log_temperature: float) -> float:
        scaled = scores / np.exp(log_temperature)
        return float((logsumexp(scaled, axis=1) - scaled[rows, labels]).mean())

    return float(np.exp(minimize_scalar(loss, bounds=_LOG_TEMPERATURES, method="bounded").x))


def true_class_logits(
    scores: NDArray[np.float64], labels: NDArray[np.int64], temperature: float = 1.0
) -> NDArray[np.float64]:
    """log(p / (1 - p)) of the probability p that each record's own class has: Carlini et al. 2022, section V.A.

    The loss is log(1 + exp(-logit)), so that one number serves all attacks. It is computed from the other classes'
    scores and not from p, which rounds to 1.

    Args:
        scores: (n, K) log-probabilities or scores, K >= 2.
        labels: (n,) in 0 .. K-1.
        temperature: scores are divided by it.

    Raises:
        InvalidInput: labels outside the classes, or a temperature that is not above 0.

    Example:
        >>> true_class_logits(np.log([[0.75, 0.25], [0.5, 0.5]]), np.array([0, 1])).round(4).tolist()
        [1.0986, 0.0]
    """
    check_number("temperature", temperature, low=0, low_open=True)
    check_integer("classes", scores.shape[1], low=2)
    if len(labels) != len(scores) or labels.min(initial=0) < 0 or labels.max(initial=0) >= scores.shape[1]:
        raise InvalidInput("labels", "labels that don't fit", f"one a record, from 0 to {scores.shape[1] - 1}")
    rows = np.arange(len(labels))
    scaled = scores / temperature
    own = scaled[rows, labels]
    scaled[rows, labels] = -np.inf
    return np.asarray(own - logsumexp(scaled, axis=1))
