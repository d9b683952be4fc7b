"""``privmix ledger verify``: recompute every hash and every price."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import jobs
from privmix import ledger as ledgers
from privmix.cli.console import out, plain, print_json
from privmix.cli.ledger import ledger
from privmix.cli.ledger.words import Url
from privmix.cli.options import Json
from privmix.cli.verb import verb


@verb(ledger, "verify")
def verify(
    url: Url,
    head: Annotated[str | None, typer.Option(help="A hash seen earlier, which must still be there.")] = None,
    statement: Annotated[
        Path | None, typer.Option(help="File of privmix ledger statement, which the ledger must still go on from.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Recompute every hash and every price; exit code 2 if anything does not hold."""
    opened = ledgers.Ledger.open(url)
    counts = ledgers.verify_ledger(opened, head=head)
    if statement is not None:
        jobs.ledger_total.check_ledger_total(opened, jobs.ledger_total.read_ledger_total(statement).total)
    modes = {name: opened.mode(name) for name in counts}
    if json_output:
        print_json({"holds": True, "entries": counts, "modes": modes})
        return
    out.print(f"[green]holds:[/] {sum(counts.values())} entries of {len(counts)} datasets, no budget overspent")
    planned = [plain(name) for name, mode in modes.items() if mode == "planned"]
    if planned:
        out.print(
            f"not checked: that plans were fixed in advance or chosen without seeing earlier results, which the totals "
            f"of planned budgets are for: {', '.join(planned)}",
            soft_wrap=True,
        )
    if statement is not None:
        out.print(f"[green]holds:[/] the ledger has what {plain(statement)} states, and goes on from there")
    if head is None:
        out.print("not checked: that no entries at the end were taken away together with their count (give --head)")
