"""``privmix ledger``: the budget of each private dataset."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from rich.table import Table

from privmix import ledger as ledgers
from privmix.accounting import filters
from privmix.accounting.events import Adjacency
from privmix.cli.app import app, out, plain, print_json
from privmix.cli.options import Json
from privmix.cli.verb import verb
from privmix.errors import InvalidInput, check_choice
from privmix.rounding import exact, rounded_down, rounded_up

ledger = typer.Typer(no_args_is_help=True, help="Give private datasets a total privacy budget, and keep to it.")
app.add_typer(ledger, name="ledger")

Url = Annotated[str, typer.Option("--ledger", help="sqlite:///FILE, or postgresql://USER@HOST/DATABASE for a team.")]
Dataset = Annotated[str, typer.Option(help="The dataset's name.")]


@verb(ledger, "init")
def init(
    dataset: Dataset,
    epsilon: Annotated[float, typer.Option(help="Total budget, epsilon, of everything that is ever run.")],
    delta: Annotated[float, typer.Option(help="At this delta; 0 for pure DP.")],
    url: Url,
    adjacency: Annotated[str, typer.Option(help="add_remove, or replace_one (designs fixed, random-weight).")] = (
        "add_remove"
    ),
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive",
            help="The total must hold for releases chosen after seeing earlier ones, too (a privacy filter).",
        ),
    ] = False,
    filter_name: Annotated[
        str | None,
        typer.Option(
            "--filter",
            help="With --adaptive. gdp (default): Gaussian DP, for everything. rdp: Renyi DP, better for many small "
            "charges that are far from Gaussian, such as Laplace noise.",
        ),
    ] = None,
) -> None:
    """Give a dataset its total budget, once; makes the ledger where there is none.

    Which total? Without --adaptive it holds for plans that are fixed in advance, or chosen without seeing earlier
    results: nobody may look at one release and then decide how the next one is made. With --adaptive it holds however
    they are chosen. That costs moments, DP-SGD and mixed rows of many records about 2% of a total epsilon of 1, and up
    to 9% of one of 8; rows of few records with little noise cost more, Laplace noise most. When in doubt, take it: it
    can't be changed later.

    Example: privmix ledger init --dataset patients --epsilon 4 --delta 1e-5 --adaptive --ledger sqlite:///ledger.db
    """
    relation = Adjacency(check_choice("adjacency", adjacency, [a.value for a in Adjacency]))
    if filter_name is not None:
        check_choice("filter", filter_name, filters.FILTERS)
        if not adaptive:
            raise InvalidInput("filter", filter_name, "none without `adaptive`")
    made = ledgers.Ledger.create(url).add_dataset(
        dataset, epsilon=epsilon, delta=delta, adjacency=relation, adaptive=(filter_name or "gdp") if adaptive else None
    )
    out.print(
        f"budget of {plain(dataset)}: epsilon {exact(epsilon)}, delta {exact(delta)}, adjacency {relation.value}",
        soft_wrap=True,
    )
    out.print(_PLANNED if made is None else f"{_ADAPTIVE} {_FILTERS[made.name]}", soft_wrap=True)


_PLANNED: Final = (
    "planned: the total holds for plans fixed in advance, or chosen without seeing earlier results (--adaptive lifts "
    "that)"
)
_ADAPTIVE: Final = "adaptive: the total holds also for plans chosen after seeing earlier results."
_FILTERS: Final = {
    "gdp": "Filter gdp: moments, DP-SGD and mixed rows of many records may use about 98% of a total epsilon of 1, 91 "
    "to 99% of one of 8; rows of few records with little noise, and Laplace noise, less.",
    "rdp": "Filter rdp: moments, DP-SGD and mixed rows of many records may use about 91% of a total epsilon of 1, 73 "
    "to 93% of one of 8; rows with little noise much less; mechanisms that fail with a probability are refused.",
    "pure": "Filter pure: epsilons are added, as in a planned budget of delta 0; it costs nothing.",
}


@verb(ledger, "upgrade")
def upgrade(url: Url) -> None:
    """Bring a ledger that an earlier privmix made to this version; its budgets and history stay as they are.

    Earlier versions refuse it from then on.
    """
    ledgers.Ledger.upgrade(url)
    out.print("upgraded: budgets and history are as they were")


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
        table.add_row(plain(b.dataset), *figures, b.adjacency.value, reserved, _mode(b))
    out.print(table)
    out.print(
        "spent is composed, not added: a new charge usually costs less than its own epsilon; it is as the newest "
        "charge was priced (`privmix ledger verify` prices everything anew)",
        soft_wrap=True,
    )
    if any(b.mode == "planned" for b in budgets):
        out.print(_PLANNED, soft_wrap=True)
    if any(b.mode == "adaptive" for b in budgets):
        out.print(
            f"{_ADAPTIVE} What counts is the share of the filter; its epsilon spent is that of a filter of this size.",
            soft_wrap=True,
        )


def _mode(budget: ledgers.Budget) -> str:
    if budget.share is None:
        return budget.mode
    return f"{budget.mode} ({budget.filter} filter: {rounded_up(100 * budget.share, 4)}% spent)"


@verb(ledger, "history")
def history(url: Url, dataset: Dataset, json_output: Json = False) -> None:
    """Show every entry of a dataset, oldest first."""
    found = ledgers.Ledger.open(url).history(dataset)
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
            mode = "adaptive" if entry.get("filter") else "planned"
            return f"epsilon {exact(entry['epsilon'])}, delta {exact(entry['delta'])}, {entry['adjacency']}, {mode}"
        case "reserve":
            return f"{entry['purpose']} {entry['id'][:8]}: {rounded_up(entry['spent'], 4)} spent with it"
        case "bind":
            if "fingerprint" in entry:
                return f"{entry['id'][:8]} is for content {entry['fingerprint'][:12]}"
            new = len(entry.get("files", ()))
            return f"{entry['id'][:8]} is for content {entry.get('content', '')[:12]}, {new} files of it new here"
        case _:
            return f"{entry['id'][:8]}: {entry['result']}"


@verb(ledger, "verify")
def verify(
    url: Url,
    head: Annotated[str | None, typer.Option(help="A hash seen earlier, which must still be there.")] = None,
    json_output: Json = False,
) -> None:
    """Recompute every hash and every price; exit code 2 if anything does not hold."""
    opened = ledgers.Ledger.open(url)
    counts = ledgers.verify_ledger(opened, head=head)
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
    if head is None:
        out.print("not checked: that no entries at the end were taken away together with their count (give --head)")


@verb(ledger, "export")
def export(url: Url) -> None:
    """Print budgets and whole histories as JSON, for an archive or an audit."""
    opened = ledgers.Ledger.open(url)
    content = {name: opened.history(name) for name in opened.names()}
    print_json({"format": "privmix-ledger", "schema_version": 1, "datasets": content})
