"""How victims train: the papers' settings by name, and those of a CPU."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from privmix.errors import InvalidInput, check_choice
from privmix.fields import Amount, Choice, Count, Fraction, Positive, Size, Whole, check_fields
from privmix.research.poisoning.victims.networks.base import NETWORKS

PRECISIONS: Final = ("float32", "bfloat16")


@dataclass(frozen=True)
class VictimConfig:
    """SGD on batches of shuffled records; the defaults are for 2,000 MNIST images on a CPU."""

    # `warm_up`: share of the training in which the learning rate rises linearly. `drops`: shares after each of
    # which it is divided by ten; none: it falls linearly to 0. `crops`: most pixels an image moves by. `bfloat16`
    # for the convolutions takes a third less time for all but the smallest networks.
    network: Annotated[str, Choice(*NETWORKS)] = "cnn"
    epochs: Count = 6
    batch: Annotated[int, Whole(2)] = 64
    learning_rate: Positive = 0.03
    momentum: Fraction = 0.9
    nesterov: bool = False
    weight_decay: Amount = 5e-4
    warm_up: Fraction = 0.1
    drops: tuple[float, ...] = ()
    flips: bool = False
    crops: Size = 0
    precision: Annotated[str, Choice(*PRECISIONS)] = "float32"

    def __post_init__(self) -> None:
        check_fields(self)
        if not all(0 < one < 1 for one in self.drops) or tuple(sorted(set(self.drops))) != self.drops:
            raise InvalidInput("drops", self.drops, "shares of the training in (0, 1), rising")
        if self.nesterov and not self.momentum:
            raise InvalidInput("nesterov", True, "a momentum above 0")

    @classmethod
    def named(cls, preset: str) -> "VictimConfig":
        return cls(**PRESETS[check_choice("preset", preset, PRESETS)])

    def rate(self, progress: float) -> float:
        """Return the learning rate after this share of the training, in [0, 1)."""
        if progress < self.warm_up:
            return self.learning_rate * progress / self.warm_up
        if self.drops:
            return self.learning_rate * 0.1 ** sum(progress >= share for share in self.drops)
        return self.learning_rate * (1 - progress) / (1 - self.warm_up)


# ``mnist`` and ``cifar10`` are for CPUs: 2,000 and 10,000 images; chosen on training images held out.
# Borgnia et al. 2021, A.1: backdoors, and gradient matching (Geiping et al. 2021); transfer learning as in the
# benchmark that they follow (Schwarzschild et al. 2021).
_PAPER: Final[dict[str, Any]] = {"network": "resnet18", "batch": 128, "warm_up": 0.0}
PRESETS: Final[dict[str, dict[str, Any]]] = {
    "mnist": {},
    "cifar10": {
        "network": "cnn-wide",
        "epochs": 10,
        "learning_rate": 0.05,
        "flips": True,
        "crops": 2,
        "precision": "bfloat16",
    },
    "patch-backdoor": {**_PAPER, "epochs": 80, "learning_rate": 0.1, "drops": (30 / 80, 50 / 80, 70 / 80)},
    "gradient-matching": {
        **_PAPER,
        "epochs": 40,
        "learning_rate": 0.1,
        "nesterov": True,
        "drops": (14 / 40, 24 / 40, 35 / 40),
        "flips": True,
        "crops": 4,
    },
    "transfer": {**_PAPER, "epochs": 40, "learning_rate": 0.01, "weight_decay": 2e-4, "drops": (30 / 40,)},
}
