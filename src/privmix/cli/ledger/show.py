"""``privmix ledger show``: what was spent of each budget."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from privmix import ledger as ledgers
from privmix.cli.console import out, plain, print_json
from privmix.cli.ledger import ledger
from privmix.cli.ledger.words import ADAPTIVE, PLANNED, Url, said_of
from privmix.cli.options import Json
from privmix.cli.verb import verb
from privmix.ledger.pricing import covered
from privmix.rounding import exact, rounded_down, rounded_up


@verb(ledger, "show")
def show(
    url: Url,
    dataset: Annotated[str | None, typer.Option(help="One dataset; all where left out.")] = None,
    json_output: Json = False,
) -> None:
    """Show what every dataset may cost, has cost and has left, and for which plans its total holds.

    Keep the newest entry's hash elsewhere (--json shows it whole): `ledger verify --head` then notices lost entries.
    """
    opened = ledgers.Ledger.open(url)
    budgets = [opened.stated_budget(name) for name in (opened.names() if dataset is None else [dataset])]
    if json_output:
        print_json([{**vars(budget), "adjacency": budget.adjacency.value} for budget in budgets])
        return
    table = Table("dataset", "epsilon spent", "of", "left", "delta", "adjacency", "reserved", "mode")
    for b in budgets:
        figures = (
            f"{rounded_up(b.spent, 4)}",
            exact(b.epsilon),
            f"{rounded_down(max(0.0, b.epsilon - b.spent), 4)}",
            exact(b.delta),
        )
        reserved = f"{b.reservations} ({b.uncommitted} not committed)" if b.uncommitted else str(b.reservations)
        table.add_row(plain(b.dataset), *figures, said_of(b.adjacency.value, b.unit), reserved, _mode(b))
    out.print(table)
    out.print(
        "spent is composed, not added: a new charge usually costs less than its own epsilon; it is as the newest "
        "charge was priced (`privmix ledger verify` prices everything anew)",
        soft_wrap=True,
    )
    for b in budgets:
        if b.most_per_person is not None:
            out.print(f"{plain(b.dataset)} covers {covered(b.most_per_person)}", soft_wrap=True)
    if any(b.mode == "planned" for b in budgets):
        out.print(PLANNED, soft_wrap=True)
    if any(b.mode == "adaptive" for b in budgets):
        out.print(
            f"{ADAPTIVE} What counts is the share of the filter; its epsilon spent is that of a filter of this size.",
            soft_wrap=True,
        )


def _mode(budget: ledgers.Budget) -> str:
    if budget.share is None:
        return budget.mode
    return f"{budget.mode} ({budget.filter} filter: {rounded_up(100 * budget.share, 4)}% spent)"
