"""The settings of a DP-SGD run from its options: refused here where they don't go together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch

from privmix.accounting import Adjacency
from privmix.errors import InvalidInput, check_choice, check_number, in_terms_of
from privmix.jobs.training_options import TrainingOptions
from privmix.training import (
    MIXINGS,
    ExecutionConfig,
    ExtendedConfig,
    ModelFacts,
    OptimiserConfig,
    TrainingConfig,
    ViewConfig,
    WarmUpConfig,
    parse_augmentations,
    settings_of,
)
from privmix.training.config import LINEAR
from privmix.training.layout import ImageLayout
from privmix.training.views.augmentation import Augmentation, check_channels
from privmix.training.views.preset import views_named

# Where views need augmentations and none are named.
_AUGMENTATIONS: Final = "flip,crop"
# Far above any rate that trains, and far below what float32 can't hold.
_HIGHEST_RATE: Final = 1e30
_ADAM_RATE: Final = 1e-3
# Fields of the settings, and of what is made of them -> options.
ARGUMENTS: Final = {
    "ema_decay": "ema",
    "microbatch_size": "microbatch",
    "bank_views": "bank",
    "augmentations": "augment",
    "public method": "public_method",
    "public batch size": "public_batch",
    "max_norm": "public_max_norm",
    "weight perturbations": "perturbations",
    "warm-up epochs": "warm_up_epochs",
    "warm-up batch size": "warm_up_batch",
    "warm-up learning rate": "warm_up_rate",
    "warm-up optimiser": "warm_up_optimiser",
    "warm-up rho": "warm_up_rho",
    "warm-up adversary steps": "warm_up_adversary_steps",
    "public data": "public",
    "synthetic data": "synthetic",
}
# Options of the warm-up -> its fields.
_WARM_UP: Final = {
    "warm_up_epochs": "epochs",
    "warm_up_rate": "learning_rate",
    "warm_up_batch": "batch_size",
    "warm_up_optimiser": "optimiser",
    "warm_up_rho": "rho",
    "warm_up_augment": "augmentations",
    "warm_up_mixing": "mixing",
    "warm_up_adversary": "adversary",
    "warm_up_adversary_steps": "adversary_steps",
}


def settings_for(options: TrainingOptions, facts: ModelFacts, records: int) -> TrainingConfig:
    """The settings that these options mean for a dataset.

    Args:
        options: of the run.
        facts: public facts of the data.
        records: n, public or declared.

    Raises:
        InvalidInput: a value is out of range, or these don't go together.

    Example:
        >>> facts = ModelFacts(("cat", "dog"), {"name": "pixels"}, (32, 32, 3), dim=3072)
        >>> options = TrainingOptions("cifar10", 8.0, 1e-5, model="cnn", views="dp-mix-self", k_base=4)
        >>> config = settings_for(options, facts, 50_000)
        >>> config.views.views, config.batch_size
        (20, 4096)
    """
    _check_bank(options, facts)
    if options.microbatch_mixed_only and not options.microbatch_mixes:
        raise InvalidInput("microbatch_mixed_only", True, "False without `microbatch_mixes`")
    on_images = options.model != LINEAR and facts.layout is not None
    check_choice("adjacency", options.adjacency, [item.value for item in Adjacency])
    views, copies = _views(options, on_images=on_images)
    config = TrainingConfig.for_model(
        options.model,
        records=records,
        epsilon=options.epsilon,
        delta=options.delta,
        epochs=options.epochs,
        batch_size=options.batch_size,
        clip_norm=options.clip_norm,
        clipping=options.clipping,
        feature_norm=options.feature_norm,
        mechanism=options.mechanism,
        bands=options.bands,
        microbatch_size=options.microbatch,
        microbatch_mixes=options.microbatch_mixes,
        microbatch_keep=not options.microbatch_mixed_only,
        adjacency=Adjacency(options.adjacency),
        views=views,
        bank_views=options.bank,
        bank_augmentations=copies,
        scenario=options.scenario,
        warm_up=_warm_up(options, on_images=on_images),
        extended=_extended(options, views.views),
        execution=ExecutionConfig(options.strategy, options.chunk, options.amp, options.compile),
        model_seed=options.model_seed,
    )
    return replace(config, optimiser=_optimiser(options, config.optimiser))


def _check_bank(options: TrainingOptions, facts: ModelFacts) -> None:
    """Raise unless a bank can be made of such records."""
    if not options.bank:
        return
    if options.microbatch_mixes:
        raise InvalidInput("microbatch_mixes", options.microbatch_mixes, "0 with `bank`")
    try:
        layout = ImageLayout.of_input(facts.input_shape)
    except InvalidInput:
        raise InvalidInput("bank", options.bank, "0 for records that are no images") from None
    check_channels(parse_augmentations(options.augment or ""), layout.channels)


def _views(options: TrainingOptions, *, on_images: bool) -> tuple[ViewConfig, tuple[Augmentation, ...]]:
    """Views of a step, and what makes the views of a bank."""
    found = views_named(options.views)
    named = options.augment
    if named is None and options.bank and not found.augmentations:
        named = _AUGMENTATIONS
    if named is not None:
        found = replace(found, augmentations=parse_augmentations(named))
    if options.bank and not found.augmentations:
        raise InvalidInput("augment", options.augment, "at least one augmentation with `bank`")
    if found.augmentations and not on_images and not options.bank:
        name = "views" if options.augment is None else "augment"
        allowed = "`augment` none, `bank`, or an image model with `features` pixels: features can't be augmented"
        raise InvalidInput(name, getattr(options, name), allowed)
    changes = {name: getattr(options, name) for name in ("k_base", "k_self", "k_diff")}
    given = {name: value for name, value in changes.items() if value is not None}
    copies = found.augmentations if options.bank else ()
    kept = () if options.bank else found.augmentations
    return replace(found, augmentations=kept, mixing=options.mixing, alpha=options.alpha, **given), copies


def _optimiser(options: TrainingOptions, found: OptimiserConfig) -> OptimiserConfig:
    """A model's defaults with what was given in their place."""
    rate = options.learning_rate
    if rate is not None:
        check_number("learning_rate", rate, low=0, low_open=True, high=_HIGHEST_RATE)
    if options.optimiser == "adam":
        if options.momentum is not None:
            raise InvalidInput("momentum", options.momentum, "none with `optimiser` adam")
        rate = _ADAM_RATE if rate is None else rate
    given = {"learning_rate": rate, "momentum": options.momentum, "ema_decay": options.ema}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(found, name=options.optimiser, schedule=options.schedule, **changes)


