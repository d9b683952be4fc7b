"""``privmix train``: train a private model with DP-SGD."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from privmix import jobs
from privmix.cli.app import app, err, out, plain, print_json
from privmix.cli.progress import progress_bars
from privmix.cli.verb import Take, verb
from privmix.jobs.columns import class_list
from privmix.jobs.training_options import TrainingOptions
from privmix.rounding import exact, rounded_up

if TYPE_CHECKING:
    from privmix.jobs.training import PlannedTraining
    from privmix.training import TrainedModel


@verb(app)
def train(
    options: Annotated[TrainingOptions, Take(needed=["out"])],
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the plan or certificate as JSON.", rich_help_panel="Running")
    ] = False,
) -> None:
    """Train a private model with DP-SGD: mixup, augmentation, public data.

    The plan (batches, steps, noise) is made from public facts before any private row is read, and one plan serves \
the sampler, the noise and the accountant; --dry-run shows it. An interrupted run is finished by the same command \
with --resume: its weights are then those of a run without the interruption, and it is not charged twice. Under \
torchrun, every process takes its share of each batch.

    Linear head on fixed features: privmix train --data mnist --features scattering --epsilon 1.2 --delta 1e-5 \
--out MODEL

    DP-Mix: privmix train --data cifar10 --model wrn-16-4 --views dp-mix-self --epsilon 8 --delta 1e-5 --out MODEL

    Public data: privmix train ... --scenario extended --public PUBLIC --public-method multiplicity
    """
    options = replace(options, classes=class_list(options.classes))
    job = jobs.training.TrainingJob(**{item.name: getattr(options, item.name) for item in fields(options)})
    with job.processes() as world:
        planned = job.plan(world)
        if world.is_head:
            _warn(planned)
        if job.dry_run:
            _show_plan(planned, json_output)
            return
        private = planned.plan.records_declared
        with progress_bars(quiet=not world.is_head, percent=private) as progress:
            try:
                done = job.train(planned, progress)
            except jobs.training.HeadFailed:
                # The head gives the message.
                raise typer.Exit(1) from None
        if not world.is_head:
            return
        if done.not_noted is not None:
            err.print(
                f"[yellow]warning:[/] the model is written and charged, but not noted as done: {plain(done.not_noted)}",
                soft_wrap=True,
            )
        assert job.out is not None
        _show_result(done.model, job.out, json_output)


def _warn(planned: PlannedTraining) -> None:
    plan = planned.plan
    if plan.delta >= 1 / plan.records:
        err.print(f"[yellow]warning:[/] delta {exact(plan.delta)} is not below 1/records = {1 / plan.records:.3g}")
    if planned.job.seed is not None:
        err.print("[yellow]warning:[/] --seed makes the noise reproducible: this model is NOT private")


def _show_result(model: TrainedModel, folder: Path, json_output: bool) -> None:
    if json_output:
        print_json(model.certificate)
        return
    guarantee = model.certificate["guarantee"]
    out.print(
        f"trained: {plain(model.network.architecture)} to {plain(folder)}\n"
        f"guarantee: epsilon {rounded_up(guarantee['epsilon'], 4)}, delta {exact(guarantee['delta'])}, "
        f"adjacency {guarantee['adjacency']} (accountant {guarantee['accountant']})\n"
        f"next: privmix evaluate {plain(shlex.quote(str(folder)))} --data DIR --split test",
        soft_wrap=True,
    )


def _show_plan(planned: PlannedTraining, json_output: bool) -> None:
    plan, trainer = planned.plan, planned.trainer
    if json_output:
        print_json({"plan": plan.to_dict(), "epsilon": plan.cost().epsilon, "settings": trainer.settings()})
        return
    table = Table(title="plan (public; made before any private row is used)", title_justify="left", show_header=False)
    config, adjacency = trainer.config, plan.adjacency.value
    facts = {
        "model": f"{config.model}, {trainer.weights} trained",
        "records, features, classes": f"{plan.records}, {trainer.facts.dim}, {len(trainer.facts.classes)}",
        "target": f"epsilon {exact(config.epsilon)}, delta {exact(plan.delta)}, adjacency {adjacency}",
        "batches": f"Poisson, {plan.batch_size} expected, {plan.steps} steps, {plan.epochs:.4g} epochs",
        "views of a record": str(trainer.views.views),
        "clipping": f"{config.clipping}, C = {plan.clip_norm:g}, sensitivity {plan.sensitivity:g}",
        "noise multiplier": f"{plan.noise_multiplier:.5g}",
        "public data": config.scenario,
    }
    for name, value in facts.items():
        table.add_row(name, plain(value))
    out.print(table)
