"""The plan of design ``moments``: noisy second moments of the records, in one Gaussian query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from privmix.accounting import Adjacency, Event, Gaussian
from privmix.errors import InvalidInput, check_number
from privmix.release.plan_base import BasePlan

MOMENTS: Final = "moments"
LARGEST_DIM: Final = 8192
"""Second moments hold dim^2 numbers: beyond this they need more memory and time than a release should."""


@dataclass(frozen=True, kw_only=True)
class MomentsPlan(BasePlan):
    """Everything public about a release of second moments before it runs.

    Released are X'X (d, d), X'Y (d, K) and the label sums Y'1 (K), each with Gaussian noise, where a row of X is a
    clipped (and privately centred) record of norm at most C and a row of Y its one-hot label minus the offset, of norm
    at most B. Rows sampled from a Gaussian mixture with these moments go with them, so that any classifier can train:
    they cost nothing.

    The three parts are ONE Gaussian query of noise multiplier s: 1/s^2 = 1/s_xx^2 + 1/s_xy^2 + 1/s_y^2, and 1/s_xy^2 =
    ``label_share`` of what ``count_share`` leaves of 1/s^2. One record changes X'X by x x', of Frobenius norm at
    most C^2. That matrix is symmetric: its upper triangle with the off-diagonal entries times sqrt(2) is a vector of
    the same norm, so off-diagonal entries need noise of C^2 s_xx / sqrt(2) only, and diagonal ones of C^2 s_xx.

    Formal guarantees:
        * every field is a public constant: no value depends on a private row;
        * one record changes X'X by at most C^2 (Frobenius), X'Y by at most C B and Y'1 by at most B, to which the
          noise of each is scaled;
        * ``event`` is the Gaussian query at the joint multiplier, composed with the mean query.

    Attributes:
        rows: how many rows are sampled from the moments.
        label_share: share of the query's budget (in 1/s^2) that X'Y gets; X'X gets the rest.
        count_share: share that the label sums get.
    """

    label_share: float
    count_share: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.design != MOMENTS:
            raise InvalidInput("design", self.design, MOMENTS)
        if self.dim > LARGEST_DIM:
            raise InvalidInput("dim", self.dim, f"at most {LARGEST_DIM} features for design {MOMENTS}")
        for name in ("label_share", "count_share"):
            check_number(name, getattr(self, name), low=0, high=1, low_open=True, high_open=True)

    @staticmethod
    def largest_noise(label_share: float, count_share: float) -> float:
        """The most that s times 4^lattice_bits may be: no part's noise then exceeds 2^45 lattice steps."""
        return 2.0**45 * math.sqrt(min(1 - label_share, label_share) * (1 - count_share))

    @property
    def adjacency(self) -> Adjacency:
        """Add or remove one record."""
        return Adjacency.ADD_REMOVE

    @property
    def main_event(self) -> Event:
        """The one query that releases all three parts."""
        return Gaussian(self.noise_multiplier)

    @property
    def second_noise_multiplier(self) -> float:
        """s_xx."""
        return self.noise_multiplier / math.sqrt((1 - self.count_share) * (1 - self.label_share))

    @property
    def cross_noise_multiplier(self) -> float:
        """s_xy."""
        return self.noise_multiplier / math.sqrt((1 - self.count_share) * self.label_share)

    @property
    def count_noise_multiplier(self) -> float:
        """s_y."""
        return self.noise_multiplier / math.sqrt(self.count_share)

    @property
    def units(self) -> dict[str, float]:
        """Grid of each part, by name: released numbers are multiples of it, rounded to float32."""
        step = 2.0**-self.lattice_bits
        bound = self.final_clip_norm
        return {"second": step**2 * bound**2, "cross": step**2 * bound, "counts": step}

    @property
    def noise_std_second(self) -> float:
        """Standard deviation of the noise in a diagonal entry of X'X; off the diagonal it is 1/sqrt(2) of that."""
        return self.final_clip_norm**2 * self.second_noise_multiplier

    @property
    def noise_std_cross(self) -> float:
        """Standard deviation of the noise in an entry of X'Y."""
        return self.final_clip_norm * self.label_norm * self.cross_noise_multiplier

    @property
    def noise_std_counts(self) -> float:
        """Standard deviation of the noise in an entry of Y'1."""
        return self.label_norm * self.count_noise_multiplier

    @property
    def noise_std(self) -> dict[str, float]:
        """By part; ``second`` is that of the diagonal."""
        return {"second": self.noise_std_second, "cross": self.noise_std_cross, "counts": self.noise_std_counts}
