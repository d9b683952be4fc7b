"""Observers of a training's progress: steps, epsilon so far, figures of public data. No other value leaves a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.nn.functional import cross_entropy

from privmix.errors import InvalidInput
from privmix.training.examples import PublicData
from privmix.training.facts import ModelFacts
from privmix.training.models.base import Classifier
from privmix.training.trained import shaped

_AT_ONCE: Final = 256


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
    """Callbacks, which are functions of :class:`Watched`, and validation data."""

    def __init__(self, callbacks: Any, validation: PublicData | None = None, facts: ModelFacts | None = None) -> None:
        several: Sequence[Any] = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
        self._callbacks: list[Callback] = [one for one in several if one is not None]
        for one in self._callbacks:
            if not callable(one):
                raise InvalidInput("callbacks", type(one).__name__, "functions of a Watched")
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
