"""Several sources of one schema, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from privmix.data.manifest import Manifest
from privmix.data.source import Source
from privmix.errors import InvalidInput


class ShardedSource(Source):
    """The records of ``shards`` in order, one shard at a time; input shape, classes and columns must agree."""

    def __init__(self, shards: Sequence[Source]) -> None:
        if not shards:
            raise InvalidInput("shards", 0, "at least one")
        self._shards = list(shards)
        first = self._shards[0].schema
        for shard in self._shards:
            if replace(shard.schema, records=first.records) != first:
                raise InvalidInput(
                    "shards", "another input shape or list of classes", "files with one shape and one class list"
                )
        self._schema = replace(first, records=sum(shard.schema.records for shard in self._shards))

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for shard in self._shards:
            records = shard.schema.records
            if first < records and stop > 0:
                yield from shard._chunks(first, min(stop, records), size)
            first, stop = max(0, first - records), stop - records

    @property
    def travels(self) -> bool:  # type: ignore[override]
        return all(shard.travels for shard in self._shards)

    def manifest(self) -> Manifest:
        return Manifest.joined(shard.manifest() for shard in self._shards)


def named_arrays(path: Path, names: Collection[str], split: str, labelled: bool, kind: str) -> list[str]:
    """Names of the inputs' and the labels' array: ``x_train`` and ``y_train`` (``x_test``, ...), else ``x``, ``y``."""
    suffix = f"_{split}" if f"x_{split}" in names else ""
    if not suffix and {"x_train", "x_test"} & set(names):
        raise InvalidInput("split", split, f"a split of {path}")
    wanted = [f"{letter}{suffix}" for letter in ("xy" if labelled else "x")]
    for name in wanted:
        if name not in names:
            raise InvalidInput(str(path), f"no {kind} {name}", f"{kind}s x and y")
    return wanted


def joined(shards: Sequence[Source]) -> Source:
    return shards[0] if len(shards) == 1 else ShardedSource(shards)
