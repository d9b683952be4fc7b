"""``privmix verify``: recompute what the certificate of a release or a trained model claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from privmix.cli.app import app, err, out, plain, print_json
from privmix.features import wanted_model
from privmix.release import verify_release
from privmix.release.certificate import read_certificate
from privmix.rounding import exact, rounded_up
from privmix.training import is_trained_model, load_trained
from privmix.training.verify import verify_trained

_RELEASE_UNCHECKED: Final = (
    "not checked: that the rows came from running this plan, that its key was kept secret, that a ledger was "
    "charged, and the planner's predictions and picture, if there are any"
)
_MODEL_UNCHECKED: Final = (
    "not checked: that the weights came from running this plan, that its key was kept secret, that a ledger was "
    "charged, that what it calls public data is public, and other files in the folder"
)


@app.command()
def verify(
    release: Annotated[Path, typer.Argument(help="Folder that privmix release or privmix train wrote.")],
    json_output: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Recompute epsilon from the event and check every file's hash; exit code 2 if anything does not hold.

    Example: privmix verify REL
    """
    found: dict[str, Any]
    if is_trained_model(release):
        trained = verify_trained(release)
        found, files, unchecked = dict(vars(trained)), "weights and certificate", _MODEL_UNCHECKED
        wanted = wanted_model(load_trained(release).facts_.extractor)
    else:
        released = verify_release(release)
        found, files, unchecked = dict(vars(released)), f"{released.files} files", _RELEASE_UNCHECKED
        wanted = wanted_model(read_certificate(release)["extractor"])
    if json_output:
        print_json({**found, "warnings": list(found["warnings"]), "features_model": wanted})
        return
    out.print(
        f"[green]holds:[/] epsilon {rounded_up(found['epsilon'], 6)} at delta {exact(found['delta'])} "
        f"({found['adjacency']}), "
        f"recomputed {rounded_up(found['recomputed_epsilon'], 6)}; {files} have their hashes",
        soft_wrap=True,
    )
    out.print(unchecked, soft_wrap=True)
    if wanted is not None:
        out.print(f"to use it you need: {plain(wanted)}", soft_wrap=True)
    for warning in found["warnings"]:
        err.print(f"[yellow]warning:[/] {plain(warning)}", soft_wrap=True)
