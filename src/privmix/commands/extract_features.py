"""Features of a private dataset, made once for many releases and trainings: here, or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.commands.base import Command, function
from privmix.errors import InvalidInput
from privmix.jobs.columns import Columns
from privmix.jobs.options import CLASSES_HELP, ENGINE_HELP, FEATURES_HELP, Local, machine_of
from privmix.options import option
from privmix.progress import Progress
from privmix.shown import Shown

if TYPE_CHECKING:
    from privmix.data.store import FeatureStore
    from privmix.features.base import Extractor

AS_PRIVATE: Final = "no guarantee covers features: keep the store as private as the records"
"""Warning about a feature store."""


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
        return {**vars(self), "path": str(self.path), "privacy": AS_PRIVATE}

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return f"Features of {self.records:,} records", {
            "folder": self.path,
            "features": f"{self.dim:,} by {self.features}",
            "privacy": AS_PRIVATE,
        }


@dataclass(frozen=True, eq=False, repr=False)
class ExtractFeatures(Columns, Command[ExtractedFeatures]):
    """Extract features once, into a store as private as the records.

    privmix release and train reuse the store. Features have no noise and no guarantee: keep the store where the
    records may be. Nothing is charged. The same command resumes an interrupted run.

    Raises:
        InvalidInput: the data do not open or a record is not as declared; or `out` is a store of something else.
        StorageError: reading or writing failed. The next call continues with the files on the disk.

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
        MISSING,
        "Private dataset: file, folder, pattern or address.",
        in_python="Also arrays, frames and tensors.",
        argument=True,
    )
    _: KW_ONLY
    out: str | Path = option(MISSING, "Private folder to create; an existing store is verified and kept.")
    features: str | Extractor = option("pixels", FEATURES_HELP)
    classes: Any = option(None, CLASSES_HELP)
    split: str = option("train", "Split of the dataset.")
    engine: str | Local = option("local", ENGINE_HELP, kinds="privmix.jobs.options:ENGINES")

    def run(self, progress: Progress) -> ExtractedFeatures:
        from privmix.engine.cluster import check_places
        from privmix.features.base import parse_features
        from privmix.folders import no_core_dumps
        from privmix.jobs.dataset import open_dataset
        from privmix.jobs.features import features_on_disk
        from privmix.jobs.places import check_store, check_unpublished, check_writable

        place, extractor = Path(self.out), parse_features(self.features)
        machine = machine_of(self.engine)
        if machine.memory_gb is not None:
            raise InvalidInput(
                "engine memory_gb", machine.memory_gb, "no engine here: features are made one part at a time"
            )
        check_unpublished("out", place)
        check_writable("out", place.parent)
        check_store(place)
        # Before a record is in memory: a dump of the process would hold it.
        no_core_dumps()
        if not place.parent.is_dir():
            raise InvalidInput("out", str(place), "a new path in an existing folder")
        cluster = machine.cluster
        with ExitStack() as ends:
            columns = self.as_columns()
            dataset = open_dataset(self.data, extractor, split=self.split, classes=self.classes, columns=columns)
            extractor = extractor.with_columns(dataset.source.number_names)
            if cluster is not None and dataset.source.travels and not place.exists():
                ends.enter_context(cluster.open())
                check_places(place.parent, dataset.source.manifest().files)
            store: FeatureStore = features_on_disk(
                dataset, extractor, place, progress, cluster=cluster, workers=machine.workers
            )
        return ExtractedFeatures(place, len(store.labels), store.dim, extractor.name)


extract_features: Final = function(ExtractFeatures)
