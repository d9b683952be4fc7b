"""Options of model inversion; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix.jobs.options import CLASSES_HELP, DEVICE_HELP, ModelFiles
from privmix.options import EXPERT, described, option
from privmix.research.options import ImageColumns

STEPS: Final = 500
"""Of an inversion, at these mixup degrees and budgets."""
DEGREES: Final = "1,4,8,16,64"
EPSILONS: Final = "none,8,1"
DELTA: Final = 1e-5
OF_RELEASES: Final = ("features", "mixup_degrees", "epsilons", "delta", "records", "rows", "centre")
"""What a release says itself: none of it can be given beside one."""


@described
@dataclass(frozen=True, kw_only=True)
class InversionSettings:
    """Which plans are attacked, and how; a release states all that :data:`OF_RELEASES` names."""

    features: str | None = option(None, "Public image extractor with gradients. Default: scattering.")
    split: str | None = option(None, "Split of `data`.")
    mixup_degrees: str | Sequence[int] | None = option(None, f"Mixup degrees to attack. Default: {DEGREES}.", EXPERT)
    epsilons: str | Sequence[float | None] | None = option(
        None, f"Epsilons that set the noise, or none. Default: {EPSILONS}.", EXPERT
    )
    delta: float | None = option(None, f"Delta of the budgets. Default: {DELTA:g}.")
    records: int | None = option(None, "Record count of the plan, n. Default: that of `data`.")
    rows: int | None = option(None, "Number of rows in the plan, T. Default: n.")
    centre: str | None = option(None, "Centring, as in privmix release: private or none. Default: none.", EXPERT)

    images: int = option(8, "Number of images to attack at each degree.", EXPERT)
    steps: int = option(STEPS, "Number of steps of an attack.", EXPERT)
    seed: int = option(0, "Seed of images, noise and starting points.", EXPERT)
    device: str = option("auto", DEVICE_HELP)
    public_data: bool = option(False, "Declare `data` public.")


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InversionOptions(ImageColumns, ModelFiles, InversionSettings):
    """All options of model inversion."""

    classes: Any = option(None, CLASSES_HELP)
    figure: str | Path | None = option(None, "Figure to write: originals and recovered images (.png, .svg).")
