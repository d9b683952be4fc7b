"""Rows in the columns of a table, from a release of it: post-processing, at no cost of privacy."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from privmix.commands.base import Command, function
from privmix.jobs.options import NewFile
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.sampling import SampledTable
    from privmix.publication.dataset import HasDataset, ReleasedDataset


@dataclass(frozen=True, eq=False, repr=False)
class Sample(NewFile, Command["SampledTable"]):
    """Sample table rows from a release of the table.

    Fits a mixture to the released pairs of columns (designs moments, class-moments, corrected-moments, two-stage,
    three-stage). Reads no private data and spends no privacy; no row is a real record. Exit code 4 if the fit misses a
    pair by more than its noise.

    Raises:
        InvalidInput: the release has no second moments or is of no table, a number is out of range, or the file can't
            be one, is there already or lies in a release or model.
        StorageError: something can't be read or written.
    """

    example = "privmix sample INCOME --out rows.csv --label-column income"

    release: HasDataset | ReleasedDataset | str | Path = option(
        MISSING, "Folder of a release of a table.", in_python="Also a release.", argument=True
    )
    records: int | None = option(None, "Number of rows. Default: the release's record count.")
    _: KW_ONLY
    label: str | None = option(None, "Name of the class column. Default: the release's, or label.", flag="label-column")
    seed: int = option(0, "Seed of the rows; reproducible on one machine.")
    out: str | Path | None = option(None, "File to write: .csv, .parquet or .jsonl.", needed=True)

    def run(self, progress: Progress) -> SampledTable:
        from privmix.jobs.sampling import sampled

        return sampled(self.release, self.records, self.label, self.seed, self.out, self.overwrite, progress)


sample: Final = function(Sample)
