"""Several sources of one schema, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from privmix.data.manifest import Manifest
from privmix.data.source import Schema, Source
from privmix.errors import InvalidInput


class ShardedSource(Source):
    """The records of ``shards`` in their order, read one shard at a time.

    Args:
        shards: at least one source; all have the same input shape, classes and columns.

    Raises:
        InvalidInput: a shard differs in its public facts.

    Example:
        >>> import numpy as np
        >>> from privmix.data import ArraySource
        >>> part = ArraySource(np.eye(2), np.array([0, 1]), ("cat", "dog"))
        >>> ShardedSource([part, part]).read().y.tolist()
        [0, 1, 0, 1]
    """

    def __init__(self, shards: Sequence[Source]) -> None:
        if not shards:
            raise InvalidInput("shards", 0, "at least one")
        self._shards = list(shards)
        first = self._shards[0].schema
        for shard in self._shards:
            if replace(shard.schema, records=first.records) != first:
                raise InvalidInput(
                    "shards", "another input shape or list of classes", "files of one shape and class list"
                )
        self._schema = replace(first, records=sum(shard.schema.records for shard in self._shards))

    @property
    def schema(self) -> Schema:
        """That of the shards, with all their records."""
        return self._schema

    def _chunks(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        return self._chunks_from(0, size)

    def _chunks_from(self, first: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        return self._chunks_until(first, self._schema.records, size)

    def _chunks_until(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for shard in self._shards:
            records = shard.schema.records
            if first < records and stop > 0:
                if stop < records:
                    yield from shard._chunks_until(first, stop, size)
                else:
                    yield from shard._chunks_from(first, size) if first else shard._chunks(size)
            first, stop = max(0, first - records), stop - records

    @property
    def travels(self) -> bool:  # type: ignore[override]
        """Where all shards do."""
        return all(shard.travels for shard in self._shards)

    def manifest(self) -> Manifest:
        """Those of the shards, one after the other."""
        return Manifest.joined(shard.manifest() for shard in self._shards)


def joined(shards: Sequence[Source]) -> Source:
    """One source of several, if they are several."""
    return shards[0] if len(shards) == 1 else ShardedSource(shards)
