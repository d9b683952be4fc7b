"""Rows in the columns of a table, from a release of it: post-processing, at no cost of privacy."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privmix.commands.base import Command, function
from privmix.jobs.options import NewFile
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.sampling import SampledTable
    from privmix.publication import ReleasedDataset
    from privmix.publication.dataset import HasDataset


@dataclass(frozen=True, eq=False, repr=False)
class Sample(NewFile, Command["SampledTable"]):
    """Make rows of a table from a release of the table.

    The rows have the columns that the table's specification declares.

    The second moments of a release (designs moments, two-stage and three-stage) hold a noisy table of every pair of
    columns. A mixture is fitted to them and rows are drawn from it: categories as declared, numbers within their
    bounds, evenly within an interval, missing cells missing. They are made of the released numbers alone: no private
    data is read, no privacy is spent, and no row is anybody's record.

    The result states what the noise is worth in total variation of two columns, and which columns have only mean and
    spread released. Then how well the fit meets the released numbers: a pair of columns is within its noise if noise
    alone could leave as much. Where no fit meets a pair there is a warning (exit code 4). What more than two columns
    have in common is in no released number, and the rows have of it what the pairs imply.

    Raises:
        InvalidInput: the release has no second moments or is of no table, a number is out of range, or the file can't
            be one, is there already or lies in a release or model.
        StorageError: something can't be read or written.
    """

    example = "privmix sample INCOME --out rows.csv --label-column income"

    release: HasDataset | ReleasedDataset | str | Path = option(
        MISSING, "A release of a table, or its folder.", argument=True
    )
    records: int | None = option(None, "How many rows. Default: as many records as the release is of.")
    _: KW_ONLY
    label: str = option(
        "label", "What to call the column of classes; a release knows no name of it.", flag="label-column"
    )
    seed: int = option(0, "Seed of the rows; the same one makes the same rows on the same machine.")
    out: str | Path | None = option(None, "File to write: .csv, .parquet or .jsonl (JSON lines).", needed=True)

    def run(self, progress: Progress) -> SampledTable:
        """Sample."""
        from privmix.jobs.sampling import sampled

        place = None if self.out is None else Path(self.out)
        return sampled(self.release, self.records, self.label, self.seed, place, self.overwrite, progress)


sample = function(Sample)
