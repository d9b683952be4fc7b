"""Predicted accuracy of a plan on a model of the records that is public: declared, or taken from public data.

Every design answers for its noise and every learner for what it makes of it, so that all are tried alike: what a
release would tell is drawn with the plan's noise, the learner fits it as it fits releases, and its rule classifies
records of the model. No private row is read: predictions are as public as the plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privmix.errors import InvalidInput
from privmix.learning import LEARNERS
from privmix.learning.data_model import DataModel
from privmix.plans import Plan, made_by


@dataclass(frozen=True)
class Prediction:
    """An accuracy from 0 to 1, and the learner that reaches it."""

    accuracy: float
    learner: str


def predict_accuracy(plan: Plan, model: DataModel, *, learner: str | None = None, draws: int = 3) -> Prediction:
    """What a learner of the release reaches on records of the model.

    Args:
        plan: with the noise that is to be added.
        model: the assumed records.
        learner: by name; None takes the one that ``fit`` takes for the plan's design.
        draws: of noise, to average over.

    Raises:
        InvalidInput: the learner has no forecast for such plans.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> model = DataModel.declared(dim=64, classes=2, generator=np.random.default_rng(0))
        >>> plan = ReleaseConfig(records=5000, dim=64, classes=("no", "yes"), design="moments").calibrate(4.0, 1e-5)
        >>> found = predict_accuracy(plan, model)
        >>> found.learner, 0.8 < found.accuracy < model.attainable + 0.02
        ('discriminant', True)
    """
    name = made_by(plan).learner if learner is None else learner
    kind = LEARNERS[name]
    found = []
    for seed in range(draws):
        rule = kind.forecast(plan, model, seed)
        if rule is None:
            raise InvalidInput("learner", name, f"one that can say beforehand what it makes of design {plan.design}")
        found.append(model.accuracy(*rule, seed=seed))
    linear = float(np.mean(found))
    accuracy = 1 - (1 - linear) * kind.errors_left(plan, model)
    # What no learner reaches without privacy none reaches with it.
    return Prediction(max(0.0, min(accuracy, max(linear, model.attainable))), name)
