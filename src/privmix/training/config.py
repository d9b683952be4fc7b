"""All settings of a training run: one frozen object, with defaults that work. Help imports it: it must be quick."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

from privmix._registry import behind, literals_of, options_of
from privmix.accounting.events import Adjacency
from privmix.errors import InvalidInput, check_choice, check_integer, in_terms_of
from privmix.fields import Amount, Choice, Count, Fraction, Positive, Seed, Share, Size, check_fields, read, stored
from privmix.named import options_in, varied
from privmix.options import described, option, refuse_unknown, said
from privmix.training.gradients.config import (
    AUTO,
    FLAT,
    STRATEGIES,
    STRATEGY_HELP,
    ClipNorm,
    ClippingKind,
    ExecutionConfig,
)
from privmix.training.public.config import (
    METHODS_PLACE,
    NONE,
    WARM_SCENARIOS,
    ExtendedConfig,
    Rate,
    Scenario,
    WarmUpConfig,
)
from privmix.training.views.config import STORED, Augmentations, ViewConfig, check_augmentations, self_augmentations

if TYPE_CHECKING:
    from privmix.training.examples import ModelFacts
    from privmix.training.plan import TrainingPlan

LINEAR: Final = "linear"
DP_SGD: Final = "dp-sgd"
OWN: Final = "module"
OWN_PREFIX: Final = "torch:"
"""Prefix, in settings and texts, of a network of the user's own."""
OPTIMISERS: Final = ("sgd", "adam")
SCHEDULES: Final = ("constant", "cosine", "linear")
# Large batches keep the noise small compared with the sum (De et al. 2022; Tramer and Boneh 2021). They are about a
# seventh of the records for a linear head, whose steps are cheap, and a twelfth for networks.
_LINEAR_SHARE: Final = 8192 / 60_000
_NETWORK_SHARE: Final = 4096 / 50_000
_ADAM_RATE: Final = 1e-3
# A record's share of a linear head's step is clipped for almost all records, so scores move by rate x C x feature norm.
# The limit for all steps, before noise takes over, follows from the signal to noise of one query, n mu, mu = epsilon /
# sqrt(2 log(1.25 / delta)). It is the lesser of two powers of n mu. The first was chosen on digits and MNIST of 700 to
# 60,000 records, the second on rendered letters, docstrings, questions and MNIST at epsilon 8.
_LARGEST_RATE: Final = 16.0
_CLIP, _LENGTH, _MOMENTUM = 0.1, 16.0, 0.9
_REACHES: Final = ((0.055, 1.25), (0.87, 0.86))
_LINEAR_EPOCHS: Final = 60.0
_NETWORK_EPOCHS: Final = 50.0
# Settings come in this order since there have been certificates.
_LAST: Final = ("views", "bank_augmentations", "execution")
# Ghost clipping, which certificates of earlier versions may name.
_EARLIER_STRATEGY: Final = "ghost"
OF_THE_JOB: Final = frozenset(
    ("records", "records_declared", "network", "extractor", "classes", "input_shape", "dim", "device")
)
"""Settings in a certificate that a training job adds to those of its config."""
OPTIONS: Final = {
    "microbatch_size": "microbatch",
    "bank_views": "bank",
    "extended": "public_method",
    "execution": "strategy",
}
"""Field -> option, where they have two names."""

_PRIVACY: Final = "Privacy"
_STEPS: Final = "DP-SGD"
_VIEWS: Final = "Views and mixup"
_PUBLIC: Final = "Public data"
_RUNNING: Final = "Running"
MECHANISMS_PLACE: Final = ("privmix.training.mechanisms", "MECHANISMS.register", "privmix.training_mechanisms")


def named_model(given: Any) -> Any:
    """Name in settings of a model given by name, or as a ``torch.nn.Module``: the place of its code is withheld."""
    if isinstance(given, str) and not given.startswith(OWN_PREFIX):
        return given
    # A module is recognised by its attributes: settings take no torch.
    return OWN if isinstance(given, str) or hasattr(given, "named_parameters") else given


def _mechanism_names() -> Sequence[str]:
    return [*behind("privmix.training.mechanisms.base:MECHANISMS")]


