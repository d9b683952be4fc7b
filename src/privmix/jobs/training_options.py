"""What a DP-SGD run is to be, in one flat table of options: those of ``privmix train`` and of :func:`privmix.train`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from privmix import training
from privmix.accounting import Adjacency
from privmix.errors import InvalidInput, check_choice, check_number

LINEAR: Final = "linear"
# Where views need augmentations and none are named.
_AUGMENTATIONS: Final = "flip,crop"
# Far above any rate that trains, and far below what float32 can't hold.
_HIGHEST_RATE: Final = 1e30
_ADAM_RATE: Final = 1e-3
# Options of the warm-up -> its fields.
_WARM_UP: Final = {
    "warm_up_epochs": "epochs",
    "warm_up_rate": "learning_rate",
    "warm_up_optimiser": "optimiser",
    "warm_up_augment": "augmentations",
    "warm_up_mixing": "mixing",
}
_PRIVACY, _DP_SGD, _VIEWS, _PUBLIC, _RUNNING = "Privacy", "DP-SGD", "Views and mixup", "Public data", "Running"


def _option(default: Any, panel: str, text: str) -> Any:
    return field(default=default, metadata={"help": text, "panel": panel})


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of a DP-SGD run. What is None takes the model's own default; ``help`` is in each field's metadata.

    Attributes:
        adjacency: what the guarantee hides: ``add_remove``, that a record is there; ``replace_one``, its content.
        epochs: expected passes; 60 for the linear model, 50 for others.
        batch_size: expected batch; about n/7 linear, n/12 else.
        clip_norm: bound C on the gradient of a record; 0.1 linear, 1 else.
        clipping: ``flat`` (Abadi et al. 2016) or ``automatic`` (Bu et al. 2023).
        optimiser: ``sgd`` or ``adam``.
        learning_rate: 16 linear, 2 else; 0.001 with adam.
        momentum: of sgd; 0.9 linear, 0 else.
        schedule: of the learning rate: ``constant``, ``cosine`` or ``linear``.
        ema: decay of the averaged weights; 0.95 linear, 0.999 else.
        feature_norm: linear: features are scaled to this length; 16.
        microbatch: records clipped together; above 1 costs sensitivity 2C.
        microbatch_mixes: mixed views of a microbatch, beside its records.
        microbatch_mixed_only: these in place of the records.
        views: ``plain``; ``self-aug`` (De et al. 2022); ``dp-mix-self``, ``dp-mix-diff`` (Bao et al. 2023; the latter
            needs a pool); ``pure-diff``.
        k_base: augmented copies of a record.
        k_self: mixes of two views.
        k_diff: public examples from the pool.
        augment: with commas: flip, crop, jitter, affine, cutout, noise, blur, sobel, all; or none.
        mixing: ``mixup`` or ``cutmix``.
        alpha: mixing weights are Beta(alpha, alpha).
        bank: linear on images: features of so many augmented copies of each, extracted once.
        scenario: of public data: ``cold``: none is used; ``warm``, ``warm-synthetic``: training starts from it;
            ``extended``: it helps in every step.
        public_method: with extended: ``multiplicity``, ``dope``, ``mirror``, ``adadps``; ``multiplicity+dope``, ...
        public_batch: with extended: public records a step; 64.
        rho: radius of weight multiplicity; 0.1.
        perturbations: of weight multiplicity; one a view.
        warm_up_epochs: passes over public records; 100.
        warm_up_rate: learning rate of the warm-up; 0.05.
        warm_up_optimiser: ``sgd``, ``sam`` or ``asam``; sam.
        warm_up_augment: of the warm-up's images, as ``augment``; as the private views.
        warm_up_mixing: mix public records in the warm-up: ``mixup`` or ``cutmix``; neither.
        strategy: ``auto`` (measured), ``loop``, ``vmap``, ``ghost``, ``closed-form``: speed only.
        chunk: records computed at once; what fits.
        amp: bfloat16 forward passes.
        compile: ``torch.compile``.
        model_seed: initial weights and public draws; public.

    Example:
        >>> options = TrainingOptions(views="dp-mix-self", k_base=4)
        >>> config = options.config("cnn", records=50_000, epsilon=8.0, delta=1e-5, on_images=True)
        >>> config.views.views, config.batch_size
        (20, 4096)
    """

    adjacency: str = _option(
        Adjacency.ADD_REMOVE.value,
        _PRIVACY,
        "What the guarantee hides: add_remove, that a record is there; replace_one, its content.",
    )
    epochs: float | None = _option(None, _DP_SGD, "Expected passes. Default: 60 linear, 50 else.")
    batch_size: int | None = _option(None, _DP_SGD, "Expected batch. Default: about n/7 linear, n/12 else.")
    clip_norm: float | None = _option(
        None, _DP_SGD, "Bound C on the gradient of a record. Default: 0.1 linear, 1 else."
    )
    clipping: str = _option("flat", _DP_SGD, "flat (Abadi et al.) or automatic (Bu et al.).")
    optimiser: str = _option("sgd", _DP_SGD, "sgd or adam.")
    learning_rate: float | None = _option(None, _DP_SGD, "Default: 16 linear, 2 else; 0.001 with adam.")
    momentum: float | None = _option(None, _DP_SGD, "Of sgd. Default: 0.9 linear, 0 else.")
    schedule: str = _option("constant", _DP_SGD, "Learning rate: constant, cosine, linear.")
    ema: float | None = _option(None, _DP_SGD, "Decay of the averaged weights. Default: 0.95 linear, 0.999 else.")
    feature_norm: float | None = _option(None, _DP_SGD, "Linear: scale features to this length. Default: 16.")
    microbatch: int = _option(1, _DP_SGD, "Records clipped together; above 1 costs sensitivity 2C.")
    microbatch_mixes: int = _option(0, _DP_SGD, "Mixed views of a microbatch, beside its records.")
    microbatch_mixed_only: bool = _option(False, _DP_SGD, "With `microbatch_mixes`: these in place of the records.")
    views: str = _option(
        "plain",
        _VIEWS,
        "plain; self-aug (De et al.); dp-mix-self, dp-mix-diff (DP-Mix; the latter with `pool`); pure-diff.",
    )
    k_base: int | None = _option(None, _VIEWS, "Augmented copies of a record.")
    k_self: int | None = _option(None, _VIEWS, "Mixes of two views.")
    k_diff: int | None = _option(None, _VIEWS, "Public examples from `pool`.")
    augment: str | None = _option(
        None,
        _VIEWS,
        "With commas: flip, crop, jitter, affine, cutout, noise, blur, sobel, all; or none. "
        "Default: flip,crop with such views or `bank`.",
    )
    mixing: str = _option("mixup", _VIEWS, "mixup or cutmix.")
    alpha: float = _option(0.2, _VIEWS, "Mixing weights are Beta(alpha, alpha).")
    bank: int = _option(0, _VIEWS, "Linear on images: features of so many augmented copies of each, extracted once.")
    scenario: str = _option(
        "cold",
        _PUBLIC,
        "cold: none is used; warm, warm-synthetic: training starts from it; extended: it helps in every step.",
    )
    public_method: str = _option(
        "none", _PUBLIC, "With extended: multiplicity, dope, mirror, adadps; multiplicity+dope and so on."
    )
    public_batch: int | None = _option(None, _PUBLIC, "With extended: public records a step. Default: 64.")
    rho: float | None = _option(None, _PUBLIC, "Radius of weight multiplicity. Default: 0.1.")
    perturbations: int | None = _option(None, _PUBLIC, "Of weight multiplicity. Default: one a view.")
    warm_up_epochs: int | None = _option(None, _PUBLIC, "Passes over public records. Default: 100.")
    warm_up_rate: float | None = _option(None, _PUBLIC, "Learning rate of the warm-up. Default: 0.05.")
    warm_up_optimiser: str | None = _option(None, _PUBLIC, "sgd, sam or asam. Default: sam.")
    warm_up_augment: str | None = _option(
        None, _PUBLIC, "Of the warm-up's images, as `augment`. Default: as the private views."
    )
    warm_up_mixing: str | None = _option(
        None, _PUBLIC, "Mix public records in the warm-up: mixup or cutmix. Default: neither."
    )
    strategy: str = _option("auto", _RUNNING, "auto (measured), loop, vmap, ghost, closed-form: speed only.")
    chunk: int | None = _option(None, _RUNNING, "Records computed at once. Default: what fits.")
    amp: bool = _option(False, _RUNNING, "bfloat16 forward passes.")
    compile: bool = _option(False, _RUNNING, "torch.compile.")
    model_seed: int = _option(0, _RUNNING, "Initial weights and public draws; public.")

    @classmethod
    def of(cls, given: dict[str, Any]) -> TrainingOptions:
        """Those options.

        Raises:
            InvalidInput: there is no option of that name.
        """
        known = [one.name for one in fields(cls)]
        for name in given:
            check_choice("option", name, known)
        return cls(**given)

    def config(
        self, model: str, *, records: int, epsilon: float, delta: float, on_images: bool
    ) -> training.TrainingConfig:
        """The settings that these options mean.

        Args:
            model: its name.
            records: n, public or declared.
            epsilon, delta: the target.
            on_images: the model takes images, which views may augment.

        Raises:
            InvalidInput: a value is out of range, or these don't go together.
        """
        check_choice("adjacency", self.adjacency, [item.value for item in Adjacency])
        views, copies = self._views(on_images=on_images)
        config = training.TrainingConfig.for_model(
            model,
            records=records,
            epsilon=epsilon,
            delta=delta,
            epochs=self.epochs,
            batch_size=self.batch_size,
            clip_norm=self.clip_norm,
            clipping=self.clipping,
            feature_norm=self.feature_norm,
            microbatch_size=self.microbatch,
            microbatch_mixes=self.microbatch_mixes,
            microbatch_keep=not self.microbatch_mixed_only,
            adjacency=Adjacency(self.adjacency),
            views=views,
            bank_views=self.bank,
            bank_augmentations=copies,
            scenario=self.scenario,
            warm_up=self._warm_up(on_images=on_images),
            extended=self._extended(views.views),
            execution=training.ExecutionConfig(self.strategy, self.chunk, self.amp, self.compile),
            model_seed=self.model_seed,
        )
        return replace(config, optimiser=self._optimiser(config.optimiser))

    def _views(self, *, on_images: bool) -> tuple[training.ViewConfig, tuple[Any, ...]]:
        """Views of a step, and what makes the views of a bank."""
        found = training.ViewConfig.named(self.views)
        named = self.augment
        if named is None and self.bank and not found.augmentations:
            named = _AUGMENTATIONS
        if named is not None:
            found = replace(found, augmentations=training.parse_augmentations(named))
        if self.bank and not found.augmentations:
            raise InvalidInput("augment", self.augment, "at least one augmentation with a bank")
        if found.augmentations and not on_images and not self.bank:
            name = "views" if self.augment is None else "augment"
            allowed = "no augmentations, a bank, or an image model on pixels: features can't be augmented"
            raise InvalidInput(name, getattr(self, name), allowed)
        changes = {name: getattr(self, name) for name in ("k_base", "k_self", "k_diff")}
        given = {name: value for name, value in changes.items() if value is not None}
        copies = found.augmentations if self.bank else ()
        kept = () if self.bank else found.augmentations
        return replace(found, augmentations=kept, mixing=self.mixing, alpha=self.alpha, **given), copies

    def _optimiser(self, found: training.OptimiserConfig) -> training.OptimiserConfig:
        """A model's defaults with what was given in their place."""
        rate = self.learning_rate
        if rate is not None:
            check_number("learning_rate", rate, low=0, low_open=True, high=_HIGHEST_RATE)
        if self.optimiser == "adam":
            if self.momentum is not None:
                raise InvalidInput("momentum", self.momentum, "none with adam")
            rate = _ADAM_RATE if rate is None else rate
        given = {"learning_rate": rate, "momentum": self.momentum, "ema_decay": self.ema}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return replace(found, name=self.optimiser, schedule=self.schedule, **changes)

    def _warm_up(self, *, on_images: bool) -> training.WarmUpConfig:
        """How to train on public records, where the scenario does."""
        given = {name: getattr(self, name) for name in _WARM_UP if getattr(self, name) is not None}
        if self.scenario == "cold":
            _refuse(given, "none in scenario cold, which does not use public data")
        if self.warm_up_rate is not None:
            check_number("warm_up_rate", self.warm_up_rate, low=0, low_open=True, high=_HIGHEST_RATE)
        if self.warm_up_mixing is not None:
            check_choice("warm_up_mixing", self.warm_up_mixing, training.MIXINGS)
        changes = {_WARM_UP[name]: value for name, value in given.items()}
        if self.warm_up_augment is not None:
            changes["augmentations"] = training.parse_augmentations(self.warm_up_augment)
        if changes.get("augmentations") and not on_images:
            raise InvalidInput("warm_up_augment", self.warm_up_augment, "none, or an image model on pixels")
        if self.warm_up_mixing == "cutmix" and not on_images:
            raise InvalidInput("warm_up_mixing", self.warm_up_mixing, "mixup, or an image model on pixels")
        return training.WarmUpConfig(**changes)

    def _extended(self, views: int) -> training.ExtendedConfig:
        """How public records help in each step, where the scenario lets them."""
        own = {"rho": self.rho, "perturbations": self.perturbations}
        if self.scenario != "extended":
            _refuse({"public_batch": self.public_batch, **own}, "none but in scenario extended")
        if "perturbations" not in training.settings_of(self.public_method):
            _refuse(own, "none without the public method multiplicity")
        given = {"batch_size": self.public_batch, "rho": self.rho}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        perturbations = views if self.perturbations is None else self.perturbations
        return training.ExtendedConfig(method=self.public_method, perturbations=perturbations, **changes)


def _refuse(given: dict[str, Any], allowed: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(name, value, allowed)
