"""The numbers behind ``privmix account compare``: noise over m against m, one curve an accountant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from privmix.accounting import Adjacency, calibrate, get_accountant
from privmix.errors import InvalidInput, check_integer
from privmix.planning import ReleaseConfig

if TYPE_CHECKING:
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


def noise_comparison(
    records: int, rows: int, epsilon: float, delta: float, points: int, progress: Progress
) -> dict[str, Any]:
    """Noise over degree, sqrt(2) s / m with s_x = s_y, at ``points`` degrees from 1 to n, for every curve.

    A curve has None where its accountant reaches the target at no noise.
    """
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
                "is_upper_bound": get_accountant(accountant).is_upper_bound,
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
    config = ReleaseConfig(
        records=records, rows=rows, dim=1, classes=("0", "1"), design=design, mixup_degree=degree, centre="none"
    )
    adjacency: Adjacency = config.with_noise(1.0).adjacency
    try:
        found = calibrate(
            lambda s: config.with_noise(s).event, epsilon, delta, accountant=accountant, adjacency=adjacency
        )
    except InvalidInput:
        return None
    return math.sqrt(2) * found.noise_multiplier / degree
