"""``privmix picture``: what the classes of a release look like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import err, out, plain
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_and_show
from privmix.cli.verb import verb

if TYPE_CHECKING:
    from privmix.jobs.picturing import ClassPictures, ClassTexts


@verb(app)
def picture(
    *,
    release: Annotated[Path, typer.Argument(help="Folder that privmix release wrote, of images or texts.")],
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Draw the images here (.png, .svg or .pdf). With --record they are drawn there: classes.png."
        ),
    ] = None,
    public_texts: Annotated[
        Path | None,
        typer.Option(
            help="Of a release of texts: public texts to compare its classes with. JSON (.json), CSV with a column "
            "text or description (.csv), or a text a line."
        ),
    ] = None,
    nearest: Annotated[int, typer.Option(help="Public texts of a class that are shown.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the search; the same one makes the same pictures.")] = 0,
    steps: Annotated[int, typer.Option(help="Steps of the search for an image, at most.")] = 200,
    features_model: Annotated[
        Path | None, typer.Option(help="Your own copy of the extractor's model, where no package brings it.")
    ] = None,
    trust_features_model: Annotated[
        bool, typer.Option("--trust-features-model", help="That file is a program and may run.")
    ] = False,
    record: Record = None,
    json_output: Json = False,
) -> None:
    """Show what the classes of a release look like.

    As images of their means, or as the public texts nearest to them.

    It is made of the released numbers alone: no private data is read, no privacy is spent, and no image is anybody's
    record. Pixels are put back into images. Of other features with gradients (scattering, patches, EfficientNet) an
    image is looked for whose features are those of the class mean. Beside each stands how sure it is: the share that is
    known of what sets the class apart from the others, the rest being noise; where that is little, nothing can be seen,
    and the images show what all classes have in common.

    Example: privmix picture REL --figure classes.png

    Of texts: privmix picture REL --public-texts sentences.txt --record RUN
    """
    place = figure
    if place is None and record is not None and public_texts is None:
        place = record / "classes.png"
    with progress_bars() as progress:
        found = jobs.picturing.picture(
            release,
            public_texts=public_texts,
            nearest=nearest,
            figure=place,
            seed=seed,
            steps=steps,
            features_model=features_model,
            trust_features_model=trust_features_model,
            progress=progress,
        )
    keep_and_show(found, record, json_output, _show)


def _show(found: ClassPictures | ClassTexts) -> None:
    texts = isinstance(found, jobs.picturing.ClassTexts)
    table = Table(title="what the classes look like", title_justify="left")
    for head in ("class", "known", "seen", *(("nearest public texts", "chance") if texts else ())):
        table.add_column(head, justify="right" if head in ("known", "chance") else "left")
    for name, share, word in zip(found.classes, found.sure, found.words, strict=True):
        own = [plain(name), f"{100 * share:.0f}%", word]
        for text, chance in found.nearest(name) if isinstance(found, jobs.picturing.ClassTexts) else [("", 0.0)]:
            table.add_row(*own, *((plain(text), f"{100 * chance:.0f}%") if texts else ()))
            own = ["", "", ""]
    out.print(table)
    if set(found.words) == {"nothing"}:
        err.print(
            "[yellow]warning:[/] nothing can be seen: the noise is larger than what the classes differ by",
            soft_wrap=True,
        )
    for text in found.measurement.statements:
        out.print(f"- {text}", soft_wrap=True)
    if isinstance(found, jobs.picturing.ClassPictures) and found.figure is not None:
        out.print(f"picture: {plain(found.figure)}", soft_wrap=True)
