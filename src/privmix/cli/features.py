"""``privmix features``: make the features of a private dataset, once for many releases and trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import err, out, plain
from privmix.cli.progress import progress_bars
from privmix.cli.verb import help_of, verb
from privmix.jobs.columns import Columns
from privmix.jobs.options import CLASSES_HELP, JobOptions
from privmix.jobs.release_options import ReleaseOptions


@verb(app)
def features(
    *,
    data: Annotated[str, typer.Argument(help="Private dataset: file, folder, pattern or address.")],
    target: Annotated[Path, typer.Option("--out", help="Folder to create: as private as the records, for you alone.")],
    by: Annotated[str, typer.Option("--features", help=help_of(JobOptions, "features"))] = "pixels",
    classes: Annotated[str | None, typer.Option(help=CLASSES_HELP)] = None,
    split: Annotated[str, typer.Option(help="Which part of it.")] = "train",
    columns: Columns,
    engine: Annotated[
        str, typer.Option(help="local, or ray for a cluster that shares the data's file system.")
    ] = "local",
    workers: Annotated[int | None, typer.Option(help="Ray: workers at once. Default: every core, or GPU.")] = None,
    ray_address: Annotated[str | None, typer.Option(help=help_of(ReleaseOptions, "ray_address"))] = None,
) -> None:
    """Make the features of a private dataset in a store, for --store of privmix release and privmix train.

    The store is AS PRIVATE AS THE RECORDS: features have no noise and no guarantee covers them. Only you can read the
    folder; hand it to nobody, and keep it where the records may be. Nothing is charged,
    since nothing leaves you.

    The same command finishes an interrupted run, and reads only what is lacking. With --engine ray, workers read tiles
    of the data and write each tile's features beside the store: neither ever enters Ray's object store.

    Example: privmix features photos.parquet --features efficientnet --image-size 224 --colour rgb --out STORE
    """
    with progress_bars() as progress:
        found: Any = jobs.extracting.extract_features(
            data,
            out=target,
            features=by,
            classes=classes,
            split=split,
            columns=columns,
            engine=engine,
            workers=workers,
            ray_address=ray_address,
            progress=progress,
        )
    out.print(f"features: {found.dim:,} of each of {found.records:,} records, by {plain(by)}", soft_wrap=True)
    out.print(f"kept in {plain(target)}, for you alone", soft_wrap=True)
    err.print(f"[yellow]private:[/] {plain(jobs.extracting.AS_PRIVATE)}", soft_wrap=True)
