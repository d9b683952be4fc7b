"""The noise that each accountant asks for: noise over m against m, one curve an accountant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privmix import accounting
from privmix.commands.base import Command, Facts
from privmix.errors import InvalidInput, check_integer
from privmix.options import option
from privmix.progress import Progress

# (label, design, accountant). Fixed-size draws are the papers' "uniform" sampling.
_CURVES = (
    ("uniform RDP (replace-one)", "fixed", "rdp"),
    ("uniform RDP as published", "fixed", "as_published"),
    ("uniform GDP (limit)", "fixed", "gdp_clt"),
    ("Poisson MA", "poisson", "moments"),
    ("Poisson RDP", "poisson", "rdp"),
    ("Poisson GDP (as published)", "poisson", "as_published"),
    ("uniform PLD (replace-one)", "fixed", "pld"),
    ("Poisson PLD", "poisson", "pld"),
)


@dataclass(frozen=True, eq=False, repr=False)
class Compare(Command[Facts]):
    """Draw each accountant's noise against the mixup degree.

    Reproduces Figure 1 of Li et al. (2022). Dashed curves are not bounds.
    """

    example = "privmix account compare --records 60000 --epsilon 1 --out curves.svg"

    records: int = option(50_000, "Record count, n.")
    rows: int | None = option(None, "Number of released rows, T. Default: n.")
    epsilon: float = option(1.0, "Target epsilon.")
    delta: float = option(1e-5, "Target delta.")
    points: int = option(13, "Number of mixup degrees between 1 and n, on a logarithmic scale.")
    out: Path = option(Path("compare.svg"), "Figure to write: .svg, .png or .pdf.")

    def run(self, progress: Progress) -> Facts:
        """Draw them."""
        # Drawing takes longer to import than pricing does to run.
        from privmix.reports.pictures import draw_noise_comparison

        if self.out.suffix not in (".svg", ".png", ".pdf"):
            raise InvalidInput("out", str(self.out), "a file ending in .svg, .png or .pdf")
        rows = self.rows or self.records
        curves = noise_comparison(self.records, rows, self.epsilon, self.delta, self.points, progress)
        draw_noise_comparison(curves, self.out)
        return Facts(f"drawn: {self.out}", values=curves)


def noise_comparison(
    records: int, rows: int, epsilon: float, delta: float, points: int, progress: Progress
) -> dict[str, Any]:
    """Noise over degree, sqrt(2) s / m with s_x = s_y, at ``points`` degrees from 1 to n, for every curve.

    A curve has None where its accountant reaches the target at no noise.
    """
    import numpy as np

    check_integer("points", points, low=2)
    check_integer("records", records, low=2)
    degrees = sorted({round(value) for value in np.geomspace(1, records, points)})
    curves = []
    for index, (label, design, accountant) in enumerate(_CURVES):
        noise = []
        for done, degree in enumerate(degrees, start=1):
            noise.append(_noise(records, rows, degree, design, accountant, epsilon, delta))
            progress("calibrating", index * len(degrees) + done, len(_CURVES) * len(degrees))
        curves.append(
            {
                "label": label,
                "design": design,
                "accountant": accountant,
                "is_upper_bound": accounting.get_accountant(accountant).is_upper_bound,
                "noise_over_degree": noise,
            }
        )
    return {
        "records": records,
        "rows": rows,
        "epsilon": epsilon,
        "delta": delta,
        "mixup_degrees": degrees,
        "curves": curves,
    }


def _noise(
    records: int, rows: int, degree: int, design: str, accountant: str, epsilon: float, delta: float
) -> float | None:
    from privmix.planning.config import ReleaseConfig

    config = ReleaseConfig(
        records=records, rows=rows, dim=1, classes=("0", "1"), design=design, mixup_degree=degree, centre="none"
    )
    adjacency = config.with_noise(1.0).adjacency
    try:
        found = accounting.calibrate(
            lambda s: config.with_noise(s).event, epsilon, delta, accountant=accountant, adjacency=adjacency
        )
    except InvalidInput:
        return None
    return math.sqrt(2) * found.noise_multiplier / degree
