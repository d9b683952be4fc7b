"""Cyclic Poisson batches: in each step, one group of the records has its turn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privmix.mechanisms.membership import RECORD_TILE
from privmix.training.batches import PoissonBatches
from privmix.training.mechanisms.banded.plan import BandedPlan


class CyclicBatches(PoissonBatches):
    """Batches of a banded plan.

    Formal guarantees:
        * Own group: each record's group is an independent uniform draw of its own, from a stream of sampling, and the
          same in every step. Nothing decides a group but chance: no label, no feature and no other record.
        * Own turn: in step t a record joins with probability ``plan.group_rate`` if its group is t mod b, and never if
          not.

    Example:
        >>> from privmix.mechanisms.streams import SecretStreams
        >>> plan = BandedPlan(1000, 50, 20, 1.0, clip_norm=1.0, delta=1e-3, coefficients=(0.8, 0.6))
        >>> batches = CyclicBatches(plan, SecretStreams.from_seed(0), 1000)
        >>> bool(np.intersect1d(batches.draw(2).indices, batches.draw(3).indices).size)
        False
    """

    def _members(self, step: int) -> NDArray[np.int64]:
        assert isinstance(self.plan, BandedPlan)
        members = super()._members(step)
        turn = self._groups(self.plan.bands)[members - self._first_tile * RECORD_TILE] == step % self.plan.bands
        return np.asarray(members[turn])

    def _groups(self, bands: int) -> NDArray[np.int32]:
        """Of the records of the shard's tiles. Secret."""
        found: NDArray[np.int32] | None = getattr(self, "_drawn", None)
        if found is None:
            parts = []
            for tile in range(self._first_tile, self._last_tile + 1):
                size = min(RECORD_TILE, self.records - tile * RECORD_TILE)
                with self.streams.lent("groups", tile) as generator:
                    parts.append(generator.integers(bands, size=size, dtype=np.int32))
            found = self._drawn = np.concatenate(parts)
        return found
