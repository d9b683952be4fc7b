"""Observers of a training's progress: steps, epsilon so far, figures of public data. No other value leaves a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn.functional import cross_entropy

from privmix.errors import InvalidInput, MissingExtra
from privmix.training.examples import PublicData
from privmix.training.facts import ModelFacts
from privmix.training.models.base import Classifier
from privmix.training.trained import shaped

_AT_ONCE: Final = 256
ALLOWED: Final = "functions of a Watched, tensorboard:FOLDER or mlflow:EXPERIMENT"


@dataclass(frozen=True)
class Watched:
    """Public figures for callbacks after a step.

    Formal guarantees:
        * Public: nothing in it is computed from a private record but by way of weights that the plan makes private.
        * An upper bound: ``epsilon`` is the accountant's bound for the steps so far, and at most the target.

    Attributes:
        step: completed steps, from 1.
        steps: steps in all.
        epsilon: spent so far, at ``delta``.
        delta: of the plan.
        metrics: ``"validation/accuracy"`` and ``"validation/loss"`` of public ``validation`` data, if any, of the
            current model.
    """

    step: int
    steps: int
    epsilon: float
    delta: float
    metrics: Mapping[str, float] = field(default_factory=dict)


Callback = Callable[[Watched], object]


class Watch:
    """Callbacks (a function of :class:`Watched`, ``tensorboard:FOLDER``, ``mlflow:EXPERIMENT``) and validation data."""

    def __init__(self, callbacks: Any, validation: PublicData | None = None, facts: ModelFacts | None = None) -> None:
        several: Sequence[Any] = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
        self._callbacks = [_callback(one) for one in several if one is not None]
        if validation is not None and not self._callbacks:
            raise InvalidInput("validation", "public data", "none without `callbacks`, which use them")
        self._validation, self._facts = validation, facts

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def tell(self, step: int, steps: int, epsilon: float, delta: float, network: Classifier) -> None:
        """Call each; ``network`` holds the weights that a model would have now."""
        seen = Watched(step, steps, epsilon, delta, self._metrics(network))
        for callback in self._callbacks:
            callback(seen)

    @torch.no_grad()
    def _metrics(self, network: Classifier) -> dict[str, float]:
        if self._validation is None:
            return {}
        assert self._facts is not None
        device, training = next(network.parameters()).device, network.training
        network.eval()
        loss = right = 0.0
        x, targets = self._validation.x, self._validation.targets
        for part, wanted in zip(torch.split(x, _AT_ONCE), torch.split(targets, _AT_ONCE), strict=True):
            logits = network(shaped(part.to(device), network, self._facts)).float()
            loss += float(cross_entropy(logits, wanted.to(device), reduction="sum"))
            right += float((logits.argmax(1) == wanted.to(device).argmax(1)).sum())
        network.train(training)
        return {"validation/accuracy": right / len(x), "validation/loss": loss / len(x)}


def _callback(one: Any) -> Callback:
    if isinstance(one, str):
        kind, _, place = one.partition(":")
        if kind not in _NAMED or not place:
            raise InvalidInput("callbacks", one, ALLOWED)
        return _NAMED[kind](place)
    if not callable(one):
        raise InvalidInput("callbacks", type(one).__name__, ALLOWED)
    found: Callback = one
    return found


class TensorBoard:
    """A callback that writes ``epsilon`` and the public metrics, by step, for TensorBoard."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("tensorboard", "tensorboard") from None
        self._folder, self._writer = str(folder), SummaryWriter
        self._made: Any = None

    def __call__(self, seen: Watched) -> None:
        if self._made is None:
            self._made = self._writer(self._folder)
        self._made.add_scalar("epsilon", seen.epsilon, seen.step)
        for name, value in seen.metrics.items():
            self._made.add_scalar(name, value, seen.step)
        # A run may end at any time.
        self._made.flush()
        if seen.step == seen.steps:
            self._made.close()


class MLflow:
    """A callback that logs ``epsilon`` and the public metrics, by step, to MLflow.

    Parameters are ``delta`` and ``steps``. Its MLflow run begins with the first step and ends with the last; a resumed
    training logs to another one. A training whose server cannot be reached stops, and can be resumed. ``address`` None
    is MLflow's choice (``MLFLOW_TRACKING_URI``).
    """

    def __init__(self, experiment: str, address: str | None = None) -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise MissingExtra("mlflow-skinny", "mlflow") from None
        self._experiment, self._address, self._client_of = experiment, address, MlflowClient
        self._client: Any = None
        self._run = ""

    def __call__(self, seen: Watched) -> None:
        if self._client is None:
            self._begin(seen)
        for name, value in {"epsilon": seen.epsilon, **seen.metrics}.items():
            self._client.log_metric(self._run, name, value, step=seen.step)
        if seen.step == seen.steps:
            self._client.set_terminated(self._run)
            self._client = None

    def _begin(self, seen: Watched) -> None:
        self._client = self._client_of(tracking_uri=self._address)
        found = self._client.get_experiment_by_name(self._experiment)
        own = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        self._run = self._client.create_run(own).info.run_id
        for name, value in {"steps": seen.steps, "delta": seen.delta}.items():
            self._client.log_param(self._run, name, value)


_NAMED: Final[Mapping[str, Callable[[str], Callback]]] = {"tensorboard": TensorBoard, "mlflow": MLflow}
