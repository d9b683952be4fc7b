"""``privmix synthesise``: a pool of synthetic images from public ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix.cli.app import app
from privmix.cli.console import err, out, plain, print_json
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.verb import verb
from privmix.research import synthesis
from privmix.research.synthesis.options import SynthesisOptions


@verb(app, panel="Research")
def synthesise(
    *,
    public: Annotated[
        str | None, typer.Option(help="PUBLIC images with labels; read like --data. Never private ones.")
    ] = None,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to create.")],
    asked: SynthesisOptions,
    overwrite: Annotated[bool, typer.Option(help="Replace another pool.")] = False,
    json_output: Json = False,
) -> None:
    """Train a diffusion model on PUBLIC images and draw others.

    privmix train takes the synthetic images.

    Its --synthetic and --pool read what is drawn. No private record is read, no privacy is spent. The pool's card says
    what it was made of and how good it is; contact.png and copies.png show some images, and those nearest to images
    that the model has seen.

    A run that was killed goes on where it was. The model is EDM (Karras et al. 2022), whose paths --guidance bends by a
    discriminator (Kim et al. 2023); or, with --diffusion ddpm, the unconditional DDPM (Ho et al. 2020), whose images a
    classifier labels. With --text, a text-to-image pipeline that others trained draws in its place.

    Example: privmix synthesise --public PUBLIC.npz --images 10000 --out POOL --minutes 30 --precision bfloat16
    """
    job = synthesis.SynthesisJob(public=public, out=out_folder, overwrite=overwrite, **vars(asked))
    with job.processes() as world, progress_bars(quiet=not world.is_head) as progress:
        made = job.run(progress)
    if not world.is_head:
        return
    if json_output:
        print_json(made.to_dict())
        return
    quality = made.quality
    out.print(f"pool: {plain(made.out)}, {made.images:,} images", soft_wrap=True)
    if quality.fid is not None:
        copies = "" if quality.copies is None else f", near-copies {100 * quality.copies:.1f}%"
        out.print(
            f"in features {plain(quality.features)}: FID {quality.fid:.4g}, precision {quality.precision:.3f}, recall "
            f"{quality.recall:.3f}{copies}",
            soft_wrap=True,
        )
    if quality.accuracy is not None:
        out.print(f"accuracy of a linear classifier of them on the reference: {100 * quality.accuracy:.1f}%")
    err.print("Synthetic images may copy the public ones they were made of.", soft_wrap=True)
