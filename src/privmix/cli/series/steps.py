"""``privmix series begin``, ``step``, ``show`` and ``end``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import jobs
from privmix.cli.console import out, plain, print_json
from privmix.cli.options import Json
from privmix.cli.release import make
from privmix.cli.series import series
from privmix.cli.verb import Take, verb
from privmix.designs.series.plan import MomentsSeries
from privmix.jobs.release_options import NOT_IN_SERIES, ReleaseOptions, StepOptions

Folder = Annotated[Path, typer.Argument(help="Folder of the series.")]


@verb(series)
def begin(
    folder: Annotated[Path, typer.Argument(help="New folder, for step-001, step-002, and so on.")],
    options: Annotated[ReleaseOptions, Take(without=NOT_IN_SERIES)],
    design: MomentsSeries,
    json_output: Json = False,
) -> None:
    """Begin a series of releases of data that grow, for one budget.

    The first step is a release of the first records. Later steps release all records so far, with noise that is shared
    between the steps: a ledger is charged once, now, for all of them. The key of the noise is kept next to the folder,
    for you only, until the last step.

    Example: privmix series begin visits --data january.csv --steps 12 --epsilon 4 --delta 1e-5 ...
    """
    make(jobs.series.first_step(folder, **{**vars(options), "design": design}), json_output, folder)


@verb(series)
def step(
    folder: Folder,
    options: StepOptions,
    number: Annotated[
        int | None, typer.Option(help="The step in which --data are new: only the next is allowed.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Make the next step: a release of all records so far.

    --data are the records that are new, and those alone. Price, plan, extractor and classes are the first step's.

    Example: privmix series step visits --data february.csv --label-column readmitted
    """
    make(jobs.series.next_step(folder, options, number), json_output, folder)


@verb(series)
def show(folder: Folder, json_output: Json = False) -> None:
    """Show how far a series is.

    Steps that are released, records of each, the guarantee of all steps, and whether the key is there. Nothing is
    verified; privmix verify does that.

    Example: privmix series show visits
    """
    found = jobs.series.show(folder)
    if json_output:
        print_json(found.to_dict())
        return
    title, facts = found.shown()
    out.print(title)
    for name, value in facts.items():
        out.print(f"{name}: {plain(value)}", soft_wrap=True)


@verb(series)
def end(folder: Folder) -> None:
    """Overwrite and remove the key before the last step: no step can follow.

    The releases stay what they are, and what a ledger was charged for all steps stays charged. After the last step the
    key ends by itself.

    Example: privmix series end visits
    """
    made = jobs.series.end(folder)
    out.print(f"ended: the key of {plain(folder)} is overwritten and removed; {made} releases were made")
