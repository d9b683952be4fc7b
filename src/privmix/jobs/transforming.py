"""New records in the space of a release's rows: through its extractor, clipped, centred and clipped again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.bars import Asked, callback, shows_bars
from privmix.features import from_spec
from privmix.features.spec import feature_names
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import open_unlabelled
from privmix.jobs.private_tables import check_out, write_table
from privmix.publication import ReleasedDataset
from privmix.publication.dataset import HasDataset
from privmix.releases.at_hand import dataset_of
from privmix.shown import Shown


@dataclass(frozen=True, eq=False, repr=False)
class Transformed(Shown):
    """Records as a release's rows are. They are as private as the records that they were made of.

    Attributes:
        features: (n, d) float32, in the order of the data.
        feature_names: d names.
        names: the images' file names, where each record is a file.
        out: the file that was written, if any.
    """

    features: NDArray[np.float32]
    feature_names: tuple[str, ...]
    names: tuple[str, ...] | None = None
    out: Path | None = None

    def __len__(self) -> int:
        return len(self.features)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """How many there are, and where."""
        facts = {"features": f"{len(self.feature_names):,}"}
        return f"Transformed: {len(self):,} records", facts if self.out is None else {**facts, "file": self.out}

    def table(self, start: int = 0, stop: int | None = None) -> Any:
        """Records ``start`` to before ``stop`` as an Arrow table: a column a feature.

        Where each record is a file, its name is in a first column ``record``.
        """
        part = slice(start, stop)
        arrays, names = [pa.array(column) for column in self.features[part].T], list(self.feature_names)
        if self.names is not None:
            arrays, names = [pa.array(self.names[part], pa.string()), *arrays], ["record", *names]
        return pa.Table.from_arrays(arrays, names)


@shows_bars
def transform(
    release: HasDataset | ReleasedDataset | str | Path,
    data: Any,
    *,
    out: str | Path | None = None,
    split: str | None = None,
    columns: Columns | str | Sequence[str] | None = None,
    label: str | None = None,
    features_model: str | Path | None = None,
    trust_features_model: bool = False,
    overwrite: bool = False,
    progress: Asked = None,
) -> Transformed:
    """Do to new records what was done to those of a release: extract features, clip, centre, clip the rest.

    What any learner of the rows must see of the records that it is to classify. Nothing of it is private but the
    records themselves; a file of them is as private as they are, and readable by its owner only.

    Args:
        release: a release, or its folder.
        data: raw inputs as :func:`privmix.release` takes them; labels may be missing, see :func:`privmix.predict`.
        out: a file to write: .npy, .csv, .parquet or .jsonl.
        split: which part of the data; None: ``test`` where there is one, else all that names no part.
        columns: names of the columns of numbers, or :class:`privmix.Columns`: what is declared of columns and images.
        label: a column that is no input, where the data have labels after all; they are not read.
        features_model: your own copy of the extractor's model, where it is a file or folder.
        trust_features_model: that file may be a program, and may run.
        overwrite: replace the file that is there.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.

    Raises:
        InvalidInput: the data have other inputs than the release, or the file can't be one, is there already or lies
            in a release or model.
        StorageError: something can't be read or written.
    """
    place = None if out is None else Path(out)
    if place is not None:
        check_out(place, overwrite, [".npy"])
    # Learners take scikit-learn, whose import a release does without.
    from privmix.learning.base import ReleaseFacts

    facts = ReleaseFacts.of(dataset_of(release))
    trust = trust_features_model
    extractor = from_spec(facts.extractor, features_model, trust_model=trust, arrays=facts.extractor_arrays)
    opened = open_unlabelled(
        data, extractor, facts.input_shape, facts.classes, split=split, columns=Columns.declared(columns, label)
    )
    report = callback(progress)
    total = opened.schema.records
    found, done = np.empty((total, facts.dim), np.float32), 0
    for raw in opened.source.inputs(extractor.step):
        found[done : done + len(raw)] = facts.transform.rows(extractor.transform(raw))
        done += len(raw)
        report("features", done, total)
    result = Transformed(found, feature_names(facts.extractor, facts.dim), opened.source.names, place)
    if place is not None:
        write_table(result, place, {".npy": _npy})
    return result


def _npy(found: Transformed, stream: IO[bytes]) -> None:
    np.save(stream, found.features, allow_pickle=False)
