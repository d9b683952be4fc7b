"""``privmix check``: what of a private dataset does not fit, for its owner's eyes."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import err, out, plain, print_json
from privmix.cli.flags import with_flags
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.verb import Take, help_of, verb
from privmix.jobs.columns import Columns
from privmix.jobs.options import CLASSES_HELP, JobOptions
from privmix.jobs.persons import Persons


@verb(app)
def check(
    *,
    data: Annotated[str, typer.Argument(help="Private dataset: file, folder, pattern or address.")],
    features: Annotated[str, typer.Option(help=help_of(JobOptions, "features"))] = "pixels",
    classes: Annotated[str | None, typer.Option(help=CLASSES_HELP)] = None,
    split: Annotated[str, typer.Option(help="Which part of it.")] = "train",
    columns: Columns,
    persons: Annotated[Persons, Take("person_pattern", "person_file", "person_missing")],
    clip_norm: Annotated[float, typer.Option(help="Bound on features that the release will have.")] = 1.0,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Show the values that do not fit: they are private.")
    ] = False,
    most: Annotated[int, typer.Option("--show", help="List so many places at most.", min=0)] = 20,
    json_output: Json = False,
) -> None:
    """Find what does not fit in a private dataset, before a release charges for it. For its owner's eyes alone.

    It makes the pass that `privmix release` and `privmix train` make, and goes on where they would end. It lists values
    that are refused, cut to a range, missing or in no category, by file, record, column and reason. It counts records
    that are longer than the clipping bound, and the records of each class. With --person it also counts persons, and
    the records of the one who has most. It writes nothing, opens no ledger and charges nothing.

    So pass nothing of it on, not even that it was done. What it makes you change is a choice from private data. The
    exit code is 2 where a record would be refused.

    Example: privmix check mnist --features pixels
    """
    with progress_bars() as progress:
        found: Any = jobs.data_check.told(
            jobs.data_check.check(
                data,
                features=features,
                classes=classes,
                split=split,
                columns=columns,
                persons=persons,
                clip_norm=clip_norm,
                show_values=show_values,
                progress=progress,
            )
        )
    err.print(f"[yellow]private:[/] {plain(jobs.data_check.NOT_FOR_OTHERS)}", soft_wrap=True)
    if json_output:
        print_json(found.to_dict())
    else:
        _show(found, most)
    if not found.fits:
        raise typer.Exit(2)


def _show(found: Any, most: int) -> None:
    out.print(f"{found.records:,} records: {found.verdict}", soft_wrap=True)
    if found.counts:
        table = Table(title="by column and reason", title_justify="left")
        for head in ("column", "values", "", "why"):
            table.add_column(head, justify="right" if head == "values" else "left")
        for (column, why, refused), count in sorted(found.counts.items(), key=lambda item: (not item[0][2], -item[1])):
            table.add_row(plain(column or ""), f"{count:,}", "refused" if refused else "taken", plain(why))
        out.print(table)
    for one in found.misfits[:most]:
        value = "" if one.value is None else f": {one.value!r}"
        place = f"{one.file or 'memory'}, record {one.record:,}" + (f", column {one.column}" if one.column else "")
        out.print(plain(f"  {place}: {one.why}{value}"), soft_wrap=True)
    left = sum(found.counts.values()) - min(most, len(found.misfits))
    if left > 0:
        out.print(f"  and {left:,} more values", soft_wrap=True)
    out.print(
        f"{jobs.dataset.PUBLISHED_NAMES}: {plain(jobs.dataset.shown_names(found.published_names))}", soft_wrap=True
    )
    if len(found.norms):
        out.print(f"{100 * found.clipped:.1f}% of the records are longer than the bound {found.clip_norm:g}")
    if total := sum(found.classes.values()):
        shares = ", ".join(f"{plain(name)} {count:,} ({100 * count / total:.1f}%)" for name, count in _largest(found))
        out.print(f"classes: {shares}", soft_wrap=True)
    if found.persons is not None:
        out.print(f"persons: {found.persons}", soft_wrap=True)
    for text in found.warnings:
        err.print(f"[yellow]warning:[/] {plain(with_flags(text))}", soft_wrap=True)


def _largest(found: Any) -> list[tuple[str, int]]:
    return sorted(found.classes.items(), key=lambda item: -item[1])[:20]
