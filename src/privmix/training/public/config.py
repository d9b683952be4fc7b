"""Options of public data: a warm-up before the private steps, and a method in them; importing takes no time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from privmix._registry import behind
from privmix.errors import InvalidInput, check_number
from privmix.fields import Amount, Choice, Coded, Count, Fraction, Number, Positive, Size, check_fields, read, stored
from privmix.named import varied
from privmix.options import described, option
from privmix.training.views.config import STORED, Augmentations, MixingKind, check_augmentations, read_augmentations


class Scenario(StrEnum):
    """When public data is used (Park et al. 2024, section 3).

    * ``cold``: never; training starts from the model as given.
    * ``warm``: public records warm the model up before the private phase.
    * ``warm-synthetic``: synthetic records warm it up, joined to the real public ones if there are any.
    * ``extended``: as either warm scenario, and every private step uses the same records too.
    """

    COLD = "cold"
    WARM = "warm"
    WARM_SYNTHETIC = "warm-synthetic"
    EXTENDED = "extended"


WARM_SCENARIOS: Final = (Scenario.WARM.value, Scenario.WARM_SYNTHETIC.value)
"""Scenarios that use public data before the private phase only."""
OPTIMISERS: Final = ("sgd", "sam", "asam")
SCHEDULES: Final = ("cosine", "constant")
ADVERSARY_STEPS: Final = 7
NONE: Final = "none"
METHODS_PLACE: Final = ("privmix.training.public", "METHODS.register", "privmix.public_methods")
# Weights are float32, which holds no more.
Rate = Annotated[float, Number(0, 3.4e38, low_open=True)]


def _radius(given: str | float) -> float:
    """Return a number from 0 to 1, or a fraction such as 8/255."""
    above, _, below = str(given).partition("/")
    try:
        found = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        raise InvalidInput("adversary", given, "a number from 0 to 1, or a fraction such as 8/255") from None
    return check_number("adversary", found, low=0, high=1)


@described
@dataclass(frozen=True)
class WarmUpConfig:
    """Settings of the warm-up; the defaults are those of Park et al. 2024, Table 12, for CIFAR-10.

    Radius 0.1 suits SAM (Foret et al. 2020); the authors of ASAM (Kwon et al. 2021) use 0.5 to 1. Park et al. do best
    with flips, zero-padded crops and cutout here, and flips and crops in the private phase (section 5.1, Table 3).
    Mixing pairs every public record with another one of its batch, by default with weights of Beta(1, 1). Adversarial
    examples replace images in [0, 1] (Madry et al. 2018); Park et al. (2024, E.4) find 8/255 and 2/255 to cost accuracy
    after the private phase.
    """

    epochs: Size = option(100, "Number of passes over public records.")
    batch_size: Count = option(100, "Number of records per warm-up step.")
    learning_rate: Rate = option(0.05, "Learning rate of the warm-up.")
    momentum: Fraction = option(0.9, "Momentum of sgd.")
    weight_decay: Amount = option(5e-4, "L2 coefficient, added to the gradient.")
    optimiser: Annotated[str, Choice(*OPTIMISERS)] = option("sam", "Optimiser: sgd, sam or asam.", python=True)
    rho: Positive = option(0.1, "Radius of sam or asam.")
    eta: Amount = option(0.01, "Constant that asam adds to the sizes of weights.")
    schedule: Annotated[str, Choice(*SCHEDULES)] = option(
        "cosine", "Learning-rate schedule: cosine (to 0) or constant."
    )
    augmentations: Annotated[Augmentations | None, STORED] = option(
        None,
        "Augmentations of warm-up images. Default: as the private views.",
        read=read_augmentations,
        where_used=True,
    )
    mixing: MixingKind | None = option(
        None, "Mixing of public records: mixup or cutmix. Default: neither.", where_used=True
    )
    alpha: Positive = option(1.0, "Alpha of the mixing weights, Beta(alpha, alpha).", where_used="mixing")
    adversary: Annotated[float, Number(0, 1)] = option(
        0.0, "Radius of adversarial examples, such as 8/255. Default: none.", read=_radius, where_used=True
    )
    adversary_steps: Count = option(
        ADVERSARY_STEPS, "Number of gradient ascent steps per adversarial example.", where_used="adversary"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        check_augmentations(self.augmentations or ())

    def unused(self) -> Mapping[str, str]:
        found = {}
        if self.optimiser == "sgd":
            found["rho"] = "none with sgd"
        if not self.adversary:
            found["adversary_steps"] = "none without `adversary`"
        return found

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of ``step`` (from 0) of ``steps``."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))


class _Method:
    """A name that :func:`privmix.training.public.base.parse_method` takes; ``wrong``: refused values, for tests."""

    wrong: ClassVar[tuple[Any, ...]] = ("", "no such word", "dope+dope", "none+dope", 1, True)

    def check(self, name: str, value: Any) -> None:
        from privmix.training.public.base import parse_method

        parse_method(value, name)


def _kinds_of(method: str) -> dict[str, type[Any]]:
    from privmix.training.public.base import METHODS, parse_method

    return {part: behind(METHODS[part].options) for part in parse_method(method) if METHODS[part].options}


def _by_method(options: Sequence[Any]) -> dict[str, dict[str, Any]]:
    from privmix.training.public.base import METHODS

    kinds = {behind(kind.options): kind.name for kind in METHODS.all() if kind.options}
    return {kinds[type(one)]: stored(one) for one in options}


def _from_methods(values: Mapping[str, Any]) -> tuple[Any, ...]:
    known = {name: kind for method in values for name, kind in _kinds_of(method).items()}
    return tuple(read(known[name], one, f"options of {name}") for name, one in values.items())


@described
@dataclass(frozen=True)
class ExtendedConfig:
    """Settings of extended methods; the defaults are those of Park et al. 2024, appendix C."""

    method: Annotated[str, _Method()] = option(NONE, "Name of a public-data method, or none.", python=True)
    batch_size: Count = option(64, "Number of public records per step.")
    max_norm: Positive | None = option(
        None, "Clipping bound on public gradients. Default: `clip_norm` (dope, mirror only)."
    )
    rho: Positive = option(0.1, "Radius of weight multiplicity.")
    perturbations: Count = option(16, "Number of perturbed weights (weight multiplicity). Default: one per view.")
    adaptive: bool = option(False, "Perturb weights in proportion to size (ASAM); use tenfold `rho`.")
    decay_steps: Count | None = option(None, "T0 of mirror descent. Default: the number of steps.")
    floor: Annotated[float, Number(0, 1)] = option(0.0, "Smallest private share of mirror descent.")
    moment_decay: Fraction = option(0.9, "Share of the old second moment that AdaDPS keeps.")
    damping: Positive = option(0.1, "Damping of AdaDPS, relative to the mean size.")

    method_options: Annotated[tuple[Any, ...], Coded(_by_method, _from_methods)] = option(
        (), "Options of the method.", python=True, where_used=True
    )

    def __post_init__(self) -> None:
        check_fields(self)
        kinds = list(_kinds_of(self.method).values())
        if any(type(one) not in kinds for one in self.method_options):
            found = [type(one).__name__ for one in self.method_options]
            raise InvalidInput("method_options", found, f"options of {self.method}")
        given = {type(one): one for one in self.method_options}
        object.__setattr__(self, "method_options", tuple(given.get(kind) or kind() for kind in kinds))

    @classmethod
    def read(cls, given: str | ExtendedConfig) -> tuple[ExtendedConfig, set[str]]:
        """Read ``NAME:KEY=VALUE,...``, where a key may be a method's own; return the result and the keys."""
        own = ("method_options", lambda name: list(_kinds_of(name).values()))
        return varied("public_method", given, cls, cls, own)

    def unused(self) -> Mapping[str, str]:
        from privmix.training.public.base import settings_of

        own = settings_of(self.method)
        wanted = {"rho": "multiplicity", "perturbations": "multiplicity", "adaptive": "multiplicity"}
        return {name: f"none without {method}" for name, method in wanted.items() if name not in own}

    def own(self, method: str) -> dict[str, Any]:
        kinds = list(_kinds_of(method).values())
        return {name: value for one in self.method_options if type(one) in kinds for name, value in vars(one).items()}

    def longest(self, clip_norm: float) -> float | None:
        """Length to which public gradients are cut, or None: not at all."""
        # A method whose steps go along the public gradient takes the clipping bound by default: no mean of clipped
        # gradients is longer, so the learning rate suits both. Uncut, a public gradient is several times as long.
        from privmix.training.public.base import METHODS, parse_method

        follows = any(METHODS[part].follows for part in parse_method(self.method))
        return clip_norm if self.max_norm is None and follows else self.max_norm
