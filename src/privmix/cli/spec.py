"""``privmix spec``: draft the specification of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from privmix import jobs
from privmix.cli.app import app, err, out, plain
from privmix.cli.flags import with_flags
from privmix.cli.progress import progress_bars
from privmix.cli.verb import Take, help_of, verb
from privmix.jobs.columns import Columns
from privmix.jobs.options import SpecOptions

_SAID = "What columns hold, by public knowledge"


def _told(field: str, shape: str) -> Any:
    return typer.Option(help=help_of(SpecOptions, field), metavar=shape, rich_help_panel=_SAID)


@verb(app)
def spec(
    *,
    data: Annotated[str, typer.Argument(help="A table: CSV, JSON lines, Parquet or Arrow; file, folder or pattern.")],
    target: Annotated[Path, typer.Option("--out", help="File to write: .json.")],
    split: Annotated[str, typer.Option(help="Which part of a folder.")] = "train",
    columns: Annotated[
        Columns, Take("label_column", "separator", "decimal", "encoding", "header", "no_header", "person")
    ],
    number: Annotated[list[str] | None, _told("number", "COLUMN=LOW:HIGH[:INTERVALS]")] = None,
    bins: Annotated[list[str] | None, _told("bins", "COLUMN=EDGE,EDGE")] = None,
    integer: Annotated[list[str] | None, _told("integer", "COLUMNS")] = None,
    category: Annotated[list[str] | None, _told("category", "COLUMN=VALUE,VALUE")] = None,
    ordinal: Annotated[list[str] | None, _told("ordinal", "COLUMN=VALUE,VALUE")] = None,
    date: Annotated[list[str] | None, _told("date", "COLUMN=FIRST:LAST")] = None,
    boolean: Annotated[list[str] | None, _told("boolean", "COLUMN[=TRUE:FALSE]")] = None,
    ignore: Annotated[list[str] | None, _told("ignore", "COLUMNS")] = None,
    missing: Annotated[list[str] | None, _told("missing", "[COLUMN=]TEXT,TEXT")] = None,
    look: Annotated[bool, typer.Option("--look", help=help_of(SpecOptions, "look"))] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file that is there.")] = False,
) -> None:
    """Draft the specification of a table from its header and your word: what `--features tabular:SPEC.json` takes.

    No record is read unless you ask for it by --look. A column of which you say nothing gets a place to fill in; until
    then `privmix release` refuses the file and names the column. Every field is explained in docs/tables.md.

    A specification is published: its bounds, categories and days must come from public knowledge, such as a form, a
    code book or physics, and not from the table. What --look finds comes from the table: the file says so, and so does
    every certificate of a release that was made with it.

    Example: privmix spec adult --out spec.json --label-column income --number age=17:90 --category sex=Female,Male
    """
    with progress_bars() as progress:
        found = jobs.specification.spec(
            data,
            out=target,
            split=split,
            columns=columns,
            number=number,
            bins=bins,
            integer=integer,
            category=category,
            ordinal=ordinal,
            date=date,
            boolean=boolean,
            ignore=ignore,
            missing=missing,
            look=look,
            overwrite=overwrite,
            progress=progress,
        )
    out.print(f"{len(found.columns)} columns, written to {plain(target)}", soft_wrap=True)
    for name, words in found.seen.items():
        out.print(f"  {plain(name)}: {plain(with_flags(words))}", soft_wrap=True)
    for text in found.warnings:
        err.print(f"[yellow]warning:[/] {plain(text)}", soft_wrap=True)
    if ranges := [plain(name) for name, entry in found.columns.items() if "range" in entry and "bins" not in entry]:
        out.print(
            f"for sample rows: a release has only mean and spread of {', '.join(ranges)}; intervals tell more, as "
            f"--number {ranges[0]}=LOW:HIGH:12",
            soft_wrap=True,
        )
    if found.nameless:
        out.print(f"left out, without a name of their own: {plain(', '.join(found.nameless))}", soft_wrap=True)
    if found.looked:
        err.print(
            "[yellow]private:[/] the records were looked at. What the file says of them is published with each release "
            "made with it, and no guarantee covers it. Put what is publicly known in its place where you can.",
            soft_wrap=True,
        )
    if found.undeclared:
        names = ", ".join(plain(name) for name in found.undeclared)
        out.print(f"still to be declared in the file: {names}", soft_wrap=True)
