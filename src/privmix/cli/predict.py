"""``privmix predict``: the classes of records without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from privmix import jobs
from privmix.cli.app import app, out, plain
from privmix.cli.progress import progress_bars
from privmix.cli.verb import Take, verb
from privmix.jobs.options import ModelInputs

_MOST_CLASSES: Final = 10


@verb(app)
def predict(
    *,
    model: Annotated[Path, typer.Argument(help="Folder that privmix fit or privmix train wrote.")],
    data: Annotated[str, typer.Option(help="Records, with or without labels: file, folder, pattern or address.")],
    target: Annotated[Path, typer.Option("--out", help="File to write: .csv, .parquet or .jsonl (JSON lines).")],
    split: Annotated[
        str | None, typer.Option(help="Which part of the data. Default: test, or all where there are no parts.")
    ] = None,
    inputs: Annotated[ModelInputs, Take(without=["classes"])],
    probabilities: Annotated[
        bool, typer.Option("--probabilities/--no-probabilities", help="Write a probability of each class, too.")
    ] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file that is there.")] = False,
) -> None:
    """Predict the classes of records without labels, and write them to a file of your own.

    One row a record, in the order of the data: `record` (counted from 0, or the image's file name), `prediction` (the
    class's name) and `p_NAME`, the probability of each class. Labels need not be there: a table may lack their column,
    a folder of images its sub-folders, an archive of arrays its y. A column --label-column that is there is left out.

    Predictions are about the records that you pass, and as private as they are: no guarantee covers them, and the file
    is readable by you alone.

    Example: privmix predict MODEL --data mnist --split test --out predictions.csv
    """
    with progress_bars() as progress:
        found = jobs.predicting.predict(
            model,
            data,
            out=target,
            split=split,
            columns=inputs.columns,
            features_model=inputs.features_model,
            trust_features_model=inputs.trust_features_model,
            module=inputs.module,
            probabilities=probabilities,
            overwrite=overwrite,
            progress=progress,
        )
    most = sorted(found.counts.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{plain(name)} {100 * count / len(found):.1f}%" for name, count in most[:_MOST_CLASSES])
    more = "" if len(most) <= _MOST_CLASSES else f", and {len(most) - _MOST_CLASSES} more classes"
    out.print(f"predicted: {len(found):,} records: {shares}{more}", soft_wrap=True)
    out.print(f"written to {plain(target)}, for you alone", soft_wrap=True)
