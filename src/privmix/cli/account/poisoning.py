"""``privmix account poisoning``: what poisoned records can do against a guarantee."""

from __future__ import annotations

from typing import Annotated

from privmix import jobs
from privmix.cli.account import account
from privmix.cli.console import out, print_json
from privmix.cli.design_options import DesignOptions, GivenDesign
from privmix.cli.options import Json
from privmix.cli.verb import Take, verb
from privmix.jobs.options import CertifiedLineOptions


@verb(account)
def poisoning(
    asked: Annotated[CertifiedLineOptions, Take(needed=("poisoned",))],
    design: Annotated[GivenDesign, DesignOptions(default=None)],
    json_output: Json = False,
) -> None:
    """Bound how often an attack by poisoned records succeeds against anything with this guarantee (Ma et al. 2019).

    Of a design, a release or a trained model the bound follows from the whole trade-off curve of what ran, which is
    much less than epsilon and delta alone give (Dong, Roth, Su 2021). A record that is changed counts twice where the
    guarantee is about adding or removing one.

    Example: privmix account poisoning --design poisson --records 60000 --epsilon 1 --poisoned 2 --clean-success 0.001
    """
    found = jobs.certified_line.certified_line(asked, design.name, design.options)
    if json_output:
        print_json(found.to_dict())
        return
    out.print(str(found), soft_wrap=True)
