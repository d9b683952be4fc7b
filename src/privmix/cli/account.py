"""``privmix account``: price a design, or find the noise that meets a target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from privmix import accounting, jobs, releases
from privmix.accounting.events import Adjacency, Event
from privmix.cli.app import app, out, print_json
from privmix.cli.design_options import DesignOptions, GivenDesign
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.verb import expanded, verb
from privmix.errors import InvalidInput, check_choice, check_number
from privmix.rounding import exact, rounded_up

account = typer.Typer(no_args_is_help=False)
app.add_typer(account, name="account")


@account.callback(invoke_without_command=True)
@expanded
def price(
    context: typer.Context,
    design: Annotated[GivenDesign, DesignOptions()],
    records: Annotated[int | None, typer.Option(help="Record count n, taken as public.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows released, T. Default: n.")] = None,
    delta: Annotated[float, typer.Option(help="Probability with which epsilon may be exceeded.")] = 1e-5,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Joint noise multiplier s of a row (features and labels together).")
    ] = None,
    epsilon_target: Annotated[
        float | None, typer.Option("--epsilon", help="Target: find the least noise that meets it.")
    ] = None,
    classes: Annotated[int, typer.Option(help="Number of classes (hierarchical, classwise).")] = 10,
    accountant: Annotated[str, typer.Option(help="pld, rdp, moments, pure; gdp_clt, as_published compare.")] = "pld",
    every: Annotated[bool, typer.Option("--all", help="A table over all accountants.")] = False,
    as_published: Annotated[bool, typer.Option(help="The papers' figure: a comparison, not a bound.")] = False,
    json_output: Json = False,
) -> None:
    """Price a design, or find the noise that meets a target.

    Give either --noise-multiplier (answers with epsilon) or --epsilon (answers with the least noise multiplier).

    Example: privmix account --design poisson --records 60000 --mixup-degree 64 --epsilon 1 --delta 1e-5
    """
    if context.invoked_subcommand is not None:
        return
    if records is None:
        raise InvalidInput("records", records, "the public record count")
    if (noise_multiplier is None) == (epsilon_target is None):
        raise InvalidInput("noise_multiplier, epsilon", "both or neither", "exactly one of the two")
    config = releases.ReleaseConfig(
        records=records,
        dim=1,
        classes=tuple(str(number) for number in range(classes)),
        design=design.name or "poisson",
        rows=rows,
        centre="none",
        **design.options,
    )
    adjacency = config.with_noise(1.0).adjacency
    name = "as_published" if as_published else accountant
    names = list(accounting.ACCOUNTANTS) if every else [accounting.get_accountant(name).name]
    results = [_one(config, one, delta, noise_multiplier, epsilon_target, adjacency, lenient=every) for one in names]
    if json_output:
        print_json(results if every else results[0])
    else:
        _show(results, config.design.name, delta, adjacency)


def _one(
    config: releases.ReleaseConfig,
    accountant: str,
    delta: float,
    noise_multiplier: float | None,
    target: float | None,
    adjacency: Adjacency,
    lenient: bool,
) -> dict[str, Any]:
    def make_event(multiplier: float) -> Event:
        return config.with_noise(multiplier).event

    try:
        if target is not None:
            noise_multiplier = accounting.calibrate(
                make_event, target, delta, accountant=accountant, adjacency=adjacency
            ).noise_multiplier
        assert noise_multiplier is not None
        check_number("noise_multiplier", noise_multiplier, low=0, low_open=True)
        cost = accounting.epsilon(make_event(noise_multiplier), delta, accountant=accountant, adjacency=adjacency)
    except accounting.UnsupportedEvent as error:
        if not lenient:
            raise
        return {"accountant": accountant, "unsupported": error.allowed}
    return {**cost.to_dict(), "noise_multiplier": noise_multiplier}


def _show(results: list[dict[str, Any]], design: str, delta: float, adjacency: Adjacency) -> None:
    table = Table(title=f"design {design}, delta {exact(delta)}, adjacency {adjacency.value}", title_justify="left")
    for column in ("accountant", "epsilon", "noise multiplier", "upper bound", "note"):
        table.add_column(column, justify="right" if column in ("epsilon", "noise multiplier") else "left")
    for result in results:
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
    out.print(table)


@verb(account)
def compare(
    records: Annotated[int, typer.Option(help="Record count n.")] = 50_000,
    rows: Annotated[int | None, typer.Option(help="Rows released, T. Default: n.")] = None,
    epsilon_target: Annotated[float, typer.Option("--epsilon", help="Target epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Target delta.")] = 1e-5,
    points: Annotated[int, typer.Option(help="Mixup degrees between 1 and n, evenly spaced in their logarithm.")] = 13,
    figure: Annotated[Path, typer.Option("--out", help="Where to draw: .svg, .png or .pdf.")] = Path("compare.svg"),
    json_output: Annotated[bool, typer.Option("--json", help="Print the numbers too.")] = False,
) -> None:
    """Draw the noise that each accountant asks for against the mixup degree (Li et al. 2022, Figure 1).

    Curves that are no bounds are drawn dashed and say so in the legend.
    """
    # Drawing takes longer to import than pricing does to run.
    from privmix.reports.curves import draw_noise_comparison

    if figure.suffix not in (".svg", ".png", ".pdf"):
        raise InvalidInput("out", str(figure), "a file ending in .svg, .png or .pdf")
    with progress_bars() as progress:
        record = jobs.comparison.noise_comparison(records, rows or records, epsilon_target, delta, points, progress)
    draw_noise_comparison(record, figure)
    if json_output:
        print_json(record)
    else:
        out.print(f"drawn: {figure}", soft_wrap=True)


@verb(account)
def poisoning(
    epsilon_stated: Annotated[float, typer.Option("--epsilon", help="Epsilon of the release or model.")],
    poisoned: Annotated[int, typer.Option(help="Number of records that the attacker controls.")],
    clean_success: Annotated[
        float, typer.Option(help="Probability that what the attacker wants happens without poisoning.")
    ],
    delta: Annotated[float, typer.Option(help="Delta of the release or model.")] = 1e-5,
    adjacency: Annotated[
        str, typer.Option(help="Relation of the guarantee: add_remove or replace_one.")
    ] = Adjacency.ADD_REMOVE.value,
    how: Annotated[
        str, typer.Option("--how", help="What happens to the records: changed, inserted or deleted.")
    ] = "changed",
    json_output: Json = False,
) -> None:
    """Bound how often an attack by poisoned records succeeds against anything with this guarantee (Ma et al. 2019).

    A record that is changed counts twice where the guarantee is about adding or removing one.

    Example: privmix account poisoning --epsilon 1 --poisoned 2 --clean-success 0.001
    """
    relation = Adjacency(check_choice("adjacency", adjacency, [item.value for item in Adjacency]))
    bound = accounting.poisoning_success_bound(
        epsilon_stated, delta, poisoned, clean_success, adjacency=relation, poisoning=how
    )
    if json_output:
        print_json({"success_bound": bound, "adjacency": adjacency, "poisoning": how, "poisoned": poisoned})
        return
    out.print(
        f"with {poisoned} record{'s' * (poisoned != 1)} {how} the attack succeeds with probability at most "
        f"{rounded_up(bound, 4)}, whatever is done with the result (epsilon {exact(epsilon_stated)}, "
        f"delta {exact(delta)}, {adjacency})",
        soft_wrap=True,
    )
