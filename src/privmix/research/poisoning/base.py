"""The protocols of attacks and defences. Each is a frozen dataclass in a file of its own, which its registry finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol, Self, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from privmix.errors import InvalidInput
from privmix.fields import Checked
from privmix.plugins import Registry
from privmix.research.poisoning.images import Images, Poisoned
from privmix.research.poisoning.scene import Scene
from privmix.research.poisoning.threat import ThreatModel


class Model(Protocol):
    """What a trainer hands out, and all that is measured of it."""

    def predict(self, pixels: NDArray[np.float32]) -> NDArray[np.int64]:
        """(n, C, H, W) -> (n,) classes."""
        ...


class _Named(Checked):
    """A frozen dataclass that is called ``name`` or ``name:value,value``, its fields in their order."""

    name: ClassVar[str]

    @classmethod
    def of(cls, arguments: str) -> Self:
        """Made from what stands behind the colon.

        Raises:
            InvalidInput: too many values, or one that is no number where a number belongs.
        """
        types = get_type_hints(cls)
        wanted = [one.name for one in fields(cls) if one.init]  # type: ignore[arg-type]
        given = arguments.split(",") if arguments else []
        if len(given) > len(wanted):
            shape = f"{cls.name}:{','.join(wanted)}" if wanted else f"{cls.name} alone"
            raise InvalidInput(cls.name, arguments, f"at most {len(wanted)} values: {shape}")
        return cls(**{one: _typed(one, text, types[one]) for one, text in zip(wanted, given, strict=False)})

    def __str__(self) -> str:
        """As it is called: ``name``, with the values of its fields unless all have their defaults."""
        made = [one for one in fields(self) if one.init]  # type: ignore[arg-type]
        if all(getattr(self, one.name) == one.default for one in made):
            return self.name
        return f"{self.name}:{','.join(f'{getattr(self, one.name)}' for one in made)}"


class Attack(_Named, ABC):
    """Makes poisoned records of clean ones.

    Subclasses are frozen dataclasses; their fields are their settings, with the paper's values, or those of the
    miniature, as defaults, and their docstrings say which.

    Attributes:
        name: as it is called; ``ATTACKS.register`` makes it known.
        about: one line for help, with the paper.
        setting: ``scratch``: the victim trains a whole network; ``transfer``: the last layer on a frozen, public
            extractor, which the attacker has.
        adapts: whether it can train through a defence that it knows.
    """

    about: ClassVar[str]
    setting: ClassVar[str] = "scratch"
    adapts: ClassVar[bool] = False

    @abstractmethod
    def threat(self, scene: Scene, records: int, *, knows_defence: bool) -> ThreatModel:
        """What it may do with a budget of ``records``.

        Raises:
            InvalidInput: it can't be done with these images or with as many records.
        """

    @abstractmethod
    def craft(self, scene: Scene, threat: ThreatModel, defence: Defence | None) -> Poisoned:
        """Poison the records of ``scene.train``.

        Args:
            scene: the trial; all randomness comes from ``scene.generator(purpose)``.
            threat: what :meth:`threat` returned.
            defence: what the attacker trains through; None unless ``threat.knows_defence``.
        """


ATTACKS: Final[Registry[type[Attack]]] = Registry(
    "poisoning attack", "privmix.research.poisoning.poisons", "privmix.poisoning_attacks"
)


@dataclass(frozen=True, eq=False)
class Case:
    """What a defender has: records, some of which may be poisoned, and an idea of how many.

    Attributes:
        records: to train on.
        scene: for its victim (how networks are trained) and its randomness. What a defender does not have is not in it:
            its ``train`` are ``records``, it has no test images, and its classes and drawn image are -1.
        budget: number of poisoned records that the defender reckons with.
        clean_records: how many there were before the attack, which is public.
    """

    records: Images
    scene: Scene = field(repr=False)
    budget: int
    clean_records: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clean_records", len(self.scene.train))
        nothing = self.scene.test.take(slice(0))
        known = replace(self.scene, train=self.records, test=nothing, wanted=-1, source=-1, drawn=-1)
        object.__setattr__(self, "scene", known)

    @cached_property
    def undefended(self) -> Any:
        """The victim's own model, made of the records as they are: what filters look at. Trained once for all."""
        return self.scene.victim.fit(self.records, seed=self.scene.number_for("training"))


@dataclass(frozen=True, eq=False)
class Defended:
    """A model, and which of the records it was made of (None: of all)."""

    model: Model
    kept: NDArray[np.bool_] | None = None


class Defence(_Named, ABC):
    """Makes a model of records that may be poisoned.

    Attributes:
        name: as it is called; ``DEFENCES.register`` makes it known.
        about: one line for help, with the paper.
    """

    about: ClassVar[str]

    def check(self, records: Images) -> None:
        """Raise unless such records can be defended; before anything is trained.

        Raises:
            InvalidInput: images too small, too few records, ...
        """

    @abstractmethod
    def train(self, case: Case) -> Defended:
        """Train with the defence in place; randomness from ``case.scene.generator``."""

    def bound(self, clean_success: float, poisoned: int, how: str, records: Images) -> float:
        """Most that the probability of success can be, as the defence guarantees; 1.0 where it guarantees nothing.

        Args:
            clean_success: (an upper bound on) the probability of success without poison.
            poisoned: number of poisoned records.
            how: ``changed`` or ``inserted``.
            records: the clean ones. No more of them is used than what is public: number, shape and classes.
        """
        return 1.0

    @property
    def guarantees(self) -> str | None:
        """What it guarantees, in a few words with epsilon and delta; None where it guarantees nothing."""
        return None


