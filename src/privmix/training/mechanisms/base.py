"""Interface of training mechanisms (a file each: plan, sampler, noise, words, worst case), and their registry."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from privmix._registry import Registry
from privmix.errors import InvalidInput
from privmix.mechanisms.streams import SecretStreams
from privmix.training.plan import TrainingPlan

StepNoise = Callable[[Tensor, int], Tensor]
"""(sum of clipped gradients, step) -> noisy mean; the noise is a function of the key and the step."""


@dataclass(frozen=True)
class Words:
    """Texts of certificates about a plan's steps: ``batches`` before the clipping, ``noise`` after it."""

    batches: str
    noise: str
    mechanism: str
    short: str


class TrainingMechanism(ABC):
    """One way of making private steps; a class that is never instantiated.

    Formal guarantees:
        * One plan: noise and price are made from the same ``plan``, of the class :attr:`plan` and no other.
        * Noise once: :meth:`noise` gives the same noise for the same key and step, after any earlier calls. Audits read
          the noise of different steps as independent.
    """

    # name: of the option ``mechanism``. words: its help. called: its name in texts. options: ``"module:name"`` of the
    # dataclass of its own options, or empty. Help imports that module, which must be quick (:mod:`privmix.options`).

    name: ClassVar[str]
    words: ClassVar[str]
    called: ClassVar[str]
    plan: ClassVar[type[TrainingPlan]]
    options: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A mechanism of another package may be older: its own batches would be priced and never drawn.
        if "batches" in vars(cls):
            raise TypeError(f"{cls.__name__}.batches: batches are Poisson samples in every training mechanism")

    @classmethod
    @abstractmethod
    def planned(cls, draft: TrainingPlan, settings: Any) -> TrainingPlan:
        """Return this mechanism's plan of an unpriced draft and settings; raise where it does not fit them."""

    @classmethod
    def options_of(cls, plan: TrainingPlan) -> Any:
        """Return the mechanism's own options in a config of such a plan, if it has some."""
        return None

    @classmethod
    @abstractmethod
    def noise(cls, plan: TrainingPlan, streams: SecretStreams) -> StepNoise:
        """Return the noise that makes sums public, from the run's own streams."""

    @classmethod
    @abstractmethod
    def said(cls, plan: TrainingPlan, unit: str) -> Words:
        """Return the plan in words; ``unit``: whose gradient is clipped."""

    @classmethod
    @abstractmethod
    def scores(cls, plan: TrainingPlan, seen: NDArray[np.float64]) -> NDArray[np.float64]:
        """(3, directions) attack scores of ``seen`` (steps, directions), in clipping norms."""
        # The exact log-likelihood ratio, a linear score, and one for noise that repeats.


MECHANISMS: Final[Registry[type[TrainingMechanism]]] = Registry(
    "mechanism",
    "privmix.training.mechanisms",
    "privmix.training_mechanisms",
    ended={"banded": "dp-sgd: correlated noise was removed; a model with it needs the privmix version that trained it"},
)


def mechanism_of(plan: TrainingPlan) -> type[TrainingMechanism]:
    return MECHANISMS[plan.mechanism]


def plan_types() -> set[type[TrainingPlan]]:
    return {mechanism.plan for mechanism in MECHANISMS.all()}


def plan_from_dict(fields: Mapping[str, Any]) -> TrainingPlan:
    """Return a plan of any mechanism from its ``to_dict``; raise for other fields."""
    # A certificate may come from a stranger, so its plan can be any JSON value.
    if not isinstance(fields, Mapping):
        raise InvalidInput("plan", type(fields).__name__, "an object")
    return MECHANISMS[fields.get("mechanism", TrainingPlan.mechanism)].plan.from_dict(dict(fields))
