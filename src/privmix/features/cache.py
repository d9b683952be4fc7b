"""From raw records to a feature store on disk: kept, verified, and resumed after a crash."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from privmix.data.partial import TileFolder
from privmix.data.source import Schema, Source
from privmix.data.store import FeatureStore, FeatureStoreWriter
from privmix.errors import InvalidInput
from privmix.features.base import Extractor
from privmix.progress import Progress

Rows = Generator[tuple[NDArray[Any], NDArray[Any]], None, None]


class Encoder(Protocol):
    """Workers that compute features, instead of this process."""

    def runtime(self) -> Mapping[str, Any]:
        """Causes of other last bits of features: see :meth:`privmix.features.base.Extractor.runtime`."""

    def rows(self, source: Source, writer: FeatureStoreWriter) -> Rows:
        """(b, d) features and (b,) labels in the order of the records, from the first one on that the store lacks."""


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
    """Return the store at ``path`` with the features of ``source``; compute what is absent. Charge the ledger first.

    A finished store is verified and reused if data and extractor are the same. An interrupted one is continued: only
    records that are not on disk are transformed (:meth:`privmix.data.Source.manifest`). It has the same bytes as one
    made at one go, so it starts again where device, threads or libraries have changed.
    """
    # made_from: identity of the data (split, files or fingerprint), kept in the store only. check: raises to prevent a
    # store. InvalidInput removes the rows; StorageError keeps those on disk.
    path, schema = Path(path), source.schema
    extractor.check_schema(schema)
    kept = kept_features(path, extractor, made_from, schema)
    if kept is not None:
        return kept
    writer = FeatureStore.create(
        path,
        schema.records,
        extractor.output_dim(schema.input_shape),
        schema=schema,
        extractor=store_facts(extractor, made_from),
        resume=True,
        runtime=(encoder or extractor).runtime(),
    )
    with writer, closing(_rows(source, extractor, encoder, writer)) as rows:
        for features, labels in rows:
            writer.append(features, labels)
            if progress is not None:
                progress(f"features ({extractor.name})", writer.rows, schema.records)
        if check is not None:
            check()
        return writer.finish()


def _rows(source: Source, extractor: Extractor, encoder: Encoder | None, writer: FeatureStoreWriter) -> Rows:
    if encoder is not None:
        yield from encoder.rows(source, writer)
        return
    yield from extractor.rows(source, writer.rows)
    # Workers of an attempt that this one finishes may have left theirs.
    TileFolder.clear(writer.path)


def kept_features(
    path: str | Path, extractor: Extractor, made_from: Mapping[str, Any], schema: Schema
) -> FeatureStore | None:
    """Return the verified store at ``path``, or None; raise :class:`InvalidInput` for other or changed data."""
    path = Path(path)
    if not path.exists():
        return None
    kept = FeatureStore.open(path)
    if kept.extractor != store_facts(extractor, made_from) or kept.schema != schema:
        allowed = "a store of these files, split, columns, classes and extractor"
        raise InvalidInput("feature store", str(path), allowed)
    kept.verify()
    return kept


def store_facts(extractor: Extractor, made_from: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that identify a store: the extractor's spec, and under ``source`` the data that it was made from."""
    # Through JSON, as the store keeps it: tuples come back as lists.
    facts: dict[str, Any] = json.loads(json.dumps({**extractor.spec(), "source": dict(made_from)}))
    return facts
