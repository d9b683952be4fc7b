"""``privmix account``: price a design, or find the noise that meets a target."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from rich.table import Table

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import out, print_json
from privmix.cli.design_options import DesignOptions, GivenDesign
from privmix.cli.lazy_verbs import Verb, lazy_app
from privmix.cli.options import Json
from privmix.cli.verb import expanded
from privmix.jobs.options import PriceOptions
from privmix.mechanisms.plan import Unit, relation_of
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
    title = f"{name}, delta {exact(prices.delta)}, adjacency {relation_of(prices.adjacency.value, prices.unit)}"
    records = asked.records_per_person
    out.print(_table(prices.found, title, records))
    if records is not None:
        out.print(_about_persons(records, prices.unit), soft_wrap=True)


def _about_persons(records: int, unit: Unit) -> str:
    if unit.per_person is not None:
        return "It is priced for persons already: with all of their records, however many."
    return (
        f"The figures of {records} records are what the price for one record means for a person with so many, and "
        "bound it for whoever has fewer (group privacy). --person of privmix release and train makes a person the unit."
    )


def _table(found: list[dict[str, Any]], title: str, records: int | None) -> Table:
    table = Table(title=title, title_justify="left")
    together = [] if records is None else [f"of {records} records"]
    for column in ("accountant", "epsilon", *together, "noise multiplier", "upper bound", "note"):
        table.add_column(column, justify="left" if column in ("accountant", "upper bound", "note") else "right")
    for result in found:
        if "unsupported" in result:
            table.add_row(result["accountant"], *["-" for _ in together], "-", "-", "-", result["unsupported"])
            continue
        table.add_row(
            result["accountant"],
            _figure(result["epsilon"]),
            *[_figure(result["person_epsilon"]) if result["is_upper_bound"] else "-" for _ in together],
            f"{result['noise_multiplier']:.4g}",
            "yes" if result["is_upper_bound"] else "[red]NO[/]",
            result.get("note", ""),
        )
    return table


def _figure(value: float | None) -> str:
    return "infinite" if value is None else f"{rounded_up(value, 4)}"
