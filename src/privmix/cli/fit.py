"""``privmix fit``: train a classifier on a release."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from privmix import jobs, releases
from privmix.cli.app import app, out, plain
from privmix.cli.progress import progress_bars
from privmix.cli.verb import verb
from privmix.errors import InvalidInput, check_choice, check_number

_AUTO: Final = "auto"


@verb(app)
def fit(
    release: Annotated[Path, typer.Argument(help="Folder that privmix release wrote.")],
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to create.")],
    learner: Annotated[
        str,
        typer.Option(
            help="auto: discriminant for moments and Poisson rows, else noise-aware-ridge; or one of these two, "
            "second-moments, or generalized-kl (the papers')."
        ),
    ] = _AUTO,
    model: Annotated[str, typer.Option(help="generalized-kl: linear, or cnn on pixel releases.")] = "linear",
    epochs: Annotated[int, typer.Option(help="generalized-kl: passes over the rows.")] = 200,
    regularisation: Annotated[
        str, typer.Option(help="noise-aware-ridge, second-moments: auto, or a share of the largest eigenvalue.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="generalized-kl: initial weights and order of rows.")] = 0,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing --out.")] = False,
) -> None:
    """Train a classifier on a release. No private data is read and no privacy is spent, however often you do it.

    Example: privmix fit REL --learner noise-aware-ridge --out MODEL
    """
    check_choice("learner", learner, jobs.fitting.LEARNERS)
    if out_folder.exists() and not overwrite:
        raise InvalidInput("out", str(out_folder), "a folder that does not exist yet (or `overwrite`)")
    dataset = releases.load_release(release)
    strength: str | float = regularisation
    learner = jobs.fitting.learner_for(dataset, learner)
    papers = learner == "generalized-kl"
    if regularisation != _AUTO and not papers:
        try:
            strength = check_number("regularisation", float(regularisation), low=0, low_open=True)
        except ValueError:
            raise InvalidInput("regularisation", regularisation, "auto, or a number > 0") from None
    with progress_bars() as progress:
        fitted = jobs.fitting.fit(
            dataset,
            learner,
            regularisation=strength,
            model=model,
            epochs=epochs,
            seed=seed,
            # The others are done before a bar would be seen.
            progress=(lambda done, total: progress("epochs", done, total)) if papers else None,
        )
    classifier: Any = fitted.classifier
    if papers:
        summary = f"{epochs} epochs"
    elif learner == "discriminant":
        summary = f"{100 * classifier.between_share_:.1f}% of the variance between classes"
    else:
        summary = f"regularisation {getattr(classifier, 'regularisation_', strength)}"
    fitted.save(out_folder, overwrite=overwrite)
    out.print(f"fitted: {learner} ({summary}) on {dataset.rows} rows; saved to {plain(out_folder)}", soft_wrap=True)
    out.print(f"next: privmix evaluate {plain(shlex.quote(str(out_folder)))} --data DIR --split test", soft_wrap=True)
