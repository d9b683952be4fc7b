"""The protocols of attacks and defences. Each is a frozen dataclass in a file of its own, which its registry finds."""

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
from privmix.research.poisoning.images import Poisoned, VictimImages
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.threat import ThreatModel


class VictimModel(Protocol):
    """The interface of a trainer's result, and all that is measured of it."""

    def predict(self, pixels: NDArray[np.float32]) -> NDArray[np.int64]:
        """(n, C, H, W) -> (n,) classes."""
        ...


class _Named(Checked):
    """A frozen dataclass that is called ``name`` or ``name:value,value``, its fields in their order."""

    name: ClassVar[str]

    @classmethod
    def of(cls, arguments: str) -> Self:
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
    """Makes poisoned records of clean ones; a frozen dataclass whose fields are its settings."""

    # `about` is a line for help, with the paper. `setting` "scratch": the victim trains a whole network;
    # "transfer": the last layer on a frozen, public extractor, which the attacker has. `adapts`: it can train
    # through a known defence.
    about: ClassVar[str]
    setting: ClassVar[str] = "scratch"
    adapts: ClassVar[bool] = False

    @abstractmethod
    def threat(self, scene: PoisoningScene, records: int, *, knows_defence: bool) -> ThreatModel:
        """Return the threat model with a budget of `records`; raises InvalidInput if images or budget do not do."""

    @abstractmethod
    def craft(self, scene: PoisoningScene, threat: ThreatModel, defence: "Defence | None") -> Poisoned:
        """Poison the records of `scene.train`; all randomness comes from `scene.generator(purpose)`."""
        # `defence`: what the attacker trains through; None unless `threat.knows_defence`.


ATTACKS: Final[Registry[type[Attack]]] = Registry(
    "poisoning attack", "privmix.research.poisoning.poisons", "privmix.poisoning_attacks"
)


@dataclass(frozen=True, eq=False)
class Case:
    """A defender's view: records, some of which may be poisoned, and how many poisons to reckon with."""

    # `scene` serves its victim and its randomness. It lacks all that a defender does not have: its `train` are
    # `records`, it has no test images, and its classes and drawn image are -1. `clean_records`: before the attack,
    # public.
    records: VictimImages
    scene: PoisoningScene = field(repr=False)
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

    model: VictimModel
    kept: NDArray[np.bool_] | None = None


class Defence(_Named, ABC):
    """Makes a model of records that may be poisoned; `about` is a line for help, with the paper."""

    about: ClassVar[str]

    def check(self, records: VictimImages) -> None:
        """Raise InvalidInput, before anything is trained, unless such records can be defended."""

    @abstractmethod
    def train(self, case: Case) -> Defended:
        """Train with the defence in place; randomness from ``case.scene.generator``."""

    def bound(self, clean_success: float, poisoned: int, how: str, records: VictimImages) -> float:
        """Return the guaranteed most that the probability of success can be; 1.0 without a guarantee."""
        # `clean_success` bounds the probability of success without poison. Only number, shape and classes of the clean
        # records are used, which are public.
        return 1.0

    @property
    def guarantees(self) -> str | None:
        """Its guarantee, in a few words with epsilon and delta; None where there is no guarantee."""
        return None


DEFENCES: Final[Registry[type[Defence]]] = Registry(
    "defence", "privmix.research.poisoning.defences", "privmix.poisoning_defences"
)


class DefenceAugmentation(Defence):
    """A defence that changes the batches of an ordinary training, in ways that gradients pass through."""

    # Attackers who know it train through the same function. `stands_last`: its loss is more than that of its
    # changed batch, so that no other change can follow it.
    stands_last: ClassVar[bool] = False

    def apply(
        self, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> tuple[Tensor, Tensor]:
        """One batch as the network sees it: pixels (b, C, H, W) in [0, 1], targets (b, K) probabilities."""
        # `generator`, on the device of the pixels, is the only source of randomness; `progress` is the share of
        # training done.
        return pixels, targets

    def loss(
        self, network: Any, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> Tensor:
        pixels, targets = self.apply(pixels, targets, generator, progress)
        return functional.cross_entropy(network(pixels), targets)

    def change_gradients(self, parameters: Sequence[nn.Parameter], generator: torch.Generator) -> None:
        """Change the gradient of the batch's loss in place, before the step is made."""

    def train(self, case: Case) -> Defended:
        victim = case.scene.victim
        return Defended(victim.fit(case.records, seed=case.scene.number_for("training"), augmentation=self))


class DefenceFilter(Defence):
    """A defence that looks at a network trained on all records, drops some, and trains again on the rest."""

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
    """Return an attack by its name, as ``patch-backdoor`` or ``patch-backdoor:6``."""
    name, _, arguments = text.partition(":")
    return ATTACKS[name].of(arguments)


def parse_defence(text: str) -> Defence:
    """Return a defence by its name, as ``none``, ``mixup:4``; augmentations can be joined, as ``mixup:4+noise:16``."""
    parts = []
    for one in text.split("+"):
        name, _, arguments = one.partition(":")
        parts.append(DEFENCES[name].of(arguments))
    if len(parts) == 1:
        return parts[0]
    augmentations = [one for one in parts if isinstance(one, DefenceAugmentation)]
    if len(augmentations) < len(parts):
        alone = next(one for one in parts if not isinstance(one, DefenceAugmentation))
        raise InvalidInput("defence", text, f"{alone.name} alone: only changes of batches can be joined")
    for part in augmentations[:-1]:
        if part.stands_last:
            raise InvalidInput("defence", text, f"{part.name} after the others")
    return Joined(tuple(augmentations))


@dataclass(frozen=True)
class Joined(DefenceAugmentation):
    """Augmentations one after the other, as ``mixup:4+noise:16``; the last one's loss is the loss."""

    parts: tuple[DefenceAugmentation, ...]
    name: ClassVar[str] = "joined"
    about: ClassVar[str] = "several changes of batches, one after the other"

    def __str__(self) -> str:
        return "+".join(str(one) for one in self.parts)

    def check(self, records: VictimImages) -> None:
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
