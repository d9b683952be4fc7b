"""``privmix train``: train a private model with DP-SGD."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import err, out, plain, print_json
from privmix.cli.flags import with_flags
from privmix.cli.progress import progress_bars
from privmix.cli.verb import Take, verb
from privmix.errors import HeadFailed
from privmix.jobs.training_options import TrainingOptions
from privmix.rounding import exact, rounded_up

if TYPE_CHECKING:
    from privmix.jobs.training import PlannedTraining
    from privmix.training import TrainedModel


@verb(app)
def train(
    options: Annotated[TrainingOptions, Take(needed=["out"])],
    json_output: Annotated[bool, typer.Option("--json", help="Print the plan or certificate as JSON.")] = False,
) -> None:
    """Train a private model with DP-SGD.

    With mixup, augmentation and public data.

    The plan (batches, steps, noise) is made from public facts before any private row is read, and one plan serves the
    sampler, the noise and the accountant; --dry-run shows it. An interrupted run is finished by the same command with
    --resume: its weights are then those of a run without the interruption, and it is not charged twice. Under torchrun
    every process takes its share of each batch.

    Example: privmix train --data mnist --features scattering --epsilon 1.2 --delta 1e-5
    --out MODEL

    DP-Mix: privmix train --data cifar10 --model wrn-16-4 --views dp-mix-self --epsilon 8 --delta 1e-5 --out MODEL

    Public data: privmix train ... --scenario extended --public PUBLIC --public-method multiplicity
    """
    job = jobs.training.TrainingJob(**vars(options))
    with job.processes() as world:
        planned = job.plan(world)
        for text in planned.warnings if world.is_head else ():
            err.print(f"[yellow]warning:[/] {plain(with_flags(text))}")
        if job.dry_run:
            _show_plan(planned, json_output)
            return
        if world.is_head and not json_output:
            err.print(
                f"{jobs.dataset.PUBLISHED_NAMES}: {plain(planned.facts()[jobs.dataset.PUBLISHED_NAMES])}",
                soft_wrap=True,
            )
        with progress_bars(quiet=not world.is_head, percent=planned.count_is_private) as progress:
            try:
                done = job.carry_out(planned, progress)
            except HeadFailed:
                # The head gives the message.
                raise typer.Exit(1) from None
        if not world.is_head:
            return
        for text in done.warnings:
            err.print(f"[yellow]warning:[/] {plain(text)}", soft_wrap=True)
        assert job.out is not None
        _show_result(done.result, job.out, json_output)


_NOT_COMPARED: Final = (
    "no private record was read, and what is taken as public was not compared with private records: that it is public "
    "is your word\n"
)


def _show_result(model: TrainedModel, folder: Path, json_output: bool) -> None:
    if json_output:
        print_json(model.certificate.to_dict())
        return
    guarantee = model.certificate["guarantee"]
    out.print(
        f"{'' if model.certificate['plan']['steps'] else _NOT_COMPARED}"
        f"trained: {plain(model.network.name)} to {plain(folder)}\n"
        f"guarantee: epsilon {rounded_up(guarantee['epsilon'], 4)}, delta {exact(guarantee['delta'])}, "
        f"adjacency {model.certificate.relation} (accountant {guarantee['accountant']})\n"
        f"next: privmix evaluate {plain(shlex.quote(str(folder)))} --data DIR --split test",
        soft_wrap=True,
    )


def _show_plan(planned: PlannedTraining, json_output: bool) -> None:
    if json_output:
        print_json(planned.to_dict())
        return
    table = Table(title="plan (public; made before any private row is used)", title_justify="left", show_header=False)
    for name, value in planned.facts().items():
        table.add_row(name, plain(value))
    out.print(table)
