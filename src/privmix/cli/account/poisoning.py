"""``privmix account poisoning``: what poisoned records can do against a guarantee."""

from __future__ import annotations

from typing import Annotated

import typer

from privmix import accounting
from privmix.accounting.events import Adjacency
from privmix.cli.account import account
from privmix.cli.app import out, print_json
from privmix.cli.options import Json
from privmix.cli.verb import verb
from privmix.errors import check_choice
from privmix.rounding import exact, rounded_up


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
