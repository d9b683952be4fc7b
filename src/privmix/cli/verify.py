"""``privmix verify``: recompute what the certificate of a release or a trained model claims, and who signed it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from privmix.certificate import PublicKey, claimed_key, verify_signature
from privmix.cli.app import app, err, out, plain, print_json
from privmix.cli.checking import Checked, check_folder, remembered
from privmix.rounding import exact, rounded_up


@app.command()
def verify(
    release: Annotated[Path, typer.Argument(help="Folder that privmix release, privmix train or privmix fit wrote.")],
    key: Annotated[
        Path | None, typer.Option(help="Public key (PEM) of whoever must have signed it; see privmix sign.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Recompute epsilon from the event and check every file's hash; exit code 2 if anything does not hold.

    With --key, the folder must be signed by that key, every file of it: take the key from where its owner publishes it,
    not from beside the folder. Without --key, a signature is named and not checked.

    Example: privmix verify REL --key ana.pub.pem
    """
    if key is None:
        checked = check_folder(release)
        claimed = claimed_key(release)
        signature: dict[str, Any] | None = None if claimed is None else {"key_id": claimed, "checked": False}
    else:
        # Who made it comes before what it says.
        found: list[Checked] = []
        signed = verify_signature(release, PublicKey.read(key), remembered(found))
        checked, signature = found[-1], {"key_id": signed.key_id, "checked": True}
    if json_output:
        print_json(
            {
                **checked.found,
                "warnings": list(checked.warnings),
                "features_model": checked.wanted,
                "signature": signature,
            }
        )
        return
    out.print(_held(checked), soft_wrap=True)
    out.print(_signed(signature), soft_wrap=True)
    out.print(checked.unchecked, soft_wrap=True)
    if checked.wanted is not None:
        out.print(f"to use it you need: {plain(checked.wanted)}", soft_wrap=True)
    for warning in checked.warnings:
        err.print(f"[yellow]warning:[/] {plain(warning)}", soft_wrap=True)


def _held(checked: Checked) -> str:
    found = checked.found
    if checked.subject.kind == "fitted-model":
        return f"[green]well formed:[/] a model fitted on release {plain(found['fitted_on'])}"
    return (
        f"[green]holds:[/] epsilon {rounded_up(found['epsilon'], 6)} at delta {exact(found['delta'])} "
        f"({found['adjacency']}), recomputed {rounded_up(found['recomputed_epsilon'], 6)}; {checked.files} have their "
        "hashes"
    )


def _signed(signature: dict[str, Any] | None) -> str:
    if signature is None:
        return "unsigned: who made it is not checked (privmix sign)"
    if signature["checked"]:
        return f"[green]signed:[/] every file, by key {signature['key_id']}"
    return f"signed, it says by key {signature['key_id']}: not checked (give --key)"
