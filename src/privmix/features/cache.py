"""From raw records to a feature store on disk: kept, verified, and resumed after a crash."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from privmix.data.source import Schema, Source
from privmix.data.store import FeatureStore, FeatureStoreWriter
from privmix.data.tiles import TileFolder
from privmix.errors import InvalidInput
from privmix.features.base import Extractor
from privmix.progress import Progress

Rows = Generator[tuple[NDArray[Any], NDArray[Any]], None, None]


class Encoder(Protocol):
    """Where features are made: here (:class:`Here`), or by workers of a cluster."""

    def runtime(self) -> Mapping[str, Any]:
        """What may change the last bits of features: see :meth:`privmix.features.Extractor.runtime`."""

    def rows(self, source: Source, writer: FeatureStoreWriter) -> Rows:
        """(b, d) features and (b,) labels in the order of the records, from the first one on that the store lacks."""


@dataclass(frozen=True)
class Here:
    """Features are made by this process, one batch after the other."""

    extractor: Extractor

    def runtime(self) -> Mapping[str, Any]:
        """See :class:`Encoder`."""
        return self.extractor.runtime()

    def rows(self, source: Source, writer: FeatureStoreWriter) -> Rows:
        """See :class:`Encoder`."""
        for batch in source.batches(self.extractor.step, writer.rows):
            yield self.extractor.transform(batch.x), batch.y
        # Workers of an attempt that this one finishes may have left theirs.
        TileFolder.clear(writer.path)


def write_features(
    source: Source,
    extractor: Extractor,
    path: str | Path,
    made_from: Mapping[str, Any],
    progress: Progress | None = None,
    *,
    encoder: Encoder | None = None,
    check: Callable[[], None] | None = None,
) -> FeatureStore:
    """The features of ``source`` in the store at ``path``, made unless they are there already.

    A store that is finished is verified and reused if it was made from the same data by the same extractor. One that
    was interrupted, by whatever means, is continued: only records that are not on the disk are read and transformed,
    and what a file's format makes one read to get to them (:meth:`privmix.data.Source.manifest`). A continued store has
    the same bytes as one made at one go; to that end it is begun anew where device, threads or libraries have changed
    since.

    Reads private records: charge the ledger first.

    Args:
        source: raw records.
        extractor: public, per record.
        path: folder of the store. Private.
        made_from: what tells this data from others: split, files or fingerprint; JSON values. Kept in the store only.
        progress: called after every step with a description, the records done and their number.
        encoder: where features are made; None: here.
        check: called when all are written, before they are a store; raises where they are not to be one.

    Raises:
        InvalidInput: the extractor does not take such records, or ``path`` holds something else; a record is not
            acceptable (not shown; what was written is then removed).
        StorageError: reading or writing failed, or another process is writing the store. What is on the disk is kept.

    Example:
        >>> import tempfile
        >>> from privmix.data import embedded_digits
        >>> from privmix.features import get_extractor
        >>> folder = Path(tempfile.mkdtemp()) / "store"
        >>> write_features(embedded_digits("test"), get_extractor("pixels"), folder, {"split": "test"}).features.shape
        (360, 64)
    """
    path, schema = Path(path), source.schema
    extractor.check_schema(schema)
    kept = kept_features(path, extractor, made_from, schema)
    if kept is not None:
        return kept
    encoder = Here(extractor) if encoder is None else encoder
    writer = FeatureStore.create(
        path,
        schema.records,
        extractor.output_dim(schema.input_shape),
        schema=schema,
        extractor=store_facts(extractor, made_from),
        resume=True,
        runtime=encoder.runtime(),
    )
    with writer, closing(encoder.rows(source, writer)) as rows:
        for features, labels in rows:
            writer.append(features, labels)
            if progress is not None:
                progress(f"features ({extractor.name})", writer.rows, schema.records)
        if check is not None:
            check()
        return writer.finish()


def kept_features(
    path: str | Path,
    extractor: Extractor,
    made_from: Mapping[str, Any],
    schema: Schema,
) -> FeatureStore | None:
    """The finished store at ``path``, verified, or None if there is none yet.

    Raises:
        InvalidInput: what is at ``path`` was made from other data or by another extractor, or was changed since.
        StorageError: it cannot be read.
    """
    path = Path(path)
    if not path.exists():
        return None
    kept = FeatureStore.open(path)
    if kept.extractor != store_facts(extractor, made_from) or kept.schema != schema:
        allowed = "a store made from these files, split, columns, classes and extractor"
        raise InvalidInput("feature store", str(path), allowed)
    kept.verify()
    return kept


def store_facts(extractor: Extractor, made_from: Mapping[str, Any]) -> dict[str, Any]:
    """What a store keeps to be recognised: the extractor's spec, and under ``source`` what it was made from."""
    # Through JSON, as the store keeps it: tuples come back as lists.
    facts: dict[str, Any] = json.loads(json.dumps({**extractor.spec(), "source": dict(made_from)}))
    return facts
