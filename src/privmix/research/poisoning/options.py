"""Options of a study of poisoning; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix.jobs.options import DEVICE_HELP
from privmix.options import described, option
from privmix.plugins import literals_of
from privmix.research.options import ImageColumns

_TRAINING: Final = "Training of victims"
_TRIALS: Final = "Trials"


def names(package: str) -> str:
    """Names of the parts in a package of :mod:`privmix.research.poisoning`, for help; nothing is imported."""
    return ", ".join(str(said["name"]) for said in literals_of(f"privmix.research.poisoning.{package}"))


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PoisoningOptions(ImageColumns):
    """Who attacks whom, with how many records, how often."""

    attack: str = option(
        "patch-backdoor", "Attack, with settings after a colon: patch-backdoor:6.", names=names("poisons")
    )
    defences: str | Sequence[str] | None = option(
        None,
        "Defences, with commas and settings: none,mixup:4,mixup:4+noise:16. Default: none.",
        names=names("defences"),
        flag="defence",
    )
    design: str | None = option(None, "Release design to attack, through a classifier fitted on each release.")
    epsilon: float | None = option(None, "Epsilon of the releases.")
    delta: float | None = option(None, "Delta of the releases. Default: 1e-5.")
    poisoned: str | int = option("1%", "Records that the attacker controls: a number, or a share (1%).")
    adaptive: bool = option(False, "Let the attacker know the defence and train through it.")
    records: int | None = option(
        None, "Number of the trainer's records. Default: all (transfer attacks: half).", _TRIALS
    )
    test_records: int = option(1000, "Number of clean images for accuracy and success.", _TRIALS)
    trials: int = option(20, "Number of trials, each with its own classes, image and seed.", _TRIALS)
    seed: int = option(0, "Seed of the records and of every trial.", _TRIALS)
    confidence: float = option(0.95, "Confidence level of the intervals and bounds.", _TRIALS)
    work: str | Path | None = option(None, "Private folder for finished trials, to resume an interrupted run.", _TRIALS)
    recipe: str | None = option(
        None, "Recipe: mnist, cifar10, patch-backdoor, gradient-matching or transfer. Default: mnist.", _TRAINING
    )
    network: str | None = option(
        None, "Network of the victims. Default: the recipe's, or cnn.", _TRAINING, names=names("victims.networks")
    )
    epochs: int | None = option(None, "Epochs of a training. Default: the recipe's.", _TRAINING)
    device: str = option("auto", DEVICE_HELP, _TRAINING)
    extractor_records: int = option(
        5000, "Number of other images that train the frozen extractor (transfer attacks).", _TRAINING
    )
    split: str = option("train", "Split with the trainer's records.", _TRIALS)
    test_split: str = option("test", "Split with the images for measurements.", _TRIALS)
    held_out: Any = option(None, "Dataset with the images for measurements. Default: the trainer's.", _TRIALS)
    classes: Any = option(None, "Class list: K, names with commas, or @FILE. Default: 0 to 9.")
    public_data: bool = option(False, "Declare the data public, so that figures may be shown.")
