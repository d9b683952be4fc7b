"""``privmix plan``: what each design would give, before any private row is read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from privmix.cli.app import app, out, plain, print_json
from privmix.cli.options import (
    Colour,
    FeatureColumn,
    FeatureLength,
    Features,
    ImageColumn,
    ImageSize,
    LabelColumn,
    NumberColumns,
    TextColumn,
)
from privmix.cli.progress import progress_bars
from privmix.data.source import resolve_classes
from privmix.errors import InvalidInput
from privmix.features import parse_features
from privmix.jobs.columns import Columns, class_list
from privmix.jobs.dataset import open_for
from privmix.jobs.features import features_in_memory
from privmix.jobs.places import check_figure
from privmix.jobs.planning import declared_model, public_model
from privmix.jobs.release_options import Assumptions
from privmix.release import Choice, ReleaseConfig, choose_design
from privmix.release.diagnostics import minimum_euclidean_distance, neural_collapse
from privmix.release.theory import best_mixup_degree
from privmix.reports.predictions import draw_predictions
from privmix.rounding import exact

_MIXTURES = 1000

Proxy = Annotated[
    str | None,
    typer.Option(help="A PUBLIC dataset like the private one, for the planner; read like --data. Never private data."),
]
ProxyClasses = Annotated[str | None, typer.Option(help="Class list of --proxy. Default: that of the private data.")]
SpectrumDecay = Annotated[
    float | None, typer.Option(help="Planner without --proxy: variance along axis i falls as i^-DECAY. Default 1.3.")
]
BetweenShare = Annotated[
    float | None, typer.Option(help="Planner without --proxy: share of variance between classes. Default 0.35.")
]


@app.command()
def plan(
    epsilon: Annotated[float, typer.Option(help="Privacy budget, epsilon.")],
    delta: Annotated[float, typer.Option(help="Privacy budget, delta.")],
    records: Annotated[int, typer.Option(help="Record count: public, declared, or a private estimate.")],
    classes: Annotated[str, typer.Option(help="Class list: a number K, names with commas, or @FILE.")],
    dim: Annotated[int | None, typer.Option(help="Features of a record. Not needed with --proxy.")] = None,
    features: Features = "identity",
    proxy: Proxy = None,
    proxy_classes: ProxyClasses = None,
    spectrum_decay: SpectrumDecay = None,
    between_share: BetweenShare = None,
    rows: Annotated[int | None, typer.Option(help="Rows to release, T. Default: n.")] = None,
    clip_norm: Annotated[float, typer.Option(help="Bound on a record's feature norm.")] = 1.0,
    residual_clip_norm: Annotated[float, typer.Option(help="Bound after centring, as a share of --clip-norm.")] = 0.55,
    label_column: LabelColumn = "label",
    image_column: ImageColumn = "image",
    feature_column: FeatureColumn = None,
    text_column: TextColumn = None,
    image_size: ImageSize = None,
    colour: Colour = None,
    number_columns: NumberColumns = None,
    feature_length: FeatureLength = None,
    figure: Annotated[Path | None, typer.Option(help="Draw predicted accuracy against epsilon (.svg, .png).")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Predict every design's accuracy at a budget, and name the best. Reads no private data.

    Predictions come from a simulation: of a public dataset (--proxy), or of a declared spectrum. They rank designs; the
    real accuracy may differ.

    Example: privmix plan --records 60000 --dim 3969 --classes 10 --epsilon 1 --delta 1e-5 --figure plan.svg
    """
    extractor = parse_features(features)
    columns = Columns(
        label_column, image_column, feature_column, text_column, image_size, colour, number_columns, feature_length
    )
    names = resolve_classes(class_list(classes))
    if (dim is None) == (proxy is None):
        raise InvalidInput("dim, proxy", (dim, proxy), "one of them: the proxy's features have a dimension")
    check_figure(figure)
    assumptions = Assumptions(proxy, proxy_classes, spectrum_decay, between_share)
    assumptions.check()
    with progress_bars() as progress:
        if proxy is not None:
            listed = class_list(proxy_classes) or list(names)
            found = features_in_memory(open_for(extractor, proxy, "train", listed, columns), extractor, progress)
            config = _config(records, found.features.shape[1], names, rows, clip_norm, residual_clip_norm)
            model, words = public_model(config, found.features, found.labels)
            collapse: float | None = neural_collapse(found.features, found.labels)
            distance = _distance(found.features, found.labels, clip_norm)
        else:
            assert dim is not None
            config = _config(records, dim, names, rows, clip_norm, residual_clip_norm)
            model, words = declared_model(config, assumptions)
            collapse = distance = None
        choice = choose_design(config, epsilon, delta, model, model_words=words, progress=progress)
    sampled = rows or records
    # Least squares needs more rows than features; where there are fewer, the designs are compared all the same.
    theory = best_mixup_degree(records, sampled, config.dim, epsilon, delta) if sampled > config.dim + 1 else None
    if figure is not None:
        draw_predictions(choice.to_dict(), figure)
    if json_output:
        linear = theory and {"mixup_degree": theory.mixup_degree, "published_mixup_degree": theory.published_degree}
        print_json(
            {
                **choice.to_dict(),
                "linear_regression": linear,
                "neural_collapse": collapse,
                "minimum_euclidean_distance": distance,
            }
        )
        return
    _show(choice)
    if theory is not None:
        out.print(
            f"theory for linear regression (Li et al. 2022, Theorem 3.1, at the noise by PLD): best mixup degree "
            f"{theory.mixup_degree}; the paper's rate gives {theory.published_degree:.0f}",
            soft_wrap=True,
        )
    if collapse is not None:
        out.print(
            f"neural collapse of the public data: {collapse:.3g} (the smaller, the better classes survive mixing)"
            + ("" if distance is None else f"; least distance of a mixed pair to another class: {distance:.3g}"),
            soft_wrap=True,
        )
    if figure is not None:
        out.print(f"picture: {plain(figure)}", soft_wrap=True)