def _named(variants: Sequence[Mapping[str, Any]], otherwise: str = "") -> str:
    words = {one["name"]: one.get("words", otherwise) for one in variants}
    return "; ".join(f"{name} ({more})" if more else name for name, more in words.items())


@described
@dataclass(frozen=True)
class OptimiserConfig:
    """Settings of the update. They act on private results only, so none costs privacy.

    The average of weights is the exponential one of De et al. (2022), whose decay early on is (1 + t) / (10 + t) where
    that is less; without it the last weights are the model's.
    """

    name: Annotated[str, Choice(*OPTIMISERS)] = option("sgd", "Optimiser: sgd or adam.", python=True)
    learning_rate: Rate = option(1.0, "Learning rate. Default: by n and budget (linear), 2, or 0.001 (adam).")
    momentum: Fraction = option(0.0, "Momentum of sgd. Default: 0.9 linear, 0 else.")
    weight_decay: Amount = option(0.0, "L2 penalty on the weights.")
    schedule: Annotated[str, Choice(*SCHEDULES)] = option(
        "constant", "Learning-rate schedule: constant, cosine or linear."
    )
    warm_up_steps: Size = option(0, "Steps over which the learning rate rises linearly.")
    ema_decay: Fraction | None = option(None, "Decay of the averaged weights. Default: 0.95 linear, 0.999 else.")

    def __post_init__(self) -> None:
        check_fields(self)

    def unused(self) -> Mapping[str, str]:
        return {"momentum": "none with adam"} if self.name == "adam" else {}

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of ``step``, from 0, of a run of ``steps``."""
        if step < self.warm_up_steps:
            return self.learning_rate * (step + 1) / self.warm_up_steps
        done = (step - self.warm_up_steps) / max(1, steps - self.warm_up_steps)
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
        return self.learning_rate * (1 - done) if self.schedule == "linear" else self.learning_rate


@described
@dataclass(frozen=True)
class TrainingConfig:
    """Settings of a run. :meth:`for_model` gives those that suit a model and a number of records."""

    epsilon: Amount = option(MISSING, "Target epsilon, met with the least noise; 0: public warm-up only.")
    delta: Share = option(MISSING, "Target delta, well below 1/n.")
    model: str = option(
        LINEAR,
        "Network: linear on any features; cnn, resnet-9, wrn-16-4 on images.",
        common=True,
        names=", ".join(str(one["called"]) for one in literals_of("privmix.training.models")),
    )
    batch_size: Count = option(256, "Expected batch size. Default: about n/7 linear, n/12 else.", _STEPS)
    epochs: Positive = option(30.0, "Expected number of epochs. Default: 60 linear, 50 else.", _STEPS, common=True)
    clip_norm: ClipNorm = option(1.0, "Clipping bound on record gradients, C. Default: 0.1 linear, 1 else.", _STEPS)
    clipping: ClippingKind = option(FLAT, "Clipping: flat (Abadi et al.) or automatic (Bu et al.).", _STEPS)
    feature_norm: Positive | None = option(None, "Feature norm after scaling (linear models). Default: 16.", _STEPS)
    mechanism: Annotated[str, Choice(of=_mechanism_names)] = option(
        DP_SGD,
        "Mechanism that makes steps private.",
        _STEPS,
        names=_named(literals_of(*MECHANISMS_PLACE), "of another package"),
        where_used=True,
    )
    mechanism_options: Any = option(None, "Options of the mechanism.", stored=False)
    microbatch_size: Count = option(1, "Number of records clipped together; above 1, sensitivity is 2C.", _STEPS)
    microbatch_mixes: Size = option(0, "Number of additional mixes of two records per microbatch.", _STEPS)
    microbatch_keep: bool = option(
        True, "Keep the records next to `microbatch_mixes`; False: mixes alone.", where_used=True
    )
    adjacency: Adjacency = option(
        Adjacency.ADD_REMOVE,
        "Neighbouring datasets: add_remove (one extra record) or replace_one (one changed record).",
        _PRIVACY,
    )
    optimiser: OptimiserConfig = field(
        default_factory=OptimiserConfig, metadata=said("Optimiser: sgd or adam. Default: sgd.", _STEPS)
    )
    views: ViewConfig = field(
        default_factory=ViewConfig,
        metadata=said(
            "Views of a record, such as plain or dp-mix-self. Default: plain.",
            _VIEWS,
            names=_named(literals_of("privmix.training.views")),
            common=True,
        ),
    )
    bank_views: Size = option(0, "Number of augmented copies of each image (linear models).", _VIEWS)
    bank_augmentations: Annotated[Augmentations, STORED] = option((), "Augmentations of the copies.")
    scenario: Annotated[str, Choice(*Scenario)] = option(
        Scenario.COLD.value, "Use of public data: cold (none), warm, warm-synthetic or extended.", _PUBLIC, common=True
    )
    warm_up: WarmUpConfig = field(
        default_factory=WarmUpConfig,
        metadata=said("Optimiser of the public warm-up: sgd, sam or asam. Default: sam.", _PUBLIC),
    )
    extended: ExtendedConfig = field(
        default_factory=ExtendedConfig,
        metadata=said(
            "Method that uses public data in every step (scenario extended).",
            _PUBLIC,
            names=", ".join(one["name"] for one in literals_of(*METHODS_PLACE)) + "; multiplicity+dope and so on",
        ),
    )
    execution: ExecutionConfig = field(
        default_factory=ExecutionConfig, metadata=said(f"{STRATEGY_HELP} Default: auto.", _RUNNING, names=STRATEGIES)
    )
    model_seed: Seed = option(0, "Public seed of initial weights and public draws.", _RUNNING)
    per_person: Count | None = option(None, "Number of a person's records in a step, K.", where_used=True)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.feature_norm is not None and self.model != LINEAR:
            raise InvalidInput("feature_norm", self.feature_norm, f"none with the model {self.model}")
        check_integer("microbatch_size", self.microbatch_size, low=1, high=self.batch_size)
        if self.execution.compile and self.microbatch_size > 1:
            # Code that is compiled again for another size may round all others otherwise.
            raise InvalidInput("compile", True, "left out with `microbatch_size` above 1, whose groups differ in size")
        if self.microbatch_mixes and self.microbatch_size == 1:
            raise InvalidInput("microbatch_mixes", self.microbatch_mixes, "0 without `microbatch_size` of 2 or more")
        if not self.microbatch_keep and not self.microbatch_mixes:
            raise InvalidInput("microbatch_mixes", 0, "1 or more, since `microbatch_keep` leaves out the records")
        if self.microbatch_mixes and self.views != ViewConfig.plain():
            raise InvalidInput("views", self.views.views, "one, the record: a microbatch is mixed in their place")
        check_augmentations(self.bank_augmentations)
        if bool(self.bank_views) != bool(self.bank_augmentations):
            raise InvalidInput("bank_views", self.bank_views, "a number of views exactly with augmentations for them")
        if self.bank_views and self.microbatch_mixes:
            raise InvalidInput("microbatch_mixes", self.microbatch_mixes, "0 with `bank_views`")
        kind = options_of_mechanism(self.mechanism)
        if kind is not None and self.mechanism_options is None:
            object.__setattr__(self, "mechanism_options", kind())
        if not isinstance(self.mechanism_options, kind or type(None)):
            found = type(self.mechanism_options).__name__
            raise InvalidInput("mechanism_options", found, f"{kind.__name__ if kind else None} of {self.mechanism}")

    def unused(self) -> Mapping[str, str]:
        found = {}
        if self.scenario == Scenario.COLD:
            found["warm_up"] = "none with `scenario` cold, which does not use public data"
        if self.scenario != Scenario.EXTENDED:
            found["extended"] = f"none with `scenario` {self.scenario}; it is of `scenario` extended"
        return found

    @classmethod
    def for_model(
        cls, model: str, *, records: int, epsilon: float, delta: float, facts: ModelFacts | None = None, **given: Any
    ) -> TrainingConfig:
        """Return defaults for a model, with ``given`` applied: the one place where None gets a value."""
        # given: fields, or options of ``privmix.train`` (:data:`OPTIONS`); None is not given.
        check_integer("records", records, low=1)
        known = {item.name for item in fields(cls)} | set(OPTIONS.values())
        refuse_unknown("TrainingConfig.for_model()", set(given) - known, known)
        names = {own: option for own, option in OPTIONS.items() if option in given}
        fields_of = {option: own for own, option in names.items()}
        values = {fields_of.get(name, name): value for name, value in given.items() if value is not None}
        with in_terms_of(names):
            return cls._for(named_model(model), records, {"epsilon": epsilon, "delta": delta, **values}, facts)

    @classmethod
    def _for(cls, model: str, records: int, given: dict[str, Any], facts: ModelFacts | None) -> TrainingConfig:
        linear = model == LINEAR

        def update(name: str) -> OptimiserConfig:
            rate = _ADAM_RATE if name == "adam" else _LARGEST_RATE if linear else 2.0
            return OptimiserConfig(name, rate, _MOMENTUM if linear else 0.0, ema_decay=0.95 if linear else 0.999)

        optimiser, rated = varied("optimiser", given.get("optimiser", "sgd"), OptimiserConfig, update)
        views, viewed = varied("views", given.get("views", "plain"), ViewConfig, ViewConfig.named)
        warm_up = given.get("warm_up", WarmUpConfig())
        extended, widened = ExtendedConfig.read(given.get("extended", NONE))
        execution = given.get("execution", ExecutionConfig())
        bank = 0 if "bank_augmentations" in given else given.get("bank_views", 0)
        usual = {
            "batch_size": max(1, round((_LINEAR_SHARE if linear else _NETWORK_SHARE) * records)),
            "epochs": _LINEAR_EPOCHS if linear else _NETWORK_EPOCHS,
            "clip_norm": _CLIP if linear else 1.0,
            "feature_norm": _LENGTH if linear else None,
        }
        made = {
            "optimiser": optimiser,
            "views": views,
            "warm_up": varied("warm_up", warm_up, WarmUpConfig, lambda name: WarmUpConfig(optimiser=name))[0],
            "extended": extended,
            "execution": varied("strategy", execution, ExecutionConfig, ExecutionConfig)[0],
            **_mechanism(given.get("mechanism", DP_SGD)),
            **({"bank_views": 0} if bank else {}),
        }
        if "mechanism_options" in given:
            made["mechanism_options"] = given["mechanism_options"]
        if not isinstance(adjacency := given.get("adjacency", Adjacency.ADD_REMOVE), Adjacency):
            made["adjacency"] = Adjacency(check_choice("adjacency", adjacency, [one.value for one in Adjacency]))
        found = cls(model=model, **{**usual, **given, **made})
        for name, why in found.unused().items():
            if isinstance(given.get(name), str) and given[name] != NONE:
                raise InvalidInput(name, given[name], why)
        if linear and optimiser.name == "sgd" and "learning_rate" not in rated:
            found = replace(found, optimiser=replace(optimiser, learning_rate=found._linear_rate(records)))
        if bank:
            # The changes of each step's views become those of the bank.
            copies = views.augmentations
            if not copies and "augmentations" in viewed:
                raise InvalidInput("views augmentations", "none", "at least one augmentation with `bank`")
            views, copies = replace(views, augmentations=()), copies or self_augmentations()
            found = replace(found, views=views, bank_views=bank, bank_augmentations=copies)
        if facts is not None:
            found._check_facts(facts)
            if "perturbations" not in widened:
                found = replace(found, extended=replace(extended, perturbations=found.views.views))
        return found

    def _linear_rate(self, records: int) -> float:
        """Return the learning rate of a linear head that n, the budget and the other settings bear."""
        signal = records * self.epsilon / math.sqrt(2 * math.log(1.25 / self.delta))
        steps = self.epochs * records / self.batch_size
        reach = min(reach * signal**growth for reach, growth in _REACHES)
        rate = min(reach / steps, _LARGEST_RATE) if self.epsilon else _LARGEST_RATE
        scale = self.clip_norm * (self.feature_norm or 1.0) / (1 - self.optimiser.momentum)
        return float(f"{rate * _CLIP * _LENGTH / (1 - _MOMENTUM) / scale:.3g}")

    def _check_facts(self, facts: ModelFacts) -> None:
        images = self.model != LINEAR and facts.layout is not None
        if self.bank_views:
            if len(facts.input_shape) not in (2, 3):
                raise InvalidInput("bank", self.bank_views, "0 for records that are no images")
            for augmentation in self.bank_augmentations:
                augmentation.check_channels(1 if len(facts.input_shape) == 2 else facts.input_shape[2])
        elif self.views.augmentations and not images:
            allowed = "no augmentations, `bank`, or an image model with `features` pixels: features can't be augmented"
            raise InvalidInput("views", [one.name for one in self.views.augmentations], allowed)
        warm_up = self.warm_up
        of_images = {
            "adversary": (warm_up.adversary, "none"),
            "augmentations": (warm_up.augmentations, "none"),
            "mixing": (warm_up.mixing == "cutmix" and "cutmix", "mixup"),
        }
        for name, (used, other) in of_images.items():
            if used and not images and self.scenario != Scenario.COLD:
                raise InvalidInput(f"warm_up {name}", used, f"{other}, or an image model with `features` pixels")

    def plan(
        self, records: int, *, records_declared: bool = False, records_noise_multiplier: float | None = None
    ) -> TrainingPlan:
        """Return the calibrated plan for that many records, from public numbers; raise if no noise will do."""
        from privmix.training.mechanisms.base import MECHANISMS
        from privmix.training.plan import plan_training

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
            per_person=self.per_person,
            records_noise_multiplier=records_noise_multiplier,
            of=lambda draft: MECHANISMS[self.mechanism].planned(draft, self),
        )

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> TrainingConfig:
        """Rebuild the config that a certificate's ``settings`` describe; the certificate may be a stranger's.

        Formal guarantees:
            * Typed: each value has its field's type and is in the range that the class which owns it gives.
            * Nothing else: :meth:`settings` of the config are these, value by value. A strategy of earlier versions is
              ``auto`` here: it computed the same sums.
        """
        what = "model settings"
        values = {name: value for name, value in settings.items() if name not in OF_THE_JOB}
        execution = values.get("execution")
        if isinstance(execution, Mapping) and execution.get("strategy") == _EARLIER_STRATEGY:
            values["execution"] = {**execution, "strategy": AUTO}
        kind = options_of_mechanism(values.get("mechanism", DP_SGD))
        names = {} if kind is None else _stored_names(values.get("mechanism", DP_SGD), kind)
        own = {name: values.pop(place) for name, place in names.items() if place in values}
        found = read(cls, values, what)
        return found if kind is None else replace(found, mechanism_options=read(kind, own, what))

    def settings(self) -> dict[str, Any]:
        """JSON values of all that decides the result; chunks don't."""
        found: dict[str, Any] = {}
        for name, value in stored(self).items():
            found[name] = value
            if name == "mechanism" and self.mechanism_options is not None:
                names = _stored_names(self.mechanism, type(self.mechanism_options))
                found |= {names[one]: value for one, value in stored(self.mechanism_options).items()}
        return {name: found[name] for name in [*(name for name in found if name not in _LAST), *_LAST]}


