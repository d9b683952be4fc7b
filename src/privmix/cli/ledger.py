"""``privmix ledger``: the budget of each private dataset."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from privmix.accounting import Adjacency
from privmix.cli.app import app, out, plain, print_json
from privmix.errors import check_choice
from privmix.ledger import Ledger, verify_ledger
from privmix.rounding import exact, rounded_down, rounded_up

ledger = typer.Typer(no_args_is_help=True, help="Give private datasets a total privacy budget, and keep to it.")
app.add_typer(ledger, name="ledger")

Url = Annotated[str, typer.Option("--ledger", help="sqlite:///FILE, or postgresql://USER@HOST/DATABASE for a team.")]
Dataset = Annotated[str, typer.Option(help="The dataset's name.")]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]


@ledger.command("init")
def init(
    dataset: Dataset,
    epsilon: Annotated[float, typer.Option(help="Total budget, epsilon, of everything that is ever run.")],
    delta: Annotated[float, typer.Option(help="At this delta; 0 for pure DP.")],
    url: Url,
    adjacency: Annotated[str, typer.Option(help="add_remove, or replace_one (designs fixed, random-weight).")] = (
        "add_remove"
    ),
) -> None:
    """Give a dataset its total budget, once; makes the ledger where there is none.

    Example: privmix ledger init --dataset patients --epsilon 4 --delta 1e-5 --ledger sqlite:///ledger.db
    """
    relation = Adjacency(check_choice("--adjacency", adjacency, [a.value for a in Adjacency]))
    Ledger.create(url).add_dataset(dataset, epsilon=epsilon, delta=delta, adjacency=relation)
    out.print(f"budget of {plain(dataset)}: epsilon {exact(epsilon)}, delta {exact(delta)}, adjacency {relation.value}")


@ledger.command("show")
def show(
    url: Url,
    dataset: Annotated[str | None, typer.Option(help="One dataset; all where left out.")] = None,
    json_output: Json = False,
) -> None:
    """Show what every dataset may cost, has cost and has left.

    Keep the newest entry's hash elsewhere (--json shows it whole): `ledger verify --head` then notices lost entries.
    """
    opened = Ledger.open(url)
    budgets = [opened.budget(name) for name in (opened.names() if dataset is None else [dataset])]
    if json_output:
        print_json([{**vars(budget), "adjacency": budget.adjacency.value} for budget in budgets])
        return
    table = Table("dataset", "epsilon spent", "of", "left", "delta", "adjacency", "reserved")
    for b in budgets:
        figures = (
            f"{rounded_up(b.spent, 4)}",
            f"{exact(b.epsilon)}",
            f"{rounded_down(max(0.0, b.epsilon - b.spent), 4)}",
            f"{exact(b.delta)}",
        )
        reserved = f"{b.reservations} ({b.uncommitted} not committed)" if b.uncommitted else str(b.reservations)
        table.add_row(plain(b.dataset), *figures, b.adjacency.value, reserved)
    out.print(table)
    out.print("spent is composed, not added: a new charge usually costs less than its own epsilon", soft_wrap=True)


@ledger.command("history")
def history(url: Url, dataset: Dataset, json_output: Json = False) -> None:
    """Show every entry of a dataset, oldest first."""
    found = Ledger.open(url).history(dataset)
    if json_output:
        print_json(found)
        return
    table = Table("entry", "time", "kind", "what", "hash")
    for entry in found:
        table.add_row(
            str(entry["number"]), plain(entry.get("at", "")), entry["kind"], plain(_what(entry)), entry["hash"][:12]
        )
    out.print(table)


def _what(entry: dict[str, Any]) -> str:
    match entry["kind"]:
        case "init":
            return f"epsilon {exact(entry['epsilon'])}, delta {exact(entry['delta'])}, {entry['adjacency']}"
        case "reserve":
            return f"{entry['purpose']} {entry['id'][:8]}: {rounded_up(entry['spent'], 4)} spent with it"
        case "bind":
            return f"{entry['id'][:8]} is for content {entry['fingerprint'][:12]}"
        case _:
            return f"{entry['id'][:8]}: {entry['result']}"


@ledger.command("verify")
def verify(
    url: Url,
    head: Annotated[str | None, typer.Option(help="A hash seen earlier, which must still be there.")] = None,
    json_output: Json = False,
) -> None:
    """Recompute every hash and every price; exit code 2 if anything does not hold."""
    counts = verify_ledger(Ledger.open(url), head=head)
    if json_output:
        print_json({"holds": True, "entries": counts})
        return
    out.print(f"[green]holds:[/] {sum(counts.values())} entries of {len(counts)} datasets, no budget overspent")
    if head is None:
        out.print("not checked: that no entries at the end were taken away together with their count (give --head)")


@ledger.command("export")
def export(url: Url) -> None:
    """Print budgets and whole histories as JSON, for an archive or an audit."""
    opened = Ledger.open(url)
    content = {name: opened.history(name) for name in opened.names()}
    print_json({"format": "privmix-ledger", "schema_version": 1, "datasets": content})
