"""Samplers with planted bugs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from privmix.mechanisms.membership import RECORD_TILE, Membership, offsets_of
from privmix.mechanisms.streams import SecretStreams


def in_two_rows(honest: Callable[..., Membership]) -> Callable[..., Membership]:
    """A sampler that draws twice: most records are in two rows of every block."""

    def draw(self: Any, streams: SecretStreams, row_tile: int, record_tile: int, labels: Any = None) -> Membership:
        drawn = [honest(self, one, row_tile, record_tile) for one in (streams, streams.derive("again"))]
        cells = [np.repeat(np.arange(one.rows), one.counts) * RECORD_TILE + one.indices for one in drawn]
        row, record = np.divmod(np.union1d(*cells), RECORD_TILE)
        return Membership(offsets_of(np.bincount(row, minlength=drawn[0].rows)), record)

    return draw
