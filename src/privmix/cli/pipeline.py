"""Steps that several verbs share: class lists from flags, features from raw inputs, charges to a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privmix.accounting import Adjacency, Event
from privmix.data import FeatureStore, Source, content_hashes
from privmix.data.fingerprint import files_of, fingerprint, listing_hash
from privmix.data.remote import is_remote, local_path, public_name
from privmix.errors import InvalidInput, StorageError
from privmix.features import Extractor, write_features
from privmix.ledger import Contents, Ledger, Reservation
from privmix.release import PrivateRecords
from privmix.release.engine import Progress


def class_list(text: str | None) -> int | list[str] | None:
    """``"10"`` means ten classes "0".."9"; ``"cat,dog"`` names them; ``"@FILE"`` names a file with one a line."""
    if text is None:
        return None
    if text.startswith("@"):
        try:
            names = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise StorageError(f"--classes: can't read {text[1:]} as text") from None
        names = [name.strip() for name in names if name.strip()]
    else:
        try:
            return int(text)
        except ValueError:
            names = [name.strip() for name in text.split(",")]
    if len(names) < 2 or not all(names):
        raise InvalidInput("--classes", text, "a number of classes, or at least two names separated by commas")
    return names


def features_in_memory(source: Source, extractor: Extractor, progress: Progress) -> PrivateRecords:
    """Read raw records and return their features (n, d) and labels (n,)."""
    return features_of_all([source], extractor, progress)


def features_of_all(sources: Sequence[Source], extractor: Extractor, progress: Progress) -> PrivateRecords:
    """Features and labels of several sources of one input shape, one after the other in one array."""
    for source in sources:
        extractor.check_schema(source.schema)
    total = sum(source.schema.records for source in sources)
    features = np.empty((total, extractor.output_dim(sources[0].schema.input_shape)), np.float32)
    labels = np.empty(total, np.int64)
    done = 0
    for source in sources:
        for batch in source.batches(extractor.step):
            end = done + len(batch.y)
            features[done:end], labels[done:end] = extractor.transform(batch.x), batch.y
            done = end
            progress(f"features ({extractor.name})", done, total)
    return PrivateRecords(features, labels)


def features_on_disk(
    source: Source, extractor: Extractor, store: Path, progress: Progress, data: str, split: str
) -> FeatureStore:
    """Features in a store, made, continued or reused; only for the very files, split, classes and extractor."""
    return write_features(source, extractor, store, {"split": split, "files": _identity(data)}, progress)


def _identity(data: str) -> list[list[Any]]:
    """Path, size and time of change of every file of a dataset; private, and kept in the private store only."""
    if is_remote(data):
        # Nothing cheap tells changed remote content: hash it.
        return [[public_name(data), fingerprint(data)]]
    files = files_of(local_path(data))
    return [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]


@dataclass(frozen=True)
class Charge:
    """Budget taken from a ledger, or nothing where no ledger is used; ``mode`` is none, planned or adaptive."""

    url: str | None = None
    reservation: Reservation | None = None
    mode: str = "none"

    @classmethod
    def noted(cls, url: str | None, dataset: str | None) -> Charge:
        """The charge of a run that is complete: nothing is left to note, but its certificate names the mode."""
        return cls() if url is None or dataset is None else cls(mode=Ledger.open(url).mode(dataset))

    def done(self, result: str) -> None:
        """Record what came of it."""
        if self.url is not None and self.reservation is not None:
            Ledger.open(self.url).commit(self.reservation, result=result)

    def note(self) -> dict[str, Any] | None:
        """What an interrupted run must remember to find its reservation again."""
        return None if self.reservation is None else asdict(self.reservation)

    @classmethod
    def again(
        cls, url: str | None, dataset: str | None, note: Mapping[str, Any] | None, data: str, source: Source
    ) -> Charge:
        """The charge of an interrupted run: it was made before and is not made twice.

        Raises:
            InvalidInput: the ledger or dataset is another one than the run was charged to, or the data has its budget
                under another name.
        """
        if (url is None) != (note is None):
            raise InvalidInput("--ledger", url, "as in the interrupted run: given there, or not")
        if url is None or note is None:
            return cls()
        reservation = Reservation(**note)
        if reservation.dataset != dataset:
            raise InvalidInput("--dataset", dataset, "the dataset that the interrupted run was charged to")
        book = Ledger.open(url)
        book.require(reservation)
        # The data may be other data by now, if the run was interrupted before it noted its records.
        book.bind(reservation, _contents(book, data, source))
        return cls(url, reservation, book.mode(reservation.dataset))


def charge(
    ledger: str | None, dataset: str | None, event: Event, adjacency: Adjacency, purpose: str, data: str, source: Source
) -> Charge:
    """Take the cost of ``event`` from the dataset's budget, durably. Without a ledger it does nothing.

    Call it before the first private record is used. The files' bytes are hashed before, which nothing but the ledger
    learns of: a hash under another name is refused, and nothing is charged under a wrong one.
    """
    if ledger is None or dataset is None:
        return Charge()
    book = Ledger.open(ledger)
    # What the budget does not hold is refused before a large dataset is hashed.
    book.check(dataset, event, adjacency=adjacency)
    contents = _contents(book, data, source)
    reservation = book.reserve(dataset, event, adjacency=adjacency, purpose=purpose, contents=contents)
    return Charge(ledger, reservation, book.mode(dataset))


def _contents(book: Ledger, data: str, source: Source) -> Contents:
    """What the ledger knows the data by; also as earlier versions did, where it holds what they wrote."""
    hashes = content_hashes(source)
    if not book.keeps_listings():
        return Contents(hashes)
    return Contents(hashes, (fingerprint(data), *(listing_hash([one]) for one in hashes)))
