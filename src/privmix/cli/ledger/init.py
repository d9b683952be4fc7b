"""``privmix ledger init``: give a dataset its total budget."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from privmix import ledger as ledgers
from privmix.accounting import filters
from privmix.accounting.events import Adjacency
from privmix.cli.console import out, plain
from privmix.cli.ledger import ledger
from privmix.cli.ledger.words import ADAPTIVE, KNOWN_BY, PLANNED, Dataset, Url, said_of
from privmix.cli.verb import verb
from privmix.errors import InvalidInput, check_choice
from privmix.ledger.pricing import UNITS
from privmix.rounding import exact

_FILTERS: Final = {
    "gdp": "Filter gdp: moments, DP-SGD and mixed rows of many records may use about 98% of a total epsilon of 1, 91 "
    "to 99% of one of 8; rows of few records with little noise, and Laplace noise, less.",
    "rdp": "Filter rdp: moments, DP-SGD and mixed rows of many records may use about 91% of a total epsilon of 1, 73 "
    "to 93% of one of 8; rows with little noise much less; mechanisms that fail with a probability are refused.",
    "pure": "Filter pure: epsilons are added, as in a planned budget of delta 0; it costs nothing.",
}


@verb(ledger, "init")
def init(
    dataset: Dataset,
    epsilon: Annotated[float, typer.Option(help="Total budget, epsilon, of everything that is ever run.")],
    delta: Annotated[float, typer.Option(help="At this delta; 0 for pure DP.")],
    url: Url,
    adjacency: Annotated[str, typer.Option(help="add_remove, or replace_one (designs fixed, random-weight).")] = (
        "add_remove"
    ),
    unit: Annotated[
        str,
        typer.Option(
            help="record, or person: what is charged is then for persons with all of their records (privmix release "
            "and train with --person)."
        ),
    ] = "record",
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
    check_choice("unit", unit, UNITS)
    named = (filter_name or "gdp") if adaptive else None
    made = ledgers.Ledger.create(url).add_dataset(
        dataset, epsilon=epsilon, delta=delta, adjacency=relation, adaptive=named, unit=unit
    )
    out.print(
        f"budget of {plain(dataset)}: epsilon {exact(epsilon)}, delta {exact(delta)}, adjacency "
        f"{said_of(relation.value, unit)}",
        soft_wrap=True,
    )
    out.print(PLANNED if made is None else f"{ADAPTIVE} {_FILTERS[made.name]}", soft_wrap=True)
    out.print(KNOWN_BY, soft_wrap=True)
