"""Everything that decides a training run, but for the data: one frozen object, with defaults that work."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from typing import Any, Final, get_args, get_type_hints

from privmix.accounting import Adjacency
from privmix.errors import InvalidInput, check_choice, check_integer, check_number
from privmix.training.gradients.clipping import FLAT, Clipping
from privmix.training.gradients.execution import ExecutionConfig
from privmix.training.mechanisms.base import MECHANISMS
from privmix.training.optimiser import OptimiserConfig
from privmix.training.plan import TrainingPlan, plan_training
from privmix.training.public import ExtendedConfig, WarmUpConfig
from privmix.training.public.scenario import WARM_SCENARIOS
from privmix.training.views.augment import augmentations_of
from privmix.training.views.augmentation import Augmentation, check_augmentations
from privmix.training.views.pipeline import ViewConfig
from privmix.training.views.preset import views_named

LINEAR: Final = "linear"
# Large batches keep the noise small beside the sum (De et al. 2022; Tramer and Boneh 2021): about a seventh of the
# records for a linear head, whose steps are cheap, and a twelfth for networks.
_LINEAR_SHARE: Final = 8192 / 60_000
_NETWORK_SHARE: Final = 4096 / 50_000
# What a setting's text and numbers may be at most, in certificates: names of models are the longest.
_WORD: Final = re.compile(r"[0-9A-Za-z_.:,+~/ -]{0,200}")
_LARGEST: Final = 2**63
# Fields that describe themselves in settings.
_DESCRIBED: Final = ("views", "bank_augmentations", "execution")
# Settings that are stated only where they are not the default.
WHERE_USED: Final[Mapping[str, Any]] = {"microbatch_keep": True, "mechanism": TrainingPlan.mechanism, "bands": 0}
OF_THE_JOB: Final = frozenset(
    ("records", "records_declared", "network", "extractor", "classes", "input_shape", "dim", "device")
)
"""Of a certificate's settings, those that a training job adds to its config's."""


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of a run. :meth:`for_model` gives those that suit a model and a number of records.

    Attributes:
        epsilon: target; the noise is the least that meets it. 0: the warm-up alone, without a private step.
        delta: target.
        model: a name that :func:`privmix.training.models.build_model` knows.
        batch_size: B, the expected batch, public.
        epochs: expected passes over the records; may be a fraction.
        clip_norm: C.
        clipping: ``flat`` or ``automatic``.
        feature_norm: linear head: each record's features are scaled to this length, or None.
        mechanism: how batches and noise are made; see :mod:`privmix.training.mechanisms`.
        bands: of a mechanism that correlates the noise of so many steps; 0: none.
        microbatch_size: b; above 1 records are clipped in groups, at twice the sensitivity.
        microbatch_mixes: mixed views of a microbatch, each of two of its records; 0: its records as they are.
        microbatch_keep: the records of a microbatch are views too, beside its mixes; False: its mixes alone.
        adjacency: the pairs of datasets that the guarantee is about.
        optimiser: the update.
        views: what views of a record are made.
        bank_views: views of each image whose features are extracted beforehand, or 0; see
            :func:`privmix.training.views.bank.extract_bank`.
        bank_augmentations: what makes them.
        scenario: how public data is used: ``cold``, ``warm``, ``warm-synthetic`` or ``extended``.
        warm_up: of the warm scenarios.
        extended: method of the extended scenario.
        execution: strategy and chunks; no influence on what is computed.
        model_seed: of the initial weights and of all public draws; public.

    Example:
        >>> config = TrainingConfig.for_model("linear", records=60_000, epsilon=1.2, delta=1e-5)
        >>> config.batch_size, config.plan(60_000).steps
        (8192, 440)
    """

    epsilon: float
    delta: float
    model: str = LINEAR
    batch_size: int = 256
    epochs: float = 30.0
    clip_norm: float = 1.0
    clipping: str = FLAT
    feature_norm: float | None = None
    mechanism: str = TrainingPlan.mechanism
    bands: int = 0
    microbatch_size: int = 1
    microbatch_mixes: int = 0
    microbatch_keep: bool = True
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    views: ViewConfig = field(default_factory=ViewConfig.plain)
    bank_views: int = 0
    bank_augmentations: tuple[Augmentation, ...] = ()
    scenario: str = "cold"
    warm_up: WarmUpConfig = field(default_factory=WarmUpConfig)
    extended: ExtendedConfig = field(default_factory=ExtendedConfig)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    model_seed: int = 0

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, low=0)
        check_number("delta", self.delta, low=0, high=1, low_open=True, high_open=True)
        check_integer("batch_size", self.batch_size, low=1)
        check_number("epochs", self.epochs, low=0, low_open=True)
        Clipping(self.clip_norm, self.clipping)
        if self.feature_norm is not None:
            check_number("feature_norm", self.feature_norm, low=0, low_open=True)
            if self.model != LINEAR:
                raise InvalidInput("feature_norm", self.feature_norm, f"none with the model {self.model}")
        check_choice("mechanism", self.mechanism, MECHANISMS)
        check_integer("bands", self.bands, low=0)
        check_integer("microbatch_size", self.microbatch_size, low=1, high=self.batch_size)
        check_integer("microbatch_mixes", self.microbatch_mixes, low=0)
        if self.microbatch_mixes and self.microbatch_size == 1:
            raise InvalidInput("microbatch_mixes", self.microbatch_mixes, "0 without microbatches of 2 or more")
        if not self.microbatch_keep and not self.microbatch_mixes:
            raise InvalidInput("microbatch_keep", False, "True without mixes of a microbatch")
        if self.microbatch_mixes and self.views != ViewConfig.plain():
            raise InvalidInput("views", self.views.views, "one, the record: a microbatch is mixed in their place")
        check_integer("bank_views", self.bank_views, low=0)
        check_augmentations(self.bank_augmentations)
        if bool(self.bank_views) != bool(self.bank_augmentations):
            raise InvalidInput("bank_views", self.bank_views, "a number of views exactly with augmentations for them")
        if self.bank_views and self.microbatch_mixes:
            raise InvalidInput("microbatch_mixes", self.microbatch_mixes, "0 with a bank of views")
        check_integer("model_seed", self.model_seed, low=0, high=2**31 - 1)

    @classmethod
    def for_model(cls, model: str, *, records: int, epsilon: float, delta: float, **changes: Any) -> TrainingConfig:
        """Defaults for a model on ``records`` records, with ``changes``.

        Args:
            model: name of the model.
            records: n, public.
            epsilon: target.
            delta: target.
            changes: fields to set otherwise; ``views`` may be the name of a preset.
        """
        check_integer("records", records, low=1)
        if isinstance(changes.get("views"), str):
            changes["views"] = views_named(changes["views"])
        if model == LINEAR:
            found = cls(
                epsilon,
                delta,
                model,
                batch_size=max(1, round(_LINEAR_SHARE * records)),
                epochs=60.0,
                clip_norm=0.1,
                feature_norm=16.0,
                optimiser=OptimiserConfig(learning_rate=16.0, momentum=0.9, ema_decay=0.95),
            )
        else:
            found = cls(
                epsilon,
                delta,
                model,
                batch_size=max(1, round(_NETWORK_SHARE * records)),
                epochs=50.0,
                optimiser=OptimiserConfig(learning_rate=2.0, ema_decay=0.999),
            )
        return replace(found, **{name: value for name, value in changes.items() if value is not None})

    def plan(self, records: int, *, records_declared: bool = False) -> TrainingPlan:
        """The calibrated plan for ``records`` records; reads no data.

        Raises:
            InvalidInput: the target can't be met; the message says what could.
        """
        if self.epsilon == 0 and (self.scenario not in WARM_SCENARIOS or self.warm_up.epochs == 0):
            allowed = "a positive number; 0 is for the warm-up alone, in scenario warm or warm-synthetic"
            raise InvalidInput("epsilon", self.epsilon, allowed)
        return plan_training(
            records,
            epsilon=self.epsilon,
            delta=self.delta,
            batch_size=self.batch_size,
            epochs=self.epochs,
            clip_norm=self.clip_norm,
            microbatch_size=self.microbatch_size,
            adjacency=self.adjacency,
            records_declared=records_declared,
            of=lambda draft: MECHANISMS[self.mechanism].planned(draft, self),
        )

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> TrainingConfig:
        """The config that a certificate's ``settings`` describe, of whoever they come from.

        Formal guarantees:
            * Typed: each value has its field's type and is in the range that the class which owns it gives.
            * Nothing else: :meth:`settings` of the config are these, value by value.

        Raises:
            InvalidInput: these are not the settings of a model that this version trained.

        Example:
            >>> config = TrainingConfig(2.0, 1e-4, views=ViewConfig.dp_mix_self(4, 2))
            >>> TrainingConfig.from_settings(config.settings()) == config
            True
        """
        values = {name: value for name, value in settings.items() if name not in OF_THE_JOB}
        try:
            found = cls(
                **{
                    **values,
                    "adjacency": Adjacency(values["adjacency"]),
                    "optimiser": OptimiserConfig(**values["optimiser"]),
                    "views": ViewConfig.from_fingerprint(values["views"]),
                    "bank_augmentations": augmentations_of(values["bank_augmentations"]),
                    "warm_up": _warm_up_of(values["warm_up"]),
                    "extended": ExtendedConfig(**values["extended"]),
                    "execution": ExecutionConfig(**values["execution"]),
                }
            )
            again = json.loads(json.dumps(found.settings()))
        except InvalidInput:
            raise
        except (TypeError, KeyError, ValueError, AttributeError):
            raise InvalidInput("model settings", "other settings", "those of this version") from None
        check_types("model settings", found)
        if odd := sorted(name for name in {*again, *values} if again.get(name) != values.get(name)):
            raise InvalidInput("model settings", odd, "those that training writes")
        return found

    def settings(self) -> dict[str, Any]:
        """JSON values of all that decides the result; chunks don't."""
        found = {name: _plain(value) for name, value in vars(self).items() if name not in _DESCRIBED}
        for name, default in WHERE_USED.items():
            if found[name] == default:
                del found[name]
        execution = asdict(self.execution)
        execution.pop("chunk")
        bank = [augmentation.spec() for augmentation in self.bank_augmentations]
        return {**found, "views": self.views.fingerprint(), "bank_augmentations": bank, "execution": execution}


