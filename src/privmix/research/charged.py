"""Refuse data called public that a ledger lists as private."""

from pathlib import Path
from typing import Any

from privmix.data.dataset import Source
from privmix.data.fingerprint import content_hashes
from privmix.errors import InvalidInput
from privmix.jobs.dataset import listings_of
from privmix.ledger.contents import DataIdentity
from privmix.ledger.ledger import Ledger


def refuse_charged(field: str, place: Any, source: Source, ledger: str) -> None:
    """Raise :class:`InvalidInput` where `source`, which is called public, was charged to a ledger."""
    # A ledger keeps hashes of files, and of no record: its readers could guess these one by one. So it recognises
    # files byte by byte, and records in memory as given; another format, order or selection passes.
    book = Ledger.open(ledger)
    if not book.knows_data():
        allowed = "a ledger that was charged for data: this one cannot recognise private data yet"
        raise InvalidInput("ledger", "a ledger without data", allowed)
    files = content_hashes(source)
    listings = listings_of(str(place), files) if isinstance(place, str | Path) and book.keeps_listings() else ()
    if book.knows(DataIdentity(files, listings)):
        raise InvalidInput(field, "data with a budget", "public data: this ledger lists the dataset as private")
