"""Features of a private dataset, made once for many releases and trainings: here, or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from privmix.bars import Asked, callback, shows_bars
from privmix.data import FeatureStore
from privmix.data.held import stream_of
from privmix.data.spool import Spool
from privmix.engine.ray import Cluster
from privmix.engine.shared_places import check_places
from privmix.errors import InvalidInput
from privmix.features import Extractor, parse_features
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import open_dataset
from privmix.jobs.features import features_on_disk
from privmix.jobs.options import AUTO
from privmix.jobs.places import check_store, check_unpublished, check_writable
from privmix.jobs.release_setting import check_engine
from privmix.private_files import no_core_dumps
from privmix.shown import Shown

AS_PRIVATE: Final = "as private as the records: no guarantee covers features, so hand the store to nobody"
"""What a feature store is."""


@dataclass(frozen=True, eq=False, repr=False)
class ExtractedFeatures(Shown):
    """A feature store that was made, or was there. It is as private as the records that it was made of.

    Attributes:
        path: its folder, readable by its owner only.
        records: n.
        dim: d.
        features: name of the extractor.
    """

    path: Path
    records: int
    dim: int
    features: str

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """What it is, and what it is not."""
        return f"Features of {self.records:,} records", {
            "folder": self.path,
            "features": f"{self.dim:,} by {self.features}",
            "privacy": AS_PRIVATE,
        }


@shows_bars
def extract_features(
    data: Any,
    *,
    out: str | Path,
    features: str | Extractor = "pixels",
    classes: Any = None,
    split: str = "train",
    columns: Columns | str | Sequence[str] | None = None,
    label: str | None = None,
    engine: str = "local",
    workers: int | None = None,
    ray_address: str | None = None,
    progress: Asked = None,
) -> ExtractedFeatures:
    """Make the features of a private dataset, in a store that releases and trainings of it take them from (``store``).

    **The store is as private as the records**: features are not noisy, no guarantee covers them, and often records can
    be told from them. Nothing is charged, since nothing leaves its owner.

    A stream (``datasets.IterableDataset``) is read once, into a private folder beside ``out``, which goes when the
    store is there; another call with the stream goes on where it stopped, as far as the stream can.

    An interrupted extraction is finished by the same call: what is on the disk is kept, and only records that are
    lacking are read, with what a file's format makes one read to get to them. On a cluster, workers read tiles of the
    data, and write each tile's features beside the store; neither records nor features enter Ray's object store. The
    data and ``out`` have to be on a file system that all machines share. Data in memory or by persons, and
    files at an address that can't be read in place, are made into features here.

    Args:
        data: as :func:`privmix.release` takes it; also ``features``, ``classes``, ``split``, ``columns`` and ``label``.
        out: the folder to make; one that is there already is verified, and left as it is.
        engine: ``"local"``, or ``"ray"`` for a cluster; the same bytes where machines and threads are alike.
        workers: of the cluster.
        ray_address: of the cluster; None starts one on this machine.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.

    Raises:
        InvalidInput: the data do not open or a record is not as declared; or ``out`` is a store of something else.
        StorageError: reading or writing failed. What is on the disk is kept for another call.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> made = extract_features(([[1.0, 2.0], [3.0, 4.0]], [0, 1]), classes=2, features="identity",
        ...                         columns=Columns(feature_length=2), out=folder / "STORE")
        >>> made.records, made.dim
        (2, 2)
    """
    place, extractor = Path(out), parse_features(features)
    check_engine(engine, AUTO, None, workers, ray_address)
    check_unpublished("out", place)
    check_writable("out", place.parent)
    check_store(place)
    no_core_dumps()
    if not place.parent.is_dir():
        raise InvalidInput("out", str(place), "a place in a folder that is there")
    cluster = Cluster(ray_address) if engine == "ray" else None
    with ExitStack() as ends:
        spool = None
        if not place.exists() and (stream := stream_of(data, split)) is not None:
            spool = ends.enter_context(Spool(stream, place))
            data = spool.dataset()
        declared = Columns.declared(columns, label)
        dataset = open_dataset(data, extractor, split=split, classes=classes, columns=declared)
        dataset = replace(dataset, spool=spool)
        extractor = extractor.with_columns(dataset.source.number_names)
        if cluster is not None and dataset.source.travels and not place.exists():
            ends.enter_context(cluster.open())
            check_places(place.parent, dataset.source.manifest().files)
        store: FeatureStore = features_on_disk(
            dataset, extractor, place, callback(progress), cluster=cluster, workers=workers
        )
    return ExtractedFeatures(place, len(store.labels), store.dim, extractor.name)
