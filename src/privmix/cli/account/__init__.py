"""``privmix account``: price a design, or find the noise that meets a target."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from rich.table import Table

from privmix import jobs
from privmix.cli.app import app, out, print_json
from privmix.cli.design_options import DesignOptions, GivenDesign
from privmix.cli.lazy_verbs import Verb, lazy_app
from privmix.cli.options import Json
from privmix.cli.verb import expanded
from privmix.jobs.options import PriceOptions
from privmix.rounding import exact, rounded_up

# Verb -> where it is, and its line in `privmix account --help`.
VERBS: Final = {
    "compare": Verb(
        "privmix.cli.account.compare",
        "Draw the noise that each accountant asks for against the mixup degree (Li et al. 2022, Figure 1).",
    ),
    "poisoning": Verb(
        "privmix.cli.account.poisoning",
        "Bound how often an attack by poisoned records succeeds against anything with this guarantee (Ma et al. 2019).",
    ),
}

account = lazy_app(VERBS, "account")
app.add_typer(account, name="account")


@account.callback(invoke_without_command=True)
@expanded
def price(
    context: typer.Context,
    design: Annotated[GivenDesign, DesignOptions()],
    asked: PriceOptions,
    json_output: Json = False,
) -> None:
    """Price a design, or find the noise that meets a target.

    Give either --noise-multiplier (answers with epsilon) or --epsilon (answers with the least noise multiplier). A
    design's own query is priced; a release that is centred also pays for its mean (--release prices all of it).

    Example: privmix account --design poisson --records 60000 --mixup-degree 64 --epsilon 1 --delta 1e-5
    """
    if context.invoked_subcommand is not None:
        return
    prices = jobs.price.price(asked, design.name, design.options)
    if json_output:
        print_json(prices.found if asked.every else prices.found[0])
        return
    name = prices.design if asked.release else f"design {prices.design}"
    title = f"{name}, delta {exact(prices.delta)}, adjacency {prices.adjacency.value}"
    out.print(_table(prices.found, title))


def _table(found: list[dict[str, Any]], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("accountant", "epsilon", "noise multiplier", "upper bound", "note"):
        table.add_column(column, justify="right" if column in ("epsilon", "noise multiplier") else "left")
    for result in found:
        if "unsupported" in result:
            table.add_row(result["accountant"], "-", "-", "-", result["unsupported"])
            continue
        value = "infinite" if result["epsilon"] is None else f"{rounded_up(result['epsilon'], 4)}"
        table.add_row(
            result["accountant"],
            value,
            f"{result['noise_multiplier']:.4g}",
            "yes" if result["is_upper_bound"] else "[red]NO[/]",
            result.get("note", ""),
        )
    return table
