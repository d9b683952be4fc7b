"""What is called public must not be the private data: by place and files before the charge, by records after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privmix.data import Source, content_hashes
from privmix.data.overlap import Contents as RecordHashes
from privmix.data.overlap import PersonsContents as PersonsHashes
from privmix.data.overlap import Sketch, same_files, same_place
from privmix.data.pool_card import made_of
from privmix.errors import WITHHELD, InvalidInput, in_terms_of
from privmix.features import Extractor
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import listings_of
from privmix.ledger import Contents, Ledger

if TYPE_CHECKING:
    from privmix.training import ModelFacts

_PRIVATE = "public records; this is the private dataset"


def refuse_private(given: Mapping[str, Any], data: Any, split: str) -> None:
    """Raise :class:`InvalidInput` where what is called public is the private data itself, by its place or files.

    What is called public is read as a training split. Another split of the same place may be private, so that files are
    compared there and not places. Data in memory are compared by :func:`refuse_overlap`.
    """
    for flag, place in given.items():
        if place is None:
            continue
        if split == "train" and _same_objects(place, data):
            raise InvalidInput(flag, WITHHELD, _PRIVATE)
        if isinstance(place, str | Path) and isinstance(data, str | Path):
            with in_terms_of(part=flag):
                same = split == "train" and same_place(str(place), str(data))
                same = same or same_files(str(place), str(data), split)
            if same:
                raise InvalidInput(flag, str(place), _PRIVATE)


def _same_objects(public: Any, private: Any) -> bool:
    """Whether data in memory are the same: as a whole, or the inputs of two pairs (inputs, labels)."""
    pairs = isinstance(public, tuple) and isinstance(private, tuple) and public and private
    return public is private or bool(pairs and public[0] is private[0])


def refuse_charged(field: str, place: Any, source: Source, ledger: str) -> None:
    """Raise :class:`InvalidInput` where what is called public was charged to a ledger.

    A ledger keeps hashes of files and of no record, which whoever reads it could guess one by one. So it recognises
    files byte by byte, and records in memory as they were given: the same records in another format, order or
    compression, or some of them, pass.

    Args:
        field: what messages call the data.
        place: where they are, as it was given.
        source: the same, opened.
        ledger: its address.

    Raises:
        InvalidInput: the data were charged to it; or no data were, so that it could recognise none.
    """
    book = Ledger.open(ledger)
    if not book.knows_data():
        allowed = "one that data were charged to: this one recognises no private data yet"
        raise InvalidInput("ledger", "a ledger without data", allowed)
    files = content_hashes(source)
    listings = listings_of(str(place), files) if isinstance(place, str | Path) and book.keeps_listings() else ()
    if book.knows(Contents(files, listings)):
        raise InvalidInput(field, "data with a budget", "public data; this ledger knows it as private")


def sources_of(
    given: Mapping[str, Any], extractor: Extractor, facts: ModelFacts, columns: Columns
) -> dict[str, Source]:
    """Each public dataset of ``privmix train``, opened, by its flag."""
    from privmix.training.examples import open_source

    found = {}
    options = pool_options(extractor, columns)
    for flag, place in given.items():
        if place is not None:
            with in_terms_of(part=flag):
                found[flag] = open_source(place, facts.classes, "train", {"input_shape": facts.input_shape, **options})
    return found


def contents_of(sources: Mapping[str, Source]) -> dict[str, RecordHashes]:
    """Hashes of the records of public datasets, by the flags that name them."""
    found = {}
    for flag, source in sources.items():
        with in_terms_of(part=flag):
            found[flag] = RecordHashes.of(source)
    return found


def origins_of(sources: Mapping[str, Source]) -> list[tuple[str, Sketch]]:
    """What public datasets were made of, as far as they are pools of synthetic images that lie here with their cards.

    Raises:
        InvalidInput, StorageError: a pool's card can't be read.
    """
    found = []
    for flag, source in sources.items():
        with in_terms_of(part=flag):
            sketches = [made_of(file) for file in source.files]
        found += [(flag, sketch) for sketch in sketches if sketch is not None]
    return found


def refuse_overlap(
    given: Mapping[str, RecordHashes],
    source: Source,
    made_of: Iterable[tuple[str, Sketch]],
    whose: Callable[[], NDArray[np.int64] | None] = lambda: None,
) -> None:
    """Raise :class:`InvalidInput` where public records are in large part private ones, in whatever format.

    It reads the private records, so budget is charged before it is called, and its answer is for the owner: nothing
    is published after it is no.

    Args:
        given: public records, by the field that names them.
        source: the private ones.
        made_of: (the field that names synthetic records, what these were made of).
        whose: gives whose each private record is, where persons are the unit: each counts with one record then.
    """
    sketches = list(made_of)
    if not given and not sketches:
        return
    persons = whose()
    private = RecordHashes.of(source) if persons is None else PersonsHashes.of(source, persons)
    for flag, contents in given.items():
        if contents.overlaps(private.beside(contents.counts)):
            raise InvalidInput(flag, WITHHELD, "public records; many of these are records of the private dataset")
    for flag, sketch in sketches:
        if sketch.overlaps(private.beside(frozenset(sketch.digests))):
            allowed = (
                "a pool made of public images; many of those that this one was made of are records of the private "
                "dataset, and pool and card tell of them"
            )
            raise InvalidInput(flag, WITHHELD, allowed)


def pool_options(extractor: Extractor, columns: Columns) -> dict[str, Any]:
    """How a public dataset beside the private one is opened; its shapes are the private one's."""
    text = columns.text_column or ("text" if extractor.reads.name in ("minilm", "text") else None)
    return {
        "label_column": columns.label,
        "image_column": columns.image_column,
        "feature_column": columns.feature_column,
        "text_column": text,
        "columns": getattr(extractor.reads, "columns", None),
        "number_columns": columns.number_names,
        "decoder": extractor.reads.decoder,
        "dialect": columns.dialect(getattr(extractor.reads, "number_columns", ()), needed=False),
    }
