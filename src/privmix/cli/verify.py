"""``privmix verify``: recompute what the certificate of a release or a trained model claims, and who signed it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from privmix import certificate, jobs
from privmix.cli.app import app
from privmix.cli.console import err, out, plain, print_json
from privmix.cli.flags import with_flags
from privmix.cli.options import Json
from privmix.cli.verb import verb
from privmix.jobs.options import MODULE_HELP
from privmix.rounding import exact, rounded_up


@verb(app)
def verify(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Folder that privmix release, privmix train or privmix fit wrote, or of a series; or the file of "
            "privmix ledger statement."
        ),
    ],
    key: Annotated[
        Path | None, typer.Option(help="Public key (PEM) of whoever must have signed it; see privmix sign.")
    ] = None,
    module: Annotated[str | None, typer.Option(help=MODULE_HELP)] = None,
    json_output: Json = False,
) -> None:
    """Recompute epsilon, check every byte and test the noise.

    Every byte of every file is checked, and the released numbers are tested for their noise.

    Exit code 2 if anything does not hold. Says what was tested, how sure that is, and what can't be checked.

    With --key, that key must have signed every file of the folder. Take the key from where its owner publishes it, not
    from beside the folder. Without --key, a signature is named and not checked.

    Of a trained network of your own --module names the module: whether it treats each record alone, and fits.

    A series (privmix series begin): every release is checked, and that they are the steps of one plan.

    A ledger's total (privmix ledger statement): the form is checked, and with --key whose it is.

    Example: privmix verify REL --key ana.pub.pem
    """
    checked = jobs.checking.verify(folder, key=key, module=module)
    wanted = None if checked.wanted is None else with_flags(checked.wanted)
    if json_output:
        print_json(
            {
                **checked.found,
                "warnings": list(checked.warnings),
                "features_model": wanted,
                "signature": checked.signature,
            }
        )
        return
    out.print(_held(checked), soft_wrap=True)
    if checked.series is not None:
        out.print(f"[green]series:[/] {checked.series}; the figures here are of the newest, and hold for all together")
    out.print(_signed(checked.signature, checked.total is not None), soft_wrap=True)
    if checked.sealed:
        out.print(f"[yellow]key of the noise:[/] {plain(checked.sealed)}", soft_wrap=True)
    if checked.held is not None and checked.held.tests:
        _show_tests(checked.held)
    out.print("not checked:")
    for text in checked.unchecked:
        out.print(f"- {text}", soft_wrap=True)
    if wanted is not None:
        out.print(f"to use it you need: {plain(wanted)}", soft_wrap=True)
    for warning in checked.warnings:
        err.print(f"[yellow]warning:[/] {plain(warning)}", soft_wrap=True)


def _held(checked: jobs.checking.Checked) -> str:
    found, total = checked.found, checked.total
    if total is not None:
        said = jobs.ledger_total.words(total)
        lines = "; ".join(f"{name} {plain(value)}" for name, value in said.items())
        return f"[green]well formed:[/] a ledger's total for dataset {plain(total.dataset)}: {lines}"
    if checked.subject.kind == "fitted-model":
        return f"[green]well formed:[/] a model fitted on release {plain(found['fitted_on'])}"
    relation = found["adjacency"] if checked.held is None else checked.held.relation
    hashes = "the hash of 1 file holds" if checked.files == "1 file" else f"the hashes of {checked.files} hold"
    # Epsilon 0 is of a model of public data, whose maker alone says that they are public.
    compared = "" if found["epsilon"] else "; no private record was read, and public data were compared with none"
    return (
        f"[green]holds:[/] epsilon {rounded_up(found['epsilon'], 6)} at delta {exact(found['delta'])} "
        f"({relation}), recomputed {rounded_up(found['recomputed_epsilon'], 6)}; {hashes}{compared}"
    )


def _signed(signature: dict[str, Any] | None, total: bool) -> str:
    if signature is None:
        way = "privmix ledger statement --key" if total else "privmix sign"
        return f"unsigned: who made it is not checked ({way})"
    if signature["checked"]:
        return f"[green]signed:[/] every {'byte' if total else 'file'}, by key {signature['key_id']}"
    return f"signed, it says by key {signature['key_id']}: not checked (give --key)"


def _show_tests(checked: certificate.Verification) -> None:
    """What was measured, and what it would have caught."""
    table = Table(title="tests of the released numbers, as shares of the certified noise", title_justify="left")
    table.add_column("tested")
    for name in ("tests", "least found", "caught below"):
        table.add_column(name, justify="right")
    for test in checked.tests:
        found = ["-" if value is None else f"{value:.3f}" for value in (test.lowest, test.caught)]
        table.add_row(test.name, f"{test.tests:,}", *found)
    out.print(table)
    out.print(
        f"An honest release fails one of these with probability {rounded_up(checked.false_alarm, 2)} at most, whatever "
        "its data. If the data add no variation of their own, noise below the last column is detected 99% of the time. "
        "Variation in the data can hide missing noise of the same size.",
        soft_wrap=True,
    )
