"""Features of a private dataset, made once for many releases and trainings: here, or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.commands.base import Command, function
from privmix.errors import InvalidInput
from privmix.jobs.columns import Columns
from privmix.jobs.options import ADDRESS_HELP, AUTO, CLASSES_HELP, FEATURES_HELP
from privmix.options import option
from privmix.progress import Progress
from privmix.shown import Shown

if TYPE_CHECKING:
    from privmix.data import FeatureStore
    from privmix.features import Extractor

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

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**vars(self), "path": str(self.path), "privacy": AS_PRIVATE}

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """What it is, and what it is not."""
        return f"Features of {self.records:,} records", {
            "folder": self.path,
            "features": f"{self.dim:,} by {self.features}",
            "privacy": AS_PRIVATE,
        }


@dataclass(frozen=True, eq=False, repr=False)
class ExtractFeatures(Columns, Command[ExtractedFeatures]):
    """Make the features of a private dataset in a store.

    Once for many releases and trainings.

    The store is AS PRIVATE AS THE RECORDS: features have no noise and no guarantee covers them. Only you can read the
    folder; hand it to nobody, and keep it where the records may be. Nothing is charged, since nothing leaves you.

    The same command finishes an interrupted run: what is on the disk is kept, and only records that are lacking are
    read, with what a file's format makes one read to get to them. On a cluster, workers read tiles of the data and
    write each tile's features beside the store; neither records nor features enter Ray's object store. The data and
    the store have to be on a file system that all machines share. Data in memory or by persons, and files at an address
    that can't be read in place, are made into features here. A stream (a Hugging Face IterableDataset) is read once,
    into a private folder beside the store, which goes when the store is there.

    Raises:
        InvalidInput: the data do not open or a record is not as declared; or `out` is a store of something else.
        StorageError: reading or writing failed. What is on the disk is kept for another call.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> made = extract_features(([[1.0, 2.0], [3.0, 4.0]], [0, 1]), classes=2, features="identity",
        ...                         feature_length=2, out=folder / "STORE")
        >>> made.records, made.dim
        (2, 2)
    """

    example = (
        "privmix extract-features photos.parquet --features efficientnet --image-size 224 --colour rgb --out STORE"
    )

    data: Any = option(
        MISSING, "Private dataset: file, folder, pattern or address; in Python in memory, too.", argument=True
    )
    _: KW_ONLY
    out: str | Path = option(
        MISSING, "Folder to create, for you alone; one that is there already is verified, and left as it is."
    )
    features: str | Extractor = option("pixels", FEATURES_HELP)
    classes: Any = option(None, CLASSES_HELP)
    split: str = option("train", "Which part of it.")
    engine: str = option("local", "local, or ray for a cluster that shares the data's file system.")
    workers: int | None = option(None, "Ray: workers at once. Default: every core, or GPU.")
    ray_address: str | None = option(None, ADDRESS_HELP)

    def run(self, progress: Progress) -> ExtractedFeatures:
        """Extract."""
        from privmix.data.held import stream_of
        from privmix.data.spool import Spool
        from privmix.engine.ray import Cluster
        from privmix.engine.shared_places import check_places
        from privmix.features import parse_features
        from privmix.jobs.dataset import open_dataset
        from privmix.jobs.features import features_on_disk
        from privmix.jobs.places import check_store, check_unpublished, check_writable
        from privmix.jobs.release_setting import check_engine
        from privmix.private_files import no_core_dumps

        place, extractor = Path(self.out), parse_features(self.features)
        check_engine(self.engine, AUTO, None, self.workers, self.ray_address)
        check_unpublished("out", place)
        check_writable("out", place.parent)
        check_store(place)
        no_core_dumps()
        if not place.parent.is_dir():
            raise InvalidInput("out", str(place), "a place in a folder that is there")
        data, split = self.data, self.split
        cluster = Cluster(self.ray_address) if self.engine == "ray" else None
        with ExitStack() as ends:
            spool = None
            if not place.exists() and (stream := stream_of(data, split)) is not None:
                spool = ends.enter_context(Spool(stream, place))
                data = spool.dataset()
            dataset = open_dataset(data, extractor, split=split, classes=self.classes, columns=self.settled())
            dataset = replace(dataset, spool=spool)
            extractor = extractor.with_columns(dataset.source.number_names)
            if cluster is not None and dataset.source.travels and not place.exists():
                ends.enter_context(cluster.open())
                check_places(place.parent, dataset.source.manifest().files)
            store: FeatureStore = features_on_disk(
                dataset, extractor, place, progress, cluster=cluster, workers=self.workers
            )
        return ExtractedFeatures(place, len(store.labels), store.dim, extractor.name)


extract_features = function(ExtractFeatures)
