"""``privmix attack inversion``: what images an attacker gets out of released rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from privmix import jobs
from privmix.attacks.defaults import DEGREES, DELTA, EPSILONS, STEPS
from privmix.cli.app import out, plain, print_json
from privmix.cli.attack import attack
from privmix.cli.options import Classes, FeaturesModel, Json, TrustFeaturesModel
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep
from privmix.cli.verb import Take, verb
from privmix.jobs.columns import Columns, class_list

if TYPE_CHECKING:
    from privmix.attacks.inversion_study import InversionStudy


@verb(attack)
def inversion(
    *,
    data: Annotated[str, typer.Option(help="Images with labels: those that rows are made of.")],
    release: Annotated[
        Path | None, typer.Argument(help="Release whose plan, extractor and mean are attacked, in place of options.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="Public extractor of images with gradients. Default: scattering.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which part of --data.")] = "test",
    mixup_degrees: Annotated[str | None, typer.Option(help=f"Degrees m to attack. Default: {DEGREES}.")] = None,
    epsilons: Annotated[
        str | None, typer.Option(help=f"Budgets whose noise to add; none is no noise. Default: {EPSILONS}.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help=f"Of the budgets. Default: {DELTA:g}.")] = None,
    records: Annotated[int | None, typer.Option(help="Record count n of the plan. Default: that of --data.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows T that the plan releases. Default: n.")] = None,
    centre: Annotated[str | None, typer.Option(help="private or none, as in privmix release. Default: none.")] = None,
    images: Annotated[int, typer.Option(help="Images to attack at each degree.")] = 8,
    steps: Annotated[int, typer.Option(help="Steps of an attack.")] = STEPS,
    seed: Annotated[int, typer.Option(help="Decides images, noise and starts: same seed, same picture.")] = 0,
    public_data: Annotated[bool, typer.Option("--public-data", help="Declare --data public.")] = False,
    classes: Classes = None,
    columns: Annotated[Columns, Take("label_column", "image_column", "image_size", "colour")],
    features_model: FeaturesModel = None,
    trust_features_model: TrustFeaturesModel = False,
    figure: Annotated[Path | None, typer.Option(help="Picture of originals and recovered images (.png, .svg).")] = None,
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
    with progress_bars() as progress:
        found = jobs.inversion.inversion(
            release,
            data,
            features=features,
            split=split,
            mixup_degrees=mixup_degrees,
            epsilons=epsilons,
            delta=delta,
            records=records,
            rows=rows,
            centre=centre,
            images=images,
            steps=steps,
            seed=seed,
            public_data=public_data,
            classes=class_list(classes),
            columns=columns,
            features_model=features_model,
            trust_features_model=trust_features_model,
            figure=figure,
            progress=progress,
        )
    keep(found, record)
    if json_output:
        print_json(found.to_dict())
        return
    _show(found.study, figure)


def _show(study: InversionStudy, figure: Path | None) -> None:
    from privmix.attacks.inversion_study import STATEMENTS, case_name

    table = Table(
        title=f"likeness of recovered images to their originals ({study.cases[0].originals} a setting, best matches)",
        title_justify="left",
    )
    for name in ("m", "noise", "MSE", "SSIM", "MSE, other people", "SSIM, other people", "SSIM, mean image"):
        table.add_column(name, justify="left" if name == "noise" else "right")
    for case in study.cases:
        figures = (case.recovered.mse, case.recovered.ssim, case.others.mse, case.others.ssim, case.mean_image.ssim)
        shown = (f"{value:.4f}" if place in (0, 2) else f"{value:.3f}" for place, value in enumerate(figures))
        table.add_row(str(case.m), case_name(case.epsilon), *shown)
    out.print(table)
    for text in STATEMENTS:
        out.print(f"- {text}", soft_wrap=True)
    if figure is not None:
        out.print(f"picture: {plain(figure)}", soft_wrap=True)
