"""What is asked of public data: a warm-up before the private steps, and a method in them; importing takes no time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

from privmix._registry import behind, literals_of, options_of
from privmix.errors import InvalidInput, check_number
from privmix.fields import Amount, Choice, Coded, Count, Fraction, Number, Positive, Size, check_fields, read, stored
from privmix.options import described, option, options_for, variants
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
"""Those that use public data before the private phase and not in it: without that phase, public data alone are used."""
OPTIMISERS: Final = ("sgd", "sam", "asam")
SCHEDULES: Final = ("cosine", "constant")
ADVERSARY_STEPS: Final = 7
NONE: Final = "none"
_METHODS: Final = ("privmix.training.public", "METHODS.register", "privmix.public_methods")
# Weights are float32, which holds no more.
Rate = Annotated[float, Number(0, 3.4e38, low_open=True)]


def _radius(given: str | float) -> float:
    """A number from 0 to 1, or a fraction such as 8/255."""
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

    The last batch of an epoch may be smaller. Radius 0.1 suits SAM (Foret et al. 2020); the authors of ASAM (Kwon et
    al. 2021) use 0.5 to 1. Park et al. do best with flips, zero-padded crops and cutout here, and flips and crops in
    the private phase (section 5.1, Table 3). Mixing is of every public record with another one of its batch; weights of
    Beta(1, 1) are what the authors of both kinds take for small images. Adversarial examples are of images in [0, 1],
    in an l-infinity ball, in place of the images (Madry et al. 2018): Park et al. (2024, E.4) find 8/255 and 2/255 to
    cost accuracy after the private phase, and each step to them costs as much as a gradient of the weights: see
    :mod:`privmix.training.public.adversary`.

    Raises:
        InvalidInput: a value is out of range.

    Example:
        >>> WarmUpConfig(epochs=10, optimiser="sgd").rate(0, steps=4)
        0.05
    """

    epochs: Size = option(100, "Passes over public records.", unset=True)
    batch_size: Count = option(100, "Records of a step of the warm-up.", name="batch", unset=True)
    learning_rate: Rate = option(0.05, "Learning rate of the warm-up.", name="rate", unset=True)
    momentum: Fraction = option(0.9, "Of SGD.", nested=True)
    weight_decay: Amount = option(5e-4, "L2 coefficient that is added to the gradient.", nested=True)
    optimiser: Annotated[str, Choice(*OPTIMISERS)] = option("sam", "sgd, sam or asam.", unset=True)
    rho: Positive = option(0.1, "Radius of sam or asam.", unset=True)
    eta: Amount = option(0.01, "What asam adds to the sizes of weights.", nested=True)
    schedule: Annotated[str, Choice(*SCHEDULES)] = option(
        "cosine", "Of the learning rate, step by step: cosine, down to 0, or constant.", nested=True
    )
    augmentations: Annotated[Augmentations | None, STORED] = option(
        None,
        "Augmentations of the warm-up's images, as `augment`. Default: as the private views.",
        name="augment",
        read=read_augmentations,
        where_used=True,
    )
    mixing: MixingKind | None = option(
        None, "Mix public records in the warm-up: mixup or cutmix. Default: neither.", where_used=True
    )
    alpha: Positive = option(1.0, "Weights of these mixes are Beta(alpha, alpha).", nested=True, where_used="mixing")
    adversary: Annotated[float, Number(0, 1)] = option(
        0.0,
        "Train on adversarial examples in the warm-up: their radius, as in 8/255. Default: none.",
        read=_radius,
        unset=True,
        where_used=True,
    )
    adversary_steps: Count = option(
        ADVERSARY_STEPS, "Steps of gradient ascent for each adversarial example.", unset=True, where_used="adversary"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        check_augmentations(self.augmentations or ())

    def unused(self) -> Mapping[str, str]:
        """Fields that change nothing here, and why."""
        found = {}
        if self.optimiser == "sgd":
            found["rho"] = "none with `warm_up_optimiser` sgd"
        if not self.adversary:
            found["adversary_steps"] = "none without `warm_up_adversary`"
        return found

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of ``step`` (from 0) of ``steps``."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))


class _Method:
    """A name that :func:`privmix.training.public.base.parse_method` takes."""

    def check(self, name: str, value: Any) -> None:
        from privmix.training.public.base import parse_method

        parse_method(value, name)

    def wrong(self) -> Sequence[Any]:
        return ["", "no such word", "dope+dope", "none+dope", 1, True]


def _options_of_methods() -> Mapping[str, type[Any]]:
    return options_of(*_METHODS)


def _kinds_of(method: str) -> dict[str, type[Any]]:
    """The dataclass of own options of each method that has some."""
    from privmix.training.public.base import METHODS, parse_method

    return {part: behind(METHODS[part].options) for part in parse_method(method) if METHODS[part].options}


def _by_method(options: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Own options in JSON, by the method that has them."""
    from privmix.training.public.base import METHODS

    kinds = {behind(kind.options): kind.name for kind in METHODS.all() if kind.options}
    return {kinds[type(one)]: stored(one) for one in options}


def _from_methods(values: Mapping[str, Any]) -> tuple[Any, ...]:
    known = {name: kind for method in values for name, kind in _kinds_of(method).items()}
    return tuple(read(known[name], one, f"options of {name}") for name, one in values.items())


@described
@dataclass(frozen=True)
class ExtendedConfig:
    """Which extended method to use, and settings of all of them; defaults are those of Park et al. 2024, appendix C.

    Raises:
        InvalidInput: a value is out of range, or the method unknown.
    """

    method: Annotated[str, _Method()] = option(
        NONE,
        f"With extended: {', '.join(one['name'] for one in literals_of(*_METHODS))}; multiplicity+dope and so on.",
        name="public_method",
    )
    batch_size: Count = option(64, "With extended: public records a step.", name="public_batch", unset=True)
    max_norm: Positive | None = option(
        None,
        "Public gradients are cut to this length. Default: the clipping bound for dope and mirror, which step along "
        "them; never for others.",
        name="public_max_norm",
    )
    rho: Positive = option(0.1, "Radius of weight multiplicity.", unset=True)
    perturbations: Count = option(16, "Perturbed weights of weight multiplicity. Default: one a view.", unset=True)
    adaptive: bool = option(
        False,
        "Weight multiplicity: perturb each weight in proportion to its size (ASAM), which wants a `rho` ten times "
        "as large.",
        name="adaptive_multiplicity",
    )
    decay_steps: Count | None = option(None, "T0 of mirror descent. Default: the number of steps.", nested=True)
    floor: Annotated[float, Number(0, 1)] = option(0.0, "Least private share of mirror descent.", nested=True)
    moment_decay: Fraction = option(0.9, "Of AdaDPS: share of the old second moment that is kept.", nested=True)
    damping: Positive = option(0.1, "Of AdaDPS, relative to the mean size.", nested=True)

    method_options: Annotated[tuple[Any, ...], Coded(_by_method, _from_methods)] = variants(
        "Of the methods' own.",
        by="method",
        called="Public method",
        options=_options_of_methods,
        several="+",
        where_used=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)
        kinds = list(_kinds_of(self.method).values())
        if any(type(one) not in kinds for one in self.method_options):
            found = [type(one).__name__ for one in self.method_options]
            raise InvalidInput("method_options", found, f"options of {self.method}")
        object.__setattr__(self, "method_options", options_for(kinds, self.method_options))

    def unused(self) -> Mapping[str, str]:
        """Fields that change nothing here, and why."""
        from privmix.training.public.base import settings_of

        own = settings_of(self.method)
        wanted = {"rho": "multiplicity", "perturbations": "multiplicity", "adaptive": "multiplicity"}
        return {name: f"none without `public_method` {method}" for name, method in wanted.items() if name not in own}

    def own(self, method: str) -> dict[str, Any]:
        """Own options of one of the methods."""
        kinds = list(_kinds_of(method).values())
        return {name: value for one in self.method_options if type(one) in kinds for name, value in vars(one).items()}

    def longest(self, clip_norm: float) -> float | None:
        """Length to which public gradients are cut, or None: not at all.

        A method whose steps go along the public gradient takes the clipping bound where nothing is said: no mean of
        clipped gradients is longer, and a learning rate that suits these suits it. Uncut, a public gradient is several
        times as long, and steps along it leave the minimum that they should find.

        Args:
            clip_norm: of the private gradients.

        Example:
            >>> ExtendedConfig("dope").longest(0.1), ExtendedConfig("dope", max_norm=3.0).longest(0.1)
            (0.1, 3.0)
            >>> ExtendedConfig("adadps").longest(0.1) is None
            True
        """
        from privmix.training.public.base import METHODS, parse_method

        follows = any(METHODS[part].follows for part in parse_method(self.method))
        return clip_norm if self.max_norm is None and follows else self.max_norm
