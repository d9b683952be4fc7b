"""How records become inputs of a known extractor, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privmix.jobs.asked import CLASSES_HELP, FEATURES_MODEL_HELP, TRUST_HELP, told
from privmix.jobs.columns import Columns


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What is declared of a dataset that a model or release, or what was asked, says how to read.

    Attributes:
        classes: number or names of the classes, where those that are known are not meant.
        columns: what is declared of columns and images.
        features_model: your own copy of the extractor's model, where it is a file or folder.
        trust_features_model: that file may be a program, and may run.
    """

    classes: Any = told(None, CLASSES_HELP)
    columns: Columns = field(default_factory=Columns)
    features_model: str | Path | None = told(None, FEATURES_MODEL_HELP)
    trust_features_model: bool = told(False, TRUST_HELP)
