"""``privmix account compare``: the noise that each accountant asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import jobs
from privmix.cli.account import account
from privmix.cli.console import out, print_json
from privmix.cli.progress import progress_bars
from privmix.cli.verb import verb
from privmix.errors import InvalidInput


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
    from privmix.reports.pictures import draw_noise_comparison

    if figure.suffix not in (".svg", ".png", ".pdf"):
        raise InvalidInput("out", str(figure), "a file ending in .svg, .png or .pdf")
    with progress_bars() as progress:
        record = jobs.comparison.noise_comparison(records, rows or records, epsilon_target, delta, points, progress)
    draw_noise_comparison(record, figure)
    if json_output:
        print_json(record)
    else:
        out.print(f"drawn: {figure}", soft_wrap=True)
