"""``privmix report``: one page that anyone can read, from what was released or trained and what was measured of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import err, out, plain
from privmix.cli.verb import verb
from privmix.reports.context import OWNER, PUBLIC


@verb(app)
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Release, trained model, or run folder that --record filled (it may hold release/ and model/).",
        ),
    ],
    audience: Annotated[
        str, typer.Option("--for", help="public: no private figure gets in; owner: everything, keep it to yourself.")
    ] = PUBLIC,
    page: Annotated[Path, typer.Option("--out", help="HTML file to write.")] = Path("report.html"),
    ledger: Annotated[
        str | None, typer.Option(help="The dataset's ledger: the page shows what everything has cost. With --dataset.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="The dataset's name in --ledger.")] = None,
    statement: Annotated[
        Path | None, typer.Option(help="The same from a file of privmix ledger statement, for whoever has no ledger.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Public key (PEM) of whoever must have signed --statement.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing page.")] = False,
) -> None:
    """Write one HTML page: guarantee, accuracy and attacks.

    The page is self-contained.

    The guarantee is recomputed from the certificate. Everything else comes from records that verbs keep with --record.
    A page for the public is made without private records; their figures can't get into it.

    Example: privmix report RUN RELEASE --for public --out report.html

    With the dataset's total: privmix report RELEASE --ledger sqlite:///ledger.db --dataset patients
    """
    found = jobs.report.report(
        runs,
        out=page,
        audience=audience,
        ledger=ledger,
        dataset=dataset,
        statement=statement,
        key=key,
        overwrite=overwrite,
    )
    out.print(f"report for the {audience}: {plain(page)}", soft_wrap=True)
    if audience == OWNER:
        err.print("[yellow]warning:[/] this page holds private evaluation: do not publish it")
    elif found.refuted_in_private:
        err.print(
            "[yellow]warning:[/] a private record refutes a claim; this page can't say so. See --for owner before you "
            "publish anything",
            soft_wrap=True,
        )