DEFENCES: Final[Registry[type[Defence]]] = Registry(
    "defence", "privmix.research.poisoning.defences", "privmix.poisoning_defences"
)


class Augmentation(Defence):
    """A defence that changes the batches of an ordinary training, in ways that gradients pass through.

    Attackers who know it train through the same function.

    Attributes:
        stands_last: its loss is more than that of its changed batch, so that no other change can come behind it.
    """

    stands_last: ClassVar[bool] = False

    def apply(
        self, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> tuple[Tensor, Tensor]:
        """One batch as the network is to see it.

        Args:
            pixels: (b, C, H, W) in [0, 1].
            targets: (b, K) probabilities of classes.
            generator: the only source of randomness, on the device of the pixels.
            progress: share of the training that is done, in [0, 1): some defences start late.
        """
        return pixels, targets

    def loss(
        self, network: Any, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> Tensor:
        """The batch's mean loss, which training makes small."""
        pixels, targets = self.apply(pixels, targets, generator, progress)
        return functional.cross_entropy(network(pixels), targets)

    def change_gradients(self, parameters: Sequence[nn.Parameter], generator: torch.Generator) -> None:
        """Change the gradient of the batch's loss in place, before the step is made.

        Args:
            parameters: what is trained, each with its gradient.
            generator: the only source of randomness, on the device of the parameters.
        """

    def train(self, case: Case) -> Defended:
        victim = case.scene.victim
        return Defended(victim.fit(case.records, seed=case.scene.number_for("training"), augmentation=self))


class Filter(Defence):
    """A defence that looks at a network trained on all records, drops some, and trains anew on the rest."""

    @abstractmethod
    def keep(self, case: Case) -> NDArray[np.bool_]:
        """(n,) which records stay; ``case.undefended`` is the network to look at."""

    def train(self, case: Case) -> Defended:
        kept = self.keep(case)
        left = case.records.take(kept)
        if len(np.unique(left.labels)) < 2:
            raise InvalidInput("defence", self.name, "one that leaves records of two classes or more")
        return Defended(case.scene.victim.fit(left, seed=case.scene.number_for("training")), kept)


def parse_attack(text: str) -> Attack:
    """An attack by its name, as ``patch-backdoor`` or ``patch-backdoor:6``.

    Raises:
        InvalidInput: no such attack, or values that it does not take.
    """
    name, _, arguments = text.partition(":")
    return ATTACKS[name].of(arguments)


def parse_defence(text: str) -> Defence:
    """A defence by its name, as ``none``, ``mixup:4``; augmentations can be joined, as ``mixup:4+noise:16``.

    Raises:
        InvalidInput: no such defence, values that it does not take, or a pair that can't be joined.
    """
    parts = []
    for one in text.split("+"):
        name, _, arguments = one.partition(":")
        parts.append(DEFENCES[name].of(arguments))
    if len(parts) == 1:
        return parts[0]
    augmentations = [one for one in parts if isinstance(one, Augmentation)]
    if len(augmentations) < len(parts):
        alone = next(one for one in parts if not isinstance(one, Augmentation))
        raise InvalidInput("defence", text, f"{alone.name} alone: only changes of batches can be joined")
    for part in augmentations[:-1]:
        if part.stands_last:
            raise InvalidInput("defence", text, f"{part.name} behind the others")
    return Joined(tuple(augmentations))


@dataclass(frozen=True)
class Joined(Augmentation):
    """Augmentations one after the other, as ``mixup:4+noise:16``; the last one's loss is the loss."""

    parts: tuple[Augmentation, ...]
    name: ClassVar[str] = "joined"
    about: ClassVar[str] = "several changes of batches, one after the other"

    def __str__(self) -> str:
        return "+".join(str(one) for one in self.parts)

    def check(self, records: Images) -> None:
        for one in self.parts:
            one.check(records)

    def apply(
        self, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> tuple[Tensor, Tensor]:
        for one in self.parts:
            pixels, targets = one.apply(pixels, targets, generator, progress)
        return pixels, targets

    def loss(
        self, network: Any, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> Tensor:
        for one in self.parts[:-1]:
            pixels, targets = one.apply(pixels, targets, generator, progress)
        return self.parts[-1].loss(network, pixels, targets, generator, progress)

    def change_gradients(self, parameters: Sequence[nn.Parameter], generator: torch.Generator) -> None:
        for one in self.parts:
            one.change_gradients(parameters, generator)


def _typed(field_name: str, text: str, kind: Any) -> Any:
    if kind is str:
        return text
    try:
        return kind(text)
    except (TypeError, ValueError):
        raise InvalidInput(field_name, text, "a whole number" if kind is int else "a number") from None
