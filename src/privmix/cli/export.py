"""``privmix export``: a trained network for programs that have torch and not privmix."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Final

import typer

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import out, plain
from privmix.cli.verb import verb
from privmix.jobs.options import MODULE_HELP

_LINES: Final = {
    ".pt2": "torch.export.load({file}).module()(x)",
    ".pt": "torch.jit.load({file})(x)",
    ".safetensors": "net.load_state_dict(safetensors.torch.load_file({file}))",
}


@verb(app)
def export(
    model: Annotated[Path, typer.Argument(help="Folder that privmix train wrote.")],
    target: Annotated[Path, typer.Option("--out", help="File to write: .pt2, .pt (TorchScript) or .safetensors.")],
    module: Annotated[str | None, typer.Option(help=MODULE_HELP)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file that is there.")] = False,
) -> None:
    """Write a trained network to a file without privmix.

    torch loads it in one line.

    .pt2 holds network and weights, as torch.export writes them; .pt is TorchScript, for older programs; .safetensors
    holds the weights alone, by the names of the module that was trained. The network takes images (b, C, H, W) in
    [0, 1], or the extractor's features (b, d), and gives logits. The file has no certificate: it is as private as the
    model, whose folder says how private that is.

    Example: privmix export MODEL --out net.pt2
    """
    place = jobs.models.model_in(model, module=module).export(target, overwrite=overwrite)
    line = _LINES[place.suffix.lower()].format(file=repr(str(place)))
    out.print(f"written: {plain(shlex.quote(str(place)))}\nin torch: {plain(line)}", soft_wrap=True)
