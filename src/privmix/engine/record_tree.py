"""A run's commitment to its records: the root of a Merkle tree (1979) over them, under a key of its own."""
# Nodes are keyed BLAKE2b: without the key they confirm no guess at records or at their number. The height is fixed.

import hashlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.engine.records import RecordTiles, mapping, record_tiles
from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.streams import SecretStreams

FAN_IN: Final = 16
HEIGHT: Final = 10
"""Levels of the tree: it holds 16**10 units, about 10**12."""

_AT_ONCE: Final = 1024
_LEAF, _NODE, _EMPTY = b"privmix-leaf", b"privmix-node", b"privmix-empty"
# Levels of the tree that the leaves of a record tile fill: 16**4 is a tile.
_TILE_LEVELS: Final = 4


def commitment_key(streams: SecretStreams) -> bytes:
    """Return the key of the tree of a run with these streams; the streams' own key does not follow from it."""
    return streams.derive("record commitment").share()


def records_root(records: RecordTiles, key: bytes, workers: int = 1) -> str:
    """Root over records as they are mixed: features, label and, for persons, the person; 64 hexadecimal digits.

    Formal guarantees:
        * binding: other records, in another order, of other persons or labels, have another root, unless BLAKE2b is
          broken;
        * hiding: without ``key`` it is a pseudo-random number, which reveals neither records nor their number;
        * the same root for any number of workers, and for any place of the records.
    """
    # A tile is a whole subtree, so that the root does not depend on the cut into tiles.
    assert FAN_IN**_TILE_LEVELS == RECORD_TILE
    if records.units > FAN_IN**HEIGHT:
        raise InvalidInput("records", WITHHELD, f"at most {FAN_IN**HEIGHT}")
    with mapping(workers) as each:
        level: list[bytes] = list(each(lambda index: _tile_node(records, index, key), range(record_tiles(records))))
    for height in range(_TILE_LEVELS, HEIGHT):
        level = _above(level, height, key)
    return level[0].hex()


def _tile_node(records: RecordTiles, index: int, key: bytes) -> bytes:
    level = list(_leaves(records, index, key))
    for height in range(_TILE_LEVELS):
        level = _above(level, height, key)
    return level[0]


def _leaves(records: RecordTiles, index: int, key: bytes) -> Iterator[bytes]:
    """Yield a hash of each unit of a tile: of its records' features and labels, and what they look like in bytes."""
    features, labels = records.tile(index)
    starts = records.starts(index)
    # The same bytes as numbers of another type have another root.
    head = f"{features.dtype.str} {features.shape[1]}".encode()
    labels = np.ascontiguousarray(labels, np.int64)
    if starts is None:
        for first in range(0, len(labels), _AT_ONCE):
            block = np.ascontiguousarray(features[first : first + _AT_ONCE])
            for row, label in zip(block, labels[first : first + _AT_ONCE], strict=True):
                yield _leaf(head, [row], label, key)
        return
    for first, stop in pairwise(starts):
        rows = (np.ascontiguousarray(features[at : min(at + _AT_ONCE, stop)]) for at in range(first, stop, _AT_ONCE))
        yield _leaf(head, rows, labels[first:stop], key)


def _leaf(head: bytes, rows: Iterable[NDArray[Any]], labels: NDArray[np.int64], key: bytes) -> bytes:
    # Leaves and nodes are hashed with different marks, so that no record can pass as a node.
    hasher = hashlib.blake2b(head, key=key, digest_size=32, person=_LEAF)
    hasher.update(labels.tobytes())
    for row in rows:
        hasher.update(row.data)
    return hasher.digest()


def _above(level: list[bytes], height: int, key: bytes) -> list[bytes]:
    """Return the nodes one level up; groups that are not full are filled with the empty node of their level."""
    # With its height: a node of one level stands for none of another.
    empty = hashlib.blake2b(bytes([height]), key=key, digest_size=32, person=_EMPTY).digest()
    level = level + [empty] * (-len(level) % FAN_IN)
    return [
        hashlib.blake2b(
            bytes([height]) + b"".join(level[first : first + FAN_IN]), key=key, digest_size=32, person=_NODE
        ).digest()
        for first in range(0, len(level), FAN_IN)
    ]
