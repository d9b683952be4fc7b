"""``privmix evaluate``: accuracy of a fitted model on your own test data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import jobs
from privmix.cli.app import app, out, plain, print_json
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep
from privmix.cli.verb import verb
from privmix.jobs.inputs import Inputs


@verb(app)
def evaluate(
    *,
    model: Annotated[Path, typer.Argument(help="Folder that privmix fit or privmix train wrote.")],
    data: Annotated[str, typer.Option(help="Dataset with labels: file, folder, pattern or address.")],
    split: Annotated[str, typer.Option(help="Which part of it.")] = "test",
    inputs: Inputs,
    figure: Annotated[
        Path | None,
        typer.Option(help="Confusion matrix picture. Default: confusion-SPLIT.png in --record, or here."),
    ] = None,
    public_data: Annotated[
        bool, typer.Option("--public-data", help="The data are public: record and picture may be shown.")
    ] = False,
    json_output: Json = False,
    record: Record = None,
) -> None:
    """Measure a model on your own labelled data: raw inputs in, accuracy out.

    The figures are about the data you pass and are not covered by any guarantee. A record of them (--record) and the
    picture are private, and left out of public reports, unless you say that the data are public.

    Example: privmix evaluate MODEL --data mnist --split test --json
    """
    with progress_bars() as progress:
        found = jobs.evaluation.evaluate(
            model,
            data,
            split=split,
            **vars(inputs),
            # Of private records, so never in the model's folder, which may be handed on.
            figure=figure or (record or Path()) / f"confusion-{split}.png",
            public_data=public_data,
            progress=progress,
        )
    keep(found, record)
    if json_output:
        print_json(found.to_dict())
        return
    out.print(
        f"accuracy {100 * found.accuracy:.2f}% on {found.n} records; picture: {plain(found.figure)}", soft_wrap=True
    )
