"""Everything that decides a training run, but for the data: one frozen object, with defaults that work.

Its options, and those of the configs that it holds, are the options of ``privmix train`` and of ``pm.train``: each is
said here, or in the config that owns it, and nowhere else (:mod:`privmix.options`). Importing this takes no time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from operator import not_
from typing import TYPE_CHECKING, Annotated, Any, Final

from privmix._registry import behind, literals_of, options_of
from privmix.accounting.events import Adjacency
from privmix.errors import InvalidInput, check_integer, in_terms_of
from privmix.fields import Amount, Choice, Count, Fraction, Positive, Seed, Share, Size, check_fields, read, stored
from privmix.options import described, group, groups, leaves, made, option, variants
from privmix.signatures import refuse_unknown
from privmix.training.gradients.config import FLAT, ClipNorm, ClippingKind, ExecutionConfig
from privmix.training.public.config import WARM_SCENARIOS, ExtendedConfig, Rate, Scenario, WarmUpConfig
from privmix.training.views.config import STORED, Augmentations, ViewConfig, check_augmentations, self_augmentations

if TYPE_CHECKING:
    from privmix.training.plan import TrainingPlan
    from privmix.training.trained import ModelFacts

LINEAR: Final = "linear"
DP_SGD: Final = "dp-sgd"
OWN: Final = "module"
OWN_PREFIX: Final = "torch:"
"""What a network of the user's own is called in settings, and how a text names one."""
OPTIMISERS: Final = ("sgd", "adam")
SCHEDULES: Final = ("constant", "cosine", "linear")
# Large batches keep the noise small beside the sum (De et al. 2022; Tramer and Boneh 2021): about a seventh of the
# records for a linear head, whose steps are cheap, and a twelfth for networks.
_LINEAR_SHARE: Final = 8192 / 60_000
_NETWORK_SHARE: Final = 4096 / 50_000
_ADAM_RATE: Final = 1e-3
# A record's share of a linear head's step is clipped for almost all records, so scores move by rate x C x feature norm.
# What all steps may move without noise taking over follows from n mu, mu = epsilon / sqrt(2 log(1.25 / delta)), the
# signal to noise of one query: the lesser of two powers of it (the first chosen on digits and MNIST of 700 to 60,000
# records, the second on rendered letters, docstrings, questions and MNIST at epsilon 8).
_LARGEST_RATE: Final = 16.0
_CLIP, _LENGTH, _MOMENTUM = 0.1, 16.0, 0.9
_REACHES: Final = ((0.055, 1.25), (0.87, 0.86))
_LINEAR_EPOCHS: Final = 60.0
_NETWORK_EPOCHS: Final = 50.0
# Settings come in this order since there have been certificates.
_LAST: Final = ("views", "bank_augmentations", "execution")
OF_THE_JOB: Final = frozenset(
    ("records", "records_declared", "network", "extractor", "classes", "input_shape", "dim", "device")
)
"""Of a certificate's settings, those that a training job adds to its config's."""

_PRIVACY: Final = "Privacy"
_STEPS: Final = "DP-SGD"
_VIEWS: Final = "Views and mixup"
_PUBLIC: Final = "Public data"
_RUNNING: Final = "Running"
_MECHANISMS: Final = ("privmix.training.mechanisms", "MECHANISMS.register", "privmix.training_mechanisms")


def _models(*, of_images: bool) -> str:
    kinds = [said for said in literals_of("privmix.training.models") if said["name"] != OWN]
    return ", ".join(sorted(said["called"] for said in kinds if said.get("takes_images", True) is of_images))


def named_model(given: Any) -> Any:
    """What settings call a model that is given by name, or as a ``torch.nn.Module``: its code's place is nobody's."""
    if isinstance(given, str) and not given.startswith(OWN_PREFIX):
        return given
    # A module is told by what it has: settings take no torch.
    return OWN if isinstance(given, str) or hasattr(given, "named_parameters") else given


def _own() -> str:
    return next(str(said["called"]) for said in literals_of("privmix.training.models") if said["name"] == OWN)


def _views() -> str:
    words = {said["name"]: said.get("words") for said in literals_of("privmix.training.views")}
    return "; ".join(f"{name} ({more})" if more else name for name, more in words.items())


def _mechanisms() -> str:
    return "; ".join(
        f"{said['name']} ({said.get('words', 'of another package')})" for said in literals_of(*_MECHANISMS)
    )


