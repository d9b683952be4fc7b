"""What is asked of a study of poisoning, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from privmix.jobs.asked import told
from privmix.jobs.columns import Columns, ImageColumns
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


@dataclass(frozen=True, kw_only=True)
class PoisoningOptions:
    """Who attacks whom, with how many records, how often.

    Attributes:
        attack: by name, with its settings behind a colon, as ``patch-backdoor:6``.
        defences: by name, as a list or with commas; settings behind a colon, changes of batches joined by ``+``, as
            ``none,mixup:4,mixup:4+noise:16``. ``none`` where neither these nor a design is given.
        design: attack releases of this design too, from which a classifier is fitted.
        epsilon, delta: of these releases; delta is 1e-5 where None.
        poisoned: records that the attacker controls: a number, or a share such as ``"1%"``.
        adaptive: the attacker knows the defence and trains through it.
        records: of the trainer, drawn from the dataset; all where None, or half for attacks that need an extractor.
        test_records: clean images that accuracy and success are measured on, drawn from the test split.
        trials: how often, each with classes, image and randomness of its own.
        seed: decides the records drawn and every trial.
        confidence: of the intervals, and of the success without poison that bounds start from.
        work: private folder for finished trials: the same call goes on with what is there.
        recipe: how victims train: ``cifar10`` or the papers'; None: settings for 2,000 small images on a CPU.
        network: that victims train; the recipe's where None.
        epochs: of a training; the recipe's where None.
        extractor_records: for attacks on transfer learning: other images, on which the frozen extractor is trained.
        split: of the trainer's records.
        test_split: of the images that are measured on.
        held_out: these in a dataset of their own, in place of a split: in a file or in memory.
        classes: number or names of the classes; where None and no schema says them, ten.
        columns: what is declared of columns and images; encoded images become 32 x 32 and rgb where nothing is.
        public_data: the data are public: the record of the figures may be shown.
    """

    attack: str = told("patch-backdoor", f"Which: {names('poisons')}; settings behind a colon, as patch-backdoor:6.")
    defences: str | Sequence[str] | None = told(
        None,
        f"Against which, with commas: {names('defences')}; settings behind a colon, changes of batches joined by +, as "
        "none,mixup:4,mixup:4+noise:16. Default: none.",
        flag="defence",
    )
    design: str | None = told(None, "Attack releases of this design, from which a classifier is fitted.")
    epsilon: float | None = told(None, "Of these releases.")
    delta: float | None = told(None, "Of these releases. Default: 1e-5.")
    poisoned: str | int = told("1%", "Records that the attacker controls: a number, or a share such as 1%.")
    adaptive: bool = told(False, "The attacker knows the defence and trains through it.")
    records: int | None = told(
        None, "Of the trainer, drawn from `data`. Default: all, or half for attacks on transfer learning.", _TRIALS
    )
    test_records: int = told(1000, "Clean images that accuracy and success are measured on.", _TRIALS)
    trials: int = told(20, "How often, each with classes, image and randomness of its own.", _TRIALS)
    seed: int = told(0, "Decides the records drawn and every trial.", _TRIALS)
    confidence: float = told(
        0.95, "Of the intervals, and of the success without poison that bounds start from.", _TRIALS
    )
    work: str | Path | None = told(
        None, "Private folder for finished trials: the same command goes on with what is there.", _TRIALS
    )
    recipe: str | None = told(
        None,
        "The papers' settings: patch-backdoor, gradient-matching or transfer; cifar10: those of 10,000 photographs on "
        "a CPU. Default: mnist, those of 2,000 small images.",
        _TRAINING,
    )
    network: str | None = told(
        None, f"That victims train: {names('victims.networks')}. Default: the recipe's, or cnn.", _TRAINING
    )
    epochs: int | None = told(None, "Of a training. Default: the recipe's.", _TRAINING)
    extractor_records: int = told(
        5000,
        "Attacks on transfer learning: other images, at most so many, on which the frozen extractor is trained.",
        _TRAINING,
    )
    split: str = told("train", "Of the trainer's records.", _TRIALS)
    test_split: str = told("test", "Of the images that are measured on.", _TRIALS)
    held_out: Any = told(None, "Dataset that these are in, where it is another than the trainer's.", _TRIALS)
    classes: Any = told(
        None, "Class list: a number K, names with commas, or @FILE. Default: a schema's, or ten, called 0 to 9."
    )
    columns: Columns = field(default_factory=ImageColumns)
    public_data: bool = told(False, "The data are public: the record of the figures may be shown.")
