"""``privmix attack collapse``: whether classes survive mixing and noise, on a public proxy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from privmix.cli.attack import attack
from privmix.cli.console import out, plain
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_and_show
from privmix.cli.verb import verb
from privmix.research import collapse as study
from privmix.research.collapse.options import CollapseOptions

if TYPE_CHECKING:
    from privmix.research.collapse.measures import CollapseReport


@verb(attack, panel="Research")
def collapse(
    *,
    proxy: Annotated[str, typer.Option(help="A PUBLIC dataset like the private one; read like --data. Never private.")],
    release: Annotated[
        Path | None, typer.Argument(help="Release whose plan and extractor are judged, in place of options.")
    ] = None,
    how: CollapseOptions,
    record: Record = None,
    json_output: Json = False,
) -> None:
    """Measure on public data how well classes survive mixing (Li et al. 2024, Figures 2 and 14). Reads no private data.

    Neural collapse and the least distance of mixed pairs to other classes judge the features. Mixed labels are drawn
    as Poisson and hierarchical releases of that budget would mix them, or as one release does.

    Example: privmix attack collapse --proxy mnist --features scattering --epsilon 8 --records 60000 --figure labels.png
    """
    job = study.CollapseJob(release=release, proxy=proxy, **vars(how))
    with progress_bars() as progress:
        found = job.run(progress)
    keep_and_show(found, record, json_output, lambda told: _show(told.report, told.figure))


def _show(report: CollapseReport, figure: Path | None) -> None:
    out.print(
        f"neural collapse: {report.neural_collapse:.4g} (the smaller, the better classes survive mixing)\n"
        f"least distance of a mixed pair to another class: {report.minimum_euclidean_distance:.4g} (the larger, the "
        "better)",
        soft_wrap=True,
    )
    table = Table(title="mixed labels under noise", title_justify="left")
    for name in ("design", "m", "top class kept", "side of 1/K kept", "signal over noise"):
        table.add_column(name, justify="left" if name == "design" else "right")
    for one in report.histograms:
        kept, level = f"{100 * one.collapse.top_kept:.1f}%", f"{100 * one.collapse.level_kept:.1f}%"
        table.add_row(one.design, str(one.m), kept, level, f"{one.collapse.signal_to_noise:.3g}")
    out.print(table)
    if figure is not None:
        out.print(f"picture: {plain(figure)}", soft_wrap=True)
