"""``privmix release``: turn a private dataset into a differentially private release."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from privmix.cli.app import app, err, out, plain, print_json
from privmix.cli.design_options import design_help, design_options
from privmix.cli.flags import with_flags
from privmix.cli.options import (
    Classes,
    Colour,
    Data,
    FeatureColumn,
    FeatureLength,
    Features,
    ImageColumn,
    ImageSize,
    LabelColumn,
    NumberColumns,
    TextColumn,
)
from privmix.cli.planning import BetweenShare, Proxy, ProxyClasses, SpectrumDecay
from privmix.cli.progress import progress_bars
from privmix.designs import MomentsPlan, Plan
from privmix.jobs.columns import Columns
from privmix.jobs.planned import Planned
from privmix.jobs.release import ReleaseJob
from privmix.jobs.release_options import Assumptions
from privmix.release import Choice
from privmix.rounding import exact, rounded_up


@app.command()
def release(
    context: typer.Context,
    data: Data,
    epsilon: Annotated[float, typer.Option(help="Privacy budget, epsilon.")],
    delta: Annotated[float, typer.Option(help="Privacy budget, delta; well below 1/n.")],
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to create.")],
    features: Features = "pixels",
    design: Annotated[
        str,
        typer.Option(
            help="poisson, moments, classwise, hierarchical, fixed, random-weight; auto lets the planner choose."
        ),
    ] = "poisson",
    mixup_degree: Annotated[int, typer.Option(help=design_help("mixup_degree"))] = 64,
    rows: Annotated[int | None, typer.Option(help="Rows to release, T. Default: n; moments: at most 10,000.")] = None,
    centre: Annotated[str | None, typer.Option(help="private releases and subtracts the mean first; none.")] = None,
    noise: Annotated[str, typer.Option(help=design_help("noise"))] = "gaussian",
    clip_norm: Annotated[float, typer.Option(help="Bound on a record's feature norm.")] = 1.0,
    residual_clip_norm: Annotated[float, typer.Option(help="Bound after centring, as a share of --clip-norm.")] = 0.55,
    label_noise_ratio: Annotated[float, typer.Option(help=design_help("label_noise_ratio"))] = 1.0,
    label_share: Annotated[float, typer.Option(help=design_help("label_share"))] = 0.5,
    expected_classes: Annotated[float, typer.Option(help=design_help("expected_classes"))] = 3.0,
    full_batch: Annotated[bool, typer.Option(help=design_help("full_batch"))] = False,
    dirichlet_alpha: Annotated[float, typer.Option(help=design_help("dirichlet_alpha"))] = 1.0,
    max_weight: Annotated[float, typer.Option(help=design_help("max_weight"))] = 1.0,
    split: Annotated[str, typer.Option(help="Which part of the dataset.")] = "train",
    classes: Classes = None,
    label_column: LabelColumn = "label",
    image_column: ImageColumn = "image",
    feature_column: FeatureColumn = None,
    text_column: TextColumn = None,
    image_size: ImageSize = None,
    colour: Colour = None,
    number_columns: NumberColumns = None,
    feature_length: FeatureLength = None,
    records: Annotated[int | None, typer.Option(help="A public record count to use in place of the real one.")] = None,
    private_count: Annotated[
        bool, typer.Option("--private-count", help="The record count is private: estimate it, and pay for that.")
    ] = False,
    proxy: Proxy = None,
    proxy_classes: ProxyClasses = None,
    spectrum_decay: SpectrumDecay = None,
    between_share: BetweenShare = None,
    store: Annotated[Path | None, typer.Option(help="Keep extracted features here (private!) and reuse them.")] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Charge this ledger before reading: sqlite:///FILE or postgresql://...")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="With --ledger: the dataset's name there.")] = None,
    engine: Annotated[str, typer.Option(help="local, or ray for a cluster (moments: local).")] = "local",
    memory_gb: Annotated[
        float | None, typer.Option(help="Memory for sums and records, GiB; more is streamed. Default: half of it all.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Threads (ray: tasks at once). Default: every core.")] = None,
    ray_address: Annotated[str | None, typer.Option(help="Ray: the cluster. Default: start one here.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Finish an interrupted run with the same options.")] = False,
    seed: Annotated[
        int | None, typer.Option(help="Tests and benchmarks only: the release is then NOT private.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Show the plan; read no private row.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing --out.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the plan or certificate as JSON.")] = False,
) -> None:
    """Turn a private dataset into a differentially private release.

    The plan (design, noise, guarantee) is made from public facts before any private row is read. The result is a
    folder with Parquet shards, certificate.json and a data card; hand it to anyone. An interrupted run is finished by
    the same command with --resume, and is not charged twice.

    Example: privmix release --data mnist --features scattering --design auto --epsilon 1 --delta 1e-5 --out REL

    Texts: privmix release --data train.csv.gz --text-column text --classes 77 --features minilm --design auto ...

    Tables: privmix release --data adult --label-column income --features tabular:adult.json ...
    """
    job = ReleaseJob(
        data=data,
        epsilon=epsilon,
        delta=delta,
        out=out_folder,
        features=features,
        design=design,
        options=design_options(context),
        rows=rows,
        centre=centre,
        clip_norm=clip_norm,
        residual_clip_norm=residual_clip_norm,
        split=split,
        classes=classes,
        columns=Columns(
            label_column, image_column, feature_column, text_column, image_size, colour, number_columns, feature_length
        ),
        records=records,
        private_count=private_count,
        assumptions=Assumptions(proxy, proxy_classes, spectrum_decay, between_share),
        store=store,
        ledger=ledger,
        dataset=dataset,
        engine=engine,
        memory_gb=memory_gb,
        workers=workers,
        ray_address=ray_address,
        resume=resume,
        seed=seed,
        dry_run=dry_run,
        overwrite=overwrite,
    )
    with progress_bars() as progress:
        planned = job.plan(progress)
    for text in planned.warnings:
        err.print(f"[yellow]warning:[/] {plain(with_flags(text))}")
    if dry_run:
        _show_plan(planned, json_output)
        return
    with progress_bars(percent=records is not None or private_count) as progress:
        done = job.release(planned, progress)
    for error in done.not_noted:
        err.print(
            f"[yellow]warning:[/] the release is written and charged, but not noted as done: {plain(error)}",
            soft_wrap=True,
        )
    _show_result(planned.plan, done.certificate, out_folder, planned.choice, json_output)


def _show_result(
    plan: Plan, certificate: dict[str, Any], folder: Path, choice: Choice | None, json_output: bool
) -> None:
    if json_output:
        print_json(certificate)
        return
    guarantee = certificate["guarantee"]
    moments = isinstance(plan, MomentsPlan)
    if choice is not None:
        out.print(f"design: {plain(choice.reasons[0])}", soft_wrap=True)
    out.print(
        f"released: {'second moments and ' if moments else ''}{plan.rows} rows of {plan.dim} features to "
        f"{plain(folder)}\n"
        f"guarantee: epsilon {rounded_up(guarantee['epsilon'], 4)}, delta {exact(guarantee['delta'])}, "
        f"adjacency {guarantee['adjacency']} (accountant {guarantee['accountant']})\n"
        f"next: privmix fit {plain(shlex.quote(str(folder)))} --out MODEL",
        soft_wrap=True,
    )


def _show_plan(planned: Planned, json_output: bool) -> None:
    if json_output:
        print_json(planned.to_dict())
        return
    table = Table(title="plan (public; made before any private row is used)", title_justify="left", show_header=False)
    for name, value in planned.facts().items():
        table.add_row(name, value)
    out.print(table)
    for text in () if planned.choice is None else planned.choice.reasons:
        out.print(f"- {plain(text)}", soft_wrap=True)
