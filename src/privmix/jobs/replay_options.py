"""What is asked of a replay, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from privmix.jobs.options import Inputs
from privmix.jobs.persons import Persons
from privmix.jobs.release_options import as_in_release
from privmix.options import described, option

SPOT_CHECKS: Final = 256
"""Records whose features are made anew, where a store has them."""


@described
@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """How the records of a release are read and mixed once more."""

    split: str = as_in_release("split")
    inputs: Inputs = field(default_factory=Inputs)
    persons: Persons = field(default_factory=Persons)
    sealed_key: Path | None = option(None, "The sealed key. Default: RELEASE.sealed-key.json, beside the release.")
    features_store: Path | None = option(
        None,
        "Features as the release mixed them (its `store`), for an extractor whose last bits are other on this machine. "
        "The certificate commits to them; some are made anew and compared.",
    )
    spot_checks: int = option(SPOT_CHECKS, "With `features_store`: records whose features are made anew.")
    engine: str = as_in_release("engine")
    memory_gb: float | None = as_in_release("memory_gb")
    workers: int | None = as_in_release("workers")
    ray_address: str | None = as_in_release("ray_address")
