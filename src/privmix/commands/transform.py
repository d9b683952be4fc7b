"""New records in the space of a release's rows: through its extractor, clipped, centred and clipped again."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from privmix.commands.base import Command, function
from privmix.jobs.columns import Columns
from privmix.jobs.options import PART_HELP, UNLABELLED_HELP, ModelFiles, NewFile
from privmix.jobs.transformed import Transformed, transformed
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.publication import ReleasedDataset
    from privmix.publication.dataset import HasDataset


@dataclass(frozen=True, eq=False, repr=False)
class Transform(Columns, ModelFiles, NewFile, Command[Transformed]):
    """Do to new records what was done to those of a release.

    Any learner of the release's rows must see records so.

    The release's extractor makes features, which are clipped, centred by the released mean and clipped again, as the
    certificate says. One row a record, in the order of the data; tables have a column a feature, by its name, and
    .npy holds one array (n, d) of float32. Labels need not be there, and are not read.

    What is written is as private as the records, and readable by you alone. A model of privmix fit needs none of this:
    it takes raw records.

    Raises:
        InvalidInput: the data have other inputs than the release, or the file can't be one, is there already or lies
            in a release or model.
        StorageError: something can't be read or written.
    """

    example = "privmix transform REL --data mnist --split test --out test.npy"

    release: HasDataset | ReleasedDataset | str | Path = option(MISSING, "A release, or its folder.", argument=True)
    data: Any = option(MISSING, UNLABELLED_HELP)
    _: KW_ONLY
    out: str | Path | None = option(None, "File to write: .npy, .csv, .parquet or .jsonl (JSON lines).", needed=True)
    split: str | None = option(None, PART_HELP)

    def run(self, progress: Progress) -> Transformed:
        """Transform."""
        from privmix.jobs.private_tables import check_out, write_table

        place = None if self.out is None else Path(self.out)
        if place is not None:
            check_out(place, self.overwrite, [".npy"])
        model, trust = self.features_model, self.trust_features_model
        found = transformed(self.release, self.data, self.settled(), self.split, model, trust, progress)
        result = replace(found, out=place)
        if place is not None:
            write_table(result, place, {".npy": _npy})
        return result


transform = function(Transform)


def _npy(found: Transformed, stream: IO[bytes]) -> None:
    np.save(stream, found.features, allow_pickle=False)
