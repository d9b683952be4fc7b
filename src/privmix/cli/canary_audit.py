"""``privmix audit TARGET --data DIR --canaries N``: the plan once more, on the owner's data with canaries in it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Final

import typer

from privmix.cli.app import err, out, plain, print_json
from privmix.cli.progress import progress_bars
from privmix.cli.recording import keep
from privmix.jobs.canaries import CanaryJob
from privmix.rounding import exact, rounded_down, rounded_up

_PANEL: Final = "Canaries in the owner's data"

Data = Annotated[
    str | None,
    typer.Option("--data", help="With --canaries: the records that TARGET was made of.", rich_help_panel=_PANEL),
]
Canaries = Annotated[
    int | None,
    typer.Option("--canaries", help="Insert so many by coins, and run TARGET's plan once.", rich_help_panel=_PANEL),
]
Kind = Annotated[
    str,
    typer.Option(
        "--canary-kind",
        help="planted: what reveals most (models: gradients, seen step by step); mislabelled records; blank ones "
        "(models).",
        rich_help_panel=_PANEL,
    ),
]
Evidence = Annotated[
    str,
    typer.Option(
        help="rows (or steps); neighbours, tiles: differences, which show noise used twice.", rich_help_panel=_PANEL
    ),
]
Guesses = Annotated[
    int | None,
    typer.Option(help="Coins to guess. Default: what proves most if the claim holds.", rich_help_panel=_PANEL),
]
Split = Annotated[str, typer.Option(help="Which part of the dataset.", rich_help_panel=_PANEL)]
LabelColumn = Annotated[str, typer.Option(help="The labels' column.", rich_help_panel=_PANEL)]
ImageColumn = Annotated[str, typer.Option(help="The column of encoded images.", rich_help_panel=_PANEL)]
FeatureColumn = Annotated[str | None, typer.Option(help="The column of number lists.", rich_help_panel=_PANEL)]
TextColumn = Annotated[str | None, typer.Option(help="The texts' column.", rich_help_panel=_PANEL)]
ImageSize = Annotated[
    int | None,
    typer.Option(help="Side that images are scaled to. Default: TARGET's.", rich_help_panel=_PANEL),
]
Colour = Annotated[
    str | None, typer.Option(help="grey or rgb, for images. Default: as TARGET's.", rich_help_panel=_PANEL)
]
NumberColumns = Annotated[
    str | None, typer.Option("--columns", help="Columns of numbers, with commas.", rich_help_panel=_PANEL)
]
FeatureLength = Annotated[
    int | None, typer.Option(help="How many numbers each list has. Default: TARGET's.", rich_help_panel=_PANEL)
]
FeaturesModel = Annotated[
    Path | None,
    typer.Option(
        help="Your copy of the extractor's model, where it is a file or folder: none is opened unless you name it.",
        rich_help_panel=_PANEL,
    ),
]
TrustFeaturesModel = Annotated[
    bool,
    typer.Option(
        "--trust-features-model",
        help="The file of --features-model is a program (TorchScript, .pt2): let it run.",
        rich_help_panel=_PANEL,
    ),
]
Store = Annotated[
    Path | None, typer.Option(help="Keep extracted features here (private!) and reuse them.", rich_help_panel=_PANEL)
]
LedgerUrl = Annotated[
    str | None,
    typer.Option("--ledger", help="Charge the run to this ledger before reading.", rich_help_panel=_PANEL),
]
LedgerName = Annotated[
    str | None, typer.Option("--dataset", help="With --ledger: the dataset's name there.", rich_help_panel=_PANEL)
]
PublicData = Annotated[
    bool, typer.Option("--public-data", help="The records are public, so the figures are too.", rich_help_panel=_PANEL)
]


def audit_with_canaries(job: CanaryJob, record: Path | None, json_output: bool) -> None:
    """Run the job, keep the figures and show them."""
    opened = job.open()
    with progress_bars(quiet=json_output, percent=opened.count_is_private) as progress:
        found = opened.run(progress)
    if found.not_noted is not None:
        err.print(f"[yellow]warning:[/] charged, but not noted as done: {plain(found.not_noted)}", soft_wrap=True)
    keep(found, record)
    proof = found.audit.proof
    if json_output:
        print_json(found.to_dict())
    else:
        claimed = "nothing" if math.isinf(proof.claimed_epsilon) else f"epsilon {rounded_up(proof.claimed_epsilon, 4)}"
        verdict = "[bold red]refuted[/]" if found.violated else "[green]not refuted[/]"
        out.print(f"claim: {claimed} at delta {exact(proof.delta)}: {verdict} at confidence {proof.confidence:g}")
        out.print(
            f"guessed {proof.run.correct} of {proof.run.guesses} coins right, of {proof.run.canaries} canaries "
            f"({found.audit.method})",
            soft_wrap=True,
        )
        out.print(
            f"proven: epsilon is at least {rounded_down(proof.proven_epsilon, 4)} "
            f"(Steinke et al. {rounded_down(proof.steinke, 4)}, "
            f"Mahloujifar et al. {rounded_down(proof.mahloujifar, 4)}); "
            f"so many perfect guesses would prove {rounded_up(proof.provable_epsilon, 4)}",
            soft_wrap=True,
        )
    for text in found.measurement.statements:
        err.print(text, soft_wrap=True)
