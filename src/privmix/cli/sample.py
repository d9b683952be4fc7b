"""``privmix sample``: rows in the columns of a table, from a release of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import err, out, plain, print_json
from privmix.cli.flags import with_flags
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.verb import verb

_WORST: Final = 5
# Exit code of rows that do not meet the release, as of a claim that an audit refutes.
_LOST: Final = 4


@verb(app)
def sample(
    *,
    release: Annotated[Path, typer.Argument(help="Folder that privmix release wrote, of a table.")],
    target: Annotated[Path, typer.Option("--out", help="File to write: .csv, .parquet or .jsonl (JSON lines).")],
    records: Annotated[
        int | None, typer.Option(help="How many rows. Default: as many records as the release is of.")
    ] = None,
    label: Annotated[
        str, typer.Option("--label-column", help="What to call the column of classes; a release knows no name of it.")
    ] = "label",
    seed: Annotated[
        int, typer.Option(help="Seed of the rows; the same one makes the same rows on the same machine.")
    ] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file that is there.")] = False,
    json_output: Json = False,
) -> None:
    """Make rows in the columns that a table's specification declares, from a release of the table.

    The second moments of a release (designs moments, two-stage and three-stage) hold a noisy table of every pair of
    columns. A mixture is fitted to them and rows are drawn from it: categories as declared, numbers within their
    bounds, missing cells missing. They are made of the released numbers alone: no private data is read, no privacy is
    spent, and no row is anybody's record.

    The command states what the noise is worth in total variation of two columns, and which columns have only mean and
    spread released. Then how well the fit meets the released numbers: a pair of columns is within its noise if noise
    alone could leave as much. Where no fit meets a pair it warns, and ends with exit code 4. What more than two
    columns have in common is in no released number, and the rows have of it what the pairs imply.

    Example: privmix sample INCOME --out rows.csv --label-column income
    """
    with progress_bars() as progress:
        found = jobs.sampling.sampled(release, records, label, seed, target, overwrite, progress)
    for text in found.cautions:
        err.print(f"[yellow]WARNING:[/] {plain(with_flags(text))}", soft_wrap=True)
    if json_output:
        print_json(found.to_dict())
        raise typer.Exit(_LOST if found.model.lost else 0)
    out.print(f"sampled: {len(found):,} rows of {len(found.columns)} columns", soft_wrap=True)
    for text in found.notes:
        out.print(f"quality: {plain(text)}", soft_wrap=True)
    out.print(f"fit: {found.fit}", soft_wrap=True)
    for pair in found.worst[:_WORST]:
        names = " x ".join(plain(name) for name in pair.columns)
        out.print(f"  {names}: off by {pair.beyond:.3f} of total variation beyond the noise", soft_wrap=True)
    if found.ignored:
        names = ", ".join(plain(name) for name in found.ignored)
        out.print(f"not in the release, and so not in the rows: {names}", soft_wrap=True)
    if found.open_ended:
        names = ", ".join(plain(name) for name in found.open_ended)
        out.print(
            f"first and last interval without a declared end: {names}; rows there have the number at its one end "
            '("range" beside the bins declares both)',
            soft_wrap=True,
        )
    out.print(f"written to {plain(target)}: as public as the release", soft_wrap=True)
    if found.model.lost:
        raise typer.Exit(_LOST)
