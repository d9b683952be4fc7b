"""What is asked of model inversion, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from privmix.jobs.columns import Columns, ImageColumns
from privmix.jobs.options import Inputs
from privmix.options import EXPERT, described, option

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
    """Which plans are attacked, and how; a release says all that :data:`OF_RELEASES` names."""

    features: str | None = option(None, "Public extractor of images with gradients. Default: scattering.")
    split: str | None = option(None, "Which part of `data`.")
    mixup_degrees: str | Sequence[int] | None = option(None, f"Degrees m to attack. Default: {DEGREES}.", EXPERT)
    epsilons: str | Sequence[float | None] | None = option(
        None, f"Budgets whose noise to add; none is no noise. Default: {EPSILONS}.", EXPERT
    )
    delta: float | None = option(None, f"Delta of the budgets. Default: {DELTA:g}.")
    records: int | None = option(None, "Record count n of the plan. Default: that of `data`.")
    rows: int | None = option(None, "Rows T that the plan releases. Default: n.")
    centre: str | None = option(None, "private or none, as in privmix release. Default: none.", EXPERT)

    images: int = option(8, "Images to attack at each degree.", EXPERT)
    steps: int = option(STEPS, "Steps of an attack.", EXPERT)
    seed: int = option(0, "Decides images, noise and starts: same seed, same picture.", EXPERT)
    public_data: bool = option(False, "Declare `data` public.")


@described
@dataclass(frozen=True, kw_only=True)
class InversionOptions(Inputs, InversionSettings):
    """All options of model inversion."""

    columns: Columns = field(default_factory=ImageColumns)
    figure: str | Path | None = option(None, "Picture of originals and recovered images (.png, .svg).")
