"""New records in the space of a release's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privmix.jobs.columns import Columns
from privmix.progress import Progress
from privmix.shown import Shown

if TYPE_CHECKING:
    from privmix.publication.dataset import HasDataset, ReleasedDataset


@dataclass(frozen=True, eq=False, repr=False)
class Transformed(Shown):
    """Records in the form of a release's rows, (n, d) float32. As private as the records."""

    features: NDArray[np.float32]
    feature_names: tuple[str, ...]
    names: tuple[str, ...] | None = None
    out: Path | None = None

    def __len__(self) -> int:
        return len(self.features)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        facts = {"features": f"{len(self.feature_names):,}"}
        return f"Transformed: {len(self):,} records", facts if self.out is None else {**facts, "file": self.out}

    def to_dict(self) -> dict[str, Any]:
        out = None if self.out is None else str(self.out)
        return {"records": len(self), "features": len(self.feature_names), "out": out}

    def table(self, start: int = 0, stop: int | None = None) -> Any:
        """Return records `start` to before `stop` as an Arrow table: file names (`record`), if any, then features."""
        import pyarrow as pa

        from privmix.jobs.private_tables import column

        part = slice(start, stop)
        arrays, names = [column(one) for one in self.features[part].T], list(self.feature_names)
        if self.names is not None:
            arrays, names = [column(self.names[part]), *arrays], ["record", *names]
        return pa.Table.from_arrays(arrays, names)


def transformed(
    release: HasDataset | ReleasedDataset | str | Path,
    data: Any,
    columns: Columns,
    split: str | None,
    features_model: str | Path | None,
    progress: Progress,
) -> Transformed:
    """Return records through a release's extractor, clipped, centred by the released mean and clipped again."""
    # Imported here: help takes none of it.
    from privmix.features.spec import feature_names, from_spec
    from privmix.jobs.dataset import open_unlabelled
    from privmix.learning.base import ReleaseFacts
    from privmix.releases.series_chain import dataset_of

    facts = ReleaseFacts.of(dataset_of(release))
    extractor = from_spec(facts.extractor, features_model, arrays=facts.extractor_arrays)
    opened = open_unlabelled(data, extractor, facts.input_shape, facts.classes, split=split, columns=columns)
    total = opened.schema.records
    found, done = np.empty((total, facts.dim), np.float32), 0
    for raw in opened.source.inputs(extractor.step):
        found[done : done + len(raw)] = facts.transform.rows(extractor.transform(raw))
        done += len(raw)
        progress("features", done, total)
    return Transformed(found, feature_names(facts.extractor, facts.dim), opened.source.names)
