"""Randomness that belongs to one record: a vectorised counter-based generator on the records' own seeds."""
# A draw is a hash of (seed, purpose, counter), by the finaliser of splitmix64 (Steele, Lea and Flood 2014). It is no
# cipher: a record's views may depend on its data and on any randomness that is independent of the other records. Noise
# and sampling draw from :mod:`privmix.mechanisms.streams`.

from __future__ import annotations

import hashlib
import math
from typing import Final

import torch
from torch import Tensor

from privmix.errors import InvalidInput, check_integer, check_number

# 2**64 / golden ratio, and the two multipliers of splitmix64, as signed integers.
_STEP: Final = 0x9E3779B97F4A7C15 - 2**64
_FIRST: Final = 0xBF58476D1CE4E5B9 - 2**64
_SECOND: Final = 0x94D049BB133111EB - 2**64


class RecordRandom:
    """Random numbers for b records, each a function of its record's seed (63 bits), a purpose and a counter.

    There is no state: the same call gives the same numbers again, so each use has a purpose (a name) of its own. The
    first entries of a longer draw are those of a shorter one along its first axis.

    Formal guarantees:
        * Own seed only: row i of every result is a function of ``seeds[i]``, for any number of other seeds.
        * Purposes apart: draws of one purpose do not change when draws of another are added.
        * Every device: bits, uniforms, integers, subsets and pairs are equal to the last bit on CPU and CUDA. Normals
          and betas are computed in float64 and equal but for the last bit of float32, rarely.
    """

    def __init__(self, seeds: Tensor) -> None:
        if seeds.dtype != torch.int64 or seeds.dim() != 1:
            raise InvalidInput("seeds", f"{seeds.dim()} axes of {seeds.dtype}", "one int64 seed a record")
        self._seeds = seeds
        self._mixed = _mix(seeds + _STEP)

    def __len__(self) -> int:
        return len(self._seeds)

    @property
    def device(self) -> torch.device:
        return self._seeds.device

    def bits(self, purpose: str, *shape: int) -> Tensor:
        """(b, *shape) int64 of 64 random bits each."""
        digest = hashlib.blake2b(purpose.encode(), digest_size=8).digest()
        key = _mix(self._mixed ^ int.from_bytes(digest, "little", signed=True))
        counters = torch.arange(1, math.prod(shape) + 1, device=self.device) * _STEP
        return _mix(key[:, None] + counters).view(len(self), *shape)

    def uniform(self, purpose: str, *shape: int) -> Tensor:
        """(b, *shape) float32 in [0, 1), multiples of 2**-24."""
        return _shift(self.bits(purpose, *shape), 40).to(torch.float32) * 2.0**-24

    def integers(self, purpose: str, high: int, *shape: int) -> Tensor:
        """(b, *shape) int64 from 0 to ``high - 1``; for high < 2**31 no probability is off by more than 2**-53."""
        check_integer("high", high, low=1, high=2**31)
        unit = _shift(self.bits(purpose, *shape), 11).to(torch.float64) * 2.0**-53
        return (unit * high).to(torch.int64).clamp_(max=high - 1)

    def normal(self, purpose: str, *shape: int) -> Tensor:
        """(b, *shape) float32 standard normals (Box and Muller 1958)."""
        count = math.prod(shape)
        pairs = self._open(purpose, (count + 1) // 2, 2)
        radius = torch.sqrt(-2.0 * torch.log(pairs[..., 0].contiguous()))
        angle = 2.0 * math.pi * pairs[..., 1].contiguous()
        both = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=-1)
        return both.flatten(start_dim=1)[:, :count].reshape(len(self), *shape).to(torch.float32)

    def beta(self, purpose: str, alpha: float, *shape: int) -> Tensor:
        """Symmetric Beta(alpha, alpha) numbers, float32, from four uniforms each, without rejection."""
        # Let W ~ Beta(alpha + 1, alpha + 1) by Ulrich's polar method (1984), with uniforms U, V. The ratio W
        # U^(1/alpha) / (W U^(1/alpha) + (1 - W) V^(1/alpha)) is Beta(alpha, alpha). The reason is that Gamma(alpha + 1)
        # times U^(1/alpha) is Gamma(alpha). It is formed from logarithms, as U^(1/alpha) underflows for small alpha.
        check_number("alpha", alpha, low=0, low_open=True)
        radial, angle, first, second = (part.contiguous() for part in self._open(purpose, *shape, 4).unbind(-1))
        share = 0.5 + 0.5 * torch.sqrt(1.0 - radial ** (2.0 / (2.0 * alpha + 1.0))) * torch.cos(2.0 * math.pi * angle)
        odds = torch.log(share) - torch.log1p(-share) + (torch.log(first) - torch.log(second)) / alpha
        return torch.sigmoid(odds).to(torch.float32)

    def subset(self, purpose: str, high: int, size: int) -> Tensor:
        """(b, size) int64: distinct numbers from 0 to ``high - 1``, each set equally likely, in biased order."""
        # Floyd's algorithm (Bentley and Floyd 1987).
        check_integer("size of a subset", size, low=0, high=high)
        chosen = torch.empty(len(self), size, dtype=torch.int64, device=self.device)
        for place in range(size):
            last = high - size + place
            drawn = self.integers(f"{purpose}/{place}", last + 1)
            taken = (chosen[:, :place] == drawn[:, None]).any(dim=1)
            chosen[:, place] = torch.where(taken, last, drawn)
        return chosen

    def pairs(self, purpose: str, high: int, count: int) -> tuple[Tensor, Tensor]:
        """Two (b, count) int64: ordered pairs of distinct numbers below ``high``, all equally likely."""
        check_integer("members to pair", high, low=2)
        first = self.integers(f"{purpose}/first", high, count)
        second = self.integers(f"{purpose}/second", high - 1, count)
        return first, second + (second >= first)

    def derive(self, purpose: str) -> RecordRandom:
        """Another generator for the same records: its draws are independent of this one's, purpose by purpose."""
        return RecordRandom(self.bits(f"derive/{purpose}"))

    def views(self, count: int) -> RecordRandom:
        """Return a generator for b * count views, record by record; a view's draws do not depend on ``count``."""
        return RecordRandom(self.bits("views", count).flatten())

    def select(self, index: Tensor) -> RecordRandom:
        return RecordRandom(self._seeds[index])

    def _open(self, purpose: str, *shape: int) -> Tensor:
        """(b, *shape) float64 in the open interval (0, 1), where a logarithm is finite."""
        return (_shift(self.bits(purpose, *shape), 12).to(torch.float64) + 0.5) * 2.0**-52


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    return z ^ _shift(z, 31)


def _shift(z: Tensor, places: int) -> Tensor:
    # Tensors shift arithmetically: the mask takes the copies of the sign off.
    shifted: Tensor = (z >> places) & (2 ** (64 - places) - 1)
    return shifted
