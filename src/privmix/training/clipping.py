"""How one record's gradient is bounded before it is summed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from privmix.errors import check_choice, check_number

FLAT: Final = "flat"
AUTOMATIC: Final = "automatic"
CLIPPINGS: Final = (FLAT, AUTOMATIC)
# Norms and products are rounded in float32: without this, a clipped gradient could be longer than the bound by 1e-6.
_SAFE: Final = 1 - 2.0**-18


@dataclass(frozen=True)
class Clipping:
    """Bound a vector's L2 norm by ``clip_norm``.

    ``flat`` scales by min(1, C / norm) (Abadi et al. 2016). ``automatic`` scales by C / (norm + gamma), which
    normalises every gradient and leaves one hyper-parameter less to choose (AUTO-S; Bu, Wang, Zha, Karypis 2023).

    Formal guarantees:
        * Bounded: factor times norm is at most ``clip_norm``, also after rounding to float32.
        * Total: a norm that is infinite or not a number has factor 0, such a record counts as absent.
        * Own record only: a factor depends on that record's norm.

    Example:
        >>> Clipping(1.0).factors(torch.tensor([0.5, 2.0, torch.nan])).round(decimals=4).tolist()
        [1.0, 0.5, 0.0]
    """

    clip_norm: float
    kind: str = FLAT
    gamma: float = 0.01

    def __post_init__(self) -> None:
        check_number("clip_norm", self.clip_norm, low=0, low_open=True)
        check_choice("clipping", self.kind, CLIPPINGS)
        check_number("gamma", self.gamma, low=0, low_open=True)

    def factors(self, norms: Tensor) -> Tensor:
        """(b,) norms -> (b,) factors."""
        bound = self.clip_norm * _SAFE
        factors = bound / (norms + self.gamma) if self.kind == AUTOMATIC else (bound / norms).clamp(max=1.0)
        return torch.where(torch.isfinite(norms), factors, torch.zeros_like(norms))
