"""Options that several verbs share, so that a flag means and says the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix.cli.verb import help_of
from privmix.jobs.inputs import Inputs
from privmix.jobs.release_options import ReleaseOptions

Data = Annotated[str, typer.Option(help=help_of(ReleaseOptions, "data"))]
Features = Annotated[str, typer.Option(help=help_of(ReleaseOptions, "features"))]
Classes = Annotated[str | None, typer.Option(help=help_of(ReleaseOptions, "classes"))]
FeaturesModel = Annotated[Path | None, typer.Option(help=help_of(Inputs, "features_model"))]
TrustFeaturesModel = Annotated[
    bool, typer.Option("--trust-features-model", help=help_of(Inputs, "trust_features_model"))
]

Json = Annotated[bool, typer.Option("--json", help="For machines.")]