def _warm_up(options: TrainingOptions, *, on_images: bool) -> WarmUpConfig:
    """How to train on public records, where the scenario does."""
    given = {name: getattr(options, name) for name in _WARM_UP if getattr(options, name) is not None}
    if options.scenario == "cold":
        _refuse(given, "none with `scenario` cold, which does not use public data")
    if options.warm_up_rate is not None:
        check_number("warm_up_rate", options.warm_up_rate, low=0, low_open=True, high=_HIGHEST_RATE)
    if options.warm_up_mixing is not None:
        check_choice("warm_up_mixing", options.warm_up_mixing, MIXINGS)
    if options.warm_up_optimiser == "sgd":
        _refuse({"warm_up_rho": options.warm_up_rho}, "none with `warm_up_optimiser` sgd")
    if options.warm_up_adversary is None:
        _refuse({"warm_up_adversary_steps": options.warm_up_adversary_steps}, "none without `warm_up_adversary`")
    changes = {_WARM_UP[name]: value for name, value in given.items()}
    if options.warm_up_adversary is not None:
        changes["adversary"] = _radius(options.warm_up_adversary, on_images=on_images)
    if options.warm_up_augment is not None:
        with in_terms_of({"augmentations": "warm_up_augment"}):
            changes["augmentations"] = parse_augmentations(options.warm_up_augment)
    if changes.get("augmentations") and not on_images:
        raise InvalidInput("warm_up_augment", options.warm_up_augment, "none, or an image model with `features` pixels")
    if options.warm_up_mixing == "cutmix" and not on_images:
        raise InvalidInput("warm_up_mixing", options.warm_up_mixing, "mixup, or an image model with `features` pixels")
    return WarmUpConfig(**changes)


def _radius(given: str | float, *, on_images: bool) -> float:
    """A number from 0 to 1, or a fraction such as 8/255."""
    above, _, below = str(given).partition("/")
    try:
        found = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        raise InvalidInput("warm_up_adversary", given, "a number from 0 to 1, or a fraction such as 8/255") from None
    if found and not on_images:
        raise InvalidInput("warm_up_adversary", given, "none, or an image model with `features` pixels")
    return check_number("warm_up_adversary", found, low=0, high=1)


def _extended(options: TrainingOptions, views: int) -> ExtendedConfig:
    """How public records help in each step, where the scenario lets them."""
    own = {
        "rho": options.rho,
        "perturbations": options.perturbations,
        "adaptive_multiplicity": options.adaptive_multiplicity or None,
    }
    if options.scenario != "extended":
        public = {"public_batch": options.public_batch, "public_max_norm": options.public_max_norm}
        _refuse({**public, **own}, "none without `scenario` extended")
    if "perturbations" not in settings_of(options.public_method):
        _refuse(own, "none without `public_method` multiplicity")
    given = {"batch_size": options.public_batch, "max_norm": options.public_max_norm, "rho": options.rho}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    perturbations = views if options.perturbations is None else options.perturbations
    return ExtendedConfig(
        method=options.public_method,
        perturbations=perturbations,
        adaptive=options.adaptive_multiplicity,
        **changes,
    )


def _refuse(given: dict[str, Any], allowed: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(name, value, allowed)


def check_device(name: str | None) -> None:
    """Raise :class:`InvalidInput` unless this machine has the device."""
    if name is None:
        return
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InvalidInput("device", name, "cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise InvalidInput("device", name, "cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidInput("device", name, f"cpu, or one of {torch.cuda.device_count()} CUDA devices found here")
