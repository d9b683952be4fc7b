"""``privmix transform``: new records as the rows of a release are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import jobs
from privmix.cli.app import app, out, plain
from privmix.cli.progress import progress_bars
from privmix.cli.verb import Take, verb
from privmix.jobs.options import Inputs


@verb(app)
def transform(
    *,
    release: Annotated[Path, typer.Argument(help="Folder that privmix release wrote.")],
    data: Annotated[str, typer.Option(help="Records, with or without labels: file, folder, pattern or address.")],
    target: Annotated[Path, typer.Option("--out", help="File to write: .npy, .csv, .parquet or .jsonl (JSON lines).")],
    split: Annotated[
        str | None, typer.Option(help="Which part of the data. Default: test, or all where there are no parts.")
    ] = None,
    inputs: Annotated[Inputs, Take(without=["classes"])],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file that is there.")] = False,
) -> None:
    """Do to new records what was done to those of a release: what any learner of its rows must see.

    The release's extractor makes features, which are clipped, centred by the released mean and clipped again, as the
    certificate says. One row a record, in the order of the data; tables have a column a feature, by its name, and
    .npy holds one array (n, d) of float32. Labels need not be there, and are not read.

    What is written is as private as the records, and readable by you alone. A model of privmix fit needs none of this:
    it takes raw records.

    Example: privmix transform REL --data mnist --split test --out test.npy
    """
    with progress_bars() as progress:
        found = jobs.transforming.transform(
            release,
            data,
            out=target,
            split=split,
            columns=inputs.columns,
            features_model=inputs.features_model,
            trust_features_model=inputs.trust_features_model,
            overwrite=overwrite,
            progress=progress,
        )
    out.print(f"transformed: {len(found):,} records of {len(found.feature_names):,} features", soft_wrap=True)
    out.print(f"written to {plain(target)}, for you alone", soft_wrap=True)