def _mechanism(given: Any) -> dict[str, Any]:
    """Return the fields for a mechanism: its options, or ``NAME:KEY=VALUE,...``."""
    if not isinstance(given, str):
        name = next((name for name, kind in options_of(*MECHANISMS_PLACE).items() if type(given) is kind), None)
        if name is None:
            raise InvalidInput("mechanism", given, "NAME, NAME:KEY=VALUE,..., or a mechanism's options")
        return {"mechanism": name, "mechanism_options": given}
    name, _, rest = given.partition(":")
    kind = options_of_mechanism(name)
    own = options_in("mechanism", rest, *([kind] if kind else []), of=name)
    with in_terms_of(part="mechanism"):
        return {"mechanism": name, **({"mechanism_options": kind(**own)} if kind else {})}


def _stored_names(mechanism: str, options: type[Any]) -> dict[str, str]:
    """Names of a mechanism's own options among the settings: their own names, where no setting has these."""
    taken = {item.name for item in fields(TrainingConfig)} | OF_THE_JOB
    prefix = f"{mechanism}_".replace("-", "_")
    return {item.name: prefix + item.name if item.name in taken else item.name for item in fields(options)}


def options_of_mechanism(name: str) -> type[Any] | None:
    """Return the dataclass of a mechanism's own options, or None; raise for an unknown mechanism."""
    place = behind("privmix.training.mechanisms.base:MECHANISMS")[name].options
    return behind(place) if place else None
