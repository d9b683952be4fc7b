"""``privmix sharpness``: curvature of a trained model's loss on public data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix.cli.app import app
from privmix.cli.console import out, print_json
from privmix.cli.options import Json
from privmix.cli.verb import Take, verb
from privmix.jobs.options import ModelInputs
from privmix.research import curvature


@verb(app, panel="Research")
def sharpness(
    *,
    model: Annotated[Path, typer.Argument(help="Folder that privmix train wrote.")],
    public: Annotated[str, typer.Option(help="PUBLIC labelled data: file, folder, pattern or address.")],
    inputs: Annotated[ModelInputs, Take("columns", "features_model", "trust_features_model", "module")],
    ledger: Annotated[
        str | None,
        typer.Option(
            help="For data that the certificate does not name: refuse files that were charged to this ledger, which "
            "knows them byte by byte; the same records saved anew pass."
        ),
    ] = None,
    iterations: Annotated[int, typer.Option(help="At most, of Lanczos; each is two gradients of the data.")] = 100,
    probes: Annotated[int, typer.Option(help="Random signs for the trace.")] = 20,
    json_output: Json = False,
) -> None:
    """Measure how sharp a trained model's minimum is.

    On PUBLIC data: eigenvalues and trace of the Hessian.

    The same figures of private records would reveal something of them, and nothing pays for that here. So the data
    must be those that the model's certificate names as public. Other data need --ledger, which must not know their
    files.

    Example: privmix sharpness MODEL --public PUBLIC.npz --json
    """
    found = curvature.sharpness(
        model,
        public,
        columns=inputs.columns,
        features_model=inputs.features_model,
        trust_features_model=inputs.trust_features_model,
        module=inputs.module,
        ledger=ledger,
        iterations=iterations,
        probes=probes,
    )
    if json_output:
        print_json(found.to_dict())
        return
    figures = found.figures
    out.print(
        f"largest eigenvalue {figures.eigenvalues[0]:.4g}, over the fifth {figures.ratio:.4g}, trace "
        f"{figures.trace:.4g} (standard error {figures.trace_error:.2g}), on {found.records:,} public records",
        soft_wrap=True,
    )
