"""``privmix demo``: the whole path on data that ships with scikit-learn."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.panel import Panel
from sklearn.linear_model import LogisticRegression

from privmix.cli.app import app, out, progress_bars
from privmix.cli.evaluate import score
from privmix.cli.pipeline import features_in_memory
from privmix.data import embedded_digits
from privmix.errors import InvalidInput
from privmix.features import get_extractor
from privmix.learning import NoiseAwareRidgeClassifier, save_model
from privmix.release import (
    ReleaseConfig,
    SecretStreams,
    load_release,
    release_to_folder,
    verify_release,
)
from privmix.reports.confusion import draw_confusion

_EPSILON, _DELTA, _DEGREE = 8.0, 1e-4, 32


@app.command()
def demo(
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to create.")] = Path("demo-output"),
    overwrite: Annotated[bool, typer.Option(help="Replace an existing --out.")] = False,
) -> None:
    """Release scikit-learn's digits at epsilon 8, fit a classifier on the release, and compare with no privacy.

    Example: privmix demo --out demo-output
    """
    if out_folder.exists():
        if not overwrite:
            raise InvalidInput("--out", str(out_folder), "a folder that does not exist yet (or --overwrite)")
        if not (out_folder / "release" / "certificate.json").is_file():
            raise InvalidInput("--out", str(out_folder), "a folder that an earlier demo made, to overwrite it")
        shutil.rmtree(out_folder)
    train, test = embedded_digits("train"), embedded_digits("test")
    extractor = get_extractor("pixels")
    schema = train.schema
    plan = ReleaseConfig(
        records=schema.records,
        dim=extractor.output_dim(schema.input_shape),
        classes=schema.classes,
        mixup_degree=_DEGREE,
        rows=5_000,
        residual_clip_norm=0.45,
    ).calibrate(_EPSILON, _DELTA)
    with progress_bars() as progress:
        private = features_in_memory(train, extractor, progress)
        held_out = features_in_memory(test, extractor, progress)
        release_to_folder(
            plan,
            private,
            SecretStreams.from_entropy(),
            out_folder / "release",
            target=(_EPSILON, _DELTA),
            extractor=extractor.spec(),
            input_shape=schema.input_shape,
            progress=progress,
        )
    verified = verify_release(out_folder / "release")
    classifier = NoiseAwareRidgeClassifier().fit(load_release(out_folder / "release"))
    save_model(classifier, out_folder / "model")
    result, matrix = score(classifier.predict(held_out.features), held_out.labels, schema.classes)
    draw_confusion(matrix, schema.classes, result["accuracy"], out_folder / "confusion.png")
    private_free = (
        LogisticRegression(max_iter=2000)
        .fit(private.features, private.labels)
        .score(held_out.features, held_out.labels)
    )
    out.print(
        Panel(
            f"[bold]What was guaranteed[/]\n"
            f"  ({verified.epsilon:.3g}, {verified.delta:g})-differential privacy for adding or removing one record:\n"
            f"  {plan.rows} noisy rows, each a mix of about {_DEGREE} of {schema.records} images "
            f"(design {plan.design});\n"
            f"  epsilon recomputed by verify: {verified.recomputed_epsilon:.4g}\n\n"
            f"[bold]Accuracy on {result['n']} test images[/]\n"
            f"  learned from the release: {100 * result['accuracy']:.1f}%\n"
            f"  logistic regression without privacy: {100 * private_free:.1f}%\n\n"
            f"[bold]Files[/] in {out_folder}\n"
            f"  release/        hand this to anyone: rows (Parquet), certificate.json, README.md\n"
            f"  model/          the classifier\n"
            f"  confusion.png   which digits are mistaken for which",
            title="privmix demo: scikit-learn's digits",
            expand=False,
        ),
        width=100,
    )
