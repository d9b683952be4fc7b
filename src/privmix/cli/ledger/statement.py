"""``privmix ledger statement``: what a dataset has cost in all, for whoever must know."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import jobs
from privmix.cli.console import err, out, plain, print_json
from privmix.cli.ledger import ledger
from privmix.cli.ledger.words import Dataset, Url
from privmix.cli.options import Json
from privmix.cli.passphrase import VARIABLE, passphrase_of
from privmix.cli.verb import verb


@verb(ledger, "statement")
def statement(
    url: Url,
    dataset: Dataset,
    file: Annotated[Path, typer.Option("--out", help="File to write (JSON).")],
    key: Annotated[
        Path | None,
        typer.Option(help=f"Private key (PEM) to sign with; its passphrase is asked for, or in {VARIABLE}."),
    ] = None,
    outcomes: Annotated[
        bool,
        typer.Option(
            "--outcomes",
            help="Say also what became of the charges: how many have no result, and what the others made. Not for the "
            "public: that a run ended without a result may reveal something of its records.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace a statement that is there.")] = False,
    json_output: Json = False,
) -> None:
    """State what a dataset has cost in all, in a file that can be signed and handed on.

    Budget, spent and left (rounded to their safe side), how many charges there are and for what, adjacency, whether the
    total holds for planned or adaptive use, and the date. Nothing of the data, and no fingerprint of them. The whole
    ledger is verified first.

    Others check it with `privmix verify FILE --key KEY.pub.pem`, and see it beside a release with
    `privmix report RELEASE --statement FILE --key KEY.pub.pem`.

    Example: privmix ledger statement --ledger sqlite:///ledger.db --dataset patients --out total.json --key ana.pem
    """
    found = jobs.ledger_total.ledger_total(
        url,
        dataset,
        out=file,
        key=key,
        passphrase=None if key is None else passphrase_of(key),
        outcomes=outcomes,
        overwrite=overwrite,
    )
    if json_output:
        print_json(found.to_dict())
        return
    for name, value in jobs.ledger_total.words(found.total).items():
        out.print(f"{name}: {plain(value)}", soft_wrap=True)
    by = "not signed: nobody vouches for it (--key)" if found.key_id is None else f"signed by key {found.key_id}"
    out.print(f"statement: {plain(file)}, {by}", soft_wrap=True)
    if outcomes:
        err.print(
            "[yellow]warning:[/] it says what became of the charges: hand it to an officer, and do not publish it",
            soft_wrap=True,
        )
