"""What a training mechanism answers, and the registry of those that there are.

A mechanism is a folder: its plan, sampler, noise, words and worst case. The loop, certificates, verification, audits
and jobs ask it by these doors and name none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from privmix._registry import Registry
from privmix.errors import InvalidInput
from privmix.mechanisms.streams import SecretStreams
from privmix.training.batches import PoissonBatches
from privmix.training.noise import MOST_PROCESSES, WHY_NO_MORE
from privmix.training.plan import TrainingPlan

StepNoise = Callable[[Tensor, int], Tensor]
"""(sum of clipped gradients, step) -> noisy mean; the noise is a function of the key and the step."""


class Settings(Protocol):
    """What mechanisms look at of a :class:`privmix.training.config.TrainingConfig`."""

    @property
    def epsilon(self) -> float: ...
    @property
    def mechanism_options(self) -> Any: ...
    @property
    def optimiser(self) -> Any: ...


@dataclass(frozen=True)
class Words:
    """How certificates speak of a plan's steps.

    Attributes:
        batches: of statements, before the clipping.
        noise: of statements, after it.
        mechanism: of assessments: all of it, up to the noise.
        short: of plans, for people.
    """

    batches: str
    noise: str
    mechanism: str
    short: str


class TrainingMechanism(ABC):
    """One way of making private steps; a class that is never instantiated.

    Formal guarantees:
        * One plan: batches, noise and price are made from the same ``plan``, of the class :attr:`plan` and no other.
        * Noise once: :meth:`noise` gives the same noise for the same key and step, whatever was asked before.

    Attributes:
        name: as the option ``mechanism`` says it; ``MECHANISMS.register`` makes it known.
        words: what help says of it.
        called: in texts.
        plan: of its plans.
        options: where the dataclass of its own options is, ``"module:name"``, in a file that imports little, since help
            asks for it (:mod:`privmix.options`); empty: it has none. Each option has a default.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    called: ClassVar[str]
    plan: ClassVar[type[TrainingPlan]]
    options: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def planned(cls, draft: TrainingPlan, settings: Settings) -> TrainingPlan:
        """The plan of this mechanism that a draft without a price, and settings, mean.

        Raises:
            InvalidInput: the mechanism does not hold for these; the message says what to do.
        """

    @classmethod
    def options_of(cls, plan: TrainingPlan) -> Any:
        """The mechanism's own options in a config of such a plan, if it has some."""
        return None

    @classmethod
    @abstractmethod
    def noise(cls, plan: TrainingPlan, streams: SecretStreams) -> StepNoise:
        """What makes sums public, from the run's own streams."""

    @classmethod
    @abstractmethod
    def said(cls, plan: TrainingPlan, unit: str) -> Words:
        """The plan in words; ``unit``: whose gradient is clipped."""

    @classmethod
    @abstractmethod
    def scores(cls, plan: TrainingPlan, seen: NDArray[np.float64]) -> NDArray[np.float64]:
        """(3, directions) scores of an attacker who looks for a record in each direction.

        Args:
            plan: what ran.
            seen: (steps, directions) what each step shows, in clipping norms.

        Returns:
            the exact log-likelihood ratio, a linear score, and one for noise that repeats.
        """

    @classmethod
    def batches(
        cls, plan: TrainingPlan, streams: SecretStreams, records: int, first: int = 0, last: int | None = None
    ) -> PoissonBatches:
        """Who is in each step."""
        return PoissonBatches(plan, streams, records, first, last)

    @classmethod
    def check_processes(cls, plan: TrainingPlan, size: int) -> None:
        """Raise :class:`InvalidInput` unless ``size`` processes can share a run."""
        if size > MOST_PROCESSES:
            raise InvalidInput("processes", size, f"at most {MOST_PROCESSES}: {WHY_NO_MORE}")
        if size > 1 and plan.microbatch_size > 1:
            raise InvalidInput("microbatch_size", plan.microbatch_size, "1 with several processes")

    @classmethod
    def whitened(cls, plan: TrainingPlan, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """(steps, P) independent noise of ``plan.noise_std``, of the noise in the sums of the first steps."""
        return noise

    @classmethod
    def period(cls, plan: TrainingPlan) -> int:
        """In how many steps every record has had a turn."""
        return 1

    @classmethod
    def step_by_step(cls, plan: TrainingPlan) -> bool:
        """Whether the likelihood ratio is a product over steps, each of a sum with noise of its own."""
        return True


MECHANISMS: Final[Registry[type[TrainingMechanism]]] = Registry(
    "mechanism", "privmix.training.mechanisms", "privmix.training_mechanisms"
)


def mechanism_of(plan: TrainingPlan) -> type[TrainingMechanism]:
    """The mechanism that a plan is of.

    Example:
        >>> mechanism_of(TrainingPlan(1000, 50, 5, 1.0, clip_norm=1.0, delta=1e-3)).name
        'dp-sgd'
    """
    return MECHANISMS[plan.mechanism]


def plan_types() -> set[type[TrainingPlan]]:
    """Classes of plans that may run."""
    return {mechanism.plan for mechanism in MECHANISMS.all()}


def plan_from_dict(fields: Mapping[str, Any]) -> TrainingPlan:
    """A plan of any mechanism from its ``to_dict``.

    Raises:
        InvalidInput: these are not its fields.
    """
    if not isinstance(fields, Mapping):
        raise InvalidInput("plan", type(fields).__name__, "an object")
    return MECHANISMS[fields.get("mechanism", TrainingPlan.mechanism)].plan.from_dict(dict(fields))