def _config(
    records: int, dim: int, classes: tuple[str, ...], rows: int | None, clip_norm: float, residual: float
) -> ReleaseConfig:
    return ReleaseConfig(
        records=records,
        dim=dim,
        classes=classes,
        mixup_degree=1,
        rows=rows,
        clip_norm=clip_norm,
        residual_clip_norm=residual,
    )


def _distance(features: NDArray[Any], labels: NDArray[np.int64], clip_norm: float) -> float | None:
    """Li et al. 2024, appendix I.5; None where every pair holds all classes."""
    found = minimum_euclidean_distance(
        features, labels, np.random.default_rng(0), clip_norm=clip_norm, mixtures=min(_MIXTURES, len(labels))
    )
    return found.smallest if math.isfinite(found.smallest) else None


def _show(choice: Choice) -> None:
    table = Table(
        title=f"predicted accuracy at epsilon {exact(choice.epsilon)}, delta {exact(choice.delta)}",
        title_justify="left",
    )
    for name in ("design", "noise multiplier", "predicted"):
        table.add_column(name, justify="left" if name == "design" else "right")
    labels = choice.to_dict()["labels"]
    for item in choice.candidates:
        table.add_row(labels[item.name], f"{item.plan.noise_multiplier:.4g}", f"{100 * item.accuracy:.1f}%")
    out.print(table)
    out.print("flags of privmix release for each:")
    for item in choice.candidates:
        settings = " ".join(
            f"--{key.replace('_', '-')} {value}" for key, value in item.config.design.settings().items()
        )
        out.print(f"  {labels[item.name]}: {settings.replace('--full-batch True', '--full-batch')}", soft_wrap=True)
    for text in choice.reasons:
        out.print(f"- {plain(text)}", soft_wrap=True)
