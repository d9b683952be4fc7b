"""Tables of the ledger, and how its history is chained."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Column, Float, ForeignKey, Integer, MetaData, String, Table, Text

metadata = MetaData()

datasets: Final = Table(
    "datasets",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("epsilon", Float(53), nullable=False),
    Column("delta", Float(53), nullable=False),
    Column("adjacency", String(20), nullable=False),
    # A privacy filter as JSON; nothing where plans are fixed in advance and priced together.
    Column("filter", Text, nullable=True),
    # The end of the history; a reservation locks this row, so entries of a dataset are written one at a time.
    Column("entries", Integer, nullable=False),
    Column("head", String(64), nullable=False),
)

entries: Final = Table(
    "entries",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("content", Text, nullable=False),
    Column("hash", String(64), nullable=False),
)

fingerprints: Final = Table(
    "fingerprints",
    metadata,
    # One budget for one content: the key refuses a second name for it.
    Column("fingerprint", String(64), primary_key=True),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False),
    # "file": hash of one file's bytes; "listing": of the hashes of all files of a place, as the first version kept it.
    Column("kind", String(20), nullable=False, server_default="listing"),
)

FIRST_HASH: Final = "0" * 64


def canonical(content: Mapping[str, Any]) -> str:
    """The one JSON text of an entry, which is stored and hashed."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def chained(previous: str, text: str) -> str:
    """Hash of an entry: of the entry before it and its own text."""
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()
