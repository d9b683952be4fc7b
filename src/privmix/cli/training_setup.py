"""What the options of ``privmix train`` mean: views, optimiser, public data; refused here where they don't fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch

from privmix.data import Source
from privmix.errors import InvalidInput, check_choice, check_number
from privmix.features import Extractor
from privmix.jobs.columns import Columns
from privmix.jobs.public_data import named, pool_options
from privmix.training import (
    ExtendedConfig,
    ModelFacts,
    OptimiserConfig,
    PublicData,
    ViewConfig,
    WarmUpConfig,
    parse_augmentations,
)
from privmix.training.config import LINEAR
from privmix.training.layout import ImageLayout
from privmix.training.public.registry import settings_of
from privmix.training.views.augment import Augmentation
from privmix.training.views.mixup import MIXINGS

_VIEWS: Final[dict[str, Callable[[], ViewConfig]]] = {
    "plain": ViewConfig.plain,
    "self-aug": ViewConfig.self_aug,
    "dp-mix-self": ViewConfig.dp_mix_self,
    "dp-mix-diff": ViewConfig.dp_mix_diff,
    "pure-diff": ViewConfig.pure_diff,
}
_AUGMENTATIONS: Final = "flip,crop"
_WARM_UP: Final = {
    "epochs": "--warm-up-epochs",
    "learning_rate": "--warm-up-rate",
    "optimiser": "--warm-up-optimiser",
    "augmentations": "--warm-up-augment",
    "mixing": "--warm-up-mixing",
}
# Far above any rate that trains, and far below what float32 can't hold.
_HIGHEST_RATE: Final = 1e30


def views_of(
    name: str,
    counts: dict[str, int | None],
    augmentations: str | None,
    mixing: str,
    alpha: float,
    *,
    on_images: bool,
    bank: int,
) -> tuple[ViewConfig, tuple[Augmentation, ...]]:
    """Views of a step, and what makes the views of a bank.

    Args:
        name: a preset.
        counts: ``k_base`` and so on, in its place where they are not None.
        augmentations: names with commas, ``none``, or None for the preset's.
        mixing: ``mixup`` or ``cutmix``.
        alpha: of the mixing weights.
        on_images: the model takes images.
        bank: views of each image in the bank, or 0.

    Raises:
        InvalidInput: a value is out of range, or these don't go together.
    """
    found = _VIEWS[check_choice("--views", name, _VIEWS)]()
    if augmentations is None and bank and not found.augmentations:
        augmentations = _AUGMENTATIONS
    if augmentations is not None:
        chosen = () if augmentations == "none" else parse_augmentations(augmentations)
        found = replace(found, augmentations=chosen)
    if bank and not found.augmentations:
        raise InvalidInput("--augment", augmentations, "at least one augmentation with --bank")
    if found.augmentations and not on_images and not bank:
        flag, value = ("--views", name) if augmentations is None else ("--augment", augmentations)
        allowed = "--augment none, --bank, or an image model with --features pixels: features can't be augmented"
        raise InvalidInput(flag, value, allowed)
    given = {field: value for field, value in counts.items() if value is not None}
    copies = found.augmentations if bank else ()
    kept = () if bank else found.augmentations
    return replace(found, augmentations=kept, mixing=mixing, alpha=alpha, **given), copies  # type: ignore[arg-type]


def takes_images(model: str, extractor: Extractor) -> bool:
    """Whether a model of that name gets images, which views may augment."""
    return model != LINEAR and extractor.name == "pixels"


def check_bank(bank: int, source: Source, microbatch_mixes: int) -> None:
    """Raise :class:`InvalidInput` unless a bank can be made of such records; asked before budget is charged."""
    if not bank:
        return
    if microbatch_mixes:
        raise InvalidInput("--microbatch-mixes", microbatch_mixes, "0 with --bank")
    try:
        ImageLayout.of_input(source.schema.input_shape)
    except InvalidInput:
        raise InvalidInput("--bank", bank, "0 for records that are no images") from None


def optimiser_of(
    found: OptimiserConfig,
    name: str,
    learning_rate: float | None,
    momentum: float | None,
    schedule: str,
    ema: float | None,
) -> OptimiserConfig:
    """A model's defaults with what was given in their place."""
    if learning_rate is not None:
        check_number("--learning-rate", learning_rate, low=0, low_open=True, high=_HIGHEST_RATE)
    if name == "adam" and learning_rate is None:
        learning_rate = 1e-3
    if name == "adam" and momentum is not None:
        raise InvalidInput("--momentum", momentum, "none with --optimiser adam")
    given = {"learning_rate": learning_rate, "momentum": momentum, "ema_decay": ema}
    changes: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    return replace(found, name=name, schedule=schedule, **changes)


def warm_up_of(scenario: str, given: dict[str, Any], *, on_images: bool) -> WarmUpConfig:
    """How to train on public records, where the scenario does.

    Args:
        scenario: of public data.
        given: fields of the config; None where the default is meant. Augmentations are names with commas.
        on_images: the model takes images.

    Raises:
        InvalidInput: a value is out of range, or these don't go together.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if scenario == "cold":
        _refuse(
            {_WARM_UP[name]: value for name, value in given.items()},
            "none with --scenario cold, which does not use public data",
        )
    if "learning_rate" in given:
        check_number("--warm-up-rate", given["learning_rate"], low=0, low_open=True, high=_HIGHEST_RATE)
    if "mixing" in given:
        check_choice("--warm-up-mixing", given["mixing"], MIXINGS)
    shown = dict(given)
    if "augmentations" in given:
        given["augmentations"] = parse_augmentations(given["augmentations"])
    changes_images = {"augmentations": bool(given.get("augmentations")), "mixing": given.get("mixing") == "cutmix"}
    for name, does in changes_images.items():
        if does and not on_images:
            allowed = f"{'none' if name == 'augmentations' else 'mixup'}, or an image model with --features pixels"
            raise InvalidInput(_WARM_UP[name], shown[name], allowed)
    return WarmUpConfig(**given)


def extended_of(
    scenario: str, method: str, batch_size: int | None, rho: float | None, perturbations: int | None, views: int
) -> ExtendedConfig:
    """How public records help in each step, where the scenario lets them."""
    own = {"--rho": rho, "--perturbations": perturbations}
    if scenario != "extended":
        _refuse({"--public-batch": batch_size, **own}, "none without --scenario extended")
    if "perturbations" not in settings_of(method):
        _refuse(own, "none without --public-method multiplicity")
    fields = {"batch_size": batch_size, "rho": rho}
    changes: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    return ExtendedConfig(method=method, perturbations=views if perturbations is None else perturbations, **changes)


def _refuse(given: dict[str, Any], allowed: str) -> None:
    for flag, value in given.items():
        if value is not None:
            raise InvalidInput(flag, value, allowed)


def public_of(
    flag: str, place: str | None, extractor: Extractor, facts: ModelFacts, columns: Columns
) -> PublicData | None:
    """Public labelled examples, read as the private ones are."""
    if place is None:
        return None
    with named(flag):
        options = pool_options(extractor, columns)
        return PublicData.open(place, extractor, facts.classes, input_shape=facts.input_shape, **options)


def check_device(name: str | None) -> None:
    """Raise :class:`InvalidInput` unless this machine has the device; asked before budget is charged."""
    if name is None:
        return
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InvalidInput("--device", name, "cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise InvalidInput("--device", name, "cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidInput("--device", name, f"cpu, or one of {torch.cuda.device_count()} CUDA devices found here")
