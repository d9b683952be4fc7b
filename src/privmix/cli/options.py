"""Options that several verbs share, so that a flag means and says the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix.cli.verb import help_of
from privmix.jobs.canary_options import CanaryOptions
from privmix.jobs.release_options import ReleaseOptions

Data = Annotated[str, typer.Option(help=help_of(ReleaseOptions, "data"))]
Features = Annotated[str, typer.Option(help=help_of(ReleaseOptions, "features"))]
Classes = Annotated[str | None, typer.Option(help=help_of(ReleaseOptions, "classes"))]
LabelColumn = Annotated[str, typer.Option(help="The labels' column.")]
ImageColumn = Annotated[str, typer.Option(help="The column of encoded images.")]
FeatureColumn = Annotated[str | None, typer.Option(help="The column of number lists, where there are several.")]
TextColumn = Annotated[str | None, typer.Option(help="The texts' column. Default for text extractors: text.")]
ImageSize = Annotated[
    int | None, typer.Option(help="Encoded images: the side, in pixels, that each is scaled and cropped to; needed.")
]
Colour = Annotated[str | None, typer.Option(help="Encoded images: grey or rgb, which each is converted to; needed.")]
NumberColumns = Annotated[
    str | None,
    typer.Option(
        "--columns", help="Columns of numbers, with commas. Default: all but the label's; needed for JSON lines."
    ),
]
FeatureLength = Annotated[
    int | None, typer.Option(help="How many numbers each list has; needed where the file's schema does not fix it.")
]
FeaturesModel = Annotated[Path | None, typer.Option(help=help_of(CanaryOptions, "features_model"))]
TrustFeaturesModel = Annotated[
    bool, typer.Option("--trust-features-model", help=help_of(CanaryOptions, "trust_features_model"))
]

Json = Annotated[bool, typer.Option("--json", help="For machines.")]
