"""What is asked of model inversion, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from privmix.jobs.asked import told
from privmix.jobs.columns import Columns, ImageColumns
from privmix.jobs.inputs import Inputs

STEPS: Final = 500
"""Of an inversion, at these mixup degrees and budgets."""
DEGREES: Final = "1,4,8,16,64"
EPSILONS: Final = "none,8,1"
DELTA: Final = 1e-5
OF_RELEASES: Final = ("features", "mixup_degrees", "epsilons", "delta", "records", "rows", "centre")
"""What a release says itself: none of it can be given beside one."""


@dataclass(frozen=True, kw_only=True)
class InversionSettings:
    """Which plans are attacked, and how; a release says all that :data:`OF_RELEASES` names.

    Attributes:
        features: public extractor of images with gradients; scattering where None.
        split: which part of the data; None: ``test``, or all of what is in memory.
        mixup_degrees: degrees m to attack, as a list or with commas; 1, 4, 8, 16, 64 where None.
        epsilons: budgets whose noise to add, as a list or with commas; None or ``none`` among them is no noise; none,
            8, 1 where None.
        delta: of the budgets; 1e-5 where None.
        records: record count n of the plan; that of the data where None.
        rows: rows T that the plan releases; n where None.
        centre: ``"private"`` or ``"none"``; none where None.
        images: to attack at each degree.
        steps: of an attack.
        seed: decides images, noise and starts: same seed, same picture.
        public_data: the data are public.
    """

    features: str | None = told(None, "Public extractor of images with gradients. Default: scattering.")
    split: str | None = told(None, "Which part of `data`.")
    mixup_degrees: str | Sequence[int] | None = told(None, f"Degrees m to attack. Default: {DEGREES}.")
    epsilons: str | Sequence[float | None] | None = told(
        None, f"Budgets whose noise to add; none is no noise. Default: {EPSILONS}."
    )
    delta: float | None = told(None, f"Of the budgets. Default: {DELTA:g}.")
    records: int | None = told(None, "Record count n of the plan. Default: that of `data`.")
    rows: int | None = told(None, "Rows T that the plan releases. Default: n.")
    centre: str | None = told(None, "private or none, as in privmix release. Default: none.")

    images: int = told(8, "Images to attack at each degree.")
    steps: int = told(STEPS, "Steps of an attack.")
    seed: int = told(0, "Decides images, noise and starts: same seed, same picture.")
    public_data: bool = told(False, "Declare `data` public.")


@dataclass(frozen=True, kw_only=True)
class InversionOptions(Inputs, InversionSettings):
    """All options of model inversion.

    Attributes:
        figure: where to draw originals and recovered images (.png, .svg, .pdf); not in a release or model.
    """

    columns: Columns = field(default_factory=ImageColumns)
    figure: str | Path | None = told(None, "Picture of originals and recovered images (.png, .svg).")
