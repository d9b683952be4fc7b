"""``privmix fit``: train a classifier on a release."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import out, plain
from privmix.cli.progress import progress_bars
from privmix.cli.verb import Take, verb
from privmix.jobs.options import FitOptions


@verb(app)
def fit(
    release: Annotated[Path, typer.Argument(help="Folder that privmix release wrote; of a series: all its releases.")],
    how: Annotated[FitOptions, Take(needed=["out"])],
) -> None:
    """Train a classifier on a release. No private data is read and no privacy is spent, however often you do it.

    Example: privmix fit REL --learner noise-aware-ridge --out MODEL

    A release of pixels is one of images: privmix fit PIXELS --features scattering --out MODEL
    """
    with progress_bars() as progress:
        fitted = jobs.fitting.fit(release, **vars(how), progress=progress)
    classifier: Any = fitted.classifier
    folder = plain(how.out)
    words = f"{classifier.name} ({classifier.summary})"
    out.print(f"fitted: {words} on {classifier.rows_} rows; saved to {folder}", soft_wrap=True)
    if how.validation is not None:
        curve = classifier.accuracy_curve_
        epoch, best = classifier.best_epoch
        out.print(
            f"validation: {100 * curve[-1]:.2f}% at the last epoch, which is the model's; {100 * best:.2f}% at best, "
            f"epoch {epoch} of {len(curve)}",
            soft_wrap=True,
        )
        out.print(
            "  about your data: for their owner alone. To choose by private data is not covered by the guarantee.",
            soft_wrap=True,
        )
    out.print(f"next: privmix evaluate {plain(shlex.quote(str(how.out)))} --data DIR --split test", soft_wrap=True)
