"""Verb ``row-norms``: how long the rows of a release are. Reads no private data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import privmix as pm
from privmix.cli.app import app
from privmix.cli.console import out, print_json
from privmix.cli.options import Json
from privmix.cli.recording import Record, keep
from privmix.cli.verb import verb
from privmix.jobs.recording import Measurement


@verb(app, panel="Row norms")
def row_norms(
    *,
    release: Annotated[Path, typer.Argument(help="Folder that privmix release wrote.")],
    record: Record = None,
    json_output: Json = False,
) -> None:
    """Measure how long the rows of a release are.

    Example: privmix row-norms REL --record RUN
    """
    found = measure(release)
    keep(found, record)
    if json_output:
        print_json(found.content)
    else:
        out.print(f"median norm of {found.content['rows']:,} rows: {found.content['median']:.4g}")


def measure(folder: Path) -> Measurement:
    """What the verb does, for Python: the figures, which may be kept as a record."""
    release = pm.load(folder)
    assert isinstance(release, pm.Release)
    norms = np.linalg.norm(release.x, axis=1)
    return Measurement(
        "row-norms",
        {"kind": "release", "id": release.certificate.id},
        {"rows": len(norms), "median": float(np.median(norms)), "largest": float(norms.max())},
        private=False,
        settings={"release": folder.name},
        title="Norms of the rows",
    )