def _options_of_mechanisms() -> Mapping[str, type[Any]]:
    return options_of(*_MECHANISMS)


def _mechanism_names() -> Sequence[str]:
    return [*behind("privmix.training.mechanisms.base:MECHANISMS")]


@described
@dataclass(frozen=True)
class OptimiserConfig:
    """Settings of the update. All of them act on what is private already, so none costs anything.

    The average of weights is the exponential one of De et al. (2022), whose decay early on is (1 + t) / (10 + t) where
    that is less; without it the last weights are the model's.

    Example:
        >>> config = OptimiserConfig(learning_rate=2.0, schedule="cosine")
        >>> [round(config.rate(step, 100), 2) for step in (0, 50, 99)]
        [2.0, 1.0, 0.0]
    """

    name: Annotated[str, Choice(*OPTIMISERS)] = option("sgd", "sgd or adam.", name="optimiser")
    learning_rate: Rate = option(
        1.0, "Default: up to 16 linear, by n and the budget; 2 else; 0.001 with adam.", unset=True
    )
    momentum: Fraction = option(0.0, "Momentum of sgd. Default: 0.9 linear, 0 else.", unset=True)
    weight_decay: Amount = option(0.0, "L2 penalty.", nested=True)
    schedule: Annotated[str, Choice(*SCHEDULES)] = option("constant", "Learning rate: constant, cosine, linear.")
    warm_up_steps: Size = option(0, "Over which the learning rate rises linearly.", nested=True)
    ema_decay: Fraction | None = option(
        None, "Decay of the averaged weights. Default: 0.95 linear, 0.999 else.", name="ema"
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def unused(self) -> Mapping[str, str]:
        """Fields that change nothing here, and why."""
        return {"momentum": "none with `optimiser` adam"} if self.name == "adam" else {}

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
    """Settings of a run. :meth:`for_model` gives those that suit a model and a number of records.

    Example:
        >>> config = TrainingConfig.for_model("linear", records=60_000, epsilon=1.2, delta=1e-5)
        >>> config.batch_size, config.plan(60_000).steps
        (8192, 440)
    """

    epsilon: Amount = option(
        MISSING, "Target; the noise is the least that meets it. 0: the warm-up alone, without a private step."
    )
    delta: Share = option(MISSING, "Target, well below 1/n.")
    model: str = option(
        LINEAR,
        "Network: linear on any features; cnn, resnet-9, wrn-16-4 and others on images. "
        f"Any features: {_models(of_images=False)}. Images (`features` pixels): {_models(of_images=True)}. "
        f"Your own: {_own()}.",
        read=named_model,
        kind=Any,
    )
    batch_size: Count = option(256, "Expected batch. Default: about n/7 linear, n/12 else.", _STEPS, unset=True)
    epochs: Positive = option(30.0, "Expected passes. Default: 60 linear, 50 else.", _STEPS, unset=True, common=True)
    clip_norm: ClipNorm = option(
        1.0, "Bound C on the gradient of a record. Default: 0.1 linear, 1 else.", _STEPS, unset=True
    )
    clipping: ClippingKind = option(FLAT, "flat (Abadi et al.) or automatic (Bu et al.).", _STEPS)
    feature_norm: Positive | None = option(
        None, "Linear: scale features to this length. Default: 16.", _STEPS, unset=True
    )
    mechanism: Annotated[str, Choice(of=_mechanism_names)] = option(
        DP_SGD, f"How steps are made private: {_mechanisms()}.", _STEPS, where_used=True
    )
    mechanism_options: Any = variants(
        "Of the mechanism's own.", by="mechanism", called="Mechanism", options=_options_of_mechanisms, stored=False
    )
    microbatch_size: Count = option(
        1, "Records clipped together; above 1 costs sensitivity 2C.", _STEPS, name="microbatch"
    )
    microbatch_mixes: Size = option(0, "Mixed views of a microbatch, each of two of its records, beside these.", _STEPS)
    microbatch_keep: bool = option(
        True,
        "With `microbatch_mixes`: the mixes in place of the records.",
        _STEPS,
        name="microbatch_mixed_only",
        read=not_,
        kind=bool,
        shown=False,
        where_used=True,
    )
    adjacency: Adjacency = option(
        Adjacency.ADD_REMOVE,
        "What the guarantee hides: add_remove, that a record is there; replace_one, its content.",
        _PRIVACY,
    )
    optimiser: OptimiserConfig = group(OptimiserConfig, "The update.", _STEPS)
    views: ViewConfig = group(
        ViewConfig,
        f"Views of a record, as plain or dp-mix-self. One of {_views()}.",
        _VIEWS,
        word="plain",
        factory=ViewConfig.plain,
        common=True,
    )
    bank_views: Size = option(
        0, "Linear models on images: augmented copies of each; their features are extracted once.", _VIEWS, name="bank"
    )
    bank_augmentations: Annotated[Augmentations, STORED] = option((), "What makes them.", nested=True)
    scenario: Annotated[str, Choice(*Scenario)] = option(
        Scenario.COLD.value,
        "How public data help: cold, warm, warm-synthetic or extended. cold: none is used; warm, warm-synthetic: "
        "training starts from it; extended: it helps in every step.",
        _PUBLIC,
        common=True,
    )
    warm_up: WarmUpConfig = group(WarmUpConfig, "Of all scenarios but cold.", _PUBLIC, prefix="warm_up_")
    extended: ExtendedConfig = group(ExtendedConfig, "Of scenario extended.", _PUBLIC)
    execution: ExecutionConfig = group(ExecutionConfig, "Speed and memory.", _RUNNING)
    model_seed: Seed = option(0, "Initial weights and public draws; public.", _RUNNING)
    per_person: Count | None = option(
        None, "Where a person is the unit: K, records of theirs in a step.", nested=True, where_used=True
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.feature_norm is not None and self.model != LINEAR:
            raise InvalidInput("feature_norm", self.feature_norm, f"none with the model {self.model}")
        check_integer("microbatch_size", self.microbatch_size, low=1, high=self.batch_size)
        if self.execution.compile and self.microbatch_size > 1:
            # What is compiled anew for another size may round all others otherwise.
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
        """Fields that change nothing here, and why."""
        found = {}
        if self.scenario == Scenario.COLD:
            found["warm_up"] = "none with `scenario` cold, which does not use public data"
        if self.scenario != Scenario.EXTENDED:
            found["extended"] = f"none with `scenario` {self.scenario}; it is of `scenario` extended"
        return found

    @classmethod
    def for_model(
        cls,
        model: str,
        *,
        records: int,
        epsilon: float,
        delta: float,
        facts: ModelFacts | None = None,
        **given: Any,
    ) -> TrainingConfig:
        """Defaults for a model on ``records`` records, with what is given: the one place where None gets a value.

        Args:
            model: name of the model.
            records: n, public.
            epsilon: target.
            delta: target.
            facts: public facts of the data; where they are known, what is given has to fit them.
            given: options by their flat names, such as ``ema``, ``warm_up_epochs`` or ``views``, the name of a preset;
                or fields, among them whole configs, such as ``views=ViewConfig(2)``. What is None is not given.

        Raises:
            InvalidInput: a value is out of range, these don't go together, or one would change nothing.

        Example:
            >>> target = {"records": 50_000, "epsilon": 8.0, "delta": 1e-5}
            >>> config = TrainingConfig.for_model("cnn", views="dp-mix-self", ema=0.0, **target)
            >>> config.views.views, config.batch_size, config.optimiser.ema_decay
            (32, 4096, 0.0)
        """
        check_integer("records", records, low=1)
        model = named_model(model)
        flat = {leaf.name for leaf in leaves(cls)} | set(groups(cls))
        own = {item.name for item in fields(cls)} - flat
        refuse_unknown("TrainingConfig.for_model()", set(given) - flat - own, flat | own)
        said = {name: value for name, value in given.items() if value is not None}
        linear = model == LINEAR
        found = cls(
            epsilon,
            delta,
            model,
            batch_size=max(1, round((_LINEAR_SHARE if linear else _NETWORK_SHARE) * records)),
            epochs=_LINEAR_EPOCHS if linear else _NETWORK_EPOCHS,
            clip_norm=_CLIP if linear else 1.0,
            feature_norm=_LENGTH if linear else None,
            optimiser=OptimiserConfig(
                learning_rate=_ADAM_RATE if said.get("optimiser") == "adam" else _LARGEST_RATE if linear else 2.0,
                momentum=_MOMENTUM if linear else 0.0,
                ema_decay=0.95 if linear else 0.999,
            ),
        )
        by_rule = linear and "learning_rate" not in said and said.get("optimiser", "sgd") == "sgd"
        bank = said.pop("bank", 0)
        within = {name: value for name, value in said.items() if name in flat}
        found = made(found, within, {name: value for name, value in said.items() if name in own})
        if by_rule:
            found = replace(found, optimiser=replace(found.optimiser, learning_rate=found._linear_rate(records)))
        if bank:
            found = found._with_bank(bank, said)
        return found if facts is None else found._fitted(facts, said)

    def _linear_rate(self, records: int) -> float:
        """The learning rate of a linear head that n, the budget and the other settings bear."""
        signal = records * self.epsilon / math.sqrt(2 * math.log(1.25 / self.delta))
        steps = self.epochs * records / self.batch_size
        reach = min(reach * signal**growth for reach, growth in _REACHES)
        rate = min(reach / steps, _LARGEST_RATE) if self.epsilon else _LARGEST_RATE
        scale = self.clip_norm * (self.feature_norm or 1.0) / (1 - self.optimiser.momentum)
        return float(f"{rate * _CLIP * _LENGTH / (1 - _MOMENTUM) / scale:.3g}")

    def _with_bank(self, bank: int, given: Mapping[str, Any]) -> TrainingConfig:
        """What changes the views of each step makes those of the bank instead."""
        augmentations = self.views.augmentations
        if not augmentations and "augment" in given:
            raise InvalidInput("augment", given["augment"], "at least one augmentation with `bank`")
        kept = replace(self.views, augmentations=())
        with in_terms_of({"bank_views": "bank", "microbatch_size": "microbatch"}):
            copies = augmentations or self_augmentations()
            return replace(self, views=kept, bank_views=bank, bank_augmentations=copies)

    def _fitted(self, facts: ModelFacts, given: Mapping[str, Any]) -> TrainingConfig:
        """The same, for data of which these facts are public: a view has its own perturbation where nothing is said."""
        images = self.model != LINEAR and facts.layout is not None
        if self.bank_views:
            self._check_bank(facts)
        elif self.views.augmentations and not images:
            name = "augment" if "augment" in given else "views"
            allowed = "`augment` none, `bank`, or an image model with `features` pixels: features can't be augmented"
            raise InvalidInput(name, given.get(name), allowed)
        warm_up = self.warm_up
        of_images = {
            "warm_up_adversary": (warm_up.adversary, "none"),
            "warm_up_augment": (warm_up.augmentations, "none"),
            "warm_up_mixing": (warm_up.mixing == "cutmix", "mixup"),
        }
        for name, (used, other) in of_images.items():
            if used and not images and self.scenario != Scenario.COLD:
                allowed = f"{other}, or an image model with `features` pixels"
                raise InvalidInput(name, given.get(name, "a config with it"), allowed)
        if "perturbations" in given or "extended" in given:
            return self
        return replace(self, extended=replace(self.extended, perturbations=self.views.views))

    def _check_bank(self, facts: ModelFacts) -> None:
        """Raise unless a bank can be made of such records."""
        if len(facts.input_shape) not in (2, 3):
            raise InvalidInput("bank", self.bank_views, "0 for records that are no images")
        for augmentation in self.bank_augmentations:
            augmentation.check_channels(1 if len(facts.input_shape) == 2 else facts.input_shape[2])

    def plan(
        self, records: int, *, records_declared: bool = False, records_noise_multiplier: float | None = None
    ) -> TrainingPlan:
        """The calibrated plan for ``records`` records; reads no data.

        Args:
            records, records_declared, records_noise_multiplier: see :class:`privmix.training.plan.TrainingPlan`.

        Raises:
            InvalidInput: the target can't be met; the message says what could.
        """
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
        what = "model settings"
        values = {name: value for name, value in settings.items() if name not in OF_THE_JOB}
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


def _stored_names(mechanism: str, options: type[Any]) -> dict[str, str]:
    """Where a mechanism's own options stand among the settings: by their names, where no setting has these."""
    taken = {item.name for item in fields(TrainingConfig)} | OF_THE_JOB
    prefix = f"{mechanism}_".replace("-", "_")
    return {item.name: prefix + item.name if item.name in taken else item.name for item in fields(options)}


def options_of_mechanism(name: str) -> type[Any] | None:
    """The dataclass of a mechanism's own options, if it has some.

    Raises:
        InvalidInput: there is no such mechanism.
    """
    place = behind("privmix.training.mechanisms.base:MECHANISMS")[name].options
    return behind(place) if place else None
