"""How records become inputs of a known extractor, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privmix.jobs.columns import Columns
from privmix.jobs.options import CLASSES_HELP, FEATURES_MODEL_HELP, TRUST_HELP
from privmix.options import described, option


@described
@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What is declared of a dataset that a model or release, or what was asked, says how to read."""

    classes: Any = option(None, CLASSES_HELP)
    columns: Columns = field(default_factory=Columns)
    features_model: str | Path | None = option(None, FEATURES_MODEL_HELP)
    trust_features_model: bool = option(False, TRUST_HELP)
