"""What is asked of a study of poisoning, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from privmix.jobs.columns import Columns, ImageColumns
from privmix.options import described, option
from privmix.plugins import literals_of

_TRAINING: Final = "How victims train"
_TRIALS: Final = "Trials"


def names(package: str) -> str:
    """The names of what a package of :mod:`privmix.research.poisoning` holds, for help; nothing is imported.

    Example:
        >>> "patch-backdoor" in names("poisons"), "mixup" in names("defences")
        (True, True)
    """
    return ", ".join(str(said["name"]) for said in literals_of(f"privmix.research.poisoning.{package}"))


@described
@dataclass(frozen=True, kw_only=True)
class PoisoningOptions:
    """Who attacks whom, with how many records, how often."""

    attack: str = option("patch-backdoor", f"Which: {names('poisons')}; settings behind a colon, as patch-backdoor:6.")
    defences: str | Sequence[str] | None = option(
        None,
        f"Against which, with commas: {names('defences')}; settings behind a colon, changes of batches joined by +, as "
        "none,mixup:4,mixup:4+noise:16. Default: none.",
        flag="defence",
    )
    design: str | None = option(None, "Attack releases of this design, from which a classifier is fitted.")
    epsilon: float | None = option(None, "Epsilon of these releases.")
    delta: float | None = option(None, "Delta of these releases. Default: 1e-5.")
    poisoned: str | int = option("1%", "Records that the attacker controls: a number, or a share such as 1%.")
    adaptive: bool = option(False, "The attacker knows the defence and trains through it.")
    records: int | None = option(
        None,
        "Records of the trainer, drawn from `data`. Default: all, or half for attacks on transfer learning.",
        _TRIALS,
    )
    test_records: int = option(1000, "Clean images that accuracy and success are measured on.", _TRIALS)
    trials: int = option(20, "How often, each with classes, image and randomness of its own.", _TRIALS)
    seed: int = option(0, "Decides the records drawn and every trial.", _TRIALS)
    confidence: float = option(
        0.95, "Confidence of the intervals, and of the success without poison that bounds start from.", _TRIALS
    )
    work: str | Path | None = option(
        None, "Private folder for finished trials: the same command goes on with what is there.", _TRIALS
    )
    recipe: str | None = option(
        None,
        "The papers' settings: patch-backdoor, gradient-matching or transfer; cifar10: those of 10,000 photographs on "
        "a CPU. Default: mnist, those of 2,000 small images.",
        _TRAINING,
    )
    network: str | None = option(
        None, f"That victims train: {names('victims.networks')}. Default: the recipe's, or cnn.", _TRAINING
    )
    epochs: int | None = option(None, "Epochs of a training. Default: the recipe's.", _TRAINING)
    extractor_records: int = option(
        5000,
        "Attacks on transfer learning: other images, at most so many, on which the frozen extractor is trained.",
        _TRAINING,
    )
    split: str = option("train", "Which part of `data` the trainer's records are in.", _TRIALS)
    test_split: str = option("test", "Which part the images are in that are measured on.", _TRIALS)
    held_out: Any = option(None, "Dataset that these are in, where it is another than the trainer's.", _TRIALS)
    classes: Any = option(
        None, "Class list: a number K, names with commas, or @FILE. Default: a schema's, or ten, called 0 to 9."
    )
    columns: Columns = field(default_factory=ImageColumns)
    public_data: bool = option(False, "The data are public: the record of the figures may be shown.")
