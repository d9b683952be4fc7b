"""``privmix attack inversion``: what images an attacker gets out of released rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from privmix.cli.attack import attack
from privmix.cli.console import out, plain
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_and_show
from privmix.cli.verb import verb
from privmix.research import inversion as study
from privmix.research.inversion.options import InversionOptions

if TYPE_CHECKING:
    from privmix.research.inversion.study import InversionStudy

_USUAL: Final = InversionOptions(split="test")


@verb(attack, panel="Research")
def inversion(
    *,
    data: Annotated[str, typer.Option(help="Images with labels: those that rows are made of.")],
    release: Annotated[
        Path | None, typer.Argument(help="Release whose plan, extractor and mean are attacked, in place of options.")
    ] = None,
    how: InversionOptions = _USUAL,
    record: Record = None,
    json_output: Json = False,
) -> None:
    """Recover images from mixed features, with and without noise, and show them beside the originals.

    Rows of known members are made by the real mechanism; an attacker who knows the extractor, the plan and the number
    of members looks for images that explain them (He et al. 2019; Li et al. 2022, appendix G). Half of --data is
    attacked, half is what the attacker practises on. Figures and pictures show the data: keep them to yourself unless
    it is public.

    Example: privmix attack inversion --data mnist --features scattering --records 60000 --figure inversion.png

    A release: privmix attack inversion REL --data mnist --figure inversion.png
    """
    job = study.InversionJob(release=release, data=data, **vars(how))
    with progress_bars() as progress:
        found = job.run(progress)
    keep_and_show(found, record, json_output, lambda told: _show(told.study, told.figure))


def _show(found: InversionStudy, figure: Path | None) -> None:
    table = Table(
        title=f"likeness of recovered images to their originals ({found.cases[0].originals} a setting, best matches)",
        title_justify="left",
    )
    for name in ("m", "noise", "MSE", "SSIM", "MSE, other people", "SSIM, other people", "SSIM, mean image"):
        table.add_column(name, justify="left" if name == "noise" else "right")
    for case in found.cases:
        figures = (case.recovered.mse, case.recovered.ssim, case.others.mse, case.others.ssim, case.mean_image.ssim)
        shown = (f"{value:.4f}" if place in (0, 2) else f"{value:.3f}" for place, value in enumerate(figures))
        table.add_row(str(case.m), study.case_name(case.epsilon), *shown)
    out.print(table)
    for text in study.STATEMENTS:
        out.print(f"- {text}", soft_wrap=True)
    if figure is not None:
        out.print(f"picture: {plain(figure)}", soft_wrap=True)
