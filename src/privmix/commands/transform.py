"""New records in the space of a release's rows: through its extractor, clipped, centred and clipped again."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from privmix.commands.base import Command, function
from privmix.jobs.columns import ModelColumns
from privmix.jobs.options import PART_HELP, UNLABELLED_HELP, ModelFiles, NewFile
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.release_folder import Transformed
    from privmix.publication.dataset import HasDataset, ReleasedDataset


@dataclass(frozen=True, eq=False, repr=False)
class Transform(ModelColumns, ModelFiles, NewFile, Command["Transformed"]):
    """Apply a release's preprocessing to new records.

    Extracts features, clips them, subtracts the released mean and clips again, for a learner of your own. The
    output is as private as the records. Models of privmix fit take raw records.

    Raises:
        InvalidInput: the data have other inputs than the release, or the file can't be one, is there already or lies
            in a release or model.
        StorageError: something can't be read or written.
    """

    example = "privmix transform REL --data mnist --split test --out test.npy"

    release: HasDataset | ReleasedDataset | str | Path = option(
        MISSING, "Folder of a release.", in_python="Also a release.", argument=True
    )
    data: Any = option(MISSING, UNLABELLED_HELP, in_python="Also arrays, frames and tensors.")
    _: KW_ONLY
    out: str | Path | None = option(None, "File to write: .npy, .csv, .parquet or .jsonl.", needed=True)
    split: str | None = option(None, PART_HELP)

    def run(self, progress: Progress) -> Transformed:
        from privmix.jobs.private_tables import WRITERS, check_out, write_table
        from privmix.jobs.release_folder import transformed

        place = check_out(self.out, self.overwrite, [".npy", *WRITERS])
        found = transformed(self.release, self.data, self.as_columns(), self.split, self.features_model, progress)
        result = replace(found, out=place)
        write_table(result, place, {".npy": _npy})
        return result


transform: Final = function(Transform)


def _npy(found: Transformed, stream: IO[bytes]) -> None:
    # No pickles: to read one runs code.
    np.save(stream, found.features, allow_pickle=False)
