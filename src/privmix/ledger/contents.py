"""Identity of private data: the hashes of its files, each of which has one budget only."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy
from sqlalchemy import Connection, Row, insert, select

from privmix.errors import WITHHELD, InvalidInput
from privmix.ledger.database import datasets, fingerprints

_HASH: Final = re.compile(r"[0-9a-f]{64}")
# Databases limit the values of one statement.
_AT_ONCE: Final = 500


@dataclass(frozen=True)
class DataIdentity:
    """Identity of a reservation's data: SHA-256 of each file; ``listings`` of earlier versions, for look-up."""

    files: tuple[str, ...] = ()
    listings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Withheld: the hash of a small private file confirms a guess of its content.
        if not all(_HASH.fullmatch(value) for value in (*self.files, *self.listings)):
            raise InvalidInput("contents", WITHHELD, "SHA-256 hashes in hexadecimal")


def bind(connection: Connection, dataset: Row[Any], contents: DataIdentity) -> list[str]:
    """Record that the files belong to ``dataset``; returns those that no dataset had."""
    owners = owners_of(connection, contents)
    for owner in owners.values():
        if owner != dataset.id:
            name = connection.execute(select(datasets.c.name).where(datasets.c.id == owner)).scalar_one()
            raise InvalidInput("dataset", dataset.name, f"{name}, the name with this data's budget")
    new = sorted(set(contents.files) - set(owners))
    try:
        for start in range(0, len(new), _AT_ONCE):
            part = new[start : start + _AT_ONCE]
            rows = [{"fingerprint": value, "dataset_id": dataset.id, "kind": "file"} for value in part]
            connection.execute(insert(fingerprints), rows)
    except sqlalchemy.exc.IntegrityError:
        # Another call bound it under another name since the check.
        raise InvalidInput("dataset", dataset.name, "the name with this data's budget") from None
    return new


def bound_by(entry: dict[str, Any]) -> Iterable[tuple[str, str]]:
    if "fingerprint" in entry:
        yield entry["fingerprint"], "listing"
    for value in entry.get("files", ()):
        yield value, "file"


def owners_of(connection: Connection, contents: DataIdentity) -> dict[str, int]:
    """Return the ids of the datasets that the contents belong to, by hash."""
    # Ledgers of the first version keep one hash for each listing: data are recognised by either form.
    return _owners(connection, contents.files, "file") | _owners(connection, contents.listings, "listing")


def _owners(connection: Connection, hashes: Sequence[str], kind: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(hashes), _AT_ONCE):
        rows = connection.execute(
            select(fingerprints.c.fingerprint, fingerprints.c.dataset_id)
            .where(fingerprints.c.fingerprint.in_(hashes[start : start + _AT_ONCE]))
            .where(fingerprints.c.kind == kind)
        )
        found |= {row.fingerprint: row.dataset_id for row in rows}
    return found