def check_types(what: str, config: Any) -> None:
    """Raise :class:`InvalidInput` unless fields of a dataclass, and of those in it, are plain values of their types.

    Example:
        >>> check_types("settings", ExecutionConfig(amp=[1.0]))
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: settings amp: got [1.0]; allowed: a bool
    """
    hints = get_type_hints(type(config))
    for item in fields(config):
        value, hint = getattr(config, item.name), hints[item.name]
        for part in value if isinstance(value, tuple) else (value,):
            if hasattr(part, "__dataclass_fields__"):
                check_types(what, part)
            elif not isinstance(part, Enum):
                _check_plain(f"{what} {item.name}", part, hint)


def _check_plain(what: str, value: Any, hint: Any) -> None:
    kinds = [kind for kind in (get_args(hint) or (hint,)) if isinstance(kind, type)]
    # An int is a float where one is meant; a bool is a number nowhere.
    fits = type(value) in kinds or (type(value) is int and float in kinds)
    if isinstance(value, str):
        fits = fits and _WORD.fullmatch(value) is not None
    elif isinstance(value, int | float):
        fits = fits and abs(value) <= _LARGEST
    if not fits:
        raise InvalidInput(what, value, " or ".join(f"a {kind.__name__}" for kind in kinds))


def _warm_up_of(settings: Mapping[str, Any]) -> WarmUpConfig:
    own = {"augmentations": augmentations_of(settings["augmentations"])} if "augmentations" in settings else {}
    return WarmUpConfig(**{**settings, **own})


def _plain(value: Any) -> Any:
    if isinstance(value, Adjacency):
        return value.value
    if isinstance(value, WarmUpConfig):
        return value.settings()
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value
